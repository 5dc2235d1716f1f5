"""`jev-engine evaluate --turns`: growing sessions, pass by pass, for a corpus or for one session file."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jev_engine.cli.files import Refused
from jev_engine.cli.reading import read_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jev_engine.evaluate.runs import Plan
    from jev_engine.evaluate.tables import Stamp
    from jev_engine.evaluate.turns import Turns

__all__ = ["Replayed", "finish", "plan_turns", "replay_file"]

ONLY_CUTS = {"judge": "local", "policies": (), "cuts": None}
"""Options of the replay at cuts, and what they are where nobody gave them."""


class Replayed(NamedTuple):
    """What a replay turn by turn gives back, as the command goes on with it."""

    tables: list[Any]
    stamp: Stamp


def plan_turns(given: dict[str, Any]) -> Plan:
    """The plan of a replay turn by turn; raises Refused for what cannot be."""
    from jev_engine.evaluate.corpus import corpus_hash  # noqa: PLC0415  # only where something is measured
    from jev_engine.evaluate.fold_models import default_place, load_models  # noqa: PLC0415
    from jev_engine.evaluate.runs import Plan  # noqa: PLC0415
    from jev_engine.evaluate.turn_arms import choose_arms  # noqa: PLC0415
    from jev_engine.evaluate.turns import SYSTEM_TOKENS, Turns  # noqa: PLC0415

    for name, unset in ONLY_CUTS.items():
        if given[name] != unset:
            raise Refused(
                "--judge, --policy and --cuts are for the replay at cuts; with --turns use --arm and --window"
            )
    try:
        choose_arms(given["arms"])
    except ValueError as error:
        raise Refused(f"--arm: {error}") from None
    system = SYSTEM_TOKENS if given["system_tokens"] is None else given["system_tokens"]
    turns = Turns(given["windows"] or Turns().windows, given["arms"], system, given["joined"])
    corpus = corpus_hash(given["corpus"])
    models = given["models"] or default_place(corpus)
    if not models.is_file():
        models = None
    elif not (known := load_models(models)).is_current or known.corpus != corpus:
        raise Refused(f"{models.name} was fitted on another corpus, label or set of columns: "
                      f"python -m jev_engine.evaluate.fold_models {given['corpus'].name}")  # fmt: skip
    return Plan(given["corpus"], sessions=given["sessions"], seed=given["seed"], jobs=given["jobs"], turns=turns,
                models=models)  # fmt: skip


def replay_file(path: Path, plan: Plan) -> list[dict[str, Any]]:
    """One session file of any known form; raises Refused where it never calls for a pass."""
    from jev_engine.evaluate.turn_arms import choose_arms  # noqa: PLC0415
    from jev_engine.evaluate.turn_files import session_from  # noqa: PLC0415
    from jev_engine.evaluate.turns import replay_turns  # noqa: PLC0415
    from jev_engine.evaluate.vocabulary import load_vocabulary  # noqa: PLC0415
    from jev_engine.settings import user_plugins  # noqa: PLC0415

    file = read_session(str(path))
    adapter = user_plugins().sniff(file.messages)
    if adapter is None:
        raise Refused(f"{file.name} is neither a corpus (JSON lines with `messages` and `id`) nor a known session")
    turns = _turns(plan)
    session = session_from(adapter.read(file.messages), path.stem, adapter.name)
    return [replay_turns(session, choose_arms(turns.arms), turns, load_vocabulary())]


def finish(replayed: Sequence[dict[str, Any]], plan: Plan) -> Replayed:
    """Tables and stamp of what was replayed; raises Refused where no context was long enough."""
    from jev_engine.evaluate.turn_tables import FEW_SESSIONS, summarise_turns  # noqa: PLC0415

    turns = _turns(plan)
    sessions = [session for session in replayed if session.get("contexts")]
    if not sessions:
        least = min(turns.windows)
        raise Refused(f"{plan.corpus.name}: no context ever calls for a pass in a window of {least:,} tokens "
                      f"({turns.system_tokens:,} of them the system prompt). Try a smaller --window.")  # fmt: skip
    # The bars are for a corpus of real contexts: one session proves nothing, joined ones understate misses.
    has_bars = len(sessions) >= FEW_SESSIONS and not turns.is_joined
    tables = summarise_turns(sessions, turns.windows, plan.seed, has_bars=has_bars)
    return Replayed(tables, _stamp(sessions, plan))


def _turns(plan: Plan) -> Turns:
    if plan.turns is None:
        raise ValueError("the plan is for cuts")
    return plan.turns


def _stamp(sessions: Sequence[dict[str, Any]], plan: Plan) -> Stamp:
    from jev_engine.evaluate.corpus import corpus_hash  # noqa: PLC0415
    from jev_engine.evaluate.hindsight import LABEL_VERSION  # noqa: PLC0415
    from jev_engine.evaluate.runs import code_version  # noqa: PLC0415
    from jev_engine.evaluate.tables import Stamp  # noqa: PLC0415
    from jev_engine.evaluate.turns import SYSTEM_TOKENS  # noqa: PLC0415

    turns = _turns(plan)
    parts = ["jev-engine", "evaluate", plan.corpus.name, "--turns"]
    for window in turns.windows:
        parts += ["--window", str(window)]
    for arm in turns.arms:
        parts += ["--arm", arm]
    if turns.system_tokens != SYSTEM_TOKENS:
        parts += ["--system-tokens", str(turns.system_tokens)]
    if turns.is_joined:
        parts.append("--joined")
    if plan.sessions is not None:
        parts += ["--sessions", str(plan.sessions)]
    command = shlex.join([*parts, "--seed", str(plan.seed)])
    corpus = corpus_hash(plan.corpus)
    return Stamp(plan.corpus.name, corpus, LABEL_VERSION, code_version(), plan.seed, command,
                 _judge(sessions, plan, corpus))  # fmt: skip


def _judge(sessions: Sequence[dict[str, Any]], plan: Plan, corpus: str) -> str:
    """Whose answers the figures rest on."""
    from jev_engine.evaluate.fold_models import load_models  # noqa: PLC0415
    from jev_engine.evaluate.folds import load_folds  # noqa: PLC0415

    total, unseen = len(sessions), sum(session["unseen"] for session in sessions)
    try:
        is_trained_here = load_folds().corpus == corpus
    except OSError:
        is_trained_here = False
    shipped = "shipped weights, IN-SAMPLE (trained on this corpus)" if is_trained_here else "shipped weights"
    if not unseen or plan.models is None:
        return f"local, {shipped} on {total} sessions"
    version = load_models(plan.models).version
    rest = "" if unseen == total else f"; {shipped} on {total - unseen}"
    return f"local, leave-one-project-out models {version} on {unseen} of {total} sessions{rest}"
