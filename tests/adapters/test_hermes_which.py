"""Whose session it is: users of one process never hide, shorten, read or take back what is another's."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar, copy_context
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hosts.hermes_old import OldAgent, OldHost
from hosts.hermes_process import host_on, process, rounds
from hypothesis import given, settings
from hypothesis import strategies as st

from jev_engine_adapters.hermes import hooks, tools
from jev_engine_adapters.hermes.state import Shared, here
from jev_engine_adapters.hermes.status import command
from jev_engine_adapters.hermes.which import asking

CHANGING = ("off", "on", "undo")


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    here.session = ""
    asking.set(None)
    monkeypatch.delenv("HERMES_SESSION_ID", raising=False)
    yield
    here.session = ""
    asking.set(None)


def state_of(shared: Shared) -> tuple[set[str], set[str]]:
    return set(shared.paused), set(shared.undoing)


# --- commands in a chat ----------------------------------------------------------------------------------------------


class SessionContext(ModuleType):
    """What a gateway tells plugins of its sessions: a variable of the context, or else that of the process."""

    def __init__(self, *, is_engaged: bool = True) -> None:
        super().__init__("gateway.session_context")
        self.variables: dict[str, ContextVar[str | None]] = {
            name: ContextVar(name, default=None) for name in ("HERMES_SESSION_ID", "HERMES_SESSION_PLATFORM")
        }
        self.session_context_engaged = lambda: is_engaged

    def get_session_env(self, name: str, default: str = "") -> str:
        import os  # noqa: PLC0415  # as the host does

        bound = self.variables[name].get()
        return os.environ.get(name, default) if bound is None else bound

    def bind(self, session: str) -> None:
        self.variables["HERMES_SESSION_ID"].set(session)
        self.variables["HERMES_SESSION_PLATFORM"].set("telegram" if session else "")


def install(monkeypatch: pytest.MonkeyPatch, context: ModuleType) -> None:
    monkeypatch.setitem(sys.modules, "gateway", ModuleType("gateway"))
    monkeypatch.setitem(sys.modules, "gateway.session_context", context)


@pytest.mark.parametrize("word", CHANGING)
@pytest.mark.parametrize("last_made", ["", "a", "b", "c"])
@pytest.mark.parametrize("known", [(), ("a",), ("a", "b"), ("a", "c")])
def test_a_gateway_that_does_not_say_whose_chat_it_is_changes_nothing(
    word: str, last_made: str, known: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever agent was made last in the process, and however many of its sessions are known."""
    install(monkeypatch, SessionContext())
    if last_made:
        monkeypatch.setenv("HERMES_SESSION_ID", last_made)
    shared = process()
    for name in known:
        shared.session(name).is_paused = True
        shared.session(name).wants_undo = True
    before = state_of(shared)
    said = command(shared)(word)

    assert state_of(shared) == before
    assert "does not say which" in said


def test_a_gateway_that_does_not_say_shows_nobodys_ids_and_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = process()
    first = host_on(shared)
    first.turn("Read.", rounds(9))
    assert "jx-" in command(shared)("ids")
    install(monkeypatch, SessionContext())
    monkeypatch.setenv("HERMES_SESSION_ID", first.session)

    assert "jx-" not in command(shared)("ids")
    assert "1 passes" not in command(shared)("status")


@pytest.mark.parametrize("word", CHANGING)
@pytest.mark.parametrize("last_made", ["", "a", "b"])
@pytest.mark.parametrize("known", [("a",), ("a", "b")])
@pytest.mark.parametrize("how", ["bound", "dispatched"])
def test_a_gateway_that_says_it_means_that_chat_and_no_other(
    word: str, last_made: str, known: tuple[str, ...], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also before this process has seen that session, and with another user's agent made in between."""
    context = SessionContext()
    install(monkeypatch, context)
    if last_made:
        monkeypatch.setenv("HERMES_SESSION_ID", last_made)
    shared = process()
    for name in known:
        shared.session(name)
    shared.paused |= {"a", "b"} if word == "on" else set()
    if how == "bound":
        context.bind("b")
    else:
        dispatch(shared, "b", f"/jev {word}")
    command(shared)(word)

    assert ("a" in shared.paused, "a" in shared.undoing) == (word == "on", False)
    assert ("b" in shared.paused, "b" in shared.undoing) == (word == "off", word == "undo")


def dispatch(shared: Shared, session: str | None, text: str, *, is_old: bool = False) -> None:
    """As a gateway tells plugins of a message, before it carries a command out."""
    table = [SimpleNamespace(session_key=f"key of {name}", session_id=name) for name in ("a", "b", session) if name]
    by_key = {entry.session_key: entry.session_id for entry in table}
    store = SimpleNamespace(list_sessions=lambda: list({entry.session_id: entry for entry in table}.values()))
    if not is_old:
        store.peek_session_id = by_key.get
    hooks._listener("pre_gateway_dispatch", shared)(
        event=SimpleNamespace(text=text, source=session),
        gateway=SimpleNamespace(_session_key_for_source=lambda source: f"key of {source}"),
        session_store=store,
    )


@pytest.mark.parametrize("is_old", [False, True])
def test_messages_at_once_are_each_their_own_users(is_old: bool) -> None:  # noqa: FBT001
    """A task inherits the context of the one that made it: what was bound there is not its own."""
    shared = process()
    shared.session("a")

    def asks(session: str | None, word: str, inner: Callable[[], Any] = lambda: None) -> None:
        dispatch(shared, session, f"/jev {word}", is_old=is_old)
        copy_context().run(inner)
        command(shared)(word)

    copy_context().run(asks, "a", "off", lambda: asks("b", "undo", lambda: asks(None, "off")))

    assert state_of(shared) == ({"a"}, {"b"})


@pytest.mark.parametrize("text", ["hello", "/jevel off", "", None])
def test_a_message_leaves_no_name_for_the_next_command(text: Any) -> None:
    """And a table that cannot be read costs the name only."""
    shared = process()
    shared.session("a")
    asking.set("a")
    hooks._listener("pre_gateway_dispatch", shared)(event=SimpleNamespace(text=text), gateway=None, session_store=None)
    command(shared)("off")

    assert state_of(shared) == (set(), set())


def test_one_agent_on_a_terminal_needs_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, SessionContext(is_engaged=False))
    shared = process()
    shared.session("a")
    command(shared)("off")

    assert shared.paused == {"a"}


def test_a_terminal_whose_session_is_new_does_not_mean_the_only_one_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_SESSION_ID", "b")
    shared = process()
    shared.session("a")
    command(shared)("off")

    assert shared.paused == {"b"}
    assert shared.session("b").is_paused
    assert not shared.session("a").is_paused


def test_a_helper_that_was_made_last_stands_for_the_chat_it_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host names every agent it makes, helpers of helpers too."""
    shared = process()
    hear = hooks._listener("subagent_start", shared)
    hear(parent_session_id="a", child_session_id="helper")
    hear(parent_session_id="helper", child_session_id="its helper")
    monkeypatch.setenv("HERMES_SESSION_ID", "its helper")
    command(shared)("off")

    assert shared.paused == {"a"}


@pytest.mark.parametrize("others", [1, 199, 200, 1_000])
def test_what_a_user_said_holds_however_many_others_come(others: int) -> None:
    """What memory forgets of a session is what the store and its markers bring back; this is neither."""
    shared = process()
    shared.session("a").is_paused = True
    shared.session("a").wants_undo = True
    for number in range(others):
        shared.session(f"other {number}")

    assert shared.session("a").is_paused
    assert shared.session("a").wants_undo
    assert shared.rotate("a", "a+").is_paused
    assert (shared.session("a+").wants_undo, shared.session("a").wants_undo) == (True, False)


# --- one engine for all agents, as up to 0.17 ------------------------------------------------------------------------


def secrets_of(shared: Shared, session: str, of: str) -> str:
    return tools.answer(shared.session(session), "jev_search", {"query": f"secret of {of}"})


def nothing_is_anothers(host: OldHost, agents: list[OldAgent]) -> None:
    """Whoever asks, in whichever session: what was left out is their own, and their own is there."""
    for agent in agents:
        for other in agents:
            found = secrets_of(host.shared, agent.session, other.user)
            assert agent is other or f"secret of {other.user}" not in found.replace(f"'secret of {other.user}'", "")
        for reference in re.findall(r"intact as (jx-[0-9a-f]{16})", json.dumps(agent.messages)):
            shown = tools.answer(host.shared.session(agent.session), "jev_expand", {"id": reference})
            assert f"secret of {agent.user}" in shown


@pytest.fixture
def old() -> Iterator[Callable[[int], OldHost]]:
    made: list[OldHost] = []

    def make(threads: int) -> OldHost:
        made.append(OldHost(process(), threads))
        return made[-1]

    yield make
    for host in made:
        host.close()


# Who, in which thread, files read in it and before it (by another process), made anew, broken off, refused.
TURN = st.tuples(
    st.integers(0, 2), st.integers(0, 1), st.sampled_from([0, 3, 9]), st.sampled_from([0, 0, 9]),
    st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip


@given(st.lists(TURN, min_size=4, max_size=9))
@settings(max_examples=40, deadline=None)
def test_users_of_one_engine_never_get_each_others_originals(turns: list[Any]) -> None:
    """Any order of turns on any thread, whole, refused or broken off, with agents made anew in between."""
    host = OldHost(process(handover="never"), 2)
    try:
        agents = [OldAgent(host, name) for name in ("ann", "bob", "cem")]
        for number, (who, thread, reads, before, is_new, breaks_off, is_refused) in enumerate(turns):
            agent = agents[who]
            for _ in range(before):
                agent.read()
            if is_new:
                host.run(thread, host.engine.on_session_start, agent.session, platform="telegram")
            options = {"breaks_off": breaks_off, "is_refused": is_refused}
            host.run(thread, agent.turn, f"go on with step {number}. " * 4, reads, **options)
        nothing_is_anothers(host, agents)
    finally:
        host.close()


def test_a_pass_before_the_first_hook_of_a_turn_is_its_own_users(old: Callable[[int], OldHost]) -> None:
    """The thread served another user before: his turn has ended, and the history says whose this one is."""
    host = old(1)
    ann, bob = OldAgent(host, "ann"), OldAgent(host, "bob")
    host.run(0, bob.turn, "Read this and that for me, please, and take your time with it all. " * 2, 2)
    for number in range(6):
        bob.read()
        bob.messages.append({"role": "assistant", "content": f"Part {number}."})
    host.hear("post_llm_call", session_id=bob.session, conversation_history=list(bob.messages))
    host.run(0, ann.turn, "Hello there, how are you today?")
    before = len(bob.changed)
    host.run(0, bob.compact, "start", force=True)

    assert len(bob.changed) == before + 1
    nothing_is_anothers(host, [ann, bob])


def test_a_turn_that_broke_off_leaves_no_name_for_the_next_users_history(old: Callable[[int], OldHost]) -> None:
    host = old(1)
    ann, bob = OldAgent(host, "ann"), OldAgent(host, "bob")
    host.run(0, ann.turn, "Hello there.", breaks_off=True)
    bob.messages = [{"role": "user", "content": "bob says: Read."}]
    for _ in range(9):
        bob.read()
    given = bob.messages
    made = host.run(0, host.engine.compress, given, current_tokens=60_000)

    assert made is given
    assert host.shared.session("ann").passes == 0


@pytest.mark.parametrize("first", ["hello", "Please look at the importer. " * 20])
def test_who_began_with_the_same_words_is_another_user_all_the_same(first: str, old: Callable[[int], OldHost]) -> None:
    """A turn of ann broke off after her first message, which was bob's first message too; the thread still has her."""
    host = old(1)
    ann, bob = OldAgent(host, "ann"), OldAgent(host, "bob")
    host.run(0, ann.turn, first, breaks_off=True)
    state = [{"role": "user", "content": first}]
    host.shared.words.note("ann", state, is_whole=False)
    host.run(0, setattr, here, "session", "ann")
    bob.messages = [*state, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "Read all."}]
    for _ in range(9):
        bob.read()
    made = host.run(0, host.engine.compress, bob.messages, current_tokens=60_000)

    assert not host.shared.words.continues("ann", bob.messages)
    assert made is bob.messages
    assert host.shared.session("ann").passes == 0


def test_an_engine_that_served_two_never_takes_one_for_the_only_one() -> None:
    """Also where the newer name of the first comes before its rotation."""
    shared = Shared(lambda: None)  # type: ignore[arg-type,return-value]
    for name in ("a", "a2", "c"):
        shared.heard_of(name)
    shared._conversations = shared._conversations - {"a"}

    assert shared.only == ""


def test_two_users_who_said_the_same_are_not_told_apart(old: Callable[[int], OldHost]) -> None:
    """Nor is anybody who said next to nothing."""
    host = old(1)
    words = "the same words " * 20
    for name in ("ann", "bob"):
        history = [{"role": "user", "content": words}, {"role": "assistant", "content": words}]
        host.shared.words.note(name, history, is_whole=True)
    host.shared.words.note(
        "cem", [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello!"}], is_whole=True
    )
    said = [
        {"role": "user", "content": words},
        {"role": "assistant", "content": words},
        {"role": "user", "content": "x"},
    ]

    assert host.shared.words.owner(said) == ""
    assert (
        host.shared.words.owner([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello!"}]) == ""
    )


def test_the_only_user_of_one_engine_is_served_from_the_first_pass_on(old: Callable[[int], OldHost]) -> None:
    """A terminal, with turns in threads of their own: no hook has been heard, and nobody else is there."""
    host = old(2)
    ann = OldAgent(host, "ann")
    ann.messages = [{"role": "user", "content": "ann says: Read."}]
    for _ in range(9):
        ann.read()
    host.run(1, ann.turn, "Go on.")
    host.run(0, ann.turn, "Go on.", 9)

    assert ann.changed[0] == "start"
    assert len(ann.changed) >= 2
    nothing_is_anothers(host, [ann])


def test_after_new_or_resume_the_one_engine_waits_until_it_is_told(old: Callable[[int], OldHost]) -> None:
    host = old(1)
    ann = OldAgent(host, "ann")
    host.engine.on_session_reset()
    for _ in range(9):
        ann.read()
    given = ann.messages

    assert not host.engine.should_compress(60_000)
    assert host.engine.compress(given, current_tokens=60_000) is given
    host.run(0, ann.turn, "Go on.", 1)
    assert ann.changed == ["round"]


def test_a_helper_made_in_the_middle_of_a_turn_leaves_its_parents_model_alone(old: Callable[[int], OldHost]) -> None:
    host = old(1)
    ann = OldAgent(host, "ann")
    host.hear("pre_llm_call", session_id="ann", conversation_history=[])
    host.engine.update_model(model="small", context_length=8_000, api_key="other")
    host.engine.on_session_start("helper", platform="subagent")

    assert (host.shared.session("ann").budget.model, host.shared.session("ann").budget.context_length) == ("m", 64_000)
    assert host.shared.session("helper").budget.context_length == 8_000
    assert ann.session == "ann"
