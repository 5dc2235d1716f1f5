r"""Models that never saw a project, one per project of a corpus, to be asked at any point of its sessions.

The fold predictions that ship answer at fixed cuts only; passes of a growing session fall between them.

    python -m jev_engine.evaluate.fold_models sessions.jsonl.gz    (the `train` extra; minutes)

fits each model without its project, as `train` does, and keeps the trees as numbers in the cache folder, where
`jev-engine evaluate --turns` finds them by corpus, label and columns.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jev_engine.evaluate.corpus import corpus_hash
from jev_engine.evaluate.hindsight import LABEL_VERSION
from jev_engine.evaluate.model import LEAF_STEPS, LINEAR_LIMIT, Blend, Tree, fit_blend
from jev_engine.judges.features import FEATURES

__all__ = ["FoldModels", "Forest", "default_place", "forest_of", "load_models", "main", "save_models"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]

DEEPEST = 64
"""A walk from a root ends after so many steps: trees of sixteen leaves have at most fifteen levels."""


class Forest(NamedTuple):
    """One blend as numbers: nodes of all trees in one row of arrays, and its logistic regressions."""

    roots: Ints
    column: Ints
    """Column of `FEATURES` a node asks for; -1 for a leaf."""
    limit: Floats
    """A row with less than this goes to `low`, any other to `high`."""
    low: Ints
    high: Ints
    value: Floats
    """Log-odds of a leaf, already multiplied by its booster's share of the mean."""
    linear: Floats
    """One row per logistic: its share, its bias, and a weight per column."""

    def log_odds(self, rows: Sequence[Sequence[float]]) -> Floats:
        """Log-odds that each result is needed; `rows` in the order of `FEATURES`."""
        features = np.asarray(rows, np.float64)
        place = np.tile(self.roots, (len(features), 1))
        lines = np.arange(len(features))[:, None]
        for _ in range(DEEPEST):
            column = self.column[place]
            if (column < 0).all():
                break
            is_low = features[lines, np.maximum(column, 0)] < self.limit[place]
            place = np.where(column < 0, place, np.where(is_low, self.low[place], self.high[place]))
        total = self.value[place].sum(1)
        for share, bias, *weights in self.linear:
            total += share * np.clip(features @ np.asarray(weights) + bias, *LINEAR_LIMIT)
        return np.asarray(total, np.float64)


def forest_of(blend: Blend) -> Forest:
    """A fitted blend as numbers; it is rounded as the shipped weights are."""
    shares = np.array(blend.shares()) / sum(blend.shares())
    nodes: list[tuple[int, float, int, int, float]] = []

    def add(tree: Tree, share: float) -> int:
        at = len(nodes)
        nodes.append((-1, 0.0, 0, 0, share * tree.value / LEAF_STEPS))
        if tree.low is not None and tree.high is not None:
            low, high = add(tree.low, share), add(tree.high, share)
            nodes[at] = (tree.column, tree.limit, low, high, 0.0)
        return at

    roots = [add(tree, float(share)) for share, trees in zip(shares, blend.forests, strict=False) for tree in trees]
    column, limit, low, high, value = zip(*nodes, strict=True)
    rest = shares[len(blend.forests) :]
    linear = [[share, each.bias, *each.weights] for share, each in zip(rest, blend.linears, strict=True)]
    return Forest(
        np.array(roots, np.int32),
        np.array(column, np.int32),
        np.array(limit),
        np.array(low, np.int32),
        np.array(high, np.int32),
        np.array(value),
        np.array(linear, np.float64).reshape(len(linear), 2 + len(FEATURES)),
    )


class FoldModels(NamedTuple):
    """The models of a corpus."""

    corpus: str
    """Hash of the corpus they were fitted on."""
    label: str
    columns: str
    """Digest of the names of the columns."""
    by_project: dict[str, Forest]
    """For each project the model that never saw it."""

    @property
    def is_current(self) -> bool:
        """Whether today's columns and label are those it was fitted with."""
        return (self.label, self.columns) == (LABEL_VERSION, columns_digest())

    @property
    def version(self) -> str:
        """Eight hex digits over all numbers."""
        digest = blake2b(digest_size=4)
        for project, forest in sorted(self.by_project.items()):
            digest.update(project.encode() + b"\0" + b"".join(part.tobytes() for part in forest))
        return digest.hexdigest()


def columns_digest() -> str:
    """Eight hex digits over the names of the columns."""
    return blake2b(" ".join(FEATURES).encode(), digest_size=4).hexdigest()


def default_place(corpus: str) -> Path:
    """Where the models of a corpus are kept: the user's cache folder."""
    import platformdirs  # noqa: PLC0415  # only where a cache is wanted

    name = f"{corpus}-{LABEL_VERSION}-{columns_digest()}.npz"
    return Path(platformdirs.user_cache_dir("jev-engine")) / "fold-models" / name


def save_models(models: FoldModels, path: Path) -> None:
    """Write them packed: numbers and names of projects."""
    arrays: dict[str, NDArray[np.generic]] = {
        "about": np.array([models.corpus, models.label, models.columns]),
        "projects": np.array(list(models.by_project)),
    }
    for number, forest in enumerate(models.by_project.values()):
        arrays |= {f"{number}/{field}": getattr(forest, field) for field in Forest._fields}
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with path.open("wb") as stream:
        np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]  # the stub takes keywords for options


def load_models(path: Path) -> FoldModels:
    """The models written to `path`; raises OSError or ValueError."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            corpus, label, columns = (str(each) for each in stored["about"])
            found = {
                str(project): Forest(*(stored[f"{number}/{field}"] for field in Forest._fields))
                for number, project in enumerate(stored["projects"])
            }
    except KeyError as error:
        raise ValueError(f"{path.name} holds no fold models: {error}") from None
    return FoldModels(corpus, label, columns, found)


def fit_models(corpus: Path, seed: int) -> FoldModels:
    """Label a corpus and fit one model per project, without that project."""
    from jev_engine.evaluate.table import label_corpus, stack  # noqa: PLC0415  # only where something is fitted
    from jev_engine.evaluate.train import session_weights  # noqa: PLC0415

    labelled, _ = label_corpus(corpus)
    table = stack(labelled)
    weights = session_weights(table)
    found = {}
    for project in np.unique(table.project):
        rows = table.is_judged & (table.project != project)
        found[str(project)] = forest_of(fit_blend(table.features[rows], table.needed[rows], weights[rows], seed))
        print(f"left out {project}", file=sys.stderr, flush=True)  # noqa: T201  # progress
    return FoldModels(corpus_hash(corpus), LABEL_VERSION, columns_digest(), found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m jev_engine.evaluate.fold_models", description=__doc__)
    parser.add_argument("corpus", type=Path, help="sessions, one JSON object a line, packed or not")
    parser.add_argument("--out", type=Path, help="file to write; the cache folder without it")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    models = fit_models(chosen.corpus, chosen.seed)
    path = chosen.out or default_place(models.corpus)
    save_models(models, path)
    print(f"{len(models.by_project)} models {models.version} -> {path}", file=sys.stderr)  # noqa: T201
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
