"""Session files: read in any container, written back in the same one, never half.

Containers: a JSON list of messages, a JSON object with a `messages` list, and JSON Lines with one message or row each.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import click

__all__ = ["MOST_BYTES", "Refused", "SessionFile", "check_target", "read_session", "write_session"]

MOST_BYTES = 512 * 1024 * 1024
"""Larger files are refused: parsed, they take about five times their size in memory."""
BINARY_PROBE_BYTES = 8_192
"""A file with a NUL among its first bytes is no session."""
SURROGATE = re.compile("[\ud800-\udfff]")
FIRST_INDENT = re.compile(r"\s*[\[{]\r?\n([ \t]+)\S")
FIRST_KEY = re.compile(r'"(?:[^"\\]|\\.){0,200}"\s*:( ?)')


class Refused(click.ClickException):
    """Bad usage or a file that cannot be read: the message says what is wrong and what to do. Exit code 2."""

    exit_code = 2


class Style(NamedTuple):
    """How a file writes its JSON."""

    indent: str | None
    is_compact: bool
    is_ascii: bool
    line_end: str

    def dump(self, value: Any) -> str:
        """The value as JSON text in this style."""
        item, key = ("," if self.is_compact or self.indent else ", "), (":" if self.is_compact else ": ")
        text = json.dumps(value, ensure_ascii=self.is_ascii, indent=self.indent, separators=(item, key))
        if not self.is_ascii:
            # Half a surrogate pair has no UTF-8 form; as an escape it comes back as it was.
            text = SURROGATE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)
        return text if self.line_end == "\n" else text.replace("\n", self.line_end)


class SessionFile:
    """A session as read from a file."""

    def __init__(self, name: str, raw: bytes, text: str, doubled: set[str]) -> None:
        self.name = name
        """As shown in messages."""
        self.raw = raw
        self.container: Literal["list", "object", "lines"] = "list"
        self.messages: list[Any] = []
        self.numbers: list[int] = []
        """For each message its line in the file, where it is in JSON Lines."""
        self.torn: int | None = None
        """Number of a last line that was cut off and left out."""
        self.doubled = doubled
        """Names that occur twice in one object; JSON readers take the last."""
        self._lines: list[str] = []
        self._around: dict[str, Any] = {}
        self._end = text[len(text.rstrip()) :]
        line_end = "\r\n" if "\r\n" in text[:100_000] else "\n"
        indent = FIRST_INDENT.match(text)
        key = FIRST_KEY.search(text[:10_000])
        is_compact = key is not None and not key.group(1)
        self._style = Style(indent.group(1) if indent else None, is_compact, text.isascii(), line_end)

    def where(self, index: int) -> str:
        """Where a message stands, in words."""
        return f"line {self.numbers[index]}" if self.numbers else f"message {index + 1}"

    def dump(self, messages: Sequence[Any]) -> bytes:
        """The session with these messages instead, in the container and style of the file."""
        style = self._style
        if self.container == "lines":
            known = {id(message): line for message, line in zip(self.messages, self._lines, strict=True)}
            lines = [known.get(id(message)) or style.dump(message) for message in messages]
            text = style.line_end.join(lines) + self._end
        else:
            value = list(messages) if self.container == "list" else {**self._around, "messages": list(messages)}
            text = style.dump(value) + self._end
        bom = codecs.BOM_UTF8 if self.raw.startswith(codecs.BOM_UTF8) else b""
        return bom + text.encode()

    def fill_lines(self, lines: list[tuple[int, str]], rows: list[Any]) -> None:
        """Take in rows of JSON Lines."""
        self.container = "lines"
        self.messages = rows
        self.numbers = [line_number for line_number, _ in lines]
        self._lines = [line.rstrip("\r") for _, line in lines]
        self._style = self._style._replace(indent=None)

    def fill_object(self, value: dict[str, Any]) -> None:
        """Take in an object around a list of messages."""
        self.container = "object"
        self._around = value
        self.messages = value["messages"]


def read_session(name: str) -> SessionFile:
    """Read a session file, `-` for standard input; raises Refused."""
    shown = "standard input" if name == "-" else name
    raw = _load(name, shown)
    if not raw.strip():
        raise Refused(f"{shown}: the file is empty. Give a session: a JSON list of messages, or one row a line.")
    text = _decode(raw, shown)
    reader = _Reader(shown)
    file = SessionFile(shown, raw, text, reader.doubled)
    body = text.strip()
    first, _, rest = body.partition("\n")
    if rest and isinstance(reader.try_read(first), dict):
        _read_lines(file, reader, text)
        return file
    value = reader.read(text)
    if isinstance(value, list):
        file.messages = value
    elif isinstance(value, dict) and isinstance(value.get("messages"), list):
        file.fill_object(value)
    elif isinstance(value, dict) and ("role" in value or "type" in value):
        file.fill_lines([(1, body)], [value])
    else:
        what = "an object without a `messages` list" if isinstance(value, dict) else f"one {_kind(value)}"
        raise Refused(
            f"{shown}: holds {what}, not a session. Give a JSON list of messages, an object with a `messages` list, "
            "or one message a line."
        )
    return file


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
    if b"\0" in start:
        raise Refused(f"{shown}: is binary, not a session. Sessions are UTF-8 text with JSON in it.")
    raw: bytes = start + stream.read(MOST_BYTES + 1 - len(start))
    if len(raw) > MOST_BYTES:
        raise Refused(_too_large(shown))
    return raw


def _too_large(shown: str) -> str:
    return f"{shown}: is larger than {MOST_BYTES // 1024**2} MB, the limit. Split the session before you compress it."


def _decode(raw: bytes, shown: str) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":
            # Cut in the middle of a sign: the JSON around it is cut as well, and is reported as that.
            return raw[: error.start].decode("utf-8-sig")
        line = raw.count(b"\n", 0, error.start) + 1
        message = f"{shown}: line {line} is not UTF-8 text. Save the session as UTF-8, or give another file."
        raise Refused(message) from None


class _Reader:
    """Parses JSON and remembers names that an object holds twice."""

    def __init__(self, shown: str) -> None:
        self.doubled: set[str] = set()
        self._shown = shown

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
            raise Refused(f"{self._shown}: {at}: {cause}. {_REMEDY}") from None
        except RecursionError:
            raise Refused(f"{self._shown}: is nested too deeply to be read. {_REMEDY}") from None
        except ValueError as error:
            raise Refused(f"{self._shown}: holds a number that is too long ({error}). {_REMEDY}") from None


_REMEDY = "Nothing was changed; repair the file or export the session again."


def _read_lines(file: SessionFile, reader: _Reader, text: str) -> None:
    lines = [(count, line) for count, line in enumerate(text.split("\n"), start=1) if line.strip()]
    rows: list[Any] = []
    for place, (line_number, line) in enumerate(lines):
        is_last = place == len(lines) - 1 and not text.endswith("\n")
        if is_last and reader.try_read(line) is None and line.strip() != "null":
            file.torn = line_number
            break
        row = reader.read(line, line_number)
        if isinstance(row, dict) and isinstance(row.get("messages"), list) and "role" not in row:
            raise Refused(f"{file.name}: line {line_number} is a whole session. Give a file with one session in it.")
        rows.append(row)
    file.fill_lines(lines[: len(rows)], rows)


def check_target(out: str, source: str, store: Path) -> None:
    """Whether a session may be written to `out`, before any work is done; raises Refused."""
    if out == "-":
        return
    try:
        _check_target(Path(out), out, source, store)
    except OSError as error:  # a name that is too long, a folder that may not be looked into
        raise Refused(f"-o {out}: {error.strerror or error}. Name another file.") from None


def _check_target(target: Path, out: str, source: str, store: Path) -> None:
    if target.is_dir():
        raise Refused(f"-o {out}: is a folder. Name a file in it.")
    if not target.absolute().parent.is_dir():
        raise Refused(f"-o {out}: its folder does not exist. Create it first.")
    if not target.exists():
        return
    if _is_source(target, source):
        raise Refused(
            f"-o {out}: is the input file, which is never changed. Name another file, and move it afterwards."
        )
    if not target.is_file():
        raise Refused(f"-o {out}: is no ordinary file. Name another one, or - for standard output.")
    if store.exists() and target.samefile(store):
        raise Refused(f"-o {out}: is the store of originals. Name another file.")


def _is_source(target: Path, source: str) -> bool:
    try:
        if source != "-":
            return target.samefile(source)
        return os.path.samestat(target.stat(), os.fstat(sys.stdin.fileno()))
    except (OSError, ValueError):  # a stream without a file behind it
        return False


def write_session(data: bytes, out: str) -> None:
    """Write a session whole or not at all, for this user only; raises Refused."""
    if out == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    target = Path(out)
    try:
        handle, temporary = tempfile.mkstemp(prefix=".jev-engine-", suffix=".part", dir=target.absolute().parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            Path(temporary).replace(target)
        except BaseException:  # Ctrl-C too: nothing half done stays behind
            with suppress(OSError):
                Path(temporary).unlink()
            raise
    except OSError as error:
        raise Refused(
            f"-o {out}: cannot be written: {error.strerror or error}. Check permissions and free space; "
            "nothing was left behind."
        ) from None
