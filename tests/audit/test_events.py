"""Event models: frozen, told apart by `kind`, one end a pass, and without a word of the session."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import anyio
import pytest
from audit_trails import KEY, Hears, messages_of, write_trail
from pydantic import ValidationError

from jev_engine import ContextEngine, events, make_config
from jev_engine.audit.files import trail_files
from jev_engine.audit.jsonl import JsonlSink
from jev_engine.audit.records import read_events, read_trail
from jev_engine.errors import JudgeUnavailable
from jev_engine.judges.asked import AskedJudge
from jev_engine.testing import ScriptedAsker, ScriptedJudge, call, history, result, user

SECRETS = ("sk-ant-api03-FAKEFAKEFAKEFAKEFAKE", "ghp_0123456789abcdefghijABCDEFGHIJ0123", "hunter2-CANARY", "Zephyr-42")


def heard(path: Path) -> list[events.Event]:
    found = list(read_events(path))
    assert None not in found
    return [event for event in found if event is not None]


def test_every_kind_is_known_by_its_discriminator() -> None:
    """Each model has one literal kind of its own, and reading gives the same model back."""
    kinds = [get_args(kind.model_fields["kind"].annotation)[0] for kind in events.KINDS]

    assert len(set(kinds)) == len(kinds) == 22
    with pytest.raises(ValueError, match="not an event"):
        events.read_event('{"kind":"made_up"}')


def test_events_cannot_be_changed(trail: Path) -> None:
    """They are frozen, and refuse fields they do not know."""
    event = heard(trail)[0]
    with pytest.raises(ValidationError):
        event.session = "other"  # type: ignore[misc]
    with pytest.raises(ValueError, match="not an event"):
        events.read_event(json.dumps({**json.loads(event.model_dump_json()), "more": 1}))


def test_ids_are_uuids_and_sequence_has_no_gap(trail: Path) -> None:
    """So that the same event heard twice counts once, and a lost one is noticed."""
    found = heard(trail)
    by_pass: dict[str, list[int]] = {}
    for event in found:
        by_pass.setdefault(event.pass_id, []).append(event.sequence)

    assert len({uuid.UUID(hex=event.id) for event in found}) == len(found)
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in by_pass.values())
    assert {event.origin.engine_version for event in found} != {""}


def test_decisions_are_written_as_their_model_would_write_them(trail: Path) -> None:
    """The fast path and the model agree, value by value."""
    decided = [event for event in heard(trail) if isinstance(event, events.Decided)]
    for event in decided:
        written = events.read_event(event.model_dump_json(exclude_none=True))
        assert isinstance(written, events.Decided)
        assert written.units == event.units
        assert all(unit.reference and unit.text_digest for unit in event.units if unit.action != "keep")

    assert len(decided) == 2
    assert {unit.action for event in decided for unit in event.units} == {"keep", "truncate"}


@pytest.mark.parametrize(
    "columns",
    [{"number": [1], "action": ["keep"]}, {"number": [1], "action": ["keep", "keep"], "reason": ["a"]},
     {"number": [1], "action": ["keep"], "reason": ["a"], "made_up": [1]}],
    ids=["missing", "ragged", "unknown"],
)  # fmt: skip
def test_columns_that_are_no_decisions_are_refused(trail: Path, columns: Any) -> None:
    """A trail that was tampered with does not become a decision."""
    decided = next(event for event in heard(trail) if isinstance(event, events.Decided))
    with pytest.raises(ValueError, match="not an event"):
        events.read_event(json.dumps({**json.loads(decided.model_dump_json()), "columns": columns}))


class Fails:
    """Its error quotes everything."""

    name, is_calibrated, version = "fails", False, "v"

    async def judge(self, request: Any) -> Any:
        raise JudgeUnavailable(f"no answer for {request.goal} {[c.result for c in request.transcript.calls]}")


def hostile() -> list[Any]:
    """Secrets in every place a host fills."""
    planted = " ".join(SECRETS)
    rows = [
        row
        for n in range(8)
        for row in (
            call(
                f"read {SECRETS[n % 4]}", path=f"{planted}.py", text=planted if n % 2 else None, call_id=f"{planted}{n}"
            ),
            result(f"{planted} {n}\n" * 60),
        )
    ]
    return history(user(planted), *rows, user(planted))


def judges() -> Iterator[Any]:
    yield ScriptedJudge(lambda _: (0.0, 0.0))
    yield Fails()
    yield AskedJudge(ScriptedAsker(lambda *_: 0.1))
    yield AskedJudge(ScriptedAsker(lambda _name, _question, state: json.dumps(state)))


def test_planted_secrets_are_in_no_record(tmp_path: Path) -> None:
    """Tool names stand in events; what looks like a secret in one does not. Session names and goals do not either."""
    path = tmp_path / "trail.jsonl"
    sink = JsonlSink(path, key=KEY)
    settings = {"min_freed_share": 0.0, "pin_newest_calls": 0, "goal": SECRETS[2], "protect_paths": (SECRETS[3],)}
    for judge in judges():
        engine = ContextEngine(config=make_config(**settings), judge=judge, sinks=[sink])
        anyio.run(
            lambda e=engine: e.compress(hostile(), host="openai", force=True, session=SECRETS[2], goal=SECRETS[3])
        )
    sink.close()

    text = "".join(file.read_text() for file in trail_files(path))
    assert len(heard(path)) > 15
    for secret in SECRETS[:2]:
        assert secret not in text
    # A word that looks like no secret may be part of a tool's name, and of nothing else.
    for word in SECRETS[2:]:
        assert text.replace(f'"read {word}"', "").count(word) == 0


def test_content_is_told_only_where_the_user_asked_for_it(tmp_path: Path) -> None:
    """`audit_content` brings arguments, results and replacements of decided units."""
    write_trail(tmp_path / "without.jsonl")
    write_trail(tmp_path / "with.jsonl", audit_content=True)

    assert "line 3 of a file" not in (tmp_path / "without.jsonl").read_text()
    told = read_trail(tmp_path / "with.jsonl").find("last")
    assert "line 3 of a file" in told.contents[5].result
    assert told.contents[5].arguments == '{"path": "src/3.py"}'


def test_digests_differ_from_machine_to_machine(tmp_path: Path) -> None:
    """Another key, another session digest and other replacements' digests; the same key, the same."""
    ids = {}
    for name, key in (("a", KEY), ("b", KEY), ("c", b"o" * 32)):
        sink = JsonlSink(tmp_path / name, key=key)
        engine = ContextEngine(judge=ScriptedJudge(lambda _: (0.9, 0.0)), sinks=[sink])
        anyio.run(lambda e=engine: e.compress(messages_of(), host="openai", force=True, session="s"))
        sink.close()
        told = read_trail(tmp_path / name).find("last")
        ids[name] = (told.session, [unit.text_digest for unit in told.out])

    assert ids["a"] == ids["b"]
    assert ids["a"][0] != ids["c"][0]
    assert set(ids["a"][1]).isdisjoint(ids["c"][1])


@pytest.mark.parametrize(
    ("settings", "options", "end"),
    [({}, {"force": True}, "committed"), ({}, {"force": True, "dry_run": True}, "discarded"),
     ({"min_freed_share": 1.0}, {}, "discarded"), ({"required_sinks": ("gone",)}, {"force": True}, "abandoned")],
    ids=["committed", "dry", "not worth it", "failed"],
)  # fmt: skip
def test_every_pass_has_one_end(settings: Any, options: Any, end: str) -> None:
    """Committed, discarded or abandoned."""
    hears = Hears()
    config = make_config(**{"min_freed_share": 0.0, "pin_newest_calls": 1, **settings})
    engine = ContextEngine(config=config, judge=ScriptedJudge(lambda _: (0.9, 0.0)), sinks=[hears])
    anyio.run(lambda: engine.compress(messages_of(), host="openai", **options))
    engine.sinks.close(10)
    kinds = hears.kinds()

    assert [kind for kind in kinds if kind in ("committed", "discarded", "abandoned")] == [end]
    assert kinds[-1] == end
    assert kinds[0] == "pass_started"


def test_look_backs_are_told_once_seen() -> None:
    """The same call again after its result is out, and a control: the same call again while it is still there."""
    hears = Hears()
    config = make_config(min_freed_share=0.0, pin_newest_calls=0, pin_short_chars=0)
    judge = ScriptedJudge({"t2": (0.9, 0.0)})
    engine = ContextEngine(config=config, judge=judge, sinks=[hears])
    messages = messages_of(3)
    done = anyio.run(lambda: engine.compress(messages, host="openai", force=True))
    again = [*done.messages, call("read", path="src/0.py", call_id="n1"), result("line 0\n" * 200, call_id="n1"),
             call("read", path="src/1.py", call_id="n2"), result("line 1\n" * 200, call_id="n2")]  # fmt: skip
    anyio.run(lambda: engine.compress(again, host="openai", force=True, ledger=done.ledger))
    engine.sinks.close(10)

    backs = [event for event in hears.events if isinstance(event, events.Refetched)]
    out = next(d.call.reference for d in done.decisions if d.action != "keep")
    assert [back.reference for back in backs] == [out, None]
