"""A judge by the name a user gives it: `local`, `jev`, `cascade`, or the URL of a server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jev_engine.errors import ConfigError
from jev_engine.judges import DEADLINE_SECONDS, Judge, JudgeRequest

if TYPE_CHECKING:
    from jev_engine.judges.planning import PlannedRequest
    from jev_engine.judges.privacy import Redactor

__all__ = ["JUDGES", "Preview", "make_judge", "planned_by", "preview"]

JUDGES = ("local", "jev", "cascade")


def make_judge(
    name: str = "local",
    endpoint: str | None = None,
    *,
    key: str | None = None,
    model: str | None = None,
    redactors: Sequence[Redactor] = (),
    calibration_file: Path | None = None,
    record: Path | None = None,
    replay: Path | None = None,
    deadline_seconds: float = DEADLINE_SECONDS,
) -> Judge | None:
    """The judge of that name; None for `local`, which the engine brings along.

    `endpoint` is a preset (`typesafe`, the default, `openrouter`, `openai-decisions`) or a URL; a URL as `name` means
    `jev` at that address, with its key in `JEV_ENGINE_API_KEY`. `record` writes a cassette, `replay` answers from one
    and sends nothing.
    Raises ConfigError for an unknown name or endpoint, an unsafe address, or a key that no header can carry.
    """
    if name == "local":
        if endpoint is not None:
            raise ConfigError("the local judge has no endpoint; choose --judge jev or cascade", setting="endpoint")
        return None
    if "://" in name:
        if endpoint is not None:
            raise ConfigError("give the address once: as the judge or as the endpoint", setting="endpoint")
        name, endpoint = "jev", name
    if name not in JUDGES:
        raise ConfigError(f"no judge goes by {name!r}; known are {', '.join(JUDGES)}, or give a URL", setting="judge")
    # Everything below brings the network along: loaded only where it is wanted.
    from jev_engine.judges.asked import AskedJudge  # noqa: PLC0415
    from jev_engine.judges.belief import belief_for  # noqa: PLC0415
    from jev_engine.questions import WORDING  # noqa: PLC0415

    asker = _asker(endpoint or "typesafe", key=key, model=model, record=record, replay=replay)
    belief = belief_for("jev", asker.model, WORDING.version, calibration_file)
    judge = AskedJudge(asker, name="jev", redactors=redactors, belief=belief, deadline_seconds=deadline_seconds)
    if name == "cascade":
        from jev_engine.judges.cascade import CascadeJudge  # noqa: PLC0415

        return CascadeJudge(judge)
    return judge


def _asker(endpoint: str, *, key: str | None, model: str | None, record: Path | None, replay: Path | None) -> Any:
    from jev_engine.judges.endpoints import endpoint_for  # noqa: PLC0415
    from jev_engine.judges.replay import RecordingAsker, ReplayAsker  # noqa: PLC0415

    if replay is not None:
        chosen = endpoint_for(endpoint)
        return ReplayAsker(replay, endpoint=chosen.name, model=model or chosen.model, budget=chosen.budget)
    from jev_engine.judges.jev import JevAsker  # noqa: PLC0415

    asker = JevAsker(endpoint, key=key, model=model)
    return asker if record is None else RecordingAsker(asker, record)


class Preview(NamedTuple):
    """One request as it would be sent."""

    url: str
    """Where to; "" for an asker that is not at an address."""
    body: str
    """All of it, word for word."""
    calls: int
    """Units asked about."""
    tokens: int
    """Estimated, questions included."""


def planned_by(judge: Any, request: JudgeRequest) -> list[PlannedRequest]:
    """The requests a judge made here would send first, without secrets. Raises JudgeError where redaction fails."""
    from jev_engine.judges.cascade import CascadeJudge  # noqa: PLC0415

    if isinstance(judge, CascadeJudge):
        request, judge = request._replace(candidates=judge.split(request)[0]), judge.asked
    planned: list[PlannedRequest] = judge.plan(judge.clean(request))
    return planned


def preview(judge: Any, planned: Sequence[PlannedRequest]) -> list[Preview]:
    """The same, as they would be sent; sends nothing."""
    from jev_engine.judges.endpoints import PRESETS, Endpoint  # noqa: PLC0415
    from jev_engine.judges.wire import body_of  # noqa: PLC0415
    from jev_engine.questions import questions_for  # noqa: PLC0415
    from jev_engine.tokens import whole  # noqa: PLC0415

    judge = getattr(judge, "asked", judge)
    endpoint = getattr(judge.asker, "endpoint", None)
    at = endpoint if isinstance(endpoint, Endpoint) else None
    previews = []
    for each in planned:
        questions = {name: q for call in each.calls for name, q in questions_for(call, judge.wording).items()}
        body = body_of(at or PRESETS["typesafe"], judge.model or "", each.state.text, questions).decode()
        previews.append(Preview(at.url if at else "", body, len(each.calls), whole(each.cost)))
    return previews
