"""What the engine asks of a host format: read a history, edit one message, check one edit.

An adapter is any object with these members; `jev_engine.testing.check_adapter` tells whether it keeps the contract.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from jev_engine.transcript import ToolCall, Transcript

__all__ = ["Adapter", "RowChange"]


class RowChange:
    """What a pass changes in one message."""

    __slots__ = ("removed", "results", "row")

    def __init__(
        self, row: int, results: Sequence[tuple[ToolCall, str]] = (), removed: Sequence[ToolCall] = ()
    ) -> None:
        self.row = row
        self.results = results
        """Results in this row, each with the text that replaces it."""
        self.removed = removed
        """Units of which this row holds the call, the result or both, and that leave the history."""

    def __repr__(self) -> str:
        return f"<RowChange row {self.row}: {len(self.results)} shortened, {len(self.removed)} removed>"


@runtime_checkable
class Adapter(Protocol):
    """One host format. Adapters hold no state and never change what they are given.

    An adapter may also say `host_keeps_rows = True`: its messages are made for one pass, and the host itself keeps the
    rows from before it. Originals are stored as ever; no record is made from which the whole history could be rebuilt.
    """

    name: str
    """As written after `--format` and `host=`."""

    is_read_only: bool
    """Histories can be judged but not changed: only a dry run is possible."""

    can_delete: bool
    """Calls may be removed; where False they are shortened at most."""

    edit_persists: bool
    """The host keeps what `compress` returns; where False it sends the originals again each time."""

    copies_in_call_row: bool
    """The message of a call holds a second copy of its result; both are edited alike."""

    def sniff(self, messages: Sequence[Any]) -> bool:
        """Whether a list of parsed values looks like this format; cheap."""
        ...

    def read(self, messages: Sequence[Any]) -> Transcript:
        """Read a history. Odd rows are kept and counted; raises TranscriptError only where nothing can be read."""
        ...

    def edit(self, message: Any, change: RowChange) -> Any | None:
        """A changed copy of `message`, or None where nothing of it is left."""
        ...

    def check(self, before: Any, after: Any, change: RowChange) -> str | None:
        """Name what differs between `before` and `after` beyond `change`; None where nothing does."""
        ...

    def dump(self, message: Any) -> Any:
        """The message as plain JSON values, for the store."""
        ...

    def load(self, data: Any) -> Any:
        """The message that `dump` was made from."""
        ...
