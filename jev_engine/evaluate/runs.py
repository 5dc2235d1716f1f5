"""A whole corpus through the replay: several processes, one cached file per session, resumable.

A cached result is keyed by everything it depends on: the session's text, the corpus (its vocabulary), label and code
version, policies, seed, cuts and recorded answers. An interrupted run leaves its finished sessions behind.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, NamedTuple

import jev_engine
from jev_engine.evaluate.corpus import corpus_hash, parse_session, read_lines, read_sessions
from jev_engine.evaluate.hindsight import LABEL_VERSION
from jev_engine.evaluate.policies import choose
from jev_engine.evaluate.replay import Recorded, replay_session
from jev_engine.evaluate.turn_arms import choose_arms
from jev_engine.evaluate.turns import Turns, replay_turns
from jev_engine.evaluate.vocabulary import Vocabulary, count_vocabulary, load_vocabulary, save_vocabulary
from jev_engine.judges import Judge
from jev_engine.judges.choose import make_judge
from jev_engine.settings import user_plugins

if TYPE_CHECKING:
    from jev_engine.evaluate.fold_models import FoldModels

__all__ = ["Outside", "Plan", "code_version", "read_recorded", "replay_corpus"]

Say = Callable[[int, int], None]
"""Told how many sessions are done, and of how many."""

# Rooms whose code changes no replayed number.
_OUTSIDE = ("cli", "serve", "audit", "testing", "docs")
_VIEWS = frozenset(
    "summary findings corpus_tables results tables bootstrap report plots bill train model training_report"
    " turn_tables".split()
)


KEEP_RUNS = 6
"""Runs that stay in the cache folder, about 10 MB each for 283 sessions."""


class Outside(NamedTuple):
    """A judge that is asked during the replay, as `judges.choose.make_judge` takes it."""

    judge: str
    endpoint: str | None = None
    record: Path | None = None
    replay: Path | None = None


class Plan(NamedTuple):
    """What is replayed."""

    corpus: Path
    policies: tuple[str, ...] = ()
    """Names or groups; empty for all."""
    recorded: Path | None = None
    """Answers of a judge, one JSON object a line, see `read_recorded`."""
    cuts: int | tuple[int, ...] | None = None
    sessions: int | None = None
    """So many sessions, drawn by the seed."""
    seed: int = 0
    jobs: int = 1
    turns: Turns | None = None
    """Replay turn by turn instead of at cuts."""
    outside: Outside | None = None
    """A judge that is asked at every cut."""
    models: Path | None = None
    """Models that never saw a project, for the turns: see `fold_models`."""


@cache
def code_version() -> str:
    """The package version, and a digest of the code that replayed numbers depend on, as it was when first asked for."""
    digest = blake2b(digest_size=4)
    root = Path(str(files("jev_engine")))
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root)
        if inside.parts[0] not in _OUTSIDE and inside.stem not in _VIEWS:
            digest.update(inside.as_posix().encode() + b"\0" + path.read_bytes())
    return f"{jev_engine.__version__}+{digest.hexdigest()}"


def read_recorded(path: Path) -> Recorded:
    """Recorded answers by unit key.

    One JSON object a line with `key` and `raw_result` (and `raw_call`), as the audit trail's `decided` events have
    them,
    or with `p_result` and `p_call`. Other lines are passed over. Raises ValueError where nothing could be used.
    """
    found: dict[str, tuple[float | None, float | None]] = {}
    for line in read_lines(path):
        record = json.loads(line)
        p_result = record.get("raw_result", record.get("p_result")) if isinstance(record, dict) else None
        if p_result is not None and isinstance(record.get("key"), str):
            p_call = record.get("raw_call", record.get("p_call"))
            found[record["key"]] = (None if p_call is None else float(p_call), float(p_result))
    if not found:
        raise ValueError(f"{path.name} holds no recorded answer: lines need the keys 'key' and 'raw_result'")
    return found


def _folder(plan: Plan, corpus: str, within: Path) -> Path:
    names = [policy.name for policy in choose(plan.policies)]
    recorded = "" if plan.recorded is None else blake2b(plan.recorded.read_bytes(), digest_size=8).hexdigest()
    outside = None if plan.outside is None else [str(each) for each in plan.outside]
    key = json.dumps([corpus, LABEL_VERSION, code_version(), names, plan.seed, plan.cuts, recorded, outside])
    if plan.turns is not None:
        models = "" if plan.models is None else blake2b(plan.models.read_bytes(), digest_size=8).hexdigest()
        key = json.dumps([corpus, LABEL_VERSION, code_version(), plan.turns, models])
    return within / blake2b(key.encode(), digest_size=8).hexdigest()


def _vocabulary(plan: Plan, folder: Path) -> Vocabulary:
    """The shipped vocabulary and the corpus' own, counted over all of it whatever part is replayed."""
    common, local = folder / "vocabulary.bin", folder / "vocabulary-of-projects.json"
    if local.exists():
        stored = json.loads(local.read_text(encoding="utf-8"))
        projects = {name: frozenset(map(bytes.fromhex, hashes)) for name, hashes in stored.items()}
        return Vocabulary(load_vocabulary(common).common, projects)
    counted = count_vocabulary(read_sessions(plan.corpus))
    shipped = files("jev_engine.evaluate").joinpath("data/vocabulary.bin")
    if shipped.is_file():
        counted |= load_vocabulary()
    save_vocabulary(counted, common)
    projects_json = {name: sorted(each.hex() for each in hashes) for name, hashes in counted.local.items()}
    local.write_text(json.dumps(projects_json), encoding="utf-8")
    return counted


def _digest(line: str) -> str:
    return blake2b(line.encode("utf-8", "surrogatepass"), digest_size=10).hexdigest()


def _draw(digests: Sequence[str], count: int | None, seed: int) -> set[str]:
    """Which sessions are replayed: all, or so many as the seed draws."""
    if count is None:
        return set(digests)
    drawn = sorted(digests, key=lambda digest: blake2b(f"{seed}/{digest}".encode()).digest())
    return set(drawn[:count])


def replay_corpus(plan: Plan, within: Path, say: Say | None = None) -> list[dict[str, Any]]:
    """The replayed sessions in the order of the corpus; finished ones are taken from the cache folder `within`.

    Sessions too short to be cut are left out. An interrupt passes through and leaves what is finished.
    """
    corpus = corpus_hash(plan.corpus)
    folder = _folder(plan, corpus, within)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _forget_old_runs(within, folder)
    digests = [_digest(line) for line in read_lines(plan.corpus)]
    drawn = _draw(digests, plan.sessions, plan.seed)
    order = [digest for digest in digests if digest in drawn]
    missing = {digest for digest in order if not (folder / f"{digest}.json").exists()}
    done = len(order) - len(missing)
    if say is not None:
        say(done, len(order))
    if missing:
        _start(plan, _vocabulary(plan, folder), corpus)
        for _ in _work(plan, corpus, folder, missing):
            done += 1
            if say is not None:
                say(done, len(order))
    found = [json.loads((folder / f"{digest}.json").read_text(encoding="utf-8")) for digest in order]
    return [session for session in found if any(session.get(part) for part in ("cuts", "lookback", "contexts"))]


def _forget_old_runs(within: Path, current: Path) -> None:
    """Keep the newest runs only: every change of code or settings begins a new one."""
    current.touch()
    runs = sorted((path for path in within.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    for path in runs[:-KEEP_RUNS]:
        rmtree(path, ignore_errors=True)


def _work(plan: Plan, corpus: str, folder: Path, missing: set[str]) -> Iterator[None]:
    """Replay what is missing; yields once per session."""
    lines = ((line, digest) for line in read_lines(plan.corpus) if (digest := _digest(line)) in missing)
    if plan.jobs <= 1:
        for line, digest in lines:
            _replay_line(line, folder / f"{digest}.json")
            yield
        return
    # A few sessions ahead of the workers, so that the corpus is never in memory as a whole.
    ahead = 2 * plan.jobs
    waiting: set[Future[None]] = set()
    with ProcessPoolExecutor(plan.jobs, initializer=_start_worker, initargs=(plan, corpus, folder)) as pool:
        try:
            for line, digest in lines:
                waiting.add(pool.submit(_replay_line, line, folder / f"{digest}.json"))
                while len(waiting) >= ahead:
                    finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in finished)
            while waiting:
                finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in finished)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class _Worker(NamedTuple):
    """What a process needs for any session."""

    plan: Plan
    vocabulary: Vocabulary
    folds: dict[tuple[str, int, int], dict[int, float]]
    recorded: Recorded | None
    models: FoldModels | None
    judge: Judge | None = None


_WORKER: list[_Worker] = []
"""The one of this process: sessions are sent to processes, what they share is not."""


def _start_worker(plan: Plan, corpus: str, folder: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    _start(plan, _vocabulary(plan, folder), corpus)


def _start(plan: Plan, vocabulary: Vocabulary, corpus: str) -> None:
    recorded = None if plan.recorded is None else read_recorded(plan.recorded)
    if plan.turns is None:
        judge = None if plan.outside is None else _judge_of(plan.outside)
        _WORKER[:] = [_Worker(plan, vocabulary, _folds(corpus), recorded, None, judge)]
        return
    models = None
    if plan.models is not None:
        from jev_engine.evaluate.fold_models import load_models  # noqa: PLC0415  # numpy, and only where there are any

        models = load_models(plan.models)
    _WORKER[:] = [_Worker(plan, vocabulary, {}, None, models)]


def _judge_of(outside: Outside) -> Judge | None:
    redactors = user_plugins().redactors
    return make_judge(
        outside.judge, outside.endpoint, redactors=redactors, record=outside.record, replay=outside.replay
    )


@cache
def _folds(corpus: str) -> dict[tuple[str, int, int], dict[int, float]]:
    """The shipped fold predictions where this is the corpus they were made on under this label, else none."""
    if not files("jev_engine.evaluate").joinpath("data/folds.npz").is_file():
        return {}
    from jev_engine.evaluate.folds import load_folds  # noqa: PLC0415  # numpy, and only where there are folds

    folds = load_folds()
    return folds.by_place() if (folds.corpus, folds.label) == (corpus, LABEL_VERSION) else {}


def _replay_line(line: str, path: Path) -> None:
    worker = _WORKER[0]
    plan, session = worker.plan, parse_session(line, path.stem)
    if plan.turns is not None:
        forest = None if worker.models is None else worker.models.by_project.get(session.project)
        found = replay_turns(session, choose_arms(plan.turns.arms), plan.turns, worker.vocabulary, forest)
    else:
        found = replay_session(
            session,
            choose(plan.policies),
            worker.vocabulary,
            seed=plan.seed,
            cuts=plan.cuts,
            folds=worker.folds,
            recorded=worker.recorded,
            judge=worker.judge,
        )
    partial = path.with_suffix(f".{os.getpid()}.part")
    partial.write_text(json.dumps(found, separators=(",", ":")), encoding="utf-8")
    partial.replace(path)
