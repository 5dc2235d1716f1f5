"""Conversations as the plugin of Claude Code sends them, for tests of what answers them."""

from __future__ import annotations

from typing import Any

LONG = "a line that some tool wrote, like many others\n" * 60


def entry(i: int, role: str, text: str = "", *, calls: Any = (), results: Any = ()) -> dict[str, Any]:
    """One row."""
    return {"i": i, "role": role, "text": text, "calls": list(calls), "results": list(results)}


def conversation(calls: int, *, prose: int = 0, seed: str = "") -> list[dict[str, Any]]:
    """A task, and so many calls with long results, `prose` characters of text before them."""
    rows = [entry(0, "user", f"Mend the parser {seed}." + "x " * (prose // 2))]
    for number in range(calls):
        call = {"id": f"toolu_{seed}{number}", "name": "Bash", "input": {"command": f"run {number}"}}
        result = {"id": call["id"], "text": f"{number}\n{LONG}", "error": False}
        rows.append(entry(len(rows), "assistant", calls=[call]))
        rows.append(entry(len(rows), "user", results=[result]))
    return rows


def request(messages: Any, *, session: str = "session-1", trigger: str = "manual", **more: Any) -> dict[str, Any]:
    """What the plugin asks at a compaction."""
    return {
        "v": 1,
        "host": "claude-code-plugin",
        "session_id": session,
        "trigger": trigger,
        "expand_tool": "mcp__jev-engine__expand",
        "options": {},
        "messages": messages,
        **more,
    }


def built(messages: list[dict[str, Any]], steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The conversation that the plugin builds from the steps, as it would send it the next time."""
    made: list[dict[str, Any]] = []
    for step in steps:
        i = len(made)
        if "keep" in step:
            made.append({**messages[step["keep"]], "i": i})
        elif "merge" in step:
            rows = [messages[each] for each in step["merge"]]
            out = set(step.get("without", ()))
            calls = [call for row in rows for call in row["calls"] if call["id"] not in out]
            made.append(entry(i, "assistant", "\n".join(r["text"] for r in rows if r["text"]), calls=calls))
        else:
            results = [{**messages[row]["results"][place], **({"text": text[0]} if text else {})}
                       for row, place, *text in step.get("results", ())]  # fmt: skip
            text = "\n".join(messages[each]["text"] for each in step.get("texts", ()))
            made.append(entry(i, "user", text, results=results))
    return made
