"""Which of two versions of this program is the older one.

>>> [is_older("0.9.2", "0.10"), is_older("0.2.0rc1", "0.2.0"), is_older("0.2.0", "0.2"), is_older("0.3", "0.2")]
[True, True, False, False]
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["is_older"]

_PARTS = re.compile(r"(?:\d+!)?(\d+(?:\.\d+)*)?[-_.]?([a-z]*)(.*)", re.IGNORECASE | re.DOTALL)
# Kinds in the order of PEP 440; of a kind that is not known nothing is said.
_KINDS = {"dev": -4, "a": -3, "alpha": -3, "b": -2, "beta": -2, "c": -1, "rc": -1, "": 0, "post": 1}


def is_older(version: str, than: str) -> bool:
    """Whether a version comes before another one; False where it cannot be told."""
    one, other = _order(version), _order(than)
    return one is not None and other is not None and one < other


def _order(version: str) -> tuple[Any, ...] | None:
    found = _PARTS.match(version.partition("+")[0].strip())
    if found is None or not found[1] or found[2].lower() not in _KINDS:
        return None
    release = [int(each) for each in found[1].split(".")]
    while release and release[-1] == 0:
        release.pop()
    return release, _KINDS[found[2].lower()], [int(each) for each in re.findall(r"\d+", found[3])]
