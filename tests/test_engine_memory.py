"""What was learned from a project's earlier sessions changes the numbers of the local judge, there and nowhere else."""

from __future__ import annotations

import asyncio

from jev_engine import ContextEngine
from jev_engine.memory import Memories, Remembered
from jev_engine.testing import call, history, result, user


def session(folder: str | None) -> list:
    """A history whose first row says where it was recorded."""
    rows = [user("Fix the importer.")]
    for number in range(8):
        rows += [call("read", path=f"src/part_{number}.py"), result(f"def step_{number}(row): return row\n" * 120)]
    messages = history(*rows)
    if folder is not None:
        messages[0]["cwd"] = folder
    return messages


def sum_of_p(messages: list, memories: Memories | None) -> tuple[float, bool]:
    done = asyncio.run(ContextEngine(memories=memories).compress(messages, host="openai", dry_run=True))
    return sum(d.probability.p_result for d in done.decisions), done.stats.uses_memory


def test_the_memory_of_the_project_is_used_and_said_so():
    """A project that needed little before is expected to need little."""
    memories = Memories()
    memories.put("/work/project", Remembered(1.0, -1.0, 9, {}, []))
    known, is_said = sum_of_p(session("/work/project"), memories)
    unknown, is_silent = sum_of_p(session("/work/project"), None)

    assert is_said
    assert not is_silent
    assert known < unknown


def test_another_project_and_a_history_without_a_folder_get_the_shipped_judge():
    """A cold start is the shipped judge."""
    memories = Memories()
    memories.put("/work/project", Remembered(1.0, -1.0, 9, {}, []))

    assert sum_of_p(session("/work/other"), memories) == sum_of_p(session("/work/other"), None)
    assert sum_of_p(session(None), memories) == sum_of_p(session(None), None)
