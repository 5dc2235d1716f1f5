"""From a corpus to numbers: features and hindsight labels of every unit at every cut.

The features are computed from the history as it stood at the cut, so they cannot see the future.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jev_engine.evaluate.corpus import Segment, Session, cuts_of, read_sessions
from jev_engine.evaluate.hindsight import Hindsight, look_back
from jev_engine.evaluate.metrics import Cut
from jev_engine.evaluate.vocabulary import Vocabulary, count_vocabulary
from jev_engine.judges.features import FEATURES, FeatureCache, tabulate
from jev_engine.judges.local import floor_of, is_tiny, is_unfamiliar

__all__ = ["LabelledCut", "Table", "label_corpus", "label_session", "stack"]

JUDGED_AGE = 3
"""The newest results are pinned everywhere, so the judge is trained and measured on older ones."""


class LabelledCut(NamedTuple):
    """One cut of one session: a row of features per unit and what hindsight says."""

    cut: Cut
    features: NDArray[np.float64]
    """One row per unit, columns as in `FEATURES`."""
    floors: NDArray[np.float64]
    """The least probability the judge gives each unit, 0 where it is at home."""
    is_tiny: NDArray[np.bool_]
    """Answered without the weights."""
    refetched: NDArray[np.bool_]
    numbers: NDArray[np.int32]
    """`ToolCall.number` of each unit within its segment."""


class Table(NamedTuple):
    """All units of all cuts below each other."""

    features: NDArray[np.float64]
    floors: NDArray[np.float64]
    is_tiny: NDArray[np.bool_]
    needed: NDArray[np.bool_]
    is_judged: NDArray[np.bool_]
    """Old enough to be judged at all."""
    session: NDArray[np.str_]
    project: NDArray[np.str_]
    starts: NDArray[np.int64]
    """Row of the first unit of each cut, and at the end the number of rows."""
    cuts: list[Cut]

    def per_cut(self, values: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Values of all rows, as one array per cut."""
        return np.split(values, self.starts[1:-1])


def _label_cut(segment: Segment, row: int, hindsight: Hindsight, cache: FeatureCache) -> LabelledCut:
    table = tabulate(segment.before(row), cache)
    verdicts = hindsight.verdicts(row)
    session = segment.session
    unfamiliar = is_unfamiliar(table)
    units = table.timeline.units
    cut = Cut(
        (session.session_id, session.project, session.harness, segment.number, row),
        np.array([len(call.result or "") for call in table.calls], np.int64),
        np.array([verdict.needed for verdict in verdicts], np.bool_),
        table.timeline.context_chars,
        hindsight.evidence_at(row),
    )
    floors = [floor_of(unit, len(units) - i, is_unfamiliar=unfamiliar) for i, unit in enumerate(units)]
    return LabelledCut(
        cut,
        np.array(table.rows, np.float64),
        np.array(floors, np.float64),
        np.array([is_tiny(unit) for unit in units], np.bool_),
        np.array([verdict.refetched for verdict in verdicts], np.bool_),
        np.array([call.number for call in table.calls], np.int32),
    )


def label_session(session: Session, vocabulary: Vocabulary) -> list[LabelledCut]:
    """All cuts of a session with features and labels."""
    found = []
    is_common = vocabulary.of_project(session.project)
    for segment in session.segments():
        rows = cuts_of(segment)
        if rows:
            hindsight = look_back(segment.transcript, is_common)
            cache = FeatureCache()
            found += [_label_cut(segment, row, hindsight, cache) for row in rows]
    return found


def label_corpus(path: Path, sessions: int | None = None) -> tuple[list[LabelledCut], Vocabulary]:
    """Label a corpus file, or its first `sessions`; progress goes to stderr."""
    chosen: list[Session] = []
    for session in read_sessions(path):
        if sessions is not None and len(chosen) >= sessions:
            break
        chosen.append(session)
    print(f"{len(chosen)} sessions; counting vocabulary", file=sys.stderr)  # noqa: T201  # progress
    vocabulary = count_vocabulary(chosen)
    found: list[LabelledCut] = []
    for number, session in enumerate(chosen, 1):
        found += label_session(session, vocabulary)
        if number % 20 == 0 or number == len(chosen):
            print(f"labelled {number}/{len(chosen)} sessions, {len(found)} cuts", file=sys.stderr)  # noqa: T201
    return found, vocabulary


def stack(labelled: Sequence[LabelledCut] | Iterable[LabelledCut]) -> Table:
    """Put the units of all cuts below each other."""
    rows = list(labelled)
    counts = [len(each.cut.chars) for each in rows]
    features = np.concatenate([each.features for each in rows])
    return Table(
        features,
        np.concatenate([each.floors for each in rows]),
        np.concatenate([each.is_tiny for each in rows]),
        np.concatenate([each.cut.needed for each in rows]),
        features[:, FEATURES.index("age")] > JUDGED_AGE,
        np.repeat([each.cut.session for each in rows], counts),
        np.repeat([each.cut.project for each in rows], counts),
        np.cumsum([0, *counts]),
        [each.cut for each in rows],
    )
