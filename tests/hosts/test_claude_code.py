"""The plugin inside the real Claude Code, in front of a Messages API on loopback."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
from hosts.claude_code_lab import ROOT, blocks, broken_pairs, opened_lab, reading, results, texts, thinking

from jev_engine_adapters.claude_code import adapter

pytestmark = pytest.mark.slow

PROMPT = reading(8, "bash echo a &&& bash echo b ;; text Read them all.")
WINDOW = {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "100000"}
"""Claude Code compacts by itself from about 67,000 tokens on."""
HERE = "SCRIPT: text Still here."
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c63000100000500010d0a2db400"
    "00000049454e44ae426082"
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A session that has read eight large files; tests work on copies of it."""
    with opened_lab(tmp_path_factory.mktemp("plugin")) as made:
        made.first = made.run(PROMPT)
        yield made


@pytest.fixture(scope="module")
def compacted(lab):
    """A copy of it that was compacted by a process of its own."""
    return lab.fork("/compact", "--debug-file", str(lab.home / "debug.log"))


@pytest.fixture
def own_lab(tmp_path):
    """A lab of a test's own."""
    with opened_lab(tmp_path) as made:
        yield made


def marked(messages):
    """How many results are out."""
    return sum("[jev-engine: result of" in text for text in results(messages))


def test_a_manual_compaction_needs_no_summary_and_survives_resume(lab, compacted):
    """Three processes; the third begins with what the second left."""
    before = lab.first.messages

    after = lab.fork(HERE, of=compacted.session)

    assert compacted.requests == []
    assert after.result == "Still here."
    assert broken_pairs(after.messages) == []
    assert marked(after.messages) >= 4
    assert len(blocks(after.messages, "tool_use")) == len(blocks(before, "tool_use"))
    assert len(set(thinking(after.messages))) == len(thinking(after.messages))
    assert PROMPT in texts(after.messages)
    assert "Read them all." in texts(after.messages)
    assert len(after.requests[-1].body) < 0.6 * len(lab.first.requests[-1].body)


def test_an_automatic_compaction_happens_between_two_steps_of_a_turn(own_lab):
    """The turn goes on, and the next process sees the same."""
    own_lab.api.input_tokens = lambda request: len(str(request["messages"]))

    turn = own_lab.run(PROMPT, env=WINDOW)
    after = own_lab.run(HERE, env=WINDOW)

    assert turn.result == "Read them all."
    assert turn.summaries == after.summaries == 0
    assert any(row.get("subtype") == "compact_boundary" for row in own_lab.rows())
    assert marked(after.messages) >= 2
    assert broken_pairs(after.messages) == []


def test_the_agent_reads_an_original_again_byte_for_byte(lab, compacted):
    """By the tool that the marker names, and in a copy of the session that goes on under another name."""
    script = 'SCRIPT: tool mcp__jev-engine__expand {"id": "$REFERENCE"} ;; text Got it.'

    read = lab.fork(script, of=compacted.session)

    original = (lab.project / "big0.txt").read_text(encoding="utf-8")
    assert read.result == "Got it."
    assert results(read.messages)[-1].startswith(original)
    assert "this is the whole original" in results(read.messages)[-1]


def test_what_the_host_writes_is_read_as_what_the_model_sees(lab, compacted):
    """A boundary without anchors, rows with new ids: our reader finds the same calls and texts as the request has."""
    after = lab.fork(HERE, of=compacted.session)

    transcript = adapter.read(lab.rows(after.session))

    ids = [block["tool_use_id"] for block in blocks(after.messages, "tool_result")]
    sent = dict(zip(ids, results(after.messages), strict=True))
    assert {call.call_id: call.result for call in transcript.calls} == sent
    assert {call.anomaly for call in transcript.calls} == {None}
    assert next(entry.text for entry in transcript.entries if entry.is_human) == PROMPT


def test_the_lines_for_the_user_reach_the_log(lab, compacted):
    """As a person sees them in the terminal, and as `claude --debug` writes them."""
    log = (lab.home / "debug.log").read_text(encoding="utf-8")

    assert compacted.requests == []
    assert re.search(r"\d+ of \d+ messages kept; \d+% less; \d+ results shortened", log)
    assert "decisions: t1:Bash:truncate" in log
    assert "rows of thinking only are not carried over" in log


def test_the_command_shows_what_is_out_and_pins_what_must_stay(lab):
    """And a pin holds in the next process."""
    pinned = lab.fork("/jev pin *big3.txt*")
    compacted = lab.fork("/compact", of=pinned.session)
    shown = lab.fork("/jev out line of file 0", of=compacted.session)
    after = lab.fork(HERE, of=compacted.session)

    assert "stay as they are" in pinned.result
    assert "some words that fill it" in shown.result
    assert [text[:16] for text in results(after.messages) if "of file 3" in text[:40]] == ["line 0 of file 3"]
    assert marked(after.messages) >= 4


def test_what_a_skill_says_is_not_lost(lab):
    """Its text stands in a row that no plugin is shown."""
    skill = lab.home / ".claude" / "skills" / "greet" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: greet\ndescription: how\n---\n\n# Greeting\n\nSay it in verse.\n", encoding="utf-8")
    loaded = lab.fork('SCRIPT: tool Skill {"skill": "greet"} ;; text Loaded.', "--allowedTools", "Skill,Bash")
    compacted = lab.fork("/compact", of=loaded.session)

    after = lab.fork(HERE, of=compacted.session)

    assert compacted.requests == []
    assert sum("Say it in verse." in text for text in results(after.messages)) == 1


def test_an_image_is_named_where_it_stood(lab):
    """It is in the session file, and the tool can be called again."""
    (lab.project / "shot.png").write_bytes(PNG)
    seen = lab.fork(f"SCRIPT: read {lab.project / 'shot.png'} ;; text Seen.")
    compacted = lab.fork("/compact", of=seen.session)

    after = lab.fork(HERE, of=compacted.session)

    assert any("could not be carried over; it is in" in text for text in results(after.messages))
    assert broken_pairs(after.messages) == []


def test_the_recipe_for_the_agent_sdk_compacts_in_its_own_process(own_lab):
    """As docs/claude-code.md shows it."""
    env = {**own_lab.env, "PATH": f"{own_lab.command.parent}:{own_lab.env['PATH']}"}
    recipe = ROOT / "examples" / "claude_agent_sdk_agent.py"
    argv = [str(own_lab.python), str(recipe), PROMPT, "/compact", HERE]
    with subprocess.Popen(argv, cwd=own_lab.project, env=env, stdout=subprocess.PIPE, text=True) as process:
        said, _ = process.communicate(timeout=90)

    running = json.loads((own_lab.runtime / "engine.json").read_text(encoding="utf-8"))
    assert said.splitlines() == ["answer: Read them all.", "compacted: manual", "answer: ", "answer: Still here."]
    assert running["pid"] == process.pid
    assert own_lab.api.summaries == []
    assert marked(own_lab.api.turns[-1].json()["messages"]) >= 4
