"""Which models bind their reasoning to the history it was made for.

Such a model's signed thinking is refused behind an edit; that of others is taken with any history.

>>> binds_reasoning("claude-fable-5-2"), binds_reasoning("claude-sonnet-4-5"), binds_reasoning("something-new")
(True, False, True)
"""

from __future__ import annotations

import re

__all__ = ["binds_reasoning"]

# Names in which the family comes first have the version behind it, as in claude-fable-5-2; older ones are claude-3-….
_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[-.]|$)")
FIRST_BINDING_VERSION = 5
"""Preserved thinking begins with Claude Fable 5.1 (platform.claude.com, build-with-claude/preserved-thinking)."""


def binds_reasoning(model: str) -> bool:
    """Whether thinking of this model fits only the history it was made for; a model that is not known counts as one."""
    found = _VERSION.search(model.lower())
    return found is None or int(found.group(1)) >= FIRST_BINDING_VERSION
