"""From a trail and a session to the pass that was made from it, and that pass once more."""

from __future__ import annotations

import copy
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from jev_engine.audit import replay
from jev_engine.audit.records import PassTold, TrailRead
from jev_engine.cli.audit_open import Given, key_of, reading
from jev_engine.cli.files import Refused
from jev_engine.cli.opening import Opened, open_session, wait_for
from jev_engine.cli.show import plain
from jev_engine.engine import ContextEngine
from jev_engine.errors import AmbiguousRecord, ConfigError, JevEngineError
from jev_engine.store.restore import earlier
from jev_engine.transcript import Transcript

if TYPE_CHECKING:
    from jev_engine.audit.digests import Keyed
    from jev_engine.config import EngineConfig
    from jev_engine.result import CompressionResult

__all__ = ["Found", "again", "find", "settings_for"]


class Found(NamedTuple):
    """A pass and what it was made from."""

    opened: Opened
    trail: TrailRead
    told: PassTold
    input: list[Any]
    key: bytes | None
    """The key here, which may be another one."""
    is_input: bool
    """The pass was made from it; otherwise it is what was given."""
    is_rebuilt: bool
    """It comes out of the store."""

    def __repr__(self) -> str:
        # Without the history and the key.
        return f"<Found pass {self.told.id[:12]}, made from {len(self.input)} messages: {self.is_input}>"

    @property
    def keyed(self) -> Keyed | None:
        """Makes digests with the pass's own key; None where that is not here."""
        return replay.digests_of(self.told, self.key)

    @property
    def chars(self) -> dict[str, int]:
        """Lengths of the originals that passes of the trail took out, by reference."""
        passes = self.trail.passes.values()
        return {unit.reference: unit.chars for told in passes for unit in told.out if unit.reference}


def find(given: Given, name: str, host: str, pass_id: str | None) -> Found | None:
    """The pass that was made from a session, or from an earlier state of it: the newest, unless one is named.

    A named one is given in any case; None where none is named and none fits. Raises Refused.
    """
    trail = reading(given)
    named = None if pass_id is None else _named(trail, pass_id)
    newest_first = [told for told in reversed(trail.passes.values()) if told.started is not None]
    passes = newest_first if named is None else [named]
    opened, key = open_session(name, host, None, given.store), key_of(given)
    search = _Search(opened, trail, key)
    try:
        found = wait_for(search.look([told for told in passes if replay.is_decided(told)]))
        if found is None and named is None:
            found = wait_for(search.look([told for told in passes if not replay.is_decided(told)]))
    except JevEngineError as error:
        raise Refused(f"{name}: {error}") from None
    if found is None and named is not None:
        found = Found(opened, trail, named, opened.file.messages, key, is_input=False, is_rebuilt=False)
    if found is not None and not replay.is_decided(found.told):
        raise Refused(f"pass {found.told.id[:12]} has no decisions that could be made again, or not all of them are in "
                      f"the trail; it ended so: {plain(found.told.outcome)}")  # fmt: skip
    return found


def _named(trail: TrailRead, pass_id: str) -> PassTold:
    try:
        told = trail.find(pass_id)
    except JevEngineError as error:
        raise Refused(str(error)) from None
    if told.started is None:
        raise Refused("the start of this pass is no longer in the trail, so its settings are not known")
    return told


class _Search:
    """Looks for the pass that a history is the input of."""

    def __init__(self, opened: Opened, trail: TrailRead, key: bytes | None) -> None:
        self._opened = opened
        self._trail = trail
        self._key = key

    async def look(self, passes: list[PassTold], chosen: int | None = None) -> Found | None:
        """The first of these passes that was made from the session as it is, or before its last pass, and so on.

        Where several records of the store lead back, the trail tells which: `chosen` is the one that is tried.
        """
        opened, is_rebuilt = self._opened, False
        try:
            async for state in earlier(opened.file.messages, opened.store, opened.adapter, chosen=chosen):
                found = await self._in_state(state, passes, is_rebuilt=is_rebuilt)
                if found is not None:
                    return found
                is_rebuilt = True
        except AmbiguousRecord as error:
            if chosen is not None:
                return None
            for number in error.numbers:
                found = await self.look(passes, number)
                if found is not None:
                    return found
        return None

    async def _in_state(self, state: list[Any], passes: list[PassTold], *, is_rebuilt: bool) -> Found | None:
        rows = [call.row for call in self._opened.adapter.read(state).calls]
        seen: dict[tuple[int, int], Transcript] = {}
        for told in passes:
            started = told.started
            assert started is not None  # noqa: S101  # those without a start are left out before
            count = started.messages
            # Cheap to find out, and enough to tell most passes apart.
            if count > len(state) or bisect_left(rows, count) != started.calls:
                continue
            found = Found(
                self._opened, self._trail, told, state[:count], self._key, is_input=True, is_rebuilt=is_rebuilt
            )
            if replay.is_made_from(told, await self._read(found, seen), found.keyed):
                return found
        return None

    async def _read(self, found: Found, seen: dict[tuple[int, int], Transcript]) -> Transcript:
        """The input with what of it is our own work; how long that may be is up to the settings."""
        try:
            config = replay.config_of(found.told)
        except ConfigError:
            config = self._opened.engine.config
        which = len(found.input), config.head_chars + config.outcome_chars
        if which not in seen:
            seen[which] = await _transcript(found, config)
        return seen[which]


async def _transcript(found: Found, config: EngineConfig) -> Transcript:
    engine = found.opened.engine.with_config(config)
    engine.store = replay.RecordedStore({}, found.chars, found.opened.store)
    return (await engine.inspect(found.input, host=found.opened.adapter.name)).transcript


def settings_for(found: Found, **other: Any) -> EngineConfig:
    """The settings of the pass, with others in their place; raises BadParameter or Refused, which name the setting."""
    try:
        return replay.config_of(found.told, **other)
    except ConfigError as error:
        if error.setting in other:
            raise click.BadParameter(str(error), param_hint=f"'--{error.setting.replace('_', '-')}'") from None
        raise Refused(f"this version cannot have the settings of the pass: {error}") from None


def again(found: Found, config: EngineConfig) -> CompressionResult:
    """The pass once more under these settings: from its input and recorded answers, asking and telling nobody."""
    started, host = found.told.started, found.opened.adapter.name
    assert started is not None  # noqa: S101  # looked at before
    engine = found.opened.engine
    plugins = copy.copy(engine.plugins)
    # What was pinned then is pinned now, whatever rules there are; and no sink of anybody hears of it.
    plugins.pins, plugins.sinks = [replay.pin_rule(found.told.units)], []

    async def run() -> CompressionResult:
        calls = (await _transcript(found, config)).calls
        anew = ContextEngine(
            config=config,
            judge=replay.judge_of(found.told, config),
            store=replay.store_of(found.told, calls, found.chars, found.opened.store),
            plugins=plugins,
            memories=engine.memories,
        )
        return await anew.compress(
            found.input,
            started.tokens,
            force=started.is_forced,
            host=host,
            dry_run=started.is_dry or found.opened.adapter.is_read_only,
            cache_is_cold=started.cache_is_cold,
        )

    return wait_for(run())
