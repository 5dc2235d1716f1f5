"""Print how long files and functions are: a figure to look at, not a gate to game."""

from __future__ import annotations

import ast
import statistics
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("jev_engine", "adapters/jev_engine_adapters")
# Targets of the house style: median and 90th percentile to stay near, maximum not to pass.
TARGETS = {"file": (150, 400), "function": (10, 60)}


def main() -> None:
    """Print one line for files, one for functions, and each that is over its ceiling."""
    files: list[tuple[int, str]] = []
    functions: list[tuple[int, str]] = []
    for path in sorted(path for source in SOURCES for path in (ROOT / source).rglob("*.py")):
        text, name = path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()
        files.append((len(text.splitlines()), name))
        functions += [
            ((node.end_lineno or node.lineno) - node.lineno + 1, f"{name}:{node.name}")
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
    print(f"lines in total: {sum(lines for lines, _ in files)}")
    describe("file", files)
    describe("function", functions)


def describe(kind: str, lengths: list[tuple[int, str]]) -> None:
    """Print count, median, 90th percentile and the longest of one kind."""
    if not lengths:
        print(f"{kind}: none")
        return
    ordered = sorted(lengths)
    lines = [length for length, _ in ordered]
    median_target, ceiling = TARGETS[kind]
    print(
        f"{kind}: {len(lines)}, median {statistics.median(lines):g} (target {median_target}),"
        f" p90 {lines[int(0.9 * (len(lines) - 1))]}, longest {lines[-1]} {ordered[-1][1]} (ceiling {ceiling})"
    )
    for length, name in reversed(ordered):
        if length <= ceiling:
            break
        print(f"  over the ceiling: {name} {length}")


if __name__ == "__main__":
    main()
