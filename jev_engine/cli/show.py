r"""What a person sees: text without control characters, numbers, tables.

>>> print(plain("a\x1b[31mb\u202e"))
a\x1b[31mb\u202e
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import click

from jev_engine.tools import describe_call, parse_arguments
from jev_engine.transcript import ToolCall

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = [
    "CallRow",
    "call_table",
    "console_for",
    "emit",
    "emit_facts",
    "hint",
    "number",
    "percent",
    "plain",
    "progress",
    "several",
    "tally",
    "warn",
]

# Width of tables that go to a file or a pipe, where no terminal says how wide it is.
PIPED_COLUMNS = 100
# Beyond this a table is easier to read narrow.
WIDEST_COLUMNS = 150
# Below this, reasons are cut instead of wrapped.
NARROW_COLUMNS = 90
# A column goes where the table is narrower, so that the others stay readable; those not named here always stand.
LEAST_COLUMNS = {"Reason": 70, "Age": 54, "P(needed)": 54, "Tokens": 54, "Size": 36, "Tool": 24}
NARROW_REASON_COLUMNS = 12
# Below this a path is shown by its last two parts, so that its end is not cut off.
SHORT_PATH_COLUMNS = 110
# Of what a call is about so much is shown; longer arguments are not parsed for it.
HINT_CHARS = 300
ARGUMENT_CHARS = 100_000
# The one argument that says what a call is about, most telling first.
TELLING = ("command", "cmd", "pattern", "query", "url", "prompt", "description")
STYLES = {"shortened": "yellow", "removed": "red", "kept": "green", "pinned": "dim", "judged": "cyan"}


def plain(text: str) -> str:
    """The text in one line, with every sign that is not printable shown as its escape.

    That covers escape sequences, C1 controls, bidirectional controls, invisible signs and half surrogates.
    """
    if text.isprintable():
        return text
    return "".join([sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text])


def warn(message: str) -> None:
    """Say something on standard error."""
    click.echo(f"Warning: {plain(message)}", err=True)


def number(value: float) -> str:
    """A whole number with thousands marked."""
    return f"{value:,.0f}"


def several(count: int, one: str, many: str | None = None) -> str:
    """So many of something: `many` where its plural is more than an s.

    >>> several(1, "marker is", "markers are"), several(2_000, "call")
    ('1 marker is', '2,000 calls')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def percent(share: float) -> str:
    """A share in per cent, with a decimal where it is small."""
    if share == 0:
        return "0 %"
    if share < 0.001:  # what would otherwise read as nothing
        return "<0.1 %"
    return f"{share:.1%}".replace("%", " %") if share < 0.1 else f"{share:.0%}".replace("%", " %")


def tally(counts: dict[str, int]) -> str:
    """Counts by name in words."""
    return ", ".join(f"{count:,} {plain(name)}" for name, count in counts.items())


def console_for(stream: IO[str]) -> Console:
    """A console that colours on a terminal only, and never where NO_COLOR is set."""
    from rich.console import Console  # noqa: PLC0415  # costs 60 ms

    is_terminal = stream.isatty()
    return Console(
        file=stream,
        force_terminal=is_terminal,
        no_color=bool(os.environ.get("NO_COLOR")),
        width=None if is_terminal else PIPED_COLUMNS,
        markup=False,
        emoji=False,
        highlight=False,
        soft_wrap=False,
    )


def emit(console: Console, *parts: Any) -> None:
    """Print things; where they go to a file or a pipe, without blanks at the ends of lines."""
    if console.is_terminal:
        for part in parts:
            console.print(part)
        return
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    text = "\n".join(line.rstrip() for line in captured.get().split("\n"))
    console.file.write(text)


def emit_facts(console: Console, facts: Sequence[tuple[str, str]]) -> None:
    """Print facts by name; where no terminal wraps them, each in one line, so that paths stay in one piece."""
    if not console.is_terminal:
        widest = max(len(name) for name, _ in facts)
        console.file.writelines(f"  {name:<{widest}}  {plain(text)}\n" for name, text in facts)
        return
    from rich.table import Table  # noqa: PLC0415  # costs 60 ms
    from rich.text import Text  # noqa: PLC0415

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in facts:
        grid.add_row(Text("  " + name), Text(plain(text)))
    console.print(grid)


@contextmanager
def progress(what: str) -> Iterator[None]:
    """A sign of life on standard error while something takes long; nothing where that is no terminal."""
    if not sys.stderr.isatty():
        yield
        return
    with console_for(sys.stderr).status(plain(what)):
        yield


def hint(call: ToolCall, *, short_path: bool = False) -> str:
    """What a call is about, from its arguments: its command, pattern or path; of a path the end, which says most."""
    arguments = call.arguments
    if len(arguments) > ARGUMENT_CHARS:
        return plain(arguments[:HINT_CHARS])
    values = parse_arguments(arguments)
    for name in TELLING:
        value = values.get(name)
        if isinstance(value, str) and value.strip():
            return plain(" ".join(value[:HINT_CHARS].split()))
    path = describe_call(call.tool, arguments).path
    if path:
        return plain("/".join(path.split("/")[-2:] if short_path else [path])[-HINT_CHARS:])
    shown = " ".join(f"{name}={value}" for name, value in list(values.items())[:8] if isinstance(value, str | int))
    return plain(" ".join(shown[:HINT_CHARS].split()))


class CallRow(NamedTuple):
    """One line of a table of calls."""

    call: ToolCall
    age: int
    action: str
    """`shortened`, `removed`, `kept`, `pinned` or `judged`."""
    reason: str
    p_needed: float | None = None
    freed_tokens: int = 0


def call_table(sections: Iterable[Iterable[CallRow]], console: Console, *, with_judgement: bool) -> Table:
    """A table of calls that fits the console; with what was decided, or with sizes in tokens only."""
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    width = min(console.width, WIDEST_COLUMNS)
    is_narrow = width < NARROW_COLUMNS
    gap = 1 if is_narrow else 2
    table = Table(box=box.SIMPLE_HEAD, width=width, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    third, what = ("P(needed)", "Action") if with_judgement else ("Tokens", "State")
    names = ("Call", "Tool", "Age", "Size", third, what, "Reason")
    shown = [name for name in names if width >= LEAST_COLUMNS.get(name, 0)]
    for name in shown:
        if name == "Tool":
            table.add_column(name, ratio=1, no_wrap=True, overflow="ellipsis")
        elif name == "Reason":
            most = NARROW_REASON_COLUMNS if is_narrow else width // 4
            table.add_column(name, max_width=most, no_wrap=is_narrow, overflow="ellipsis" if is_narrow else "fold")
        else:
            table.add_column(name, justify="left" if name in ("Call", what) else "right", no_wrap=True)
    for section in sections:
        for row in section:
            call = row.call
            tool = Text(plain(call.tool) or "(no name)")
            tool.append(" " + hint(call, short_path=width < SHORT_PATH_COLUMNS), style="dim")
            size = number(len(call.result)) if call.result is not None else "open"
            needed = "" if row.p_needed is None else percent(row.p_needed)
            cells = [Text(call.label), tool, Text(number(row.age)), Text(size)]
            cells.append(Text(needed if with_judgement else number(call.tokens)))
            cells += [Text(row.action, style=STYLES.get(row.action, "")), Text(plain(row.reason))]
            by_name = dict(zip(names, cells, strict=True))
            table.add_row(*[by_name[name] for name in shown], style="dim" if row.action == "pinned" else None)
        table.add_section()
    return table
