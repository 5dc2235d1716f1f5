"""Train the local judge: `python -m jev_engine.evaluate.train CORPUS`.

Leaves out one project at a time to measure, then trains on everything for what ships. Seeded; writes
`judges/weights.py`, the vocabulary and the fold predictions under `evaluate/data/`, and the training report.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from jev_engine.evaluate.corpus import corpus_hash
from jev_engine.evaluate.folds import Folds, save_folds
from jev_engine.evaluate.generate import weights_source
from jev_engine.evaluate.hindsight import LABEL_VERSION
from jev_engine.evaluate.memory import ProjectMemory
from jev_engine.evaluate.model import BLEND, PLAIN, Member, fit_blend
from jev_engine.evaluate.table import LabelledCut, Table, label_corpus, stack
from jev_engine.evaluate.training_report import write_report
from jev_engine.evaluate.vocabulary import save_vocabulary

__all__ = ["leave_one_project_out", "main", "remember", "session_weights"]

Floats = NDArray[np.float64]

PACKAGE = Path(__file__).resolve().parent.parent
MEMORY_ORDERS = 3
"""Random orders of a project's sessions over which the project memory is averaged."""
MAX_MODULE_BYTES = 60_000
"""Largest weights module that ships: it is imported by every process that compacts."""


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201  # the progress of a command


def session_weights(table: Table) -> Floats:
    """A session of n rows weighs as n ** 0.5: its rows are cuts of one history and far from independent."""
    names, inverse = np.unique(table.session, return_inverse=True)
    counts = np.bincount(inverse[table.is_judged], minlength=len(names))
    weights = 1 / np.sqrt(np.maximum(counts, 1))[inverse]
    return np.asarray(weights / weights[table.is_judged].mean())


def leave_one_project_out(table: Table, members: Sequence[Member], seed: int) -> Floats:
    """Log-odds of every row from a blend that never saw its project."""
    weights = session_weights(table)
    found = np.zeros(len(table.features))
    for project in np.unique(table.project):
        train = table.is_judged & (table.project != project)
        blend = fit_blend(table.features[train], table.needed[train], weights[train], seed, members)
        test = table.project == project
        found[test] = blend.log_odds(table.features[test])
        say(f"left out {project}: {int(test.sum())} rows")
    return found


def probabilities(table: Table, log_odds: Floats) -> Floats:
    """The judge's answers as the package gives them: within limits, floored where unfamiliar, fixed where tiny."""
    from jev_engine.judges.local import HIGHEST, LOWEST, TINY_NEEDED  # noqa: PLC0415  # imports what is written here

    p = np.clip(1 / (1 + np.exp(-log_odds)), LOWEST, HIGHEST)
    return np.maximum(np.where(table.is_tiny, TINY_NEEDED, p), table.floors)


def remember(table: Table, log_odds: Floats, seed: int) -> list[Floats]:
    """Probabilities with the memory of the project's earlier sessions only, for several orders of its sessions."""
    found = []
    p = 1 / (1 + np.exp(-log_odds))
    for order in range(MEMORY_ORDERS):
        random = np.random.default_rng(seed + order)
        moved = log_odds.copy()
        for project in np.unique(table.project):
            memory = ProjectMemory()
            sessions = np.unique(table.session[table.project == project])
            for session in random.permutation(sessions):
                rows = table.session == session
                slope, intercept = memory.fit()
                moved[rows] = slope * log_odds[rows] + intercept
                judged = rows & table.is_judged & ~table.is_tiny
                memory.add_session(p[judged].tolist(), table.needed[judged].tolist())
        found.append(probabilities(table, moved))
    return found


def save_predictions(labelled: Sequence[LabelledCut], table: Table, log_odds: Floats, corpus: str, path: Path) -> None:
    """Write the fold predictions: numbers and session ids only. Tiny results carry their fixed answer."""
    from jev_engine.judges.local import TINY_NEEDED  # noqa: PLC0415  # imports what is written here

    fixed = np.log(TINY_NEEDED / (1 - TINY_NEEDED))
    cuts = [each.cut for each in labelled]
    folds = Folds(
        corpus,
        LABEL_VERSION,
        np.array([cut.session for cut in cuts]),
        np.array([cut.segment for cut in cuts], np.int16),
        np.array([cut.row for cut in cuts], np.int32),
        table.starts,
        np.concatenate([each.numbers for each in labelled]),
        np.where(table.is_tiny, fixed, log_odds),
    )
    save_folds(folds, path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m jev_engine.evaluate.train", description=__doc__)
    parser.add_argument("corpus", type=Path, help="sessions, one JSON object a line, packed or not")
    parser.add_argument("--out", type=Path, default=PACKAGE.parent, help="project folder to write into")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bootstrap", type=int, default=300, help="samples behind each interval")
    chosen = parser.parse_args(arguments)

    labelled, vocabulary = label_corpus(chosen.corpus)
    table = stack(labelled)
    corpus = corpus_hash(chosen.corpus)
    say(f"corpus {corpus}: {len(table.cuts)} cuts, {len(table.needed)} rows")
    unseen = leave_one_project_out(table, BLEND, chosen.seed)
    plain = leave_one_project_out(table, PLAIN, chosen.seed)
    blend = fit_blend(
        table.features[table.is_judged],
        table.needed[table.is_judged],
        session_weights(table)[table.is_judged],
        chosen.seed,
        BLEND,
    )
    package = chosen.out / "jev_engine"
    command = f"python -m jev_engine.evaluate.train {chosen.corpus.name} --seed {chosen.seed}"
    origin = f"Made by `{command}` from corpus {corpus}, label {LABEL_VERSION}."
    source = weights_source(blend, f"{corpus}-{LABEL_VERSION}-{chosen.seed}", origin)
    if len(source.encode()) > MAX_MODULE_BYTES:
        say(f"the module has {len(source.encode())} bytes, more than {MAX_MODULE_BYTES}")
        return 1
    (package / "judges" / "weights.py").write_text(source, encoding="utf-8")
    data = package / "evaluate" / "data"
    data.mkdir(parents=True, exist_ok=True)
    save_vocabulary(vocabulary, data / "vocabulary.bin")
    save_predictions(labelled, table, unseen, corpus, data / "folds.npz")
    judges = {
        "blend": [probabilities(table, unseen)],
        "blend + project memory": remember(table, unseen, chosen.seed),
        "age, size and kind": [1 / (1 + np.exp(-plain))],
    }
    report = write_report(table, judges, command, corpus, len(source.encode()), chosen.bootstrap)
    docs = chosen.out / "docs"
    docs.mkdir(exist_ok=True)
    (docs / "training-report.md").write_text(report, encoding="utf-8")
    print(report)  # noqa: T201  # the result of the command
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
