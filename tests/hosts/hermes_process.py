"""A process with an engine of its own, and small hosts on it."""

from __future__ import annotations

import copy
import json
from typing import Any

from hosts.hermes_fake import FakeBase, FakeHost

from jev_engine import ContextEngine, make_config
from jev_engine.store.memory import MemoryStore
from jev_engine.testing import ScriptedJudge, call, history, result, user
from jev_engine_adapters.hermes.engine import engine_class
from jev_engine_adapters.hermes.state import Shared

__all__ = ["BIG", "asked_for", "big_history", "host_on", "host_rows", "process", "rounds", "started"]

# Code, of which this engine and the host's rough count think alike.
BIG = "".join(f"    def part_{n}(self, value: int) -> str:\n        return self.rows[{n}].name\n" for n in range(240))


def process(judge: Any = None, store: Any = None, sinks: Any = (), **settings: Any) -> Shared:
    """A process with a judge that wants nothing kept."""
    kept = MemoryStore() if store is None else store
    return Shared(
        lambda: ContextEngine(
            config=make_config(**{"window_tokens": 64_000, **settings}),
            judge=ScriptedJudge(lambda _: (0.9, 0.001)) if judge is None else judge,
            store=kept,
            sinks=sinks,
        )
    )


def host_on(shared: Shared, kind: type[FakeHost] = FakeHost, **options: Any) -> FakeHost:
    return kind(engine_class(FakeBase)(shared), **options)


def rounds(count: int, start: int = 0) -> list[tuple[str, str]]:
    return [("read_file", f"part {start + n}\n{BIG}") for n in range(count)]


def host_rows(count: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for number in range(count):
        function = {"name": "read_file", "arguments": json.dumps({"path": f"{number}.py"})}
        made = {"id": f"o{number}", "type": "function", "function": function}
        rows.append({"role": "assistant", "content": "", "tool_calls": [made]})
        rows.append({"role": "tool", "tool_call_id": f"o{number}", "name": "read_file", "content": f"{number}\n{BIG}"})
    return rows


def asked_for(host: FakeHost) -> tuple[list[dict[str, Any]], Any]:
    """Nine big results, and what a pass made of them that a person asked for."""
    messages = [{"role": "user", "content": "Read."}, *host_rows(9)]
    return messages, host.engine.compress(messages, current_tokens=60_000, force=True)


def started(state: Shared | None = None, *, session: str = "s1", window: int = 64_000) -> Any:
    """An engine as the host has it after an agent was made."""
    engine = copy.deepcopy(engine_class(FakeBase)(process() if state is None else state))
    engine.update_model(model="m", context_length=window, base_url="u", api_key="k", provider="p", api_mode="a")
    engine.bind_session_state(session_db=None, session_id=session)
    engine.get_tool_schemas()
    engine.on_session_start(session, platform="cli", hermes_home="/nowhere")
    return engine


def big_history(calls: int = 12) -> list[dict[str, Any]]:
    """So many reads of 33,000 characters each."""
    text = "some output of a tool\n" * 1_500
    rows = [row for n in range(calls) for row in (call("read_file", path=f"{n}.py"), result(f"{n}\n{text}"))]
    return history(user("Fix it."), *rows)
