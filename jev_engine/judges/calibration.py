"""How far a judge's answers are believed: shipped priors, and what `jev-engine calibrate` has fitted.

A calibration file holds one JSON object, or a list of them, each for one judge, model and question version:

    {"version": 1, "judge": "jev", "model": "jev-1.13.0", "question_version": "jev-engine-1",
     "result": {"weight": 0.8, "typical": 0.16, "clip": 1.5}, "call": {"weight": 1.0, "typical": 0.31, "clip": 1.5}}
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from jev_engine.answers import Calibration, Evidence
from jev_engine.errors import ConfigError

__all__ = ["Fit", "calibration_for", "fit_of", "prior_for", "read_fits"]

# Marked as priors: medians of published answers, see `answers.Calibration`. The wordings behind them asked the same
# two things in other words, so they hold for any version until somebody has fitted one.
PRIORS: dict[str, Calibration] = {
    "jev-1.13.0": Calibration(),
    "typesafe/jev-1.13": Calibration(),
    "jev-latest": Calibration(),
}


class Step(BaseModel):
    """One `Evidence`: log-odds move by `clip(weight (logit raw - logit typical))`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    weight: Annotated[float, Field(strict=True, ge=0.0, le=10.0, allow_inf_nan=False)]
    typical: Annotated[float, Field(strict=True, gt=0.0, lt=1.0, allow_inf_nan=False)]
    clip: Annotated[float, Field(strict=True, ge=0.0, le=10.0, allow_inf_nan=False)]


class Fit(BaseModel):
    """What was fitted for one judge, model and question version."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    judge: str
    model: str
    question_version: str
    result: Step
    call: Step

    def calibration(self) -> Calibration:
        """The same as `Calibration`."""
        result, call = (Evidence(s.weight, s.typical, s.clip) for s in (self.result, self.call))
        return Calibration(result, call, is_fitted=True)


_FITS: TypeAdapter[list[Fit]] = TypeAdapter(list[Fit])


def fit_of(judge: str, model: str, question_version: str, calibration: Calibration) -> Fit:
    """A fit as it is written to a file: `fit.model_dump_json()`."""
    result, call = (Step(weight=e.weight, typical=e.typical, clip=e.clip) for e in calibration[:2])
    return Fit(judge=judge, model=model, question_version=question_version, result=result, call=call)


def read_fits(path: Path) -> list[Fit]:
    """The fits in a file; none where there is no file. Raises ConfigError for one that holds something else."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"calibration cannot be read: {type(error).__name__}", setting="calibration") from None
    try:
        return _FITS.validate_json(text if text.startswith("[") else f"[{text}]")
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"][1:]))
        raise ConfigError(f"calibration file, {where or 'form'}: {first['msg']}", setting="calibration") from None


def prior_for(model: str | None, question_version: str) -> Calibration:
    """What is believed of a model before anything was fitted."""
    return PRIORS.get(model or "", Calibration())


def calibration_for(judge: str, model: str | None, question_version: str, path: Path | None = None) -> Calibration:
    """The fit for this judge, model and question version, else the prior. Raises ConfigError as `read_fits` does."""
    for fit in read_fits(path) if path is not None else ():
        if (fit.judge, fit.model, fit.question_version) == (judge, model, question_version):
            return fit.calibration()
    return prior_for(model, question_version)
