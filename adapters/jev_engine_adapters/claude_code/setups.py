"""What earlier set-ups chose and wrote, for each settings file: kept beside the plugin, for the next one and `remove`.

Without it nobody could tell a variable that we wrote from one of the same name that its user did.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jev_engine.hosts import Change
from jev_engine_adapters.claude_code.settings import dump

__all__ = ["FILE", "changes", "earlier", "others"]

FILE = "set-ups.json"


def earlier(folder: Path, settings: Path) -> dict[str, Any] | None:
    """What was noted of a settings file; None where nothing was, or it cannot be read: then nothing counts as ours."""
    found = _read(folder).get(_name(settings))
    return found if isinstance(found, dict) else None


def changes(folder: Path, settings: Path, note: Mapping[str, Any] | None) -> list[Change]:
    """The change that notes this for a settings file, or with None forgets it."""
    held = _read(folder)
    others = {name: each for name, each in held.items() if name != _name(settings)}
    wanted = others if note is None else {**others, _name(settings): note}
    if wanted == held:
        return []
    return [Change(folder / FILE, dump(wanted) if wanted else None, "what was set up", is_ours=True)]


def others(folder: Path, settings: Path) -> list[str]:
    """Other settings files that were set up and are still there."""
    return [name for name in _read(folder) if name != _name(settings) and Path(name).exists()]


def _name(settings: Path) -> str:
    return str(settings.absolute())


def _read(folder: Path) -> dict[str, Any]:
    try:
        held = json.loads((folder / FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return held if isinstance(held, dict) else {}
