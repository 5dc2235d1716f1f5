"""Several users in one process of a real Hermes. Runs inside the host's environment: see hermes_worker."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from types import SimpleNamespace

from hermes_lab import TASK, Lab, results
from hermes_provider import Provider

from jev_engine_adapters.hermes import tools


def two_users(lab: Lab) -> None:
    """One thread serves both in turn, as a gateway's pool does: what is left out of a history stays with its user."""
    ann = lab.agent(Provider([]), session_id="ann")
    bob = lab.agent(Provider(lab.reads(6)), session_id="bob")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(ann.run_conversation, "Hello from ann.").result()
        done = pool.submit(bob.run_conversation, TASK).result()
        pool.submit(ann.run_conversation, "Hello again from ann.").result()
        history = list(done["messages"])
        for number in range(6, 10):
            call = {"id": f"old_{number}", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
            history.append({"role": "assistant", "content": "", "tool_calls": [call]})
            history.append({"role": "tool", "tool_call_id": call["id"], "content": lab.file(number).read_text()})
        again = Provider([])
        bob = lab.agent(again, session_id=bob.session_id)
        done = pool.submit(bob.run_conversation, "And now?", conversation_history=history).result()

    shared = bob.context_compressor.shared
    assert shared.session(ann.session_id).passes == 0
    assert "hit 1" not in tools.answer(shared.session(ann.session_id), "jev_search", {"query": "line 0 of part"})
    assert "hit 1" in tools.answer(shared.session(bob.session_id), "jev_search", {"query": "line 0 of part"})
    shown = [text for call, text in results(again.requests[0]).items() if call.startswith("old_")]
    # One engine for all agents is asked before it can know whose turn it is, and says no.
    assert any("[jev-engine:" in text for text in shown) is not shared.is_one_instance
    before = shared.session(bob.session_id).passes
    made, _ = bob._compress_context(done["messages"], "", approx_tokens=60_000, force=True)
    assert shared.session(bob.session_id).passes > before or not shared.is_one_instance
    for body in (str(made), str(shown)):
        for reference in re.findall(r"intact as (jx-[0-9a-f]{16})", body):
            assert "line " in tools.answer(shared.session(bob.session_id), "jev_expand", {"id": reference})
            assert "No original" in tools.answer(shared.session(ann.session_id), "jev_expand", {"id": reference})


def gateway_commands(lab: Lab) -> None:
    """`/jev` in a gateway: the host's own table says whose chat it is, and nothing else does."""
    from gateway.config import GatewayConfig, Platform  # noqa: PLC0415  # the host, after its environment is set
    from gateway.session import SessionSource, SessionStore  # noqa: PLC0415  # the same
    from hermes_cli.plugins import get_plugin_command_handler, invoke_hook  # noqa: PLC0415  # the same

    store = SessionStore(lab.home / "sessions", GatewayConfig())
    source = {n: SessionSource(platform=Platform.TELEGRAM, chat_id=n, user_id=n, chat_type="dm") for n in "abc"}
    session = {name: store.get_or_create_session(source[name]).session_id for name in "ab"}
    agents = [lab.agent(Provider([]), session_id=session[name]) for name in "ba"]
    shared, ask = agents[0].context_compressor.shared, get_plugin_command_handler("jev")
    gateway = SimpleNamespace(_session_key_for_source=store._generate_session_key)

    def types(name: str, word: str) -> str:
        event = SimpleNamespace(text=f"/jev {word}", source=source[name])
        invoke_hook("pre_gateway_dispatch", event=event, gateway=gateway, session_store=store)
        return str(ask(word))

    assert os.environ["HERMES_SESSION_ID"] == session["a"], "the agent that was made last"
    assert "off" in copy_context().run(types, "b", "off")
    assert "does not say which" in copy_context().run(types, "c", "off")
    assert "does not say which" in copy_context().run(ask, "off")
    assert shared.paused == {session["b"]}
    assert "on" in copy_context().run(types, "b", "on")
    assert not shared.paused
