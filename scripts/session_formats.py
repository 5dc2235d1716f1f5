"""Recorded sessions of six hosts as Chat Completions messages: one function per format, text only."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

__all__ = ["READERS", "Message"]

Message = dict[str, Any]
Rows = list[dict[str, Any]]

BOUNDARY = {"role": "system", "content": "[compact boundary]", "compact_boundary": True}


def text_of(content: Any) -> str:
    """The text of a message body in any of the forms hosts use."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, dict):
        return str(content.get("text") or content.get("content") or json.dumps(content, ensure_ascii=False))
    parts = []
    for block in content:
        if isinstance(block, str):
            parts.append(block)
        elif isinstance(block, dict):
            kind = block.get("type")
            if kind in ("image", "input_image", "image_url"):
                parts.append("[image]")
            elif kind == "tool_reference":
                parts.append(f"[tool {block.get('tool_name', '')}]")
            elif "text" in block:
                parts.append(str(block["text"] or ""))
            elif "content" in block:
                parts.append(text_of(block["content"]))
    return "\n".join(part for part in parts if part)


def call_of(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """One tool call in Chat Completions form."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": call_id, "type": "function", "function": {"name": name or "", "arguments": text}}


def result_of(call_id: Any, text: Any, *, is_error: bool = False) -> Message:
    """One tool result."""
    return {"role": "tool", "tool_call_id": call_id, "content": text_of(text), "is_error": is_error}


def add_text(message: Message, field: str, text: str) -> None:
    """Append to a text of a message, on a line of its own."""
    message[field] = f"{message.get(field, '')}\n{text}".strip("\n")


# --- one function per host: rows or document in, messages and model out


def read_claude_code(rows: Rows) -> tuple[list[Message], str]:
    """Claude Code session files. One answer is logged as several rows, with results of others in between."""
    messages: list[Message] = []
    by_id: dict[str, Message] = {}
    seen: set[str] = set()
    model = ""
    for row in rows:
        if row.get("isSidechain") or row.get("uuid") in seen:
            continue
        seen.add(row.get("uuid") or f"row {len(seen)}")
        if row.get("type") == "system" and row.get("subtype") == "compact_boundary":
            messages.append(dict(BOUNDARY))
            by_id.clear()
            continue
        message = row.get("message")
        if row.get("type") not in ("user", "assistant") or not isinstance(message, dict):
            continue
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        if row["type"] == "user":
            messages += _claude_user(row, blocks)
        elif message.get("model") != "<synthetic>":
            model = message.get("model") or model
            name = message.get("id") or f"row {len(seen)}"
            if name not in by_id:
                by_id[name] = {"role": "assistant", "content": ""}
                messages.append(by_id[name])
            _claude_answer(by_id[name], blocks)
    return messages, model


def _claude_answer(answer: Message, blocks: Sequence[Any]) -> None:
    for block in blocks:
        kind = block.get("type")
        if kind == "text":
            add_text(answer, "content", block.get("text") or "")
        elif kind == "thinking":
            add_text(answer, "reasoning", block.get("thinking") or "")
        elif kind in ("tool_use", "server_tool_use"):
            answer.setdefault("tool_calls", []).append(
                call_of(block.get("id"), block.get("name"), block.get("input") or {})
            )


def _claude_user(row: dict[str, Any], blocks: Sequence[Any]) -> Iterator[Message]:
    others = []
    for block in blocks:
        if isinstance(block, dict) and block.get("type") == "tool_result":
            yield result_of(block.get("tool_use_id"), block.get("content"), is_error=bool(block.get("is_error")))
        else:
            others.append(block)
    text = text_of(others)
    if text:
        message: Message = {"role": "user", "content": text}
        if row.get("isCompactSummary"):
            message["compact_summary"] = True
        elif row.get("isMeta"):
            message["meta"] = True
        yield message


EXIT_CODE = re.compile(r"Process exited with code (\d+)")


def read_codex(rows: Rows) -> tuple[list[Message], str]:
    """Codex rollout files."""
    messages: list[Message] = []
    model = ""
    for row in rows:
        payload = row.get("payload") or {}
        if row.get("type") == "turn_context":
            model = payload.get("model") or model
        elif row.get("type") == "compacted":
            messages.append(dict(BOUNDARY))
            if payload.get("message"):
                messages.append({"role": "user", "content": payload["message"], "compact_summary": True})
        elif row.get("type") == "response_item":
            _codex_item(messages, payload)
    return messages, model


def _codex_item(messages: list[Message], item: dict[str, Any]) -> None:
    kind, role = item.get("type") or "", item.get("role")
    if kind == "message" and role != "assistant":
        messages.append(
            {"role": "system" if role in ("developer", "system") else "user", "content": text_of(item.get("content"))}
        )
        return
    if kind.endswith("_output"):
        messages.append(_codex_result(item))
        return
    # What the model says after calls is a new response; calls and reasoning belong to the one that is open.
    speaks = kind == "message"
    if not messages or messages[-1]["role"] != "assistant" or (speaks and messages[-1].get("tool_calls")):
        messages.append({"role": "assistant", "content": ""})
    answer = messages[-1]
    if speaks:
        add_text(answer, "content", text_of(item.get("content")))
    elif kind == "reasoning":
        add_text(answer, "reasoning", text_of(item.get("summary") or []))
    elif kind.endswith("_call"):
        arguments = item.get("arguments")
        if arguments is None:
            arguments = {"input": item["input"]} if "input" in item else item.get("action") or {}
        answer.setdefault("tool_calls", []).append(
            call_of(item.get("call_id"), item.get("name") or "local_shell", arguments)
        )


def _codex_result(item: dict[str, Any]) -> Message:
    output = item.get("output")
    code: Any = 0
    if isinstance(output, str) and output.startswith('{"output"'):
        try:
            inner = json.loads(output)
            output, code = inner["output"], (inner.get("metadata") or {}).get("exit_code", 0)
        except (ValueError, KeyError, AttributeError):
            pass  # looks like the wrapper and is none: the text stays as it is
    text = text_of(output)
    found = EXIT_CODE.search(text[:400])
    failed = bool(code) or (found is not None and found.group(1) != "0")
    return result_of(item.get("call_id"), text, is_error=failed)


def read_opencode(document: dict[str, Any]) -> tuple[list[Message], str]:
    """Exports of opencode: one document with `messages`, each with `info` and `parts`."""
    messages: list[Message] = []
    model = ""
    for row in document.get("messages") or []:
        info, parts = row.get("info") or {}, row.get("parts") or []
        if info.get("role") == "user":
            if any(part.get("type") == "compaction" for part in parts):
                messages.append(dict(BOUNDARY))
            text = "\n".join(part.get("text") or "" for part in parts if part.get("type") == "text")
            if text:
                messages.append({"role": "user", "content": text})
            continue
        model = info.get("modelID") or model
        is_summary = info.get("summary") is True or info.get("mode") == "compaction"
        messages += _opencode_steps(parts, is_summary=is_summary)
    return messages, model


def _opencode_steps(parts: Sequence[dict[str, Any]], *, is_summary: bool) -> Iterator[Message]:
    """One message of opencode is several responses of the model, parted by `step-start`."""
    answer: Message = {"role": "assistant", "content": ""}
    if is_summary:
        answer["compact_summary"] = True
    results: list[Message] = []
    for part in parts:
        kind = part.get("type")
        if kind == "step-start" and (answer["content"] or answer.get("tool_calls")):
            yield answer
            yield from results
            answer, results = {"role": "assistant", "content": ""}, []
        elif kind == "text":
            add_text(answer, "content", part.get("text") or "")
        elif kind == "reasoning" and part.get("text"):
            add_text(answer, "reasoning", part["text"])
        elif kind == "tool":
            state = part.get("state") or {}
            failed = state.get("status") == "error"
            answer.setdefault("tool_calls", []).append(
                call_of(part.get("callID"), part.get("tool"), state.get("input") or {})
            )
            text = state.get("error") or state.get("output") if failed else state.get("output")
            results.append(result_of(part.get("callID"), text, is_error=failed))
    yield answer
    yield from results


def read_pi(rows: Rows) -> tuple[list[Message], str]:
    """Session files of pi (badlogic/pi-mono)."""
    messages: list[Message] = []
    model = ""
    for row in rows:
        if row.get("type") in ("session", "model_change"):
            model = row.get("modelId") or model
        elif row.get("type") == "compaction":
            messages.append(dict(BOUNDARY))
            if row.get("summary"):
                messages.append({"role": "user", "content": row["summary"], "compact_summary": True})
        elif row.get("type") == "message":
            message = row.get("message") or {}
            role = message.get("role")
            if role == "user":
                messages.append({"role": "user", "content": text_of(message.get("content"))})
            elif role == "assistant":
                model = message.get("model") or model
                messages.append(_pi_answer(message))
            elif role == "toolResult":
                failed = bool(message.get("isError"))
                messages.append(result_of(message.get("toolCallId"), message.get("content"), is_error=failed))
            elif role == "bashExecution":
                messages.append({"role": "user", "content": f"$ {message.get('command')}\n{message.get('output')}"})
    return messages, model


def _pi_answer(message: dict[str, Any]) -> Message:
    answer: Message = {"role": "assistant", "content": ""}
    for block in message.get("content") or []:
        if block.get("type") == "text":
            add_text(answer, "content", block.get("text") or "")
        elif block.get("type") == "thinking":
            add_text(answer, "reasoning", block.get("thinking") or "")
        elif block.get("type") == "toolCall":
            calls = answer.setdefault("tool_calls", [])
            calls.append(call_of(block.get("id"), block.get("name"), block.get("arguments") or {}))
    return answer


SWE_COMMANDS = frozenset(
    "open goto scroll_down scroll_up create edit search_dir search_file find_file submit str_replace_editor view"
    " replace insert".split()
)
FAILED = re.compile(r"(?m)^(?:Traceback|\S*Error:|.*command not found|.*No such file)")


def read_swe_agent(document: dict[str, Any]) -> tuple[list[Message], str]:
    """SWE-agent trajectories (.traj)."""
    messages: list[Message] = []
    for row in document.get("history") or []:
        if row.get("is_demo"):
            continue
        if row.get("role") not in ("system", "user"):
            break
        messages.append({"role": row["role"], "content": text_of(row.get("content"))})
    for number, step in enumerate(document.get("trajectory") or []):
        action = (step.get("action") or "").strip()
        first = (action.split() or ["none"])[0]
        call = call_of(f"call_{number}", first if first in SWE_COMMANDS else "bash", {"command": action})
        messages.append({"role": "assistant", "content": (step.get("thought") or "").strip(), "tool_calls": [call]})
        text = text_of(step.get("observation"))
        messages.append(result_of(f"call_{number}", text, is_error=FAILED.search(text[:4_000]) is not None))
    return messages, ""


def read_openai(document: dict[str, Any] | Rows) -> tuple[list[Message], str]:
    """Lists of Chat Completions messages, bare or in an object with `messages`."""
    rows = document if isinstance(document, list) else document.get("messages") or []
    messages = []
    for row in rows:
        message = {key: value for key, value in row.items() if key not in ("usage", "name")}
        message["content"] = text_of(row.get("content"))
        reasoning = message.pop("reasoning_content", None)
        if reasoning:
            message["reasoning"] = reasoning
        if message.get("role") == "developer":
            message["role"] = "system"
        messages.append(message)
    model = "" if isinstance(document, list) else str(document.get("model") or "")
    return messages, model


READERS: dict[str, Callable[[Any], tuple[list[Message], str]]] = {
    "claude-code": read_claude_code,
    "codex": read_codex,
    "opencode": read_opencode,
    "pi": read_pi,
    "swe-agent": read_swe_agent,
    "openai": read_openai,
}
