"""Session files, read in any container.

Containers: a JSON list of messages, a JSON object with a `messages` list, and JSON Lines with one message or row each.
"""

from __future__ import annotations

import codecs
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from jev_engine.cli.files import Refused
from jev_engine.written import Row, Written, entries_of, origins_of

if TYPE_CHECKING:
    from jev_engine.store.restore import Restored

__all__ = ["MOST_BYTES", "SessionFile", "read_session"]

MOST_BYTES = 512 * 1024 * 1024
"""Larger files are refused: parsed, they take about five times their size in memory."""
BINARY_PROBE_BYTES = 8_192
"""A file with a NUL among its first bytes is no session."""
ENCODINGS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
"""By the byte order mark a file begins with; without one it is UTF-8."""
UTF16_STARTS = (b"[\0", b"{\0", b"\0[", b"\0{")
"""JSON in UTF-16 without a byte order mark begins so."""


class SessionFile:
    """A session as read from a file."""

    def __init__(self, name: str, raw: bytes, written: Written, encoding: Encoding) -> None:
        self.name = name
        """As shown in messages."""
        self.raw = raw
        self.messages = list(written.messages)
        self.written = written
        self.encoding = encoding
        self.numbers: list[int] = []
        """For each message its line in the file, where it is in JSON Lines."""
        self.torn: int | None = None
        """Number of a last line that was cut off and left out."""
        self.doubled: set[str] = set()
        """Names that occur twice in one object; JSON readers take the last."""

    @property
    def container(self) -> Literal["list", "object", "lines"]:
        """What the messages stand in."""
        if self.written.is_lines:
            return "lines"
        return "list" if self.written.head.lstrip().startswith("[") else "object"

    def where(self, index: int) -> str:
        """Where a message stands, in words."""
        return f"line {self.numbers[index]}" if self.numbers else f"message {index + 1}"

    def dump(self, messages: Sequence[Any], index_map: Sequence[int | None]) -> bytes:
        """The session with these messages instead; `index_map` leads from the rows of the file to them."""
        return self.encoding.encode(self.written.with_messages(messages, origins_of(index_map, len(messages))).text)

    def restored(self, done: Restored) -> bytes:
        """The session with its originals back, each pass undone in the text as it was in the messages."""
        written = self.written
        for messages, record in done.steps:
            exact = {row: Row(before, text) for row, before, text in record.written}
            written = written.with_messages(messages, record.origins(len(messages)), exact)
        # What single markers brought back stands where the marker stood.
        return self.encoding.encode(written.with_messages(done.messages, range(len(done.messages))).text)

    def unlike_restored(self, messages: Sequence[Any], index_map: Sequence[int | None]) -> list[tuple[int, str, str]]:
        """Rows whose text cannot be told from the file that `dump` makes and what they hold; for `PassRecord.written`.

        Those are numbers and escapes in what leaves the file, and blanks between rows that leave it.
        """
        shorter = self.written.with_messages(messages, origins_of(index_map, len(messages)))
        return self.written.unlike(shorter.with_messages(self.messages, index_map))


class Encoding(NamedTuple):
    """How the text of a file becomes bytes."""

    mark: bytes
    name: str

    def encode(self, text: str) -> bytes:
        """The bytes of a file with this text."""
        return self.mark + text.encode(self.name)


UTF8 = Encoding(b"", "utf-8")


def read_session(name: str) -> SessionFile:
    """Read a session file, `-` for standard input; raises Refused."""
    shown = "standard input" if name == "-" else name
    raw = _load(name, shown)
    text, encoding = _decode(raw, shown)
    body = text.strip()
    if not body:
        raise Refused(f"{shown}: the file is empty. Give a session: a JSON list of messages, or one row a line.")
    reader = _Reader(shown)
    first, _, rest = body.partition("\n")
    if rest and isinstance(reader.try_read(first), dict):
        return _read_lines(raw, text, encoding, reader)
    value = reader.read(text)
    start = len(text) - len(text.lstrip())
    if isinstance(value, dict) and not isinstance(value.get("messages"), list) and ("role" in value or "type" in value):
        # One row, over however many lines.
        file = SessionFile(shown, raw, Written.of(text, [(start, start + len(body))], [value], is_lines=True), encoding)
        file.numbers = [1]
    else:
        messages, at = _list_in(value, text, start, shown)
        spans = [(entry.start, entry.end) for entry in entries_of(text, at)]
        file = SessionFile(shown, raw, Written.of(text, spans, messages), encoding)
    file.doubled = reader.doubled
    return file


def _list_in(value: Any, text: str, start: int, shown: str) -> tuple[list[Any], int]:
    """The messages of a file in one piece, and where their list begins; raises Refused."""
    if isinstance(value, list):
        return value, start
    if isinstance(value, dict) and isinstance(value.get("messages"), list):
        return value["messages"], [entry.value for entry in entries_of(text, start) if entry.name == "messages"][-1]
    what = "an object without a `messages` list" if isinstance(value, dict) else f"one {_kind(value)}"
    raise Refused(
        f"{shown}: holds {what}, not a session. Give a JSON list of messages, an object with a `messages` list, "
        "or one message a line."
    )


def _kind(value: Any) -> str:
    names = {"str": "text", "NoneType": "null", "bool": "truth value"}
    return names.get(type(value).__name__, "number")


def _load(name: str, shown: str) -> bytes:
    try:
        if name == "-":
            return _limited(sys.stdin.buffer, shown)
        if Path(name).is_dir():
            raise Refused(f"{shown}: is a folder. Give one session file.")
        with Path(name).open("rb") as stream:
            if os.fstat(stream.fileno()).st_size > MOST_BYTES:
                raise Refused(_too_large(shown))
            return _limited(stream, shown)
    except FileNotFoundError:
        raise Refused(f"{shown}: there is no such file. Check the path.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise Refused(f"{shown}: cannot be read: {reason}. Check the path and its permissions.") from None


def _limited(stream: Any, shown: str) -> bytes:
    start: bytes = stream.read(BINARY_PROBE_BYTES)
    if b"\0" in start and not start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        if start.startswith(UTF16_STARTS):
            raise Refused(f"{shown}: is UTF-16 without the mark that says so. Save the session as UTF-8.")
        raise Refused(f"{shown}: is binary, not a session. Sessions are UTF-8 text with JSON in it.")
    raw: bytes = start + stream.read(MOST_BYTES + 1 - len(start))
    if len(raw) > MOST_BYTES:
        raise Refused(_too_large(shown))
    return raw


def _too_large(shown: str) -> str:
    return f"{shown}: is larger than {MOST_BYTES // 1024**2} MB, the limit. Split the session before you compress it."


def _decode(raw: bytes, shown: str) -> tuple[str, Encoding]:
    encoding = next((Encoding(mark, name) for mark, name in ENCODINGS.items() if raw.startswith(mark)), UTF8)
    body = raw[len(encoding.mark) :]
    try:
        return body.decode(encoding.name), encoding
    except UnicodeDecodeError as error:
        before = body[: error.start].decode(encoding.name)
        if error.reason in ("unexpected end of data", "truncated data"):
            # Cut in the middle of a sign: the JSON around it is cut as well, and is reported as that.
            return before, encoding
        line, form = before.count("\n") + 1, encoding.name.upper()[: len("UTF-16")].rstrip("-")
        message = f"{shown}: line {line} is not {form} text. Save the session as UTF-8, or give another file."
        raise Refused(message) from None


class _Reader:
    """Parses JSON and remembers names that an object holds twice."""

    def __init__(self, shown: str) -> None:
        self.doubled: set[str] = set()
        self.shown = shown

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            names = [name for name, _ in pairs]
            self.doubled.update(name for name in made if names.count(name) > 1)
        return made

    def try_read(self, text: str) -> Any:
        """The value, or None where it cannot be read."""
        try:
            return json.loads(text, object_pairs_hook=self._object)
        except (ValueError, RecursionError):
            return None

    def read(self, text: str, line: int | None = None) -> Any:
        """The value; raises Refused with the place of the fault."""
        try:
            return json.loads(text, object_pairs_hook=self._object)
        except json.JSONDecodeError as error:
            at = f"line {line or error.lineno}, column {error.colno}"
            is_cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
            cause = f"the file is cut off there ({error.msg})" if is_cut else f"no JSON: {error.msg}"
            raise Refused(f"{self.shown}: {at}: {cause}. {_REMEDY}") from None
        except RecursionError:
            raise Refused(f"{self.shown}: is nested too deeply to be read. {_REMEDY}") from None
        except ValueError as error:
            raise Refused(f"{self.shown}: holds a number that is too long ({error}). {_REMEDY}") from None


_REMEDY = "Nothing was changed; repair the file or export the session again."


def _read_lines(raw: bytes, text: str, encoding: Encoding, reader: _Reader) -> SessionFile:
    rows: list[Any] = []
    spans: list[tuple[int, int]] = []
    numbers: list[int] = []
    torn = None
    end = -1
    lines = text.split("\n")
    for line_number, line in enumerate(lines, start=1):
        start, end = end + 1, end + 1 + len(line)
        body = line.strip()
        if not body:
            continue
        # A text that ends with a line end has an empty last line.
        if line_number == len(lines) and reader.try_read(body) is None and body != "null":
            torn, text = line_number, text[:start]
            break
        row = reader.read(line, line_number)
        if isinstance(row, dict) and isinstance(row.get("messages"), list) and "role" not in row:
            raise Refused(f"{reader.shown}: line {line_number} is a whole session. Give a file with one session in it.")
        rows.append(row)
        numbers.append(line_number)
        start += len(line) - len(line.lstrip())
        spans.append((start, start + len(body)))
    file = SessionFile(reader.shown, raw, Written.of(text, spans, rows, is_lines=True), encoding)
    file.numbers, file.torn, file.doubled = numbers, torn, reader.doubled
    return file
