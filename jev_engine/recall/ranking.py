"""BM25 over postings: which texts fit a query best.

Whether a term occurs counts, not how often: on the needs of benchmarks/recall.py counting gains less than a point in
the top 3, and an index with counts and places would be larger than the compressed texts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

__all__ = ["QUERY_TERMS", "best", "pick_terms"]

K1 = 1.2
"""The usual saturation; with terms counted once it only scales the part of the length."""
B = 0.3
"""Part of the length: on the needs of benchmarks/recall.py 0.75, the usual one, finds 2 points less in the top 3, and 0
half a point less."""
QUERY_TERMS = 48
"""Most terms of one query that are looked up: 64 find a point more in the top 3 and take a third longer, 32 find 2 less
[benchmarks/recall.py]."""
MEASURED = 200
"""Texts whose length is looked up: the length moves a score by less than a quarter, so no further one can win."""


def pick_terms(terms: Collection[str]) -> list[str]:
    """The terms to look up: names and long words first, as they tell most, in an order that is always the same."""
    return sorted(terms, key=lambda term: (term.isalpha(), -len(term), term))[:QUERY_TERMS]


def best(
    postings: Mapping[str, Collection[int]],
    count: int,
    lengths: Callable[[Sequence[int]], Mapping[int, int]],
    limit: int,
) -> list[tuple[int, float]]:
    """The best texts with their scores, best first; of two equal ones the newer, which has the higher number.

    `postings` are the numbers of the texts that hold each term, `count` the number of all texts; `lengths` tells the
    number of terms of those asked for.
    """
    sums: dict[int, float] = {}
    for found in postings.values():
        if not found:
            continue
        weight = math.log(1 + (max(count, len(found)) - len(found) + 0.5) / (len(found) + 0.5))
        for text in found:
            sums[text] = sums.get(text, 0.0) + weight
    leading = _top(sums.items(), MEASURED)
    known = lengths([text for text, _ in leading])
    mean = sum(known.values()) / len(known) if any(known.values()) else 1.0
    scored = [
        (text, total * (K1 + 1) / (1 + K1 * (1 - B + B * known[text] / mean)))
        for text, total in leading
        if text in known
    ]
    return _top(scored, limit)


def _top(scored: Iterable[tuple[int, float]], limit: int) -> list[tuple[int, float]]:
    return sorted(scored, key=lambda each: (-each[1], -each[0]))[:limit]
