"""What is tried on a real Hermes, one function a scenario. Runs inside the host's environment: see hermes_worker."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

from hermes_lab import TASK, Lab, assert_shortened, assert_whole, references, results, sent, texts, whole_original
from hermes_provider import SUMMARY, Provider
from hermes_users import gateway_commands, two_users  # noqa: F401  # scenarios too, found by their names

from jev_engine_adapters.hermes import tools


def _expand_first(body: dict[str, Any]) -> tuple[Any, ...]:
    return ("call", "jev_expand", {"id": references(body)[0]})


def in_place(lab: Lab) -> None:
    """Six files, then the agent asks for one again: shortened on the wire, whole in the tool's answer."""
    provider = Provider([*lab.reads(6), _expand_first])
    agent = lab.agent(provider)
    before = agent.session_id

    done = agent.run_conversation(TASK)

    assert done["final_response"] == "All done."
    assert_whole(provider)
    originals = assert_shortened(provider)
    body = provider.requests[-1]
    reference = references(body)[0]
    engine = agent.context_compressor
    call = next(call for call, text in results(body).items() if reference in text)
    assert whole_original(engine, reference) == originals[call]
    assert originals[call].startswith(results(body)["call_7_0"][:9_000])
    assert agent.session_id == before or not lab.compressions()[0].get("in_place")
    assert "call jev_expand with this id" in str(results(body))
    if lab.compressions()[0].get("in_place"):
        with lab.database._lock:
            rows = lab.database._conn.execute(
                "SELECT active, count(*) FROM messages WHERE session_id = ? GROUP BY active", (before,)
            ).fetchall()
        assert dict(map(tuple, rows)).get(0), "the host archived nothing"


def rotating(lab: Lab) -> None:
    """A session that gets a new id keeps ledger, archive and counters; another session sees nothing of it."""
    provider = Provider([*lab.reads(6), _expand_first, *lab.reads(4)])
    agent = lab.agent(provider, in_place=False)
    before = agent.session_id

    done = agent.run_conversation(TASK)

    engine = agent.context_compressor
    assert done["final_response"] == "All done."
    assert agent.session_id != before
    assert_whole(provider)
    assert "No original" not in str(results(provider.requests[-1]))
    assert engine.session.name == agent.session_id
    assert engine.session.passes == len(lab.compressions()) >= 2
    reference = references(provider.requests[-1])[0]
    other = lab.agent(Provider([]))
    assert other.session_id != agent.session_id
    fresh = engine.shared.session(other.session_id)
    assert fresh.passes == 0
    assert "No original" in tools.answer(fresh, "jev_expand", {"id": reference})


def preflight(lab: Lab) -> None:
    """A history handed in by the caller is shortened before the first request."""
    first = Provider(lab.reads(6))
    history = [{"role": "user", "content": TASK}]
    for number in range(5):
        call = {"id": f"old_{number}", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
        history += [
            {"role": "assistant", "content": f"Old step {number}.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "name": "read_file", "content": lab.file(number).read_text()},
        ]  # fmt: skip
    history.append({"role": "assistant", "content": "Read them all."})
    first.script = []
    agent = lab.agent(first)

    done = agent.run_conversation("And now?", conversation_history=history)

    assert done["final_response"] == "All done."
    assert len(first.requests) == 1
    shortened = [text for text in results(first.requests[0]).values() if "[jev-engine:" in text]
    assert shortened
    assert texts(first.requests[0])[:6] == [m["content"] for m in history if m["role"] != "tool"][:6]


def overflow(lab: Lab) -> None:
    """The provider refuses the request although nothing was due: the turn is saved, without a judge outside."""
    lab.settings('judge = "http://127.0.0.1:9/v1/systemone"\n')
    provider = Provider(lab.reads(4), limit=26_000)
    agent = lab.agent(provider)

    done = agent.run_conversation(TASK)

    assert provider.refused
    assert done["final_response"] == "All done.", done.get("error")
    assert not done.get("compression_exhausted")
    assert_whole(provider)


def overflow_of_the_newest(lab: Lab) -> None:
    """Even where the newest results alone are too much."""
    paths = [str(lab.file(number)) for number in range(3)]
    together = ("call", *[part for path in paths for part in ("read_file", {"path": path})])
    provider = Provider([together], limit=20_000)
    agent = lab.agent(provider)

    done = agent.run_conversation(TASK)

    assert provider.refused
    assert done["final_response"] == "All done.", done.get("error")
    assert_whole(provider)


def subagent(lab: Lab) -> None:
    """A helper agent has a session of its own, and markers there name no tool that it was not given."""
    goal = "Read the parts and report."
    order = ("call", "delegate_task", {"goal": goal, "toolsets": ["file"]})
    provider = Provider([order], helper=(goal, lab.reads(6)))
    agent = lab.agent(provider, enabled_toolsets=["file", "delegation", "context_engine"])
    before = agent.session_id

    done = agent.run_conversation("Let a helper read the parts.")

    assert done["final_response"] == "All done.", done
    until = time.monotonic() + 30
    while len(provider.helped) < 7 and time.monotonic() < until:
        time.sleep(0.05)  # newer hosts let helpers run in the background
    marked = [text for text in results(provider.helped[-1]).values() if "[jev-engine:" in text]
    assert marked, [len(text) for text in results(provider.helped[-1]).values()]
    assert all("jev_expand" not in text for text in marked)
    assert agent.context_compressor.shared.session(before).passes == 0


def running_loop(lab: Lab) -> None:
    """Called from inside a coroutine, on whose loop nothing may wait."""
    provider = Provider(lab.reads(6))
    agent = lab.agent(provider)

    async def main() -> Any:
        return agent.run_conversation(TASK)

    done = asyncio.run(main())

    assert done["final_response"] == "All done."
    assert_whole(provider)
    assert_shortened(provider)


def forced(lab: Lab) -> None:
    """`/compress <focus>`: a small history, and a person who wants it shorter."""
    provider = Provider(lab.reads(3))
    agent = lab.agent(provider, window=200_000)
    done = agent.run_conversation(TASK)
    messages = done["messages"]

    made, _ = agent._compress_context(messages, "", approx_tokens=25_000, focus_topic="part 1", force=True)

    assert isinstance(made, list)
    assert len(made) >= len(messages)
    assert agent.context_compressor.session.last_words
    again, _ = agent._compress_context(made, "", approx_tokens=25_000, force=True)
    assert len(again) >= len(made)


def nothing_to_do(lab: Lab) -> None:
    """What cannot be shortened comes back as the list that was given, and no boundary is written."""
    provider = Provider([])
    agent = lab.agent(provider)
    messages = [
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": "Hello.", "_db_persisted": True},
    ]

    assert agent.context_compressor.compress(messages, current_tokens=100, force=True) is messages
    assert messages[1]["_db_persisted"] is True


def resumed(lab: Lab) -> None:
    """A session loaded from the host's database goes on: originals of before are an id away."""
    provider = Provider(lab.reads(6))
    first = lab.agent(provider)
    first.run_conversation(TASK)
    session = first.session_id
    lab.settings()
    history = lab.database.get_messages_as_conversation(session)
    assert any("[jev-engine:" in str(message.get("content")) for message in history)
    again = Provider([_expand_first, *lab.reads(2)], prefix="again")
    agent = lab.agent(again, session_id=session)

    done = agent.run_conversation("Look it up.", conversation_history=history)

    assert done["final_response"] == "All done."
    assert_whole(again)
    answer = results(again.requests[1])["again_1_0"]
    assert "No original" not in answer
    assert "line 0 of part" in answer


def handed_over(lab: Lab) -> None:
    """Words fill the window, nothing is left to shorten: the host's summariser takes over, what it replaced is kept."""
    provider = Provider([], limit=60_000)
    agent = lab.agent(provider)
    history: list[dict[str, Any]] = []
    for number in range(60):
        history += [
            {"role": "user", "content": f"Question {number}: " + "why is it so? " * 130},
            {"role": "assistant", "content": f"Answer {number}: " + "because of this. " * 130},
        ]

    done = agent.run_conversation("And now?", conversation_history=history)

    assert done["final_response"] == "All done.", done
    assert provider.summaries
    assert SUMMARY.split("\n")[1] in str(sent(provider.requests[-1]))
    engine = agent.context_compressor
    assert engine.session.hand_overs == 1, engine.session.last_words
    assert engine.compression_count == 1
    found = engine.handle_tool_call("jev_search", {"query": "Question 20 why is it so"})
    assert "Question" in found, found[:200]


def overflow_of_words(lab: Lab) -> None:
    """The provider refuses a request that is all words: nothing can be shortened, the summariser saves the turn."""
    provider = Provider([], limit=25_000)
    agent = lab.agent(provider)
    history = [
        {"role": role, "content": f"{number}: " + "why is it so? " * 160}
        for number in range(30)
        for role in ("user", "assistant")
    ]

    done = agent.run_conversation("And now?", conversation_history=history)

    assert provider.refused
    assert done["final_response"] == "All done.", done.get("error")
    assert agent.context_compressor.session.hand_overs == 1
    assert agent.context_compressor.session.retry_at == 0


def uncounted(lab: Lab) -> None:
    """A provider that never says how many tokens a request had."""
    provider = Provider([*lab.reads(8)], counts=False)
    agent = lab.agent(provider)

    done = agent.run_conversation(TASK)

    assert done["final_response"] == "All done."
    assert_whole(provider)
    assert_shortened(provider)
    assert agent.context_compressor.session.passes >= 1


def audited(lab: Lab) -> None:
    """Proposed and committed are in the trail, tool calls too, and nothing of what was said."""
    trail = lab.home / "trail.jsonl"
    lab.settings(f'audit = "{trail}"\n')
    provider = Provider([*lab.reads(6), _expand_first])
    agent = lab.agent(provider)
    agent.run_conversation(TASK)
    agent.context_compressor.shared.engine().sinks.close(10)

    text = Path(trail).read_text()
    kinds = set(re.findall(r'"kind":"(\w+)"', text))
    assert {"pass_started", "proposed", "committed", "tool_called", "model_called"} <= kinds, kinds
    assert "line 0 of part" not in text
    assert TASK not in text


def chat_command(lab: Lab) -> None:
    """`/jev` tells what happened and takes the last pass back."""
    from hermes_cli.plugins import get_plugin_command_handler  # noqa: PLC0415  # the host's own package

    provider = Provider(lab.reads(6))
    agent = lab.agent(provider)
    done = agent.run_conversation(TASK)
    ask = get_plugin_command_handler("jev")
    originals = assert_shortened(provider)

    status = ask("")
    assert "active" in status, status
    assert "committed" in status, status
    assert "jx-" in ask("ids")
    assert "/compress" in ask("undo")
    messages = done["messages"]
    back = agent.context_compressor.compress(messages, current_tokens=30_000, force=True)
    whole = {m["tool_call_id"]: m["content"] for m in back if m.get("role") == "tool"}
    last = results(provider.requests[-1])
    assert any(whole[call] == originals[call] for call in whole if "[jev-engine:" in last[call])
    assert "OFF" in ask("status")
    assert "on" in ask("on")


def feasibility(lab: Lab) -> None:
    """The host checks its summariser's model although we need none, and lowers our threshold: both are survived."""
    provider = Provider(lab.reads(6))
    agent = lab.agent(provider, window=200_000, aux=70_000)
    done = agent.run_conversation(TASK)
    engine = agent.context_compressor
    before = engine.threshold_tokens

    made, _ = agent._compress_context(done["messages"], "", approx_tokens=60_000, force=True)

    assert before == 100_000
    assert engine.threshold_tokens == 70_000
    assert any("[jev-engine:" in str(message.get("content")) for message in made)
    assert not engine.should_compress(75_000), "the host's number is not ours"


def reserve(lab: Lab) -> None:
    """What the model may answer is told by a hook only, and is no room for history."""
    agent = lab.agent(Provider(lab.reads(1)), max_tokens=5_000)
    agent.run_conversation(TASK)

    session = agent.context_compressor.session
    assert session.budget.max_tokens == 5_000
    assert session.core.trigger.config.output_reserve_tokens == 5_000


def temporary_agent(lab: Lab) -> None:
    """As the gateway does at 85 %: an agent of its own on the live session, without our tools, that asks unasked."""
    provider = Provider(lab.reads(3))
    agent = lab.agent(provider)
    done = agent.run_conversation(TASK)
    other = lab.agent(Provider([]), enabled_toolsets=["memory"], session_id=agent.session_id)

    made, _ = other._compress_context(done["messages"], "", approx_tokens=56_000)

    assert any("[jev-engine:" in str(message.get("content")) for message in made)
    assert "call jev_expand" not in str(made)
    assert agent.context_compressor.shared.session(other.session_id).passes == 1
    reference = next(str(m["content"]) for m in made if "intact as" in str(m.get("content"))).split("intact as ")[1][
        :19
    ]
    agent.context_compressor.on_session_start(other.session_id)
    assert "line " in whole_original(agent.context_compressor, reference)
