"""A judge by the name a user gives it: `local`, `jev`, `cascade`, or the URL of a server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jev_engine.errors import ConfigError
from jev_engine.judges import DEADLINE_SECONDS, Judge, JudgeRequest
from jev_engine.judges.privacy import Redactor

__all__ = ["JUDGES", "Preview", "make_judge", "preview"]

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


def preview(judge: Any, request: JudgeRequest) -> list[Preview]:
    """What a judge made here would send first; sends nothing. Raises JudgeError where redaction fails."""
    from jev_engine.judges.cascade import CascadeJudge  # noqa: PLC0415
    from jev_engine.judges.endpoints import PRESETS, Endpoint  # noqa: PLC0415
    from jev_engine.judges.wire import body_of  # noqa: PLC0415
    from jev_engine.questions import questions_for  # noqa: PLC0415
    from jev_engine.tokens import whole  # noqa: PLC0415

    if isinstance(judge, CascadeJudge):
        request, judge = request._replace(candidates=judge.split(request)[0]), judge.asked
    asker = judge.asker
    endpoint = asker.endpoint if isinstance(getattr(asker, "endpoint", None), Endpoint) else None
    previews = []
    for planned in judge.plan(judge.clean(request)):
        questions = {name: q for call in planned.calls for name, q in questions_for(call, judge.wording).items()}
        body = body_of(endpoint or PRESETS["typesafe"], judge.model or "", planned.state.text, questions)
        url = endpoint.url if endpoint else ""
        previews.append(Preview(url, body.decode(), len(planned.calls), whole(planned.cost)))
    return previews
