"""Faults of judge, store and of the engine itself on a real Hermes: no turn may be lost."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hermes_lab import TASK, Lab, assert_shortened, assert_whole, results, whole_original
from hermes_provider import Provider

from jev_engine.engine import ContextEngine
from jev_engine.errors import StoreError
from jev_engine.judges.choose import make_judge
from jev_engine.store.limits import Limits
from jev_engine.store.sqlite import SqliteStore
from jev_engine.testing.server import FaultServer, Reply
from jev_engine_adapters.hermes import compaction, engine, fields, hooks, state, tools, which

READS = 6


def _turn(lab: Lab, make: Callable[[], ContextEngine] | None = None, **options: Any) -> tuple[Provider, Any]:
    """One turn that calls for passes; it has to end as if nothing were wrong."""
    if make is not None:
        state.shared().__init__(make)
    provider = Provider(lab.reads(READS), **options)
    agent = lab.agent(provider)
    done = agent.run_conversation(TASK)
    assert done["final_response"] == "All done.", done.get("error")
    assert len(provider.requests) == READS + 1
    assert_whole(provider)
    return provider, agent


def _judged_by(server: FaultServer, lab: Lab) -> Callable[[], ContextEngine]:
    return lambda: ContextEngine(
        judge=make_judge(server.url, deadline_seconds=1.0), store=SqliteStore(lab.home / "judged.sqlite3")
    )


def judge_down(lab: Lab) -> None:
    with FaultServer(lambda *_: Reply(reset=True)) as server:
        provider, _ = _turn(lab, _judged_by(server, lab))
    assert server.requests
    assert_shortened(provider)


def judge_slow(lab: Lab) -> None:
    with FaultServer(lambda *_: Reply(hang=True)) as server:
        provider, _ = _turn(lab, _judged_by(server, lab))
    assert server.requests
    assert_shortened(provider)


def judge_talks_nonsense(lab: Lab) -> None:
    with FaultServer(lambda *_: Reply(body=b'{"answers": [1, {"t1c": NaN}]}')) as server:
        provider, _ = _turn(lab, _judged_by(server, lab))
    assert server.requests
    assert_shortened(provider)


def _unchanged(provider: Provider) -> None:
    assert not any("[jev-engine:" in text for body in provider.requests for text in results(body).values())


def store_nowhere(lab: Lab) -> None:
    """A path that no file can have, and a file system that takes none: nothing leaves, nothing is lost."""
    (lab.home / "a_file").write_text("")
    for folder in (lab.home / "a_file", Path("/proc/self/nowhere")):
        path = folder / "originals.sqlite3"
        provider, agent = _turn(lab, lambda path=path: ContextEngine(store=SqliteStore(path)))  # type: ignore[misc]
        _unchanged(provider)
        assert "failed" in agent.context_compressor.session.last_words


def store_read_only(lab: Lab) -> None:
    """A file that can be read and not written."""

    class ReadOnly(SqliteStore):
        """As a file on a disk that was mounted for reading: every connection refuses to write."""

        def _write(self, work: Any) -> Any:
            def refusing(db: sqlite3.Connection) -> Any:
                db.execute("PRAGMA query_only = ON")
                return work(db)

            return super()._write(refusing)

    path = lab.home / "read_only.sqlite3"
    SqliteStore(path).reference("s", "k")
    provider, agent = _turn(lab, lambda: ContextEngine(store=ReadOnly(path)))
    _unchanged(provider)
    assert "readonly" in agent.context_compressor.session.last_words, agent.context_compressor.session.last_words


def store_full(lab: Lab) -> None:
    limits = Limits(max_total_bytes=70_000)
    provider, agent = _turn(lab, lambda: ContextEngine(store=SqliteStore(lab.home / "full.sqlite3", limits=limits)))
    _unchanged(provider)
    assert "full" in agent.context_compressor.session.last_words, agent.context_compressor.session.last_words


@contextlib.contextmanager
def _held(path: Any) -> Iterator[None]:
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        holder.rollback()
        holder.close()


def store_locked(lab: Lab) -> None:
    path = lab.home / "locked.sqlite3"
    SqliteStore(path).reference("s", "k")
    with _held(path):
        provider, agent = _turn(lab, lambda: ContextEngine(store=SqliteStore(path, busy_seconds=0.2)))
        _unchanged(provider)
        answer = agent.context_compressor.handle_tool_call("jev_expand", {"id": "jx-0000000000000000"})
        assert answer.startswith("[jev-engine expand"), answer
    made = agent.context_compressor.compress(agent._session_messages, current_tokens=60_000, force=True)
    assert any("[jev-engine:" in str(message.get("content")) for message in made)


def settings_broken(lab: Lab) -> None:
    """The user's settings cannot be read: the host's own compressor does the work, and the status says so."""
    lab.settings("judge = [")
    provider = Provider(lab.reads(8))
    agent = lab.agent(provider)
    done = agent.run_conversation(TASK)
    assert done["final_response"] == "All done.", done.get("error")
    assert agent.context_compressor.get_status()["state"] == "degraded"


@contextlib.contextmanager
def _broken(owner: Any, name: str, value: Any) -> Iterator[None]:
    kept = owner.__dict__[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, kept)


MET: list[str] = []
"""A fault for each time that it was met."""


def _raises(*_: Any, **__: Any) -> Any:
    MET.append("a fault of ours")
    raise RuntimeError("a fault of ours")


def member_faults(lab: Lab) -> None:
    """Whatever stands behind a member of the contract breaks: the turn goes on as if we had nothing to say."""
    never_met = []
    for owner, name, value in (
        (state.HostSession, "core", property(_raises)),
        (engine.HermesEngine, "session", property(_raises)),
        (engine, "compact", _raises),
        (compaction, "_passed", _raises),
        (engine, "for_host", _raises),
        (tools, "schemas", _raises),
        (tools, "answer", _raises),
        (fields.HostFields, "_budget", _raises),
        (engine.HermesEngine, "_named", _raises),
        (state.HostSession, "use", _raises),
        (which.Words, "note", _raises),
        (state.HostSession, "taken_up", _raises),
        (hooks, "_take", _raises),
        (state.Shared, "tell", _raises),
        (state.Shared, "rotate", _raises),
    ):
        lab.settings()
        MET.clear()
        with _broken(owner, name, value):
            _, agent = _turn(lab)
            answer = agent.context_compressor.handle_tool_call("jev_expand", {"id": "x"}, messages=[])
            assert isinstance(answer, str), name
        never_met += [] if MET else [name]
    # Only a host that gives one instance to all its agents has words noted, and tells of another id.
    assert never_met == ([] if state.shared().is_one_instance else ["note", "tell"]), never_met


def _talk() -> list[dict[str, Any]]:
    """Words that fill 95 % of the window, and no result that could be shortened."""
    return [
        {"role": role, "content": f"{number}: " + "why is it so? " * 200}
        for number in range(46)
        for role in ("user", "assistant")
    ]


def _not_handed_over(lab: Lab) -> Provider:
    """A turn in a full window that ends well without a summary; the summariser is left alone for a while."""
    provider = Provider([])
    agent = lab.agent(provider)
    done = agent.run_conversation("And now?", conversation_history=_talk())
    assert done["final_response"] == "All done.", done.get("error")
    assert agent.context_compressor.session.hand_overs == 0
    assert agent.context_compressor.session.retry_at > 0
    return provider


def no_summariser(lab: Lab) -> None:
    """The host's summariser raises: the shortened history stands, and it is left alone for a while."""
    import agent.context_compressor as host  # noqa: PLC0415  # the host's own package

    lab.settings()
    with _broken(host.ContextCompressor, "compress", _raises):
        _not_handed_over(lab)


def unsafe_to_summarise(lab: Lab) -> None:
    """What the summariser would replace cannot be stored: nothing is replaced."""

    class Refusing(SqliteStore):
        async def save_messages(self, session: str, rows: Any) -> list[str]:
            raise StoreError("this disk takes no more")

    state.shared().__init__(lambda: ContextEngine(store=Refusing(lab.home / "refusing.sqlite3")))
    provider = _not_handed_over(lab)
    assert str(provider.requests[-1]).count("why is it so?") > 1_000


def originals_survive(lab: Lab) -> None:
    """After all of that, an original is still read byte for byte."""
    provider, agent = _turn(lab)
    originals = assert_shortened(provider)
    for call, text in results(provider.requests[-1]).items():
        if "intact as " in text:
            reference = text.split("intact as ")[1][:19]
            assert whole_original(agent.context_compressor, reference) == originals[call]
