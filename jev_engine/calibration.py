"""How far to believe each judge that is not calibrated by itself: the maps that `jev-engine calibrate` wrote.

A map holds for one judge, model and wording of the questions; `evaluate.calibrate` fits it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jev_engine.answers import Evidence
from jev_engine.errors import ConfigError

__all__ = ["Calibration", "read_calibrations", "write_calibrations"]

VERSION = 1


class Calibration(NamedTuple):
    """One fitted map and what it was fitted on."""

    judge: str
    model: str
    question_version: str
    """Version of the wording."""
    evidence: Evidence
    rows: int
    needed: int
    log_loss_before: float
    """Per row, with the prior map."""
    log_loss_after: float

    def fits(self, judge: str, model: str, question_version: str) -> bool:
        """Whether it holds for these answers; a name left empty in it holds for any."""
        wanted = zip((self.judge, self.model, self.question_version), (judge, model, question_version), strict=True)
        return all(mine in ("", asked) for mine, asked in wanted)


def read_calibrations(path: Path) -> list[Calibration]:
    """The maps in a file; raises ConfigError."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["version"] != VERSION:
            raise ConfigError(f"{path}: calibration version {stored['version']!r} is not {VERSION}; calibrate again")
        return [Calibration(**{**entry, "evidence": Evidence(**entry["evidence"])}) for entry in stored["maps"]]
    except OSError as error:
        raise ConfigError(f"cannot read the calibration {path}: {error.strerror}") from error
    except (TypeError, KeyError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{path} holds no calibration: write one with `jev-engine calibrate`") from error


def write_calibrations(calibrations: Sequence[Calibration], path: Path) -> None:
    """Write the maps as versioned JSON."""
    maps: list[dict[str, Any]] = [{**each._asdict(), "evidence": each.evidence._asdict()} for each in calibrations]
    path.write_text(json.dumps({"version": VERSION, "maps": maps}, indent=1) + "\n", encoding="utf-8")
