"""A table of figures with where it comes from, written for a terminal, a page or a machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from jev_engine.evaluate.bootstrap import Measure

__all__ = ["Cell", "Stamp", "Table", "as_json", "as_markdown"]

Cell = Measure | str | int


class Stamp(NamedTuple):
    """Where figures come from: printed with every table."""

    corpus: str
    """Name of the corpus file."""
    corpus_hash: str
    label: str
    code: str
    seed: int
    command: str
    judge: str
    """Whose answers, and on how many sessions it had not seen their project."""

    def line(self) -> str:
        """One line of it."""
        return (
            f"corpus {self.corpus_hash} · label {self.label} · code {self.code} · seed {self.seed} · judge:"
            f" {self.judge} · {self.command}"
        )


class Table(NamedTuple):
    """Named columns, rows of cells, and what they mean."""

    key: str
    """Short name for machines."""
    title: str
    about: str
    """What is counted, in one or two sentences."""
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]


def as_json(tables: Sequence[Table], stamp: Stamp) -> dict[str, Any]:
    """All figures as plain JSON values, unrounded."""

    def value(cell: Cell) -> Any:
        return cell.as_json() if isinstance(cell, Measure) else cell

    return {
        "stamp": stamp._asdict(),
        "tables": {
            table.key: {
                "title": table.title,
                "about": table.about,
                "columns": list(table.columns),
                "rows": [[value(cell) for cell in row] for row in table.rows],
            }
            for table in tables
        },
    }


def as_markdown(tables: Sequence[Table], stamp: Stamp) -> str:
    """The tables as Markdown, each with its origin."""
    parts = []
    for table in tables:
        lines = [f"## {table.title}", "", table.about, ""]
        lines.append("| " + " | ".join(table.columns) + " |")
        lines.append("|" + "---|" * len(table.columns))
        lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in table.rows]
        lines += ["", f"<sub>{stamp.line().replace('|', chr(92) + '|')}</sub>", ""]
        parts.append("\n".join(lines))
    return "\n".join(parts)
