"""From a file name to a session that can be judged: file, form, engine, and a first look at its calls."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import click

from jev_engine.cli.files import Refused
from jev_engine.cli.options import protections
from jev_engine.cli.reading import SessionFile, read_session
from jev_engine.cli.show import plain, progress, warn
from jev_engine.config import EngineConfig
from jev_engine.engine import ContextEngine
from jev_engine.errors import ConfigError, StoreError, UnknownAdapter
from jev_engine.host import Adapter
from jev_engine.judges.choose import make_judge
from jev_engine.judges.weights import VERSION
from jev_engine.memory import Memories
from jev_engine.memory import default_path as memory_path
from jev_engine.passes import Pass
from jev_engine.pinning import pin
from jev_engine.plugins import Plugins
from jev_engine.settings import user_plugins
from jev_engine.store.sqlite import SqliteStore
from jev_engine.transcript import Transcript

__all__ = ["READ_ONLY", "Opened", "look", "open_session", "wait_for", "warn_of_unmatched"]

CLAUDE_CODE = "claude-code"
READ_ONLY = "sessions of this form can be read, but not written."
ROLES = ("system", "developer", "user", "assistant", "tool")
# Pins that would hide whether a pattern matches anything.
UNPINNED = {"pin_first_message": False, "pin_newest_calls": 0, "pin_newest_messages": 0, "profile": "balanced"}


# Ctrl-C cancels what is waited for and ends the command; the library's bridge would leave it running in its thread.
wait_for = asyncio.run


class Opened(NamedTuple):
    """A session with everything that is needed to judge it."""

    file: SessionFile
    adapter: Adapter
    engine: ContextEngine
    store: SqliteStore


def open_session(
    name: str,
    host: str,
    config: EngineConfig | None,
    store: str | None,
    judge: str = "local",
    endpoint: str | None = None,
) -> Opened:
    """Read a file and find out its form; raises Refused, or BadParameter for a judge that is none."""
    plugins = user_plugins()
    for broken in plugins.broken:
        warn(f"plugin {broken.name!r} does not work: {broken.reason}; until it does, nothing is asked outside")
    with progress(f"Reading {name}"):
        file = read_session(name)
    adapter = _find_adapter(file, plugins, host)
    if file.torn is not None:
        if adapter.name != CLAUDE_CODE:
            raise Refused(
                f"{file.name}: line {file.torn}, the last one, is cut off. The file may still be written: wait for its "
                "end, or take that line out in a copy."
            )
        warn(f"{file.name}: line {file.torn}, the last one, is cut off (a session that is still going on); left out")
    if file.doubled:
        names = ", ".join(repr(each) for each in sorted(file.doubled)[:5])
        warn(f"{file.name}: an object holds {names} twice; the last one counts")
    originals = SqliteStore(store)
    try:
        originals.path.exists()
    except OSError as error:
        raise click.BadParameter(f"{error.strerror}: name another file", param_hint="'--store'") from None
    try:
        chosen = make_judge(judge, endpoint, redactors=plugins.redactors)
    except ConfigError as error:
        hint = "'--endpoint'" if error.setting == "endpoint" else "'--judge'"
        raise click.BadParameter(str(error), param_hint=hint) from None
    engine = ContextEngine(config=config, store=originals, plugins=plugins, judge=chosen, memories=_memories())
    return Opened(file, adapter, engine, originals)


def _memories() -> Memories | None:
    """What `jev-engine learn` has learned, if anything; a file that cannot be used is named and left aside."""
    try:
        return Memories.load(memory_path(), VERSION)
    except StoreError as error:
        warn(f"project memory is left aside: {error}")
        return None


def _find_adapter(file: SessionFile, plugins: Plugins, host: str) -> Adapter:
    rows = file.messages
    known = ", ".join(plugins.adapter_names())
    if host != "auto":
        try:
            adapter = plugins.adapter(host)
        except UnknownAdapter:
            raise click.BadParameter(f"{host!r} is none of auto, {known}", param_hint="'--format'") from None
        found = plugins.sniff(rows) if rows else None
        if found is not None and found.name != host and not adapter.sniff(rows):
            raise Refused(f"{file.name}: has the form {found.name!r}, not {host!r}. Leave out --format.")
        return adapter
    if not rows:
        return plugins.adapter("openai")
    _refuse_mixed(file)
    found = plugins.sniff(rows)
    if found is None:
        raise Refused(
            f"{file.name}: is JSON, but in none of the known forms ({known}). A message is an object with `role` and "
            "`content`. If it is one of them all the same, name it with --format."
        )
    return found


def _refuse_mixed(file: SessionFile) -> None:
    first: dict[str, int] = {}
    for index, row in enumerate(file.messages):
        if isinstance(row, dict):
            if row.get("role") in ROLES and not isinstance(row.get("message"), dict):
                first.setdefault("a chat message", index)
            elif (
                "role" not in row and row.get("type") in ("user", "assistant") and isinstance(row.get("message"), dict)
            ):
                first.setdefault("a Claude Code row", index)
    if len(first) > 1:
        places = " and ".join(f"{file.where(index)} is {kind}" for kind, index in first.items())
        raise Refused(f"{file.name}: mixes two forms: {places}. Give the part of one form as a file of its own.")


def look(opened: Opened) -> Pass:
    """Read, measure and pin, as a pass does before anything is judged."""
    return wait_for(opened.engine.inspect(opened.file.messages, host=opened.adapter.name))


def warn_of_unmatched(transcript: Transcript, patterns: tuple[str, ...]) -> None:
    """Name patterns of --protect that match no call: most likely a slip of the pen."""
    for pattern in patterns:
        config = EngineConfig(**UNPINNED, **protections((pattern,)))
        reasons = pin(transcript, config).reasons.values()
        if not any(reason.startswith("protected") for reason in reasons):
            warn(f"--protect {plain(pattern)!r} matches no call of this session")
