"""Reducers for the `messages` channel that know one message more: the compact marker, which carries decisions.

A reducer applies decisions and never makes any: it asks nobody, waits for nothing, and gives the same list for the same
arguments. A marker shortens what it names wherever that stands when the writes are merged, so branches that ran at the
same time lose nothing. With plain `add_messages` a marker is refused loudly, as a removal of an unknown id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from importlib.metadata import version
from typing import Annotated, Any, NamedTuple

from langchain.agents import AgentState
from langchain_core.messages import AnyMessage, BaseMessage, RemoveMessage, ToolMessage, convert_to_messages
from langgraph.channels import DeltaChannel
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages

from jev_engine_adapters.langgraph.messages import EDITED, shortened
from jev_engine_adapters.openai.messages import text_of

__all__ = [
    "MARKER_ID", "JevAgentState", "JevDeltaAgentState", "ReducerPolicy", "compact_marker", "jev_messages",
    "jev_messages_delta", "jev_reducer",
]  # fmt: skip

MARKER_ID = "__jev_compact__"
MARKER_VERSION = 1
DELTA_SINCE = (1, 2, 15)
"""Before it, saving a DeltaChannel waits for writes within the pool that has to make them (seen with 1.2.0 on two
cores, with the synchronous SQLite saver), and its messages come back without ids."""
Reducer = Callable[[Any, Any], list[Any]]


class ReducerPolicy(NamedTuple):
    """What a reducer does beside replacing texts."""

    clear_artifacts: bool = True
    """The artifact of a shortened result goes where the marker says under which reference it is stored."""


def compact_marker(before: Sequence[BaseMessage], after: Sequence[BaseMessage]) -> RemoveMessage | None:
    """A message that carries how results of `before` are shortened in `after`; None where none is.

    Both are matched by id; only ToolMessages with an id count. The marker is plain JSON inside.
    """
    old = {message.id: message for message in before if message.id}
    results = []
    for message in after:
        known = old.get(message.id)
        if known is None or known is message or not isinstance(message, ToolMessage):
            continue
        edited = message.response_metadata.get("context_editing") or {}
        results.append([message.id, _digest(known), text_of(message.content)[0], edited.get("artifact")])
    if not results:
        return None
    carried = {"version": MARKER_VERSION, "results": results}
    return RemoveMessage(id=MARKER_ID, additional_kwargs={"jev": carried})


@lru_cache(maxsize=64)
def jev_reducer(policy: ReducerPolicy | None = None, *, delta: bool = False) -> Reducer:
    """The reducer for a policy; the same arguments give the same function, as LangGraph compares channels.

    `delta=True` for `DeltaChannel`, whose reducer takes a list of writes.
    """
    chosen = policy or ReducerPolicy()

    def messages(left: Any, right: Any) -> list[Any]:
        markers, others = _split(right)
        merged = list(left or [])
        if others or not markers:
            merged = list(add_messages(merged, others))
        return _marked(merged, markers, chosen)

    def messages_delta(state: Any, writes: Sequence[Any]) -> list[Any]:
        return _replayed(state, writes, chosen)

    return messages_delta if delta else messages


def _split(right: Any) -> tuple[list[Any], Any]:
    """The markers of a write, and the rest of it."""
    given = right if isinstance(right, list) else [right]
    markers = [carried for message in given if (carried := _carried(message)) is not None]
    return markers, [message for message in given if _carried(message) is None] if markers else right


def _carried(message: Any) -> Any:
    """What a marker carries; None for any other message. Over HTTP it comes as a plain object."""
    if isinstance(message, dict):
        if message.get("id") != MARKER_ID:
            return None
        return (message.get("additional_kwargs") or {}).get("jev") or {}
    if isinstance(message, RemoveMessage) and message.id == MARKER_ID:
        return message.additional_kwargs.get("jev") or {}
    return None


def _marked(messages: list[Any], markers: Iterable[Any], policy: ReducerPolicy) -> list[Any]:
    """The messages with markers applied; ids that are not there are ignored."""
    for carried in markers:
        if carried.get("version") != MARKER_VERSION:
            continue
        rows = {message.id: row for row, message in enumerate(messages) if isinstance(message, ToolMessage)}
        for message_id, digest, text, artifact in carried.get("results", ()):
            row = rows.get(message_id)
            if row is not None:
                messages[row] = _shortened(messages[row], digest, text, artifact, policy)
    return messages


def _shortened(message: Any, digest: str, text: str, artifact: str | None, policy: ReducerPolicy) -> Any:
    """A result as a marker decides, unless it is another one by now. Of two decisions the shorter text stays."""
    edited = message.response_metadata.get("context_editing") or {}
    if edited.get("strategy") == EDITED["strategy"]:
        now = text_of(message.content)[0]
        if (len(now), now) <= (len(text), text):
            return message
    elif _digest(message) != digest:
        return message
    shorter = shortened(message, text)
    if artifact and policy.clear_artifacts and shorter.artifact is not None:
        edited = {**shorter.response_metadata["context_editing"], "artifact": artifact}
        metadata = {**shorter.response_metadata, "context_editing": edited}
        shorter = shorter.model_copy(update={"artifact": None, "response_metadata": metadata})
    return shorter


def _digest(message: Any) -> str:
    text = text_of(message.content)[0]
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _replayed(state: Any, writes: Sequence[Any], policy: ReducerPolicy) -> list[Any]:
    """Writes one after the other: the same however they are batched. Unknown ids of removals are ignored."""
    rows: dict[str, Any] = {}
    for message in _as_messages(state or []):
        _add(rows, message)
    for write in writes:
        for given in write if isinstance(write, list) else [write]:
            carried = _carried(given)
            if carried is not None:
                marked = _marked(list(rows.values()), [carried], policy)
                rows = dict(zip(rows, marked, strict=True))
                continue
            [message] = _as_messages([given])
            if isinstance(message, RemoveMessage):
                if message.id == REMOVE_ALL_MESSAGES:
                    rows = {}
                else:
                    rows.pop(message.id, None)
            else:
                _add(rows, message)
    return list(rows.values())


def _add(rows: dict[str, Any], message: Any) -> None:
    """Add a message, or replace the one with its id. Without one it gets an id that a replay gives it again."""
    if message.id:
        rows[message.id] = message
        return
    text = f"{message.type}\0{message.content}\0{getattr(message, 'tool_call_id', '')}"
    made = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    number = 0
    while f"jev-{made}-{number}" in rows:
        number += 1
    rows[f"jev-{made}-{number}"] = message.model_copy(update={"id": f"jev-{made}-{number}"})


def _as_messages(given: list[Any]) -> list[Any]:
    return given if all(isinstance(message, BaseMessage) for message in given) else list(convert_to_messages(given))


jev_messages = jev_reducer()
"""For `Annotated[list, jev_messages]`: `add_messages`, and markers."""
jev_messages_delta = jev_reducer(delta=True)
"""For `Annotated[list, DeltaChannel(jev_messages_delta)]`."""


class JevAgentState(AgentState):
    """For `create_agent(state_schema=…)`: the messages channel takes markers."""

    messages: Annotated[list[AnyMessage], jev_messages]


if tuple(int(part) for part in version("langgraph").split(".")[:3] if part.isdigit()) >= DELTA_SINCE:

    class JevDeltaAgentState(AgentState):
        """The same over a DeltaChannel (beta in LangGraph): checkpoints grow by what is new, not by everything."""

        messages: Annotated[list[AnyMessage], DeltaChannel(jev_messages_delta, snapshot_frequency=100)]


def __getattr__(name: str) -> Any:
    if name == "JevDeltaAgentState":
        since = ".".join(map(str, DELTA_SINCE))
        raise ImportError(f"{name} needs LangGraph {since} or newer: in older ones a DeltaChannel can wait for ever")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
