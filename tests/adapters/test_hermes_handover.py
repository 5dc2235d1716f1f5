"""Handing over to the host's summariser, and what is told: to the trail and to the person in the chat."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from types import ModuleType
from typing import Any

import pytest
from audit_trails import Hears
from hosts.hermes_fake import FakeHost, NewHost
from hosts.hermes_process import asked_for, host_on, host_rows, process, rounds

from jev_engine.errors import StoreError
from jev_engine.store.memory import MemoryStore
from jev_engine.testing import ScriptedJudge
from jev_engine_adapters.hermes import hooks
from jev_engine_adapters.hermes.state import here
from jev_engine_adapters.hermes.status import command

HOSTS = [FakeHost, NewHost]


@pytest.fixture(autouse=True)
def nothing_remembered() -> Any:
    here.session = ""
    yield
    here.session = ""


# --- hand-over -------------------------------------------------------------------------------------------------------


class Compressor:
    """Stands in for the host's own: keeps the first row and the last two."""

    fails = False

    def __init__(self, model: str, *, threshold_percent: float = 0.5, quiet_mode: bool = False) -> None:
        self._last_compress_aborted = False
        self._last_summary_fallback_used = False

    def compress(self, messages: Any, current_tokens: Any = None, focus_topic: Any = None) -> Any:
        if self.fails:
            self._last_compress_aborted = True
            return messages
        return [messages[0], {"role": "assistant", "content": "SUMMARY", "_compressed_summary": True}, *messages[-2:]]


@pytest.fixture
def summariser(monkeypatch: pytest.MonkeyPatch) -> type[Compressor]:
    package, module = ModuleType("agent"), ModuleType("agent.context_compressor")
    module.ContextCompressor = Compressor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "agent", package)
    monkeypatch.setitem(sys.modules, "agent.context_compressor", module)
    monkeypatch.setattr(Compressor, "fails", False)
    return Compressor


def talk(host: FakeHost, turns: int = 30) -> None:
    for turn in range(turns):
        host.turn(f"topic_{turn} " + "why is it so? " * 700)


@pytest.mark.usefixtures("summariser")
@pytest.mark.parametrize("kind", HOSTS)
def test_words_that_fill_the_window_are_handed_over_and_kept(kind: type[FakeHost]) -> None:
    """Pruning frees nothing: the host's summariser takes over, and what it replaced can be found."""
    host = host_on(process(), kind)
    talk(host)
    engine = host.engine

    assert "SUMMARY" in json.dumps(host.messages)
    assert engine.session.hand_overs >= 1
    assert engine.compression_count == engine.session.hand_overs
    assert not host.lost_turns
    assert "topic_7 why is it so" in engine.handle_tool_call("jev_search", {"query": "topic_7"})


@pytest.mark.usefixtures("summariser")
def test_summarised_words_can_be_restored() -> None:
    host = host_on(process())
    host.messages = [
        {"role": role, "content": f"{n} " + "why is it so? " * 400} for n in range(30) for role in ("user", "assistant")
    ]
    before = list(host.messages)
    host.compact(62_000, force=True)
    engine = host.engine.shared.engine()
    back = asyncio.run(engine.restore(host.messages, host="hermes"))

    assert len(host.messages) == 4
    assert back.messages == before


def test_a_summariser_that_fails_is_left_alone_for_a_while(
    summariser: type[Compressor], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And the shortened history stands; a person who asks gets another try at once."""
    monkeypatch.setattr(summariser, "fails", True)
    host = host_on(process())
    talk(host, 28)
    session = host.engine.session

    assert session.hand_overs == 0
    assert session.retry_at > time.monotonic()
    assert session.summariser_failures == 1
    assert caplog.text.count("did not take over") == 1
    monkeypatch.setattr(summariser, "fails", False)
    host.compact(62_000, force=True)
    assert session.hand_overs == 1
    assert session.retry_at == 0


@pytest.mark.usefixtures("summariser")
def test_never_means_never() -> None:
    host = host_on(process(handover="never"))
    talk(host, 26)

    assert host.engine.session.hand_overs == 0
    assert "SUMMARY" not in json.dumps(host.messages)


@pytest.mark.usefixtures("summariser")
def test_pruning_that_suffices_hands_nothing_over() -> None:
    host = host_on(process())
    for turn in range(8):
        host.turn(f"Turn {turn}", rounds(8, 8 * turn))

    assert host.compactions
    assert host.engine.session.hand_overs == 0
    assert host.engine.compression_count == 0


# --- what is told ----------------------------------------------------------------------------------------------------


def test_committed_is_told_when_the_host_took_it_up() -> None:
    hears = Hears()
    host = host_on(process(sinks=[hears]))
    messages, made = asked_for(host)
    host.engine.shared.engine().sinks.close(5)
    before = hears.kinds()
    host.engine.on_session_start("s1+", boundary_reason="compression", old_session_id="s1")
    host.engine.shared.engine().sinks.close(5)

    assert made is not messages
    assert "proposed" in before
    assert "committed" not in before
    assert hears.kinds().count("committed") == 1
    assert "session_rotated" in hears.kinds()


def test_a_request_that_shows_the_pass_is_proof_too() -> None:
    """A host without database and boundary."""
    hears = Hears()
    host = host_on(process(sinks=[hears]))
    made = host.engine.compress(
        [{"role": "user", "content": "Read."}, *host_rows(9)], current_tokens=60_000, force=True
    )
    hooks._listener("pre_api_request", host.engine.shared)(session_id="s1", request_messages=made)
    host.engine.shared.engine().sinks.close(5)

    assert hears.kinds().count("committed") == 1


def test_a_pass_the_host_threw_away_is_told_as_discarded() -> None:
    hears = Hears()
    host = host_on(process(sinks=[hears]))
    messages = [{"role": "user", "content": "Read."}, *host_rows(9)]
    host.engine.compress(messages, current_tokens=60_000, force=True)
    host.engine.compress(messages, current_tokens=60_000, force=True)
    host.engine.shared.engine().sinks.close(5)

    assert hears.kinds().count("discarded") >= 1
    assert host.engine.session.discarded == 1


def test_a_host_that_gives_up_gets_nothing_and_leaves_a_trace() -> None:
    """0.20 and later: after its limit the host cancels; what the pool finishes late is thrown away."""
    hears = Hears()
    host = host_on(process(sinks=[hears]), NewHost)
    host.engine._compression_cancelled_check = lambda: True
    messages = [{"role": "user", "content": "Read."}, *host_rows(9)]

    assert host.engine.compress(messages, current_tokens=60_000, force=True) is messages
    host.engine.shared.engine().sinks.close(5)
    assert "committed" not in hears.kinds()
    assert hears.kinds().count("discarded") == 1


def test_the_chat_command_tells_and_takes_back() -> None:
    host = host_on(process())
    ask = command(host.engine.shared)
    host.turn("Read.", rounds(9))
    session = host.engine.session

    assert "active. 1 passes" in ask("")
    assert ask("ids").count("jx-") == len(session.last) > 0
    assert "type /compress now" in ask("undo")
    host.compact(30_000, force=True)
    assert "intact as" not in json.dumps(host.messages)
    assert "OFF" in ask("status")
    assert not host.engine.should_compress(60_000)
    ask("on")
    assert host.engine.should_compress(64_000)
    assert "/jev [" in ask("nonsense")


def test_a_pass_that_removed_calls_is_taken_back_too() -> None:
    """Thresholds may take a whole call out; its place is found by the record of the pass."""
    judge = ScriptedJudge(lambda _: (0.0, 0.0))
    host = host_on(process(judge, profile="hermes-classic", guards=False))
    messages, made = asked_for(host)
    command(host.engine.shared)("undo")
    back = host.engine.compress(made, current_tokens=30_000, force=True)

    assert len(made) < len(messages)
    assert back == messages
    assert "undone" in host.engine.get_status()["last_pass"]


def test_what_cannot_be_taken_back_is_told() -> None:
    class Broken(MemoryStore):
        async def read(self, reference: str, *, session: str | None = None) -> Any:
            raise StoreError("the disk is gone")

    host = host_on(process(store=Broken()))
    _, made = asked_for(host)
    command(host.engine.shared)("undo")

    assert host.engine.compress(made, current_tokens=30_000, force=True) is made
    assert "could not be undone: the disk is gone" in host.engine.get_status()["last_pass"]


def test_passes_that_are_off_stay_off_until_the_turn_would_be_lost() -> None:
    host = host_on(process())
    ask = command(host.engine.shared)
    ask("off")
    host.turn("Read.", rounds(9))
    quiet = len(host.compactions)
    host.limit = 20_000
    host.turn("Go on.")

    assert quiet == 0
    assert not host.lost_turns
    assert len(host.compactions) == 1


def test_a_command_in_a_gateway_of_many_chats_tells_nobody_elses_ids() -> None:
    shared = process()
    first = host_on(shared)
    first.turn("Read.", rounds(9))
    alone = command(shared)("ids")
    host_on(shared, session="s2")

    assert "jx-" in alone
    assert "jx-" not in command(shared)("ids")
