"""A small Hermes of our own: the order of its calls, and what its newer versions add, without any of its code.

    host = FakeHost(engine_class(FakeBase)(shared))
    host.turn("Fix it.", rounds=[("read_file", big_text)])

`NewHost` compacts a private copy in a pooled thread with a limit of time, refuses what would grow, keeps uids on every
message, and asks for the optional members.
"""

from __future__ import annotations

import copy
import json
import threading
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooSlow
from typing import Any

WINDOW = 64_000


class FakeBase(ABC):
    """What the host wants an engine to be a child of."""

    @property
    @abstractmethod
    def name(self) -> str: ...

    @abstractmethod
    def update_from_response(self, usage: Any) -> None: ...

    @abstractmethod
    def should_compress(self, prompt_tokens: Any = None) -> bool: ...

    @abstractmethod
    def compress(self, messages: Any, current_tokens: Any = None) -> Any: ...


def rough(messages: Any) -> int:
    """The host's estimate."""
    return len(json.dumps(messages, default=repr)) // 4


class FakeHost:
    """One agent and its session."""

    def __init__(self, registered: Any, *, session: str = "s1", window: int = WINDOW, in_place: bool = True) -> None:
        self.engine = self.copy_of(registered)
        self.session = session
        self.in_place = in_place
        self.messages: list[dict[str, Any]] = []
        self.limit = 10**9
        self.counts = True
        self.made = 0
        self.compactions: list[tuple[int, int]] = []
        """Rough tokens before and after each that changed something."""
        self.asked = 0
        self.lost_turns = 0
        self.engine.update_model(model="m", context_length=window, base_url="", api_key="", provider="", api_mode="")
        self.engine.bind_session_state(session_db=None, session_id=session)
        self.tools = [schema["name"] for schema in self.engine.get_tool_schemas()]
        self.engine.on_session_start(session, platform="cli", model="m", context_length=window)

    def copy_of(self, registered: Any) -> Any:
        return copy.deepcopy(registered)

    # --- a turn ------------------------------------------------------------------------------------------------------

    def turn(self, words: str, rounds: Any = ()) -> None:
        """A user message, tool rounds of `(tool, result)`, and an answer."""
        self.messages.append(self.row({"role": "user", "content": words}))
        engine = self.engine
        if self.due(rough(self.messages)):
            for _ in range(3):
                if not self.compact(rough(self.messages)) or not engine.should_compress(rough(self.messages)):
                    break
        for tool, result in rounds:
            if not self.request({"role": "assistant", "content": f"I call {tool}.", "tool_calls": [self.call(tool)]}):
                return
            call = self.messages[-1]["tool_calls"][0]["id"]
            self.messages.append(self.row({"role": "tool", "name": tool, "tool_call_id": call, "content": result}))
            self.after_round()
            if engine.should_compress(max(0, engine.last_prompt_tokens)):
                self.compact(engine.last_prompt_tokens)
        self.request({"role": "assistant", "content": f"Answer to {words}"})

    def due(self, tokens: int) -> bool:
        engine = self.engine
        if engine.should_defer_preflight_to_real_usage(tokens) or engine.get_active_compression_failure_cooldown():
            return False
        if engine.last_prompt_tokens >= 0 and tokens > engine.last_prompt_tokens:
            engine.last_prompt_tokens = tokens
        return bool(engine.should_compress(tokens))

    def request(self, answer: dict[str, Any]) -> bool:
        """One call of the model, with the host's own rescue where it is refused."""
        engine, attempts = self.engine, 0
        while attempts < 3 and engine.should_compress(rough(self.messages)):
            attempts += 1
            self.compact(rough(self.messages))
        while rough(self.messages) > self.limit:
            attempts += 1
            before = rough(self.messages)
            if attempts > 3 or not self.compact(before) or rough(self.messages) > 0.95 * before:
                self.lost_turns += 1
                return False
        used = rough(self.messages)
        usage = {"prompt_tokens": used, "completion_tokens": 9, "total_tokens": used + 9}
        if self.counts:
            engine.update_from_response(usage)
        elif engine.awaiting_real_usage_after_compression:
            engine.update_from_response({})
        self.messages.append(self.row(answer))
        for message in self.messages:
            message["_db_persisted"] = True
        return True

    def compact(self, tokens: int, *, focus_topic: str | None = None, force: bool = False) -> bool:
        """What the host does around `compress`; whether the history changed."""
        self.asked += 1
        before = copy.deepcopy(self.messages)
        made = self.run(tokens, focus_topic, force)
        assert isinstance(made, list)
        assert made
        assert all(isinstance(message, dict) for message in made)
        if self.is_same(made, before):
            return False
        self.engine.on_session_end(self.session, self.messages)
        if all("_db_persisted" not in message for message in made):
            self.archived = before
        self.compactions.append((rough(before), rough(made)))
        self.messages = made
        self.boundary()
        engine = self.engine
        engine.last_compression_rough_tokens = rough(made)
        engine.last_prompt_tokens = -1
        engine.awaiting_real_usage_after_compression = True
        engine._verify_compaction_cleared_threshold = True
        return True

    def run(self, tokens: int, focus_topic: str | None, force: bool) -> Any:  # noqa: FBT001
        return self.engine.compress(self.messages, current_tokens=tokens, focus_topic=focus_topic, force=force)

    def is_same(self, made: Any, before: Any) -> bool:
        return bool(made == before)

    def boundary(self) -> None:
        old = self.session
        if not self.in_place:
            self.session = f"{old}+"
        told = {"boundary_reason": "compression", "old_session_id": old, "platform": "cli"}
        self.engine.on_session_start(self.session, **told)

    def call(self, tool: str) -> dict[str, Any]:
        self.made += 1
        function = {"name": tool, "arguments": json.dumps({"path": f"{self.made}.py"})}
        return {"id": f"c{self.made}", "type": "function", "function": function}

    def row(self, message: dict[str, Any]) -> dict[str, Any]:
        return message

    def after_round(self) -> None:
        """Nothing, in hosts up to 0.19."""


class NewHost(FakeHost):
    """What 0.20 and later do besides."""

    pool = ThreadPoolExecutor(4, thread_name_prefix="compress-ctx-timeout")
    patience_seconds = 120.0

    def copy_of(self, registered: Any) -> Any:
        engine = registered.clone_for_agent()
        engine.model_thresholds = {"m": 0.4}
        return engine

    def run(self, tokens: int, focus_topic: str | None, force: bool) -> Any:  # noqa: FBT001
        engine = self.engine
        engine.should_compress_info(tokens)
        engine.should_compress_preflight(self.messages)
        engine.pending_compression_operation(self.messages)
        said = engine.get_automatic_compaction_status_message(
            phase="compress", default_message="Compacting…", approx_tokens=tokens
        )
        assert said is None or isinstance(said, str)
        gone = threading.Event()
        engine._compression_cancelled_check = gone.is_set
        private = copy.deepcopy(self.messages)
        options = {"current_tokens": tokens, "focus_topic": focus_topic, "force": force, "bypass_cooldown": True}
        future = self.pool.submit(engine.compress, private, **options)
        try:
            made = future.result(self.patience_seconds)
        except TooSlow:
            gone.set()
            engine.record_timeout_failure("idle", failure_kind="timeout")
            return copy.deepcopy(self.messages)
        if rough(made) > rough(self.messages):
            engine._last_compress_refused_would_grow = True
            engine.record_rejected_compaction()
            return copy.deepcopy(self.messages)
        return made

    def is_same(self, made: Any, before: Any) -> bool:
        bare = [[{k: v for k, v in m.items() if k != "_db_persisted"} for m in rows] for rows in (made, before)]
        return bool(bare[0] == bare[1])

    def row(self, message: dict[str, Any]) -> dict[str, Any]:
        message["message_uid"] = f"u{len(self.messages)}-{self.made}"
        if message["role"] == "tool":
            message["_tool_call_uid"] = f"t{self.made}"
        if message.get("tool_calls"):
            message["_tool_call_uids"] = {call["id"]: f"t{self.made}" for call in message["tool_calls"]}
        return message

    def after_round(self) -> None:
        made, count = self.engine.prune_tool_results_only(self.messages, current_tokens=rough(self.messages))
        assert made is self.messages
        assert count == 0
        assert self.engine.select_context(self.messages, conversation_messages=self.messages, budget_tokens=1) is None
        self.engine.on_turn_complete(self.messages, None, turn_id="t", interrupted=False)
