"""A pass once more from its input and recorded answers: the same bytes, and what another setting would keep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zlib import crc32

import anyio
import pytest
from audit_trails import KEY, messages_of, real_sessions
from click.testing import CliRunner

from jev_engine import ContextEngine, hookimpl, make_config
from jev_engine.audit.digests import Keyed
from jev_engine.audit.jsonl import JsonlSink
from jev_engine.audit.records import PassTold, read_trail
from jev_engine.audit.replay import (
    RecordedJudge,
    RecordedStore,
    config_of,
    differences,
    pin_rule,
    references_of,
)
from jev_engine.cli import main
from jev_engine.judges.asked import AskedJudge
from jev_engine.plugins import load_plugins
from jev_engine.store.sqlite import SqliteStore
from jev_engine.testing import ScriptedAsker, ScriptedJudge, call, result


class PinReads:
    """Pins by a rule of a plugin, which a replay does not have."""

    @hookimpl
    def register_pins(self, register: Any) -> None:
        register(lambda call: "our own" if call.number == 4 else None)


def recorded(path: Path, messages: list[Any], judge: Any, store: Any = None, **settings: Any) -> Any:
    sink = JsonlSink(path, key=KEY)
    config = make_config(**{"min_freed_share": 0.0, "pin_newest_calls": 1, **settings})
    engine = ContextEngine(
        config=config, judge=judge, sinks=[sink], store=store, plugins=load_plugins([PinReads()], entry_points=False)
    )
    done = anyio.run(lambda: engine.compress(messages, host="openai", force=True, goal="A goal."))
    sink.close()
    return done


def again(path: Path, told: PassTold, messages: list[Any]) -> Any:
    """The pass once more, by nothing but its trail and its input."""
    known = {u.reference: u.chars for p in read_trail(path).passes.values() for u in p.out if u.reference}
    plugins = load_plugins(entry_points=False)
    plugins.pins.append(pin_rule(told.units))
    engine = ContextEngine(config=config_of(told), judge=RecordedJudge(told.units), plugins=plugins)
    look = anyio.run(lambda: engine.inspect(messages, host="openai"))
    engine.store = RecordedStore(references_of(told, look.transcript.calls), known)
    started = told.started
    assert started is not None
    return anyio.run(
        lambda: engine.compress(
            messages, started.tokens, host="openai", force=started.is_forced, cache_is_cold=started.cache_is_cold
        )
    )


JUDGES = {
    "calibrated": lambda: ScriptedJudge(lambda call: (0.9, (call.number % 7) / 10)),
    "asked": lambda: AskedJudge(ScriptedAsker(lambda name, *_: (crc32(name.encode()) % 89) / 100)),
    "half": lambda: AskedJudge(ScriptedAsker(lambda name, *_: 0.2 if name.endswith(("1", "3", "5")) else None)),
    "local": lambda: None,
}
SETTINGS = {
    "worth": {},
    "threshold": {"policy": "threshold", "keep_result": 0.4, "keep_call": 0.2, "head_chars": 120},
    "reference": {"profile": "reference"},
    "classic": {"profile": "hermes-classic", "expand_tool": "jev_expand"},
    "protected": {"protect_paths": ("src/2.py",), "protect_ids": ("t5",), "miss_cost": 2.0},
}


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("judge", JUDGES)
def test_a_replay_gives_the_same_bytes(tmp_path: Path, judge: str, settings: str) -> None:
    """Whatever judge answered, under every policy, with pins and patterns the trail does not hold."""
    path, messages = tmp_path / "trail.jsonl", messages_of()
    done = recorded(path, messages, JUDGES[judge](), SqliteStore(tmp_path / "store.sqlite3"), **SETTINGS[settings])
    told = read_trail(path).find("last")
    replayed = again(path, told, messages)

    assert json.dumps(replayed.messages) == json.dumps(done.messages)
    assert [check for check in differences(told, replayed, Keyed(KEY)) if not check.is_same] == []


def test_a_second_pass_over_markers_is_replayed_too(tmp_path: Path) -> None:
    """Markers of the first pass are known by the trail, without the store."""
    path, store = tmp_path / "trail.jsonl", SqliteStore(tmp_path / "store.sqlite3")
    first = recorded(path, messages_of(), JUDGES["calibrated"](), store)
    more = [row for n in (50, 51, 52) for row in (call("read", path=f"{n}", call_id=f"m{n}"),
            result(f"later {n}\n" * 400, call_id=f"m{n}"))]  # fmt: skip
    grown = [*first.messages, *more]
    second = recorded(path, grown, JUDGES["calibrated"](), store)
    told = read_trail(path).find("last")

    assert second.changed
    assert again(path, told, grown).messages == second.messages


def test_another_input_is_noticed(tmp_path: Path) -> None:
    """One character of one result."""
    path, messages = tmp_path / "trail.jsonl", messages_of()
    recorded(path, messages, JUDGES["calibrated"]())
    messages[6] = {**messages[6], "content": messages[6]["content"] + "x"}
    told = read_trail(path).find("last")
    checks = differences(told, again(path, told, messages), Keyed(KEY))

    assert "input" in [check.what for check in checks if not check.is_same]


@pytest.mark.slow
def test_real_sessions_replay_to_the_same_bytes(tmp_path: Path, shared: Path) -> None:
    """With the judge that ships, under both policies."""
    for index, messages in enumerate(real_sessions(shared, 8)):
        path = tmp_path / f"{index}.jsonl"
        settings = SETTINGS["threshold"] if index % 2 else {}
        done = recorded(path, messages, None, SqliteStore(tmp_path / f"{index}.sqlite3"), **settings)
        told = read_trail(path).find("last")
        replayed = again(path, told, messages)
        assert json.dumps(replayed.messages) == json.dumps(done.messages), index
        assert [check for check in differences(told, replayed, Keyed(KEY)) if not check.is_same] == []


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A session, what `compress --audit` made of it, and the trail, in one folder."""
    (tmp_path / "session.json").write_text(json.dumps(messages_of(), indent=1))
    files = ("session.json", "-o", "out.json", "--audit", "trail.jsonl", "--store", "s.db")
    shell(tmp_path, "compress", *files, "--force", "--policy", "threshold", "--keep-result", "0.2", "--keep-call", "0")
    return tmp_path


def shell(folder: Path, *words: str, code: int = 0) -> str:
    paths = [str(folder / word) if "." in word and not word.startswith(("0", "-")) else word for word in words]
    done = CliRunner().invoke(main, paths, catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.output


def test_the_command_replays_and_compares_with_the_written_file(written: Path) -> None:
    """And says so where the file is another one."""
    replay = ("audit", "--file", "trail.jsonl", "replay", "--input", "session.json", "--output", "out.json")
    assert "Identical" in shell(written, *replay)

    out = written / "out.json"
    out.write_text(out.read_text().replace("Go on.", "Go on!"))
    assert "DIFFERENT  the written file" in shell(written, *replay, code=1)


def test_another_setting_shows_what_it_would_have_kept(written: Path) -> None:
    """By unit; and the table has a row for each threshold, with more going as it rises."""
    base = ("audit", "--file", "trail.jsonl", "replay", "--input", "session.json", "--json")
    kept = json.loads(shell(written, *base, "--keep-result", "0"))
    recorded_ = json.loads(shell(written, "audit", "--file", "trail.jsonl", "show", "--json"))
    out = [f"t{unit['number']}" for unit in recorded_["units"] if unit["action"] != "keep"]
    assert kept["would_stay"] == out
    assert kept["freed_tokens"] == 0

    table = json.loads(shell(written, *base, "--sweep"))
    assert [row["threshold"] for row in table] == [round(0.1 + 0.05 * n, 2) for n in range(13)]
    assert [row["out"] for row in table] == sorted(row["out"] for row in table)
