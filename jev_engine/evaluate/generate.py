"""Writing a fitted blend as a Python module: conditionals and one sum, no dependency, the same on every machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from jev_engine.evaluate.model import LEAF_STEPS, LINEAR_LIMIT, NOT_ZERO, Blend, Linear, Tree
from jev_engine.judges.features import FEATURES

__all__ = ["weights_source"]

_DIGITS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _names(forests: Sequence[Sequence[Tree]], linears: Sequence[Linear]) -> dict[int, str]:
    """A local name for each column in use: one letter for the most used, two for the rest; none is a keyword."""
    used: Counter[int] = Counter()
    waiting = [tree for trees in forests for tree in trees]
    while waiting:
        tree = waiting.pop()
        if tree.low is not None and tree.high is not None:
            used[tree.column] += 1
            waiting += [tree.low, tree.high]
    for linear in linears:
        used.update([i for i, weight in enumerate(linear.weights) if weight])
    names = [*_DIGITS, *["_" + digit for digit in _DIGITS]]
    return {column: names[place] for place, (column, _) in enumerate(used.most_common())}


def _number(value: float) -> str:
    text = f"{value:.5g}"
    if "e" in text and 1 <= abs(value) < 1e9:
        text = f"{value:.0f}"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def _expression(tree: Tree, names: dict[int, str]) -> str:
    """A tree as nested conditionals, with no more parentheses and blanks than Python needs."""
    if tree.low is None or tree.high is None:
        return f"{tree.value:.0f}"
    name, low, high = names[tree.column], tree.low, tree.high
    if tree.limit == NOT_ZERO:
        first, test, second = high, name, low
    elif low.low is not None and high.low is None:  # the smaller side first: it would stand in parentheses
        first, test, second = high, f"{name}>={_number(tree.limit)}", low
    else:
        first, test, second = low, f"{name}<{_number(tree.limit)}", high
    start = _expression(first, names)
    start = f"{start} " if first.low is None else f"({start})"
    return f"{start}if {test} else {_expression(second, names)}"


def weights_source(blend: Blend, version: str, origin: str) -> str:
    """The module `jev_engine/judges/weights.py`: a function from a row of features to log-odds."""
    names = _names(blend.forests, blend.linears)
    row = ",".join(names.get(i, "_") for i in range(len(FEATURES)))
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
        f"    {row}=row",
    ]
    shares = blend.shares()
    terms = []
    for place, (share, trees) in enumerate(zip(shares, blend.forests, strict=False)):
        part = f"part_{place}"
        for start in range(0, len(trees), 10):
            ten = ",".join(_expression(tree, names) for tree in trees[start : start + 10])
            lines.append(f"    {part} {'+=' if start else '='} sum(({ten}))")
        terms.append(f"{share:g} * {part}")
    lines.append(f"    total = ({' + '.join(terms) or '0'}) / {LEAF_STEPS}")
    for share, linear in zip(shares[len(blend.forests) :], blend.linears, strict=True):
        parts = [f"{_number(w)}*{names[i]}" for i, w in enumerate(linear.weights) if w]
        low, high = LINEAR_LIMIT
        whole = f"{_number(linear.bias)}+{'+'.join(parts)}".replace("+-", "-")
        lines.append(f"    total += {share:g} * min({high}, max({low}, {whole}))")
    lines += [f"    return total / {sum(shares):g}", ""]
    return "\n".join(lines)
