"""A host of our own that gives one engine to all its agents, in the order in which Hermes 0.17 calls it.

Turns run in threads of a pool, many users on one thread and one user on many. What makes that dangerous is kept: a pass
is asked for before the turn's first hook, and a turn that breaks off says nothing of its end.
"""

from __future__ import annotations

import copy
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hosts.hermes_fake import FakeBase, rough
from hosts.hermes_process import BIG

from jev_engine_adapters.hermes.engine import engine_class
from jev_engine_adapters.hermes.hooks import LISTENED, _listener
from jev_engine_adapters.hermes.state import Shared

WINDOW = 64_000


class OldAgent:
    """One user's agent. `session` changes with every boundary, even where nothing changed."""

    def __init__(self, host: OldHost, user: str) -> None:
        self.host = host
        self.user = self.session = user
        self.messages: list[dict[str, Any]] = []
        self.changed: list[str] = []
        """Where the history was shortened: `start`, `round` or `refused`."""
        self.made = 0
        host.engine.update_model(model="m", context_length=WINDOW)
        host.engine.get_tool_schemas()
        host.engine.on_session_start(user, platform="telegram")

    def turn(self, words: str, reads: int = 0, *, breaks_off: bool = False, is_refused: bool = False) -> None:
        engine, hear = self.host.engine, self.host.hear
        self.messages.append({"role": "user", "content": f"{self.user} says: {words}"})
        if engine.should_compress(rough(self.messages)):
            self.compact("start")
        hear("pre_llm_call", session_id=self.session, conversation_history=list(self.messages))
        self.request()
        if is_refused:
            self.compact("refused")
        if breaks_off:
            return
        for _ in range(reads):
            self.read()
            hear("post_tool_call", session_id=self.session, tool_name="read_file", result="")
            if engine.should_compress(engine.last_prompt_tokens):
                self.compact("round")
            self.request()
        self.messages.append({"role": "assistant", "content": f"Answer to {self.user}: {words}"})
        hear("post_llm_call", session_id=self.session, conversation_history=list(self.messages))
        hear("on_session_end", session_id=self.session, completed=True, interrupted=False)

    def request(self) -> None:
        self.host.hear("pre_api_request", session_id=self.session, request_messages=copy.deepcopy(self.messages))
        self.host.engine.update_from_response({"prompt_tokens": rough(self.messages)})

    def read(self) -> None:
        self.made += 1
        function = {"name": "read_file", "arguments": json.dumps({"path": f"{self.made}.py"})}
        call = {"id": f"c{self.made}", "type": "function", "function": function}
        self.messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        content = f"part {self.made}, secret of {self.user}\n{BIG}"
        self.messages.append({"role": "tool", "tool_call_id": call["id"], "name": "read_file", "content": content})

    def compact(self, where: str, **options: Any) -> None:
        made = self.host.engine.compress(self.messages, current_tokens=rough(self.messages), **options)
        if made != self.messages:
            self.changed.append(where)
        self.messages = made
        old, self.session = self.session, f"{self.session}+"
        self.host.engine.on_session_start(self.session, boundary_reason="compression", old_session_id=old)


class OldHost:
    """One process: an engine, and a pool of threads for turns."""

    def __init__(self, shared: Shared, threads: int = 1) -> None:
        self.shared = shared
        self.engine = engine_class(FakeBase)(shared)
        self.pools = [ThreadPoolExecutor(1) for _ in range(threads)]
        self._hooks = {name: _listener(name, shared) for name in LISTENED}

    def hear(self, hook: str, **given: Any) -> None:
        self._hooks[hook](**given)

    def run(self, thread: int, work: Any, *given: Any, **options: Any) -> Any:
        """Carry it out in one of the threads, and wait for it."""
        return self.pools[thread].submit(work, *given, **options).result()

    def close(self) -> None:
        for pool in self.pools:
            pool.shutdown()
