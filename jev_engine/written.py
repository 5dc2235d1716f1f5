"""The text of a session file, message by message: an edit changes what it has to, and every other sign stays.

Numbers keep their digits, names that stand twice stay twice, and line ends and blank lines are what they were.

>>> text = '[{"cost": 1.10, "text": "long"}, {"cost": -0}]'
>>> session = Written.of(text, [(1, 31), (33, 45)], [{"cost": 1.1, "text": "long"}, {"cost": 0}])
>>> session.with_messages([{"cost": 1.1, "text": "short"}, session.messages[1]], [0, 1]).text
'[{"cost": 1.10, "text": "short"}, {"cost": -0}]'
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["Entry", "Row", "Style", "Written", "entries_of", "origins_of", "patched"]

SURROGATE = re.compile("[\ud800-\udfff]")
FIRST_INDENT = re.compile(r"\A\s*[\[{]\r?\n([ \t]+)\S")
FIRST_KEY = re.compile(r'"(?:[^"\\]|\\.){0,200}"\s*:( ?)')
SPACE = re.compile(r"[ \t\n\r]*")
STYLE_CHARS, KEY_CHARS = 100_000, 10_000
"""Of a text so much is looked at for its line ends, and for the first name in it."""

_scan: Callable[[str, int], tuple[Any, int]] = vars(json.JSONDecoder())["scan_once"]
"""The C scanner behind `json.loads`: a value from a place on, and where it ends."""
_exact = json.JSONEncoder().encode
"""Two values are the same where this is: unlike `==` it tells 1 from 1.0 and true, and knows NaN again."""


class Style(NamedTuple):
    """How a file writes its JSON."""

    indent: str | None
    is_compact: bool
    is_ascii: bool
    line_end: str

    @classmethod
    def of(cls, text: str, *, is_lines: bool) -> Style:
        """The style a text is written in, as far as it shows."""
        indent = None if is_lines else FIRST_INDENT.match(text)
        key = FIRST_KEY.search(text[:KEY_CHARS])
        line_end = "\r\n" if "\r\n" in text[:STYLE_CHARS] else "\n"
        return cls(indent.group(1) if indent else None, key is not None and not key.group(1), text.isascii(), line_end)

    def dump(self, value: Any, margin: str = "") -> str:
        """The value as JSON text in this style, its further lines behind a margin."""
        item, key = ("," if self.is_compact or self.indent else ", "), (":" if self.is_compact else ": ")
        text = json.dumps(value, ensure_ascii=self.is_ascii, indent=self.indent, separators=(item, key))
        if not self.is_ascii:
            # Half a surrogate pair has no UTF-8 form; as an escape it comes back as it was.
            text = SURROGATE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)
        return text if self.indent is None else text.replace("\n", self.line_end + margin)


class Row(NamedTuple):
    """A message as it is written."""

    before: str
    """What stands between it and the message before it; nothing for the first."""
    text: str


class Written:
    """A session's text, cut at its messages. Treat it as frozen."""

    def __init__(self, head: str, rows: list[Row], tail: str, messages: Sequence[Any], *, is_lines: bool) -> None:
        self.head = head
        self.rows = rows
        self.tail = tail
        self.messages = messages
        self.is_lines = is_lines
        """One message a line; otherwise they stand in a list."""
        self.text = "".join([head, *(part for row in rows for part in row), tail])
        self.style = Style.of(self.text, is_lines=is_lines)

    @classmethod
    def of(
        cls, text: str, spans: Sequence[tuple[int, int]], messages: Sequence[Any], *, is_lines: bool = False
    ) -> Written:
        """The text with its messages at these places, which follow one another."""
        starts, ends = [start for start, _ in spans], [end for _, end in spans]
        gaps = ["", *(text[end:start] for end, start in zip(ends[:-1], starts[1:], strict=True))]
        rows = [Row(gap, text[start:end]) for gap, (start, end) in zip(gaps, spans, strict=False)]
        head, tail = (text[: starts[0]], text[ends[-1] :]) if spans else (text, "")
        return cls(head, rows, tail, messages, is_lines=is_lines)

    def with_messages(
        self, messages: Sequence[Any], origins: Sequence[int | None], exact: Mapping[int, Row] | None = None
    ) -> Written:
        """The session with these messages instead.

        `origins` are the places they had here, None for one that was not here. `exact` says how some are written,
        whatever they come from; what is no text of such a message, or would not fit in here, is passed over.
        """
        gap = self._gap()
        margin = gap[len(gap.rstrip(" \t")) :] if "\n" in gap else ""
        rows: list[Row] = []
        for place, (message, origin) in enumerate(zip(messages, origins, strict=True)):
            known = (exact or {}).get(place)
            if known is not None and self._fits(known, message, is_first=not place):
                rows.append(known)
                continue
            old = Row(gap, "") if origin is None else self.rows[origin]
            if origin is None:
                text = self.style.dump(message, margin)
            elif message is self.messages[origin]:
                text = old.text
            else:
                text = patched(old.text, self.messages[origin], message, lambda v: self.style.dump(v, margin))
            rows.append(Row((old.before or gap) if place else "", text))
        return Written(self.head, rows, self.tail, messages, is_lines=self.is_lines)

    def unlike(self, other: Written) -> list[tuple[int, str, str]]:
        """The messages that are written in another way than in `other`: place, and the two parts of their `Row`."""
        pairs = enumerate(zip(self.rows, other.rows, strict=True))
        return [(place, *mine) for place, (mine, others) in pairs if mine != others]

    def _gap(self) -> str:
        """What stands between two messages, mostly."""
        gaps = Counter(row.before for row in self.rows[1:])
        if gaps:
            return gaps.most_common(1)[0][0]
        if self.is_lines:
            return self.style.line_end
        margin = self.head[len(self.head.rstrip()) :]
        return f",{margin}" if "\n" in margin else "," if self.style.is_compact else ", "

    def _fits(self, row: Row, message: Any, *, is_first: bool) -> bool:
        between = "" if is_first or self.is_lines else ","
        if row.before.strip() != between or (self.is_lines and not is_first and "\n" not in row.before):
            return False
        if self.is_lines and len(self.messages) > 1 and "\n" in row.text:
            return False
        return _is_text_of(row.text, message)


class Entry(NamedTuple):
    """One item of a list or object, by places in the text."""

    name: str | None
    start: int
    value: int
    """Where its value begins; in a list, where it begins itself."""
    end: int


def entries_of(text: str, at: int) -> list[Entry]:
    """What the list or object holds that begins at `at`; the text has to be sound.

    >>> entries_of('[1.50, "b"]', 0)[0]
    Entry(name=None, start=1, value=1, end=5)
    """
    is_object = text[at] == "{"
    found: list[Entry] = []
    at = _space(text, at + 1)
    while text[at] not in "]}":
        if found:
            at = _space(text, at + 1)
        start, name = at, None
        if is_object:
            name, at = _scan(text, at)
            at = _space(text, _space(text, at) + 1)
        _, end = _scan(text, at)
        found.append(Entry(name, start, at, end))
        at = _space(text, end)
    return found


def origins_of(index_map: Sequence[int | None], count: int) -> list[int | None]:
    """For each of `count` rows of a pass's output its row in the input, from the input's map to the output.

    >>> origins_of([0, None, 1], 2)
    [0, 2]
    """
    origins: list[int | None] = [None] * count
    for row, place in enumerate(index_map):
        if place is not None:
            origins[place] = row
    return origins


def patched(text: str, before: Any, after: Any, dump: Callable[[Any], str]) -> str:
    """The text of `before`, changed to one of `after` where the two differ and nowhere else.

    >>> patched('{"n": 1.50, "t": "a"}', {"n": 1.5, "t": "a"}, {"n": 1.5, "t": "b"}, json.dumps)
    '{"n": 1.50, "t": "b"}'
    """
    pieces: list[str] = []
    at = 0
    for start, end, new in sorted(_edits(text, _space(text, 0), len(text), before, after, dump)):
        pieces += text[at:start], new
        at = end
    made = "".join([*pieces, text[at:]])
    # What was read here once more is what will be read from the file: on any doubt all of it is written anew.
    return made if _is_text_of(made, after) else dump(after)


def _edits(
    text: str, at: int, end: int, before: Any, after: Any, dump: Callable[[Any], str]
) -> Iterator[tuple[int, int, str]]:
    """Places of the text and what stands there instead."""
    if before is after or _exact(before) == _exact(after):
        return
    if isinstance(before, dict) and isinstance(after, dict) and [name for name in before if name in after] == [*after]:
        entries = entries_of(text, at)
        # Of a name that stands twice, readers take the last.
        last = {entry.name: entry for entry in entries}
        for entry in entries:
            if entry.name in after and entry is last[entry.name]:
                yield from _edits(text, entry.value, entry.end, before[entry.name], after[entry.name], dump)
        yield from _deletions(entries, [entry.name not in after for entry in entries])
    elif isinstance(before, list) and isinstance(after, list) and (places := _places(before, after)) is not None:
        entries = entries_of(text, at)
        for place, item in zip(places, after, strict=True):
            yield from _edits(text, entries[place].value, entries[place].end, before[place], item, dump)
        yield from _deletions(entries, [place not in places for place in range(len(before))])
    else:
        yield at, end, dump(after)


def _places(before: Sequence[Any], after: Sequence[Any]) -> Sequence[int] | None:
    """Where the items of a list stood before others of it went; None where that cannot be.

    An item that was not there is another one changed: the first behind those that are placed.
    """
    if len(after) == len(before):
        return range(len(after))
    known = [_exact(item) for item in before]
    places: list[int] = []
    at = 0
    for item in after:
        exact = _exact(item)
        place = known.index(exact, at) if exact in known[at:] else at
        places.append(place)
        at = place + 1
    return places if at <= len(before) else None


def _deletions(entries: Sequence[Entry], gone: Sequence[bool]) -> Iterator[tuple[int, int, str]]:
    """Entries go with the comma before them, or behind them where no entry before them stays."""
    is_behind = False
    for place, entry in enumerate(entries):
        if not gone[place]:
            is_behind = True
        elif is_behind:
            yield entries[place - 1].end, entry.end, ""
        else:
            yield entry.start, entries[place + 1].start if place + 1 < len(entries) else entry.end, ""


def _is_text_of(text: str, value: Any) -> bool:
    try:
        return _exact(json.loads(text)) == _exact(value)
    except ValueError:
        return False


def _space(text: str, at: int) -> int:
    found = SPACE.match(text, at)
    return found.end() if found else at
