"""Fold predictions: what the shipped kind of judge says about each session when its project was left out.

In-sample figures of the training corpus must never be shown as if they were not; these are used instead.
Numbers and session ids only.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Folds", "load_folds", "save_folds"]

STEPS_PER_UNIT = 1_000
"""Log-odds are stored in thousandths: a probability moves by at most 0.0002."""


class Folds(NamedTuple):
    """Predictions per unit and cut."""

    corpus: str
    """Hash of the corpus they were made on."""
    label: str
    session: NDArray[np.str_]
    """One per cut, as are `segment` and `row`."""
    segment: NDArray[np.int16]
    row: NDArray[np.int32]
    """Message row of the cut within its segment."""
    starts: NDArray[np.int64]
    """Place of each cut's first unit in the arrays below, and at the end their length."""
    number: NDArray[np.int32]
    """`ToolCall.number` of each unit within its segment."""
    log_odds: NDArray[np.float64]

    def by_place(self) -> dict[tuple[str, int, int], dict[int, float]]:
        """For each (session, segment, row): log-odds that a result is needed, by call number."""
        found = {}
        for i, session in enumerate(self.session):
            units = slice(int(self.starts[i]), int(self.starts[i + 1]))
            answers = dict(zip(self.number[units].tolist(), self.log_odds[units].tolist(), strict=True))
            found[str(session), int(self.segment[i]), int(self.row[i])] = answers
        return found


def save_folds(folds: Folds, path: Path) -> None:
    """Write them packed."""
    names, inverse = np.unique(folds.session, return_inverse=True)
    steps = np.clip(np.round(folds.log_odds * STEPS_PER_UNIT), -32_000, 32_000).astype(np.int16)
    np.savez_compressed(
        path,
        corpus=np.array(folds.corpus),
        label=np.array(folds.label),
        names=names,
        session=inverse.astype(np.int16),
        segment=folds.segment,
        row=folds.row,
        starts=folds.starts.astype(np.int32),
        number=folds.number,
        steps=steps,
    )


def load_folds(path: Path | None = None) -> Folds:
    """The predictions that ship with the package, or those written to `path`."""
    source = files("jev_engine.evaluate").joinpath("data/folds.npz") if path is None else path
    with source.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
        return Folds(
            str(stored["corpus"]),
            str(stored["label"]),
            stored["names"][stored["session"]],
            stored["segment"],
            stored["row"],
            stored["starts"].astype(np.int64),
            stored["number"],
            stored["steps"].astype(np.float64) / STEPS_PER_UNIT,
        )
