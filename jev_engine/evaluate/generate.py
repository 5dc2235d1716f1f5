"""Writing a fitted blend as a Python module: conditionals and one sum, no dependency, the same on every machine."""

from __future__ import annotations

from collections.abc import Sequence

from jev_engine.evaluate.model import LINEAR_LIMIT, Blend, Linear, Tree
from jev_engine.judges.features import FEATURES

__all__ = ["weights_source"]

_DIGITS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _name(column: int) -> str:
    """A short local name for a column: one or two letters keep the module small, and none is a keyword."""
    if column < len(_DIGITS):
        return _DIGITS[column]
    return "_" + _DIGITS[column - len(_DIGITS)]


def _number(value: float) -> str:
    text = f"{value:.5g}"
    if "e" in text and abs(value) < 1e-30:
        return "0"  # lightgbm's way to write a limit just above zero
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def _expression(tree: Tree) -> str:
    if tree.low is None or tree.high is None:
        return _number(tree.value)
    test = f"{_name(tree.column)}<={_number(tree.limit)}"
    low, high = _expression(tree.low), _expression(tree.high)
    return f"({low} if {test} else {high})"


def _columns_used(boosters: Sequence[Sequence[Tree]], linears: Sequence[Linear]) -> set[int]:
    used: set[int] = set()

    def walk(tree: Tree | None) -> None:
        if tree is not None and tree.column >= 0:
            used.add(tree.column)
            walk(tree.low)
            walk(tree.high)

    for trees in boosters:
        for tree in trees:
            walk(tree)
    for linear in linears:
        used.update(i for i, weight in enumerate(linear.weights) if weight)
    return used


def weights_source(blend: Blend, version: str, origin: str) -> str:
    """The module `jev_engine/judges/weights.py`: a function from a row of features to log-odds."""
    boosters = blend.trees()
    used = _columns_used(boosters, blend.linears)
    names = ", ".join(_name(i) if i in used else "_" for i in range(len(FEATURES)))
    lines = [
        '"""Weights of the local judge. Generated, do not edit.',
        "",
        f"{origin}",
        '"""',
        "",
        "# fmt: off",
        "from __future__ import annotations",
        "",
        "from collections.abc import Sequence",
        "",
        '__all__ = ["VERSION", "log_odds"]',
        "",
        f'VERSION = "{version}"',
        "",
        "",
        "def log_odds(row: Sequence[float]) -> float:",
        '    """Log-odds that a result is needed; `row` in the order of `features.FEATURES`."""',
        f"    ({names}) = row",
        "    total = 0.0",
    ]
    shares = blend.shares()
    for share, trees in zip(shares, boosters, strict=False):
        lines.append("    part = 0.0")
        tens = [trees[start : start + 10] for start in range(0, len(trees), 10)]
        lines.extend("    part += " + "+".join(map(_expression, ten)) for ten in tens)
        lines.append(f"    total += {share:g} * part")
    for share, linear in zip(shares[len(boosters) :], blend.linears, strict=True):
        terms = [f"{_number(w)}*{_name(i)}" for i, w in enumerate(linear.weights) if w]
        low, high = LINEAR_LIMIT
        whole = f"{_number(linear.bias)}+{'+'.join(terms)}".replace("+-", "-")
        lines.append(f"    total += {share:g} * min({high}, max({low}, {whole}))")
    lines += [f"    return total / {sum(shares):g}", ""]
    return "\n".join(lines)
