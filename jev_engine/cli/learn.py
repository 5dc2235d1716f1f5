"""`jev-engine learn`: fit the local judge to the user's own projects, from their finished sessions."""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from jev_engine.cli.files import Refused
from jev_engine.cli.reading import read_session

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jev_engine.evaluate.learning import Gain, Recording
    from jev_engine.memory import Memories

__all__ = ["learn"]

SESSIONS = "~/.claude/projects"
"""Where Claude Code keeps its sessions."""
ENDINGS = (".jsonl", ".json")
FINISHED_SECONDS = 3_600
"""A file that changed within the hour may belong to a session that is still going on."""


LEFT_OUT = "\0"
"""Stands before a reason: no folder begins with it."""


class Learned(NamedTuple):
    """What one project gained."""

    folder: str
    sessions: int
    new: int
    slope: float
    intercept: float
    before: Gain
    after: Gain


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(exists=True, path_type=Path))
@click.option("--project", metavar="FOLDER", help="The project of sessions that do not record a folder.")
@click.option("--forget", is_flag=True, help="Remove everything that was learned.")
@click.option("--json", "as_json", is_flag=True, help="Print what was learned as JSON, without names of folders.")
def learn(paths: tuple[Path, ...], project: str | None, *, forget: bool, as_json: bool) -> None:
    """Fit the local judge to your own projects: two numbers each, from what their finished sessions needed later.

    Reads session files and folders of them, the Claude Code sessions by default. Only new sessions are read in; nothing
    leaves this machine, no text is kept, and no model is asked. It pays from about six sessions of a project.

    \b
    Examples:
      jev-engine learn
      jev-engine learn sessions/ --project ~/work/site
      jev-engine learn --forget
    """  # noqa: D301  # \b keeps click from wrapping the examples
    from jev_engine.judges import weights  # noqa: PLC0415  # the command answers --help at once
    from jev_engine.memory import Memories, default_path  # noqa: PLC0415

    file = default_path()
    if forget:
        existed = file.exists()
        file.unlink(missing_ok=True)
        click.echo(f"Removed {file}" if existed else "There was nothing to forget.")
        return
    memories = Memories.load(file, weights.VERSION)
    groups, left_out = _sort(_files(paths), memories, project)
    learned = [
        done for folder, files in sorted(groups.items()) if (done := _learn(memories, folder, files)) is not None
    ]
    if groups:
        memories.save(file)
    if as_json:
        click.echo(json.dumps(_as_json(learned, left_out, memories), indent=1))
        return
    _show(learned, left_out)
    if learned:
        click.echo(f"Kept in {file}; `jev-engine learn --forget` removes it.", err=True)


def _files(paths: Iterable[Path]) -> list[Path]:
    """Session files among the paths, oldest first."""
    chosen = list(paths)
    if not chosen:
        default = Path(SESSIONS).expanduser()
        if not default.is_dir():
            raise Refused(f"there are no Claude Code sessions in {SESSIONS}: name session files or a folder of them.")
        chosen = [default]
    found: list[Path] = []
    for path in chosen:
        found += [f for ending in ENDINGS for f in path.rglob(f"*{ending}")] if path.is_dir() else [path]
    return sorted(set(found), key=lambda path: (_changed_at(path), path))


def _changed_at(path: Path) -> float:
    """When a file last changed; a link that leads nowhere, or a file that has just gone, is as old as can be."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _sort(
    files: Iterable[Path], memories: Memories, project: str | None
) -> tuple[dict[str, list[Path]], dict[str, int]]:
    """New session files by project, and how many others were left out, by reason."""
    groups: dict[str, list[Path]] = defaultdict(list)
    left_out: dict[str, int] = defaultdict(int)
    for path in files:
        outcome = _project_of(path, memories, project)
        if outcome.startswith(LEFT_OUT):
            left_out[outcome.removeprefix(LEFT_OUT)] += 1
        else:
            groups[outcome].append(path)
    return dict(groups), dict(left_out)


def _project_of(path: Path, memories: Memories, project: str | None) -> str:
    """The folder a session was recorded in, or why it is left out."""
    from jev_engine.memory import folder_of  # noqa: PLC0415

    if time.time() - _changed_at(path) < FINISHED_SECONDS:
        return LEFT_OUT + "changed within the last hour"
    try:
        messages = read_session(str(path)).messages
    except (Refused, RecursionError):
        return LEFT_OUT + "not a session"
    folder = folder_of(messages) or (None if project is None else str(Path(project).expanduser().absolute()))
    if folder is None:
        return LEFT_OUT + ("no folder recorded (name one with --project)" if _is_session(messages) else "not a session")
    known = memories.get(folder)
    if known is not None and _name(path, memories) in known.seen:
        return LEFT_OUT + "learned before"
    return folder if _is_session(messages) else LEFT_OUT + "not a session"


def _is_session(messages: list[Any]) -> bool:
    from jev_engine.settings import user_plugins  # noqa: PLC0415

    return user_plugins().sniff(messages) is not None


def _name(path: Path, memories: Memories) -> str:
    return memories.digest(str(path.absolute()))


def _read(paths: Iterable[Path]) -> Iterator[Recording]:
    """The sessions in these files, one at a time: together they would not fit."""
    from jev_engine.errors import JevEngineError  # noqa: PLC0415
    from jev_engine.evaluate.learning import Recording  # noqa: PLC0415
    from jev_engine.settings import user_plugins  # noqa: PLC0415

    plugins = user_plugins()
    for path in paths:
        messages = read_session(str(path)).messages
        adapter = plugins.sniff(messages)
        if adapter is None:
            continue
        try:
            transcript = adapter.read(messages)
        except JevEngineError as error:
            click.echo(f"Warning: {path.name} was left out: {error}", err=True)
            continue
        yield Recording(path.name, messages, adapter, transcript)


def _learn(memories: Memories, folder: str, paths: list[Path]) -> Learned | None:
    """Add the new sessions of one project to its memory."""
    from jev_engine.evaluate import learning  # noqa: PLC0415
    from jev_engine.evaluate.memory import ProjectMemory  # noqa: PLC0415
    from jev_engine.memory import Remembered  # noqa: PLC0415

    known = memories.get(folder)
    memory = ProjectMemory() if known is None else ProjectMemory.from_dict(known.counts)
    is_common = learning.is_common_in(_read(paths), folder)
    rows = [learning.label_recording(recording, is_common) for recording in _read(paths)]
    before, after = learning.learn(memory, rows)
    seen = [*(known.seen if known else []), *[_name(path, memories) for path in paths]]
    slope, intercept = memory.fit()
    memories.put(folder, Remembered(slope, intercept, memory.sessions, memory.as_dict(), seen))
    if not before:
        return None
    new = sum(bool(each) for each in rows)
    gains = learning.measure(before), learning.measure(after)
    return Learned(folder, memory.sessions, new, slope, intercept, *gains)


def _as_json(learned: list[Learned], left_out: dict[str, int], memories: Memories) -> dict[str, Any]:
    projects = [
        {**done._asdict(), "folder": memories.digest(done.folder), "before": done.before._asdict(),
         "after": done.after._asdict()}
        for done in learned
    ]  # fmt: skip
    return {"projects": projects, "left_out": left_out}


def _lines(learned: list[Learned]) -> Iterator[list[str]]:
    for done in learned:
        before, after = done.before, done.after
        yield [
            done.folder,
            f"{done.sessions} ({done.new} new)",
            f"{before.rows:,}",
            f"{before.needed / before.rows:.1%}",
            f"{before.log_loss:.4f} → {after.log_loss:.4f}",
            f"{before.ece:.4f} → {after.ece:.4f}",
            f"{before.predicted:.0f} → {after.predicted:.0f} of {before.needed}",
        ]


def _show(learned: list[Learned], left_out: dict[str, int]) -> None:
    from rich import box  # noqa: PLC0415  # costs 60 ms
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from jev_engine.cli.show import console_for, emit, plain  # noqa: PLC0415

    if learned:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        table.add_column("Project", overflow="fold")
        for name in ("Sessions", "Results", "Needed", "Log loss", "Calibration error", "Expected misses"):
            table.add_column(name, justify="right")
        for line in _lines(learned):
            table.add_row(*[Text(plain(cell)) for cell in line])
        note = "Before: the shipped judge. After: each new session with the memory of those before it only."
        emit(console_for(sys.stdout), table, Text(note))
    else:
        click.echo("Nothing new was learned.")
    for reason, count in left_out.items():
        click.echo(f"Left out: {count:,} {reason}.", err=True)
