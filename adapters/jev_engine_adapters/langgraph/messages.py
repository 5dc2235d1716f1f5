"""LangChain messages: reading, and the small edits a pass makes in one message.

LangChain keeps a call up to three times: in `tool_calls`, as a block of `content`, and in `additional_kwargs`. All
copies are treated together; arguments are never changed. Calls a provider ran itself (`server_tool_use`,
`web_search_call`, …) are in `content` only and are no units.

Units that are never judged, by their anomaly: `answer of a person` (a human-in-the-loop decision that stands in for a
result), `cleared by another tool` (its original is gone), `block of unknown type in the result`.

A shortened ToolMessage keeps id, `status`, name and `artifact`. `response_metadata["context_editing"]` says that it is
out, in the words of LangChain's own ContextEditingMiddleware, which then leaves it alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from jev_engine.errors import AdapterError
from jev_engine.host import RowChange
from jev_engine.transcript import Entry, ToolCall, Transcript, TranscriptBuilder
from jev_engine_adapters.openai.messages import (
    IMAGE_TYPES,
    edit_parts,
    host_written,
    part_text,
    plain_json,
    text_of,
)

__all__ = ["EDITED", "check", "dump", "edit", "is_message", "kind_of", "load", "read", "shortened", "sniff"]

EDITED = {"cleared": True, "strategy": "jev"}
"""The mark of a shortened result, under `context_editing`."""
HUMAN_ANSWER = "hitl_interrupt_decision"
"""`lc_source` of a ToolMessage that HumanInTheLoopMiddleware wrote: the words are a person's."""
BOUND_BLOCKS = ("thinking", "redacted_thinking", "reasoning", "reasoning_content")
BOUND_FIELDS = ("reasoning", "reasoning_content", "__gemini_function_call_thought_signatures__")
CALL_BLOCKS = ("tool_use", "tool_call", "function_call", "custom_tool_call", "tool_call_chunk", "invalid_tool_call")
"""Blocks that are a second copy of a call in `tool_calls`: Anthropic, LangChain's own, OpenAI Responses."""
SERVER_BLOCKS = ("server_tool_use", "server_tool_call", "server_tool_result", "mcp_tool_use", "mcp_call")
KINDS = {"ai": "ai", "human": "human", "tool": "tool", "system": "system", "developer": "system"}
ROLES = {"assistant": "ai", "user": "human", "system": "system", "developer": "system"}


@lru_cache(maxsize=1)
def _base() -> type:
    try:
        from langchain_core.messages import BaseMessage  # noqa: PLC0415  # only where histories of LangChain are read
    except ImportError as error:
        raise AdapterError(f"LangChain is not installed ({error}): pip install 'jev-engine[langgraph]'") from None
    base: type = BaseMessage
    return base


def is_message(message: Any) -> bool:
    """Whether this is a message of LangChain; raises AdapterError where LangChain is not installed."""
    return isinstance(message, _base())


def kind_of(message: Any) -> str | None:
    """`ai`, `human`, `tool` or `system`; None for anything else. Chunks are of the kind they add up to."""
    if not is_message(message):
        return None
    kind = message.type
    if kind == "chat":
        return ROLES.get(message.role)
    return KINDS.get(kind) or KINDS.get(kind.removesuffix("MessageChunk").lower())


def sniff(messages: Sequence[Any]) -> bool:
    """Whether these are messages of LangChain; imports nothing that is not imported already."""
    for message in messages[:50]:
        if message is None or isinstance(message, dict | str | list | int):
            continue
        return any(base.__module__ == "langchain_core.messages.base" for base in type(message).__mro__)
    return False


def read(messages: Sequence[Any]) -> Transcript:
    """The transcript of a list of messages; rows that are not understood are kept and counted."""
    builder = TranscriptBuilder(messages)
    for row, message in enumerate(messages):
        kind = kind_of(message)
        if kind == "tool":
            _read_result(builder, row, message)
        elif kind == "ai":
            _read_assistant(builder, row, message)
        elif kind is not None:
            text, images = text_of(message.content)
            human = kind == "human" and not message.additional_kwargs.get("lc_source") and not host_written({}, text)
            builder.entry(row, "user" if kind == "human" else "system", text, is_human=human, images=images)
        elif is_message(message):
            builder.skip(row, f"message of type {message.type}", text_of(message.content)[0])
        else:
            builder.skip(row, "not a message")
    return builder.finish()


def _read_assistant(builder: TranscriptBuilder, row: int, message: Any) -> None:
    content = message.content
    text, images = (content, 0) if content.__class__ is str else text_of(content)
    entry = builder.entry(row, "assistant", text, images=images)
    fields = message.additional_kwargs
    entry.is_bound = any(fields.get(name) for name in BOUND_FIELDS)
    if fields.get("function_call"):
        builder.odd["legacy function call"] += 1
    if content.__class__ is list:
        _read_blocks(builder, entry, content)
    for slot, call in enumerate(getattr(message, "tool_calls", ())):
        builder.call(entry, call.get("id"), _name_of(call), plain_json(call.get("args")), slot)
    for slot, call in enumerate(getattr(message, "invalid_tool_calls", ())):
        arguments = call.get("args")
        text = arguments if isinstance(arguments, str) else plain_json(arguments)
        builder.call(entry, call.get("id"), _name_of(call), text, ("invalid", slot))


def _name_of(call: Any) -> str:
    name = call.get("name")
    return name if isinstance(name, str) else ""


def _read_blocks(builder: TranscriptBuilder, entry: Entry, blocks: list[Any]) -> None:
    reasoning = []
    for block in blocks:
        if not isinstance(block, dict):
            continue
        kind = block.get("type")
        if kind in BOUND_BLOCKS or "signature" in block:
            entry.is_bound = True
            said = block.get("thinking") or block.get("reasoning")
            if isinstance(said, str):
                reasoning.append(said)
        elif kind in SERVER_BLOCKS or (isinstance(kind, str) and kind.endswith(("_tool_result", "_search_call"))):
            builder.odd["server-side tool"] += 1
    entry.reasoning = "\n".join(reasoning)


def _read_result(builder: TranscriptBuilder, row: int, message: Any) -> None:
    content = message.content
    text, images = (content, 0) if content.__class__ is str else text_of(content)
    is_error = getattr(message, "status", None) == "error"
    call = builder.result(row, message.tool_call_id, text, is_error=is_error, images=images)
    if call is None or call.anomaly:
        return
    edited = message.response_metadata.get("context_editing")
    if message.additional_kwargs.get("lc_source") == HUMAN_ANSWER:
        call.anomaly = "answer of a person"
    elif isinstance(edited, dict) and edited.get("cleared") and edited.get("strategy") != EDITED["strategy"]:
        call.anomaly = "cleared by another tool"
    elif content.__class__ is list and not all(_is_known(part) for part in content):
        call.anomaly = "block of unknown type in the result"
    if call.anomaly:
        builder.odd[call.anomaly] += 1


def _is_known(part: Any) -> bool:
    return part_text(part) is not None or (isinstance(part, dict) and part.get("type") in IMAGE_TYPES)


def edit(message: Any, change: RowChange) -> Any | None:
    """A changed copy of a message, or None where nothing of it is left."""
    if kind_of(message) == "tool":
        return None if change.removed else shortened(message, change.results[0][1])
    return _edit_calls(message, change.removed)


def shortened(message: Any, text: str) -> Any:
    """A ToolMessage with another text, marked as shortened; images stay."""
    content = message.content
    metadata = {**message.response_metadata, "context_editing": dict(EDITED)}
    new = text if content.__class__ is str else edit_parts(content, text)
    return message.model_copy(update={"content": new, "response_metadata": metadata})


def _edit_calls(message: Any, removed: Sequence[ToolCall]) -> Any | None:
    """The message without these calls, in every copy; None where nothing is left."""
    slots = {call.place for call in removed}
    ids = {call.call_id for call in removed}
    update: dict[str, Any] = {
        "tool_calls": [call for slot, call in enumerate(message.tool_calls) if slot not in slots],
        "invalid_tool_calls": [
            call for slot, call in enumerate(message.invalid_tool_calls) if ("invalid", slot) not in slots
        ],
    }
    if message.content.__class__ is list:
        update["content"] = [block for block in message.content if not _is_copy(block, ids)]
    copies = message.additional_kwargs.get("tool_calls")
    if isinstance(copies, list):
        left = [copy for copy in copies if not (isinstance(copy, dict) and copy.get("id") in ids)]
        others = {name: value for name, value in message.additional_kwargs.items() if name != "tool_calls"}
        update["additional_kwargs"] = {**others, "tool_calls": left} if left else others
    if getattr(message, "tool_call_chunks", None):
        update["tool_call_chunks"] = [chunk for chunk in message.tool_call_chunks if chunk.get("id") not in ids]
    calls = update["tool_calls"] or update["invalid_tool_calls"] or message.additional_kwargs.get("function_call")
    if not calls and _is_blank(update.get("content", message.content)):
        return None
    return message.model_copy(update=update)


def _is_copy(block: Any, ids: set[Any]) -> bool:
    """Whether a block of `content` is one of these calls. Responses blocks name their call by `call_id`."""
    if not isinstance(block, dict) or block.get("type") not in CALL_BLOCKS:
        return False
    own = block.get("call_id") or block.get("id")
    return isinstance(own, str) and own in ids


def _is_blank(content: Any) -> bool:
    if isinstance(content, list):
        return all((text := part_text(part)) is not None and not text.strip() for part in content)
    return not content.strip()


def check(before: Any, after: Any, change: RowChange) -> str | None:
    """What differs between a message and its edit beyond the change; written apart from `edit` on purpose."""
    if type(after) is not type(before):
        return "message is of another class"
    if kind_of(before) == "tool":
        if change.removed or len(change.results) != 1:
            return "result should be gone"
        return _check_fields(before, after, ("content", "response_metadata")) or _check_result(
            before, after, *change.results[0]
        )
    if change.results:
        return "call message holds no result"
    return _check_calls(before, after, change.removed)


def _check_fields(before: Any, after: Any, edited: Sequence[str]) -> str | None:
    for part in ("__dict__", "__pydantic_extra__"):
        old, new = getattr(before, part) or {}, getattr(after, part) or {}
        if old.keys() != new.keys():
            return "fields added or lost"
        for name, value in old.items():
            if name not in edited and new[name] is not value:
                return f"field {name!r} changed"
    return None


def _check_result(before: Any, after: Any, call: ToolCall, text: str) -> str | None:
    old, new = before.content, after.content
    expected = {**before.response_metadata, "context_editing": EDITED}
    if after.response_metadata != expected:
        return "field 'response_metadata' changed"
    if text_of(old)[0] != call.result:
        return "the result changed while the pass ran"
    if old.__class__ is str:
        return None if new.__class__ is str and new == text else "result is not the decided text"
    if new.__class__ is not list or text_of(new)[0] != text:
        return "result parts are not the decided text"
    kept = [part for part in old if part_text(part) is None]
    stayed = [part for part in new if part_text(part) is None]
    if len(new) != len(kept) + 1 or len(kept) != len(stayed):
        return "a part is lost or added"
    if any(a is not b for a, b in zip(kept, stayed, strict=True)):
        return "a part that stays was changed"
    first = next(part for part in old if part_text(part) is not None)
    mine = next(part for part in new if part_text(part) is not None)
    if isinstance(first, dict) and (not isinstance(mine, dict) or {**first, "text": text} != mine):
        return "a text part changed beyond its text"
    return None


def _check_calls(before: Any, after: Any, removed: Sequence[ToolCall]) -> str | None:
    copies = ("tool_calls", "invalid_tool_calls", "content", "additional_kwargs", "tool_call_chunks")
    problem = _check_fields(before, after, copies)
    if problem is not None:
        return problem
    ids = {call.call_id for call in removed}
    gone = 0
    for name in copies[:2]:
        old, new = getattr(before, name), getattr(after, name)
        stays = [call for call in old if call.get("id") not in ids]
        gone += len(old) - len(stays)
        if len(stays) != len(new) or any(a is not b for a, b in zip(stays, new, strict=True)):
            return "a call that stays was changed"
    if gone != len(removed):
        return "another number of calls is gone"
    return _check_copies(before, after, ids)


def _check_copies(before: Any, after: Any, ids: set[Any]) -> str | None:
    old, new = before.content, after.content
    if old.__class__ is list:
        stays = [b for b in old if not (isinstance(b, dict) and {b.get("call_id"), b.get("id")} & ids)]
        if (
            new.__class__ is not list
            or len(new) != len(stays)
            or any(a is not b for a, b in zip(stays, new, strict=True))
        ):
            return "a block that stays was changed"
    elif new is not old:
        return "the text changed"
    fields = {name: value for name, value in before.additional_kwargs.items() if name != "tool_calls"}
    left = {name: value for name, value in after.additional_kwargs.items() if name != "tool_calls"}
    if fields != left:
        return "field 'additional_kwargs' changed"
    stays = [c for c in before.additional_kwargs.get("tool_calls") or () if c.get("id") not in ids]
    return None if (after.additional_kwargs.get("tool_calls") or []) == stays else "a copy of a call is wrong"


def dump(message: Any) -> Any:
    """The message as plain JSON values, with `role` for its type. What JSON cannot hold is named in `not_kept`."""
    if not is_message(message):
        return message
    row: dict[str, Any] = {"role": message.type}
    lost = []
    for name, value in {**message.__dict__, **(message.__pydantic_extra__ or {})}.items():
        if name == "type" or value is None or (value.__class__ in {list, dict} and not value):
            continue
        if _is_plain(value):
            row[name] = value
        else:
            lost.append(name)
    return {**row, "not_kept": lost} if lost else row


def _is_plain(value: Any, depth: int = 0) -> bool:
    if value is None or value.__class__ in {str, int, float, bool}:
        return True
    if depth > 50:  # a value may hold itself; no JSON of a provider is nested so deep
        return False
    if value.__class__ is list:
        return all(_is_plain(item, depth + 1) for item in value)
    return value.__class__ is dict and all(
        name.__class__ is str and _is_plain(item, depth + 1) for name, item in value.items()
    )


def load(data: Any) -> Any:
    """The message that `dump` was made from; raises AdapterError for a type that LangChain does not have."""
    if not isinstance(data, dict) or "role" not in data:
        return data
    fields = {name: value for name, value in data.items() if name not in ("role", "not_kept")}
    # Not by validation: it would read calls from `additional_kwargs` once more.
    return _classes().get(data["role"], _unknown)(**fields)


def _unknown(**_: Any) -> Any:
    raise AdapterError("a stored message is of a type that LangChain does not have")


@lru_cache(maxsize=1)
def _classes() -> dict[str, Any]:
    from langchain_core import messages as made  # noqa: PLC0415  # only where histories of LangChain are read

    base = _base()
    found: dict[str, Any] = {}
    for name in made.__all__:
        each: Any = getattr(made, name)
        kind = each.model_fields["type"].default if _is_kind_of(each, base) else None
        if isinstance(kind, str):
            found[kind] = each.model_construct
    return found


def _is_kind_of(each: Any, base: type) -> bool:
    return isinstance(each, type) and issubclass(each, base)
