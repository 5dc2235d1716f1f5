r"""Two settings in the host's `config.yaml`, written line by line: every other byte stays, comments too.

There is no YAML parser among what this package needs, and one that writes would lose the user's comments. So only plain
forms are changed; any other is refused, with the lines to write by hand.

>>> print(switch_on("model: x  # mine\n"), end="")
model: x  # mine
<BLANKLINE>
plugins:
  enabled:
    - jev-engine
context:
  engine: jev-engine
>>> switch_off(switch_on("context:\n  engine: lcm  # old\n")).splitlines()[:2]
['context:', '  engine: lcm  # old']
"""

from __future__ import annotations

import re
from typing import NamedTuple

from jev_engine.errors import HostError

__all__ = ["BY_HAND", "NAME", "is_on", "switch_off", "switch_on"]

NAME = "jev-engine"
BUILT_IN = "compressor"
BY_HAND = f"plugins:\n  enabled:\n    - {NAME}\ncontext:\n  engine: {NAME}\n"
WAS = "jev-engine: was"
EMPTY = ("", "~", "null", "{}", "[]")
# What ends a line in YAML besides the ends that are understood here, and the mark that some editors put first.
ODD_BREAKS = re.compile("[\r\x85\u2028\u2029\ufeff]")
# Marks where a document begins or ends, and the one that may stand in front.
DOCUMENT = re.compile(r"(---|\.\.\.)(?:\s|$)")
BEGINS = re.compile(r"---\s*(?:\s#.*)?$")
# How a row at the left begins that is no key: flow forms, explicit keys, tags, anchors, scalars.
NOT_PLAIN = ("{", "?", ":", "!", "&", "*", "|", ">", "%")
# A key at the left whose text begins with a quote that is not closed in its row: rows below may look like keys.
OPEN_QUOTE = re.compile(r"""[^\s#'"][^:]*: +(?:'(?:[^']|'')*|"(?:[^"\\]|\\.)*\\?)$""")
KEY = re.compile(r"^(?P<indent> *)(?P<quote>[\"']?)(?P<key>[\w.-]+)(?P=quote) *:(?: +(?P<value>.*))?$")


class Entry(NamedTuple):
    """A key, and the lines below it that belong to it."""

    line: int
    end: int
    indent: int
    value: str
    """What stands behind the colon, without its comment."""
    comment: str


class Lines:
    """A file as lines that can be changed one at a time."""

    def __init__(self, text: str) -> None:
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self.ends = text == "" or text.endswith("\n")
        self.rows = text.replace("\r\n", "\n").split("\n")
        if self.ends:
            self.rows.pop()
        odd = self._odd(text)
        if odd is not None:
            raise HostError(f"config.yaml {odd}; write this by hand:\n{BY_HAND}")

    def _odd(self, text: str) -> str | None:
        """What keeps the file from being one plain block of keys; rows added to it would not mean what they say."""
        if any("\t" in row[: len(row) - len(row.lstrip())] for row in self.rows):
            return "is indented with tabs"
        if ODD_BREAKS.search(text.replace("\r\n", "\n")):
            # For YAML they begin a new line, for us they do not; the last is invisible in most editors.
            return "holds an odd line end or a byte order mark"
        told = [row for row in self.rows if row.strip() and not row.lstrip().startswith("#")]
        # Directives, and the mark that begins the one document, may stand in front.
        while told and told[0].startswith("%"):
            told.pop(0)
        if told and BEGINS.match(told[0]):
            told.pop(0)
        if any(DOCUMENT.match(row) for row in told):
            return "ends a document, or holds several"
        if any(row.startswith(NOT_PLAIN) for row in told) or (told and not _is_top_key(told[0])):
            return "is no plain block of keys"
        if any(OPEN_QUOTE.match(row) for row in told):
            return "has a quoted text over several lines"
        return None

    def text(self) -> str:
        """The file with the changes made, every line ended as the file ends its lines; empty where it has none."""
        return self.newline.join(self.rows) + (self.newline if self.ends or self.rows else "")

    def find(self, key: str, below: Entry | None = None) -> Entry | None:
        """A key at the top, or one of those right below another."""
        start, end = (0, len(self.rows)) if below is None else (below.line + 1, below.end)
        wanted = 0 if below is None else self._child_indent(below)
        found = None
        for number in range(start, end):
            match = KEY.match(self.rows[number].rstrip())
            if match is None or match["key"] != key or len(match["indent"]) != wanted:
                continue
            if found is not None:
                raise HostError(f"config.yaml holds {key!r} twice; write this by hand:\n{BY_HAND}")
            value, comment = _split(match["value"] or "")
            found = Entry(number, self._end(number, wanted, end), wanted, value, comment)
        return found

    def is_block(self, entry: Entry) -> bool:
        """Whether what stands below a key is keys again, each as far right as the first."""
        rows = [
            row for row in self.rows[entry.line + 1 : entry.end] if row.strip() and not row.lstrip().startswith("#")
        ]
        depth = self._child_indent(entry)
        left = [row for row in rows if len(row) - len(row.lstrip()) <= depth]
        return all(KEY.match(row.rstrip()) or row[depth:].startswith("- ") for row in left) and (
            not rows or KEY.match(rows[0].rstrip()) is not None
        )

    def _child_indent(self, entry: Entry) -> int:
        for row in self.rows[entry.line + 1 : entry.end]:
            if row.strip() and not row.lstrip().startswith("#"):
                return len(row) - len(row.lstrip())
        return entry.indent + 2

    def _end(self, line: int, indent: int, limit: int) -> int:
        """The line behind the last one that belongs to a key."""
        end = line + 1
        for number in range(line + 1, limit):
            row = self.rows[number]
            if not row.strip() or row.lstrip().startswith("#"):
                continue
            depth = len(row) - len(row.lstrip())
            # The items of a list may stand as far left as its key.
            if depth < indent or (depth == indent and not row.lstrip().startswith("- ")):
                break
            end = number + 1
        return end


def _is_top_key(row: str) -> bool:
    return not row.startswith((" ", "-", "[")) and ":" in row


def _split(value: str) -> tuple[str, str]:
    """A value and its comment."""
    found = re.match(r"""((?:"[^"]*"|'[^']*'|[^#"']|(?<=\S)#)*?)(\s*(?:\s#.*|^#.*)?)$""", value)
    if found is None:
        return value, ""
    return found.group(1).strip(), found.group(2).rstrip()


def _bare(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value


def is_on(text: str) -> tuple[bool, bool]:
    """Whether the plugin is enabled, and whether its engine is chosen."""
    lines = Lines(text)
    plugins, context = lines.find("plugins"), lines.find("context")
    enabled = lines.find("enabled", plugins) if plugins is not None else None
    engine = lines.find("engine", context) if context is not None else None
    listed = [] if enabled is None else _items(lines, enabled)
    disabled = lines.find("disabled", plugins) if plugins is not None else None
    if disabled is not None and NAME in _items(lines, disabled):
        listed = []
    return NAME in listed, engine is not None and _bare(engine.value) == NAME


def switch_on(text: str) -> str:
    """The file with both settings in it. Raises HostError for a form that cannot be changed line by line."""
    lines = Lines(text)
    if lines.find("plugins") is None and lines.rows and lines.rows[-1].strip():
        lines.rows.append("")
    plugins = _section(lines, "plugins")
    disabled = lines.find("disabled", plugins)
    if disabled is not None and NAME in _items(lines, disabled):
        # `hermes plugins disable` has put it there, and it would win.
        _list_out(lines, disabled)
        plugins = _section(lines, "plugins")
    _list_in(lines, plugins)
    context = _section(lines, "context")
    _choose(lines, context)
    return lines.text()


def switch_off(text: str) -> str:
    """The file without both, and with the engine that was chosen before. Raises HostError as `switch_on`."""
    lines = Lines(text)
    plugins = lines.find("plugins")
    enabled = lines.find("enabled", plugins) if plugins is not None else None
    if enabled is not None and NAME in _items(lines, enabled):
        _list_out(lines, enabled)
    context = lines.find("context")
    engine = lines.find("engine", context) if context is not None else None
    if engine is not None and _bare(engine.value) == NAME:
        before = re.search(rf" *# {WAS} ([\w.-]+)", engine.comment)
        value = BUILT_IN if before is None else before.group(1)
        comment = engine.comment if before is None else engine.comment.replace(before.group(), "", 1)
        lines.rows[engine.line] = f"{' ' * engine.indent}engine: {value}{comment}"
    return lines.text()


def _section(lines: Lines, key: str) -> Entry:
    """A top key whose value is a block, made where it is missing or empty."""
    found = lines.find(key)
    if found is None:
        lines.rows.append(f"{key}:")
        lines.ends = True
        found = lines.find(key)
    elif found.value in EMPTY and found.value:
        lines.rows[found.line] = f"{key}:{found.comment}"
    elif found.value:
        raise HostError(f"config.yaml has {key!r} in one line ({found.value}); write this by hand:\n{BY_HAND}")
    entry = lines.find(key)
    if entry is None or not lines.is_block(entry):
        raise HostError(f"config.yaml cannot be read at {key!r}; write this by hand:\n{BY_HAND}")
    return entry


def _items(lines: Lines, enabled: Entry) -> list[str]:
    if enabled.value.startswith("["):
        if not enabled.value.endswith("]"):
            raise HostError(f"config.yaml has 'enabled' over several lines; write this by hand:\n{BY_HAND}")
        return [_bare(item.strip()) for item in enabled.value[1:-1].split(",") if item.strip()]
    rows = lines.rows[enabled.line + 1 : enabled.end]
    return [_bare(_split(row.lstrip()[2:])[0]) for row in rows if row.lstrip().startswith("- ")]


def _list_in(lines: Lines, plugins: Entry) -> None:
    enabled = lines.find("enabled", plugins)
    if enabled is None:
        pad = " " * lines._child_indent(plugins)  # noqa: SLF001  # of this module
        lines.rows[plugins.line + 1 : plugins.line + 1] = [f"{pad}enabled:", f"{pad}  - {NAME}"]
        return
    items = _items(lines, enabled)
    if NAME in items:
        return
    pad = " " * enabled.indent
    if enabled.value.startswith("[") and items:
        inner = enabled.value[1:-1].rstrip().rstrip(",")
        lines.rows[enabled.line] = f"{pad}enabled: [{inner}, {NAME}]{enabled.comment}"
    elif enabled.value in EMPTY:
        lines.rows[enabled.line] = f"{pad}enabled:{enabled.comment}"
        rows = range(enabled.line + 1, enabled.end)
        last = [n for n in rows if lines.rows[n].lstrip().startswith("- ")]
        starts = {len(lines.rows[n]) - len(lines.rows[n].lstrip()) for n in last}
        nested = any(lines.rows[n].lstrip()[2:].lstrip().startswith("- ") for n in last)
        if nested or len(starts) > 1 or len(last) != sum(bool(_split(lines.rows[n].strip())[0]) for n in rows):
            raise HostError(f"config.yaml has 'enabled:' with items of several lines; write this by hand:\n{BY_HAND}")
        at = last[-1] if last else enabled.line
        item_pad = lines.rows[at][: len(lines.rows[at]) - len(lines.rows[at].lstrip())] if last else f"{pad}  "
        lines.rows.insert(at + 1, f"{item_pad}- {NAME}")
    else:
        raise HostError(f"config.yaml has 'enabled: {enabled.value}', no list; write this by hand:\n{BY_HAND}")


def _list_out(lines: Lines, enabled: Entry) -> None:
    if enabled.value.startswith("["):
        kept = [item.strip() for item in enabled.value[1:-1].split(",") if _bare(item.strip()) != NAME]
        lines.rows[enabled.line] = _one_line(lines, enabled, ", ".join(kept))
        return
    for number in reversed(range(enabled.line + 1, enabled.end)):
        row = lines.rows[number].lstrip()
        if row.startswith("- ") and _bare(_split(row[2:])[0]) == NAME:
            del lines.rows[number]
    if not any(row.lstrip().startswith("- ") for row in lines.rows[enabled.line + 1 : enabled.end - 1]):
        lines.rows[enabled.line] = _one_line(lines, enabled, "")


def _one_line(lines: Lines, entry: Entry, items: str) -> str:
    """The row of a list, its key as the user wrote it."""
    key = lines.rows[entry.line].partition(":")[0]
    return f"{key}: [{items}]{entry.comment}"


def _choose(lines: Lines, context: Entry) -> None:
    engine = lines.find("engine", context)
    if engine is None:
        pad = " " * lines._child_indent(context)  # noqa: SLF001  # of this module
        lines.rows.insert(context.line + 1, f"{pad}engine: {NAME}")
        return
    before = _bare(engine.value)
    if any(row.strip() and not row.lstrip().startswith("#") for row in lines.rows[engine.line + 1 : engine.end]):
        raise HostError(f"config.yaml has 'engine' over several lines; write this by hand:\n{BY_HAND}")
    if before == NAME:
        return
    was = f"  # {WAS} {before}" if before and before != BUILT_IN and re.fullmatch(r"[\w.-]+", before) else ""
    lines.rows[engine.line] = f"{' ' * engine.indent}engine: {NAME}{was}{engine.comment}"
