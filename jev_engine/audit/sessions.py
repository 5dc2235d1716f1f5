"""One session of a trail, by whatever a person calls it."""

from __future__ import annotations

from pathlib import Path

from jev_engine.audit.digests import Keyed
from jev_engine.audit.files import read_lines, trail_files
from jev_engine.audit.upkeep import UPKEEP
from jev_engine.errors import AuditError

__all__ = ["find_session"]

SHOWN_SIGNS = 12
"""Of a digest, as `list` shows it."""
MOST_SHOWN = 8


def find_session(path: Path, name: str, key: bytes | None) -> str:
    """The keyed digest of a session of a trail; `name` is its name, that digest, or the beginning of it.

    A name can be looked up only with the trail's key. Raises AuditError for none or several, with what there is.
    """
    lines = (line for file in trail_files(path) for _, _, line in read_lines(file))
    found = dict.fromkeys(line.chain for line in lines if line is not None and line.chain != UPKEEP)
    if name in found:
        return name
    if key is not None and (digest := Keyed(key).digest(name)) in found:
        return digest
    begun = [chain for chain in found if name and chain.startswith(name)]
    if len(begun) == 1:
        return begun[0]
    # The newest, and so many signs that they differ.
    several = [chain[: max(SHOWN_SIGNS, len(name) + 4)] for chain in list(begun or found)[-MOST_SHOWN:]]
    there = f"{'; newest of ' + str(len(begun or found)) if len(begun or found) > len(several) else ''}"
    if begun:
        raise AuditError(f"{len(begun)} sessions of this trail begin with {name!r}: {', '.join(several)}{there}")
    how = "its name" if key is not None else "its name (with the trail's key: audit --key FILE)"
    raise AuditError(
        f"no session {name!r} in this trail: give {how}, its file, its digest as `list` shows it, or the beginning of "
        f"that. There are: {', '.join(several) or 'none'}{there}"
    )
