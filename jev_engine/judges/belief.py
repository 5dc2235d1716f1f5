"""How far an uncalibrated judge is believed: shipped priors, and the maps that `jev-engine calibrate` has fitted."""

from __future__ import annotations

from pathlib import Path

from jev_engine.answers import Belief
from jev_engine.calibration import read_calibrations

__all__ = ["belief_for", "prior_for"]

# Marked as priors: medians of published answers, see `answers.Belief`. The wordings behind them asked the same two
# things in other words, so a prior holds for any version until somebody has fitted one.
PRIORS: dict[str, Belief] = {"jev-1.13.0": Belief(), "typesafe/jev-1.13": Belief(), "jev-latest": Belief()}


def prior_for(model: str | None) -> Belief:
    """What is believed of a model before anything was fitted; of an unknown one as much as of Jev."""
    return PRIORS.get(model or "", Belief())


def belief_for(judge: str, model: str | None, question_version: str, path: Path | None = None) -> Belief:
    """The map fitted for this judge, model and question version, else the prior.

    What `calibrate` fits are answers about results; those about calls lie on a scale of their own and keep the prior.
    Raises ConfigError for a file that is no calibration.
    """
    prior = prior_for(model)
    for fitted in read_calibrations(path) if path is not None else ():
        if fitted.fits(judge, model or "", question_version):
            return Belief(fitted.evidence, prior.call, is_fitted=True)
    return prior
