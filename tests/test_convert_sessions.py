"""The converters outside the wheel: each host's own form, written by hand, comes out as corpus messages."""

from __future__ import annotations

import gzip
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from jev_engine.evaluate.corpus import read_sessions

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"


@pytest.fixture(scope="module")
def scripts():
    """The two modules of the script, imported as the script imports them."""
    sys.path.insert(0, str(SCRIPTS))
    try:
        found = importlib.import_module("convert_sessions"), importlib.import_module("redact_sessions")
    finally:
        sys.path.remove(str(SCRIPTS))
    return found


CLAUDE_CODE = [
    {"type": "user", "uuid": "1", "message": {"role": "user", "content": "Fix it."}},
    {
        "type": "assistant",
        "uuid": "2",
        "message": {"id": "m1", "model": "m", "content": [{"type": "thinking", "thinking": "hm"}]},
    },
    {"type": "assistant", "uuid": "3", "message": {"id": "m1", "content": [{"type": "text", "text": "Looking."}]}},
    {
        "type": "assistant",
        "uuid": "4",
        "message": {
            "id": "m1",
            "content": [{"type": "tool_use", "id": "c1", "name": "Read", "input": {"file_path": "a.py"}}],
        },
    },
    {
        "type": "user",
        "uuid": "5",
        "message": {
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "x = 1"}]}]
        },
    },
    {
        "type": "assistant",
        "uuid": "6",
        "message": {
            "id": "m1",
            "content": [{"type": "tool_use", "id": "c2", "name": "Bash", "input": {"command": "ls"}}],
        },
    },
    {
        "type": "user",
        "uuid": "7",
        "message": {"content": [{"type": "tool_result", "tool_use_id": "c2", "content": "no", "is_error": True}]},
    },
    {"type": "user", "uuid": "7", "message": {"content": "a row that was copied"}},
    {"type": "user", "uuid": "8", "isSidechain": True, "message": {"content": "a helper's own talk"}},
    {"type": "system", "subtype": "compact_boundary", "uuid": "9"},
    {"type": "user", "uuid": "10", "isCompactSummary": True, "message": {"content": "So far: fixed."}},
]
CODEX = [
    {"type": "turn_context", "payload": {"model": "m"}},
    {
        "type": "response_item",
        "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Fix it."}]},
    },
    {"type": "response_item", "payload": {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}},
    {
        "type": "response_item",
        "payload": {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Looking."}]},
    },
    {
        "type": "response_item",
        "payload": {
            "type": "function_call",
            "call_id": "c1",
            "name": "exec_command",
            "arguments": '{"cmd": "cat a.py"}',
        },
    },
    {
        "type": "response_item",
        "payload": {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "+x"},
    },
    {
        "type": "response_item",
        "payload": {
            "type": "function_call_output",
            "call_id": "c1",
            "output": '{"output": "x = 1", "metadata": {"exit_code": 0}}',
        },
    },
    {
        "type": "response_item",
        "payload": {"type": "custom_tool_call_output", "call_id": "c2", "output": "Process exited with code 1\nno"},
    },
    {"type": "compacted", "payload": {"message": "So far: fixed."}},
]
OPENCODE = {
    "messages": [
        {"info": {"role": "user"}, "parts": [{"type": "text", "text": "Fix it."}]},
        {
            "info": {"role": "assistant", "modelID": "m"},
            "parts": [
                {"type": "step-start"},
                {"type": "reasoning", "text": "hm"},
                {"type": "text", "text": "Looking."},
                {
                    "type": "tool",
                    "callID": "c1",
                    "tool": "read",
                    "state": {"status": "completed", "input": {"p": 1}, "output": "x = 1"},
                },
                {"type": "step-start"},
                {
                    "type": "tool",
                    "callID": "c2",
                    "tool": "bash",
                    "state": {"status": "error", "input": {}, "error": "no"},
                },
            ],
        },
        {"info": {"role": "user"}, "parts": [{"type": "compaction"}]},
        {"info": {"role": "assistant", "summary": True}, "parts": [{"type": "text", "text": "So far: fixed."}]},
    ]
}
PI = [
    {"type": "session", "modelId": "m"},
    {"type": "message", "message": {"role": "user", "content": "Fix it."}},
    {
        "type": "message",
        "message": {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm"},
                {"type": "text", "text": "Looking."},
                {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"p": 1}},
                {"type": "toolCall", "id": "c2", "name": "bash", "arguments": {"c": 1}},
            ],
        },
    },
    {
        "type": "message",
        "message": {"role": "toolResult", "toolCallId": "c1", "content": [{"type": "text", "text": "x = 1"}]},
    },
    {"type": "message", "message": {"role": "toolResult", "toolCallId": "c2", "content": "no", "isError": True}},
    {"type": "compaction", "summary": "So far: fixed."},
]
SWE_AGENT = {
    "history": [
        {"role": "system", "content": "You are"},
        {"role": "user", "content": "Fix it."},
        {"role": "assistant"},
    ],
    "trajectory": [
        {"thought": "Looking.", "action": "open a.py", "observation": "x = 1"},
        {"thought": "", "action": "python a.py", "observation": "Traceback (most recent call last):"},
    ],
}
OPENAI = {
    "model": "m",
    "messages": [
        {"role": "developer", "content": "You are"},
        {"role": "user", "content": [{"type": "text", "text": "Fix it."}]},
        {
            "role": "assistant",
            "content": "Looking.",
            "reasoning_content": "hm",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "x = 1"},
    ],
}


def text_of(document):
    return json.dumps(document) if isinstance(document, dict) else "\n".join(map(json.dumps, document))


@pytest.mark.parametrize(
    ("harness", "document"),
    [("claude-code", CLAUDE_CODE), ("codex", CODEX), ("opencode", OPENCODE), ("pi", PI), ("swe-agent", SWE_AGENT),
     ("openai", OPENAI)],
)  # fmt: skip
def test_each_host_is_recognised_and_its_calls_are_paired(scripts, harness, document):
    record = scripts[0].convert(text_of(document), "ours/site", "1.jsonl")
    results = [message for message in record["messages"] if message["role"] == "tool"]
    made = [call["id"] for message in record["messages"] for call in message.get("tool_calls", ())]

    assert record["harness"] == harness
    assert [message["tool_call_id"] for message in results] == made
    assert results[0]["content"] == "x = 1"
    assert any(message["content"] == "Fix it." for message in record["messages"] if message["role"] == "user")
    assert any("Looking." in message["content"] for message in record["messages"] if message["role"] == "assistant")


@pytest.mark.parametrize("document", [CLAUDE_CODE, CODEX, OPENCODE, PI, SWE_AGENT])
def test_failed_calls_are_marked(scripts, document):
    messages = scripts[0].convert(text_of(document), "ours/site", "1.jsonl")["messages"]

    assert [message["is_error"] for message in messages if message["role"] == "tool"] == [False, True]


@pytest.mark.parametrize("document", [CLAUDE_CODE, CODEX, OPENCODE, PI, OPENAI])
def test_reasoning_stays_with_its_answer(scripts, document):
    messages = scripts[0].convert(text_of(document), "ours/site", "1.jsonl")["messages"]

    assert [message["reasoning"] for message in messages if message.get("reasoning")] == ["hm"]


@pytest.mark.parametrize("document", [CLAUDE_CODE, CODEX, OPENCODE, PI])
def test_real_compactions_are_boundaries_with_their_summary_behind(scripts, document):
    messages = scripts[0].convert(text_of(document), "ours/site", "1.jsonl")["messages"]
    place = next(i for i, message in enumerate(messages) if message.get("compact_boundary"))

    assert "So far: fixed." in messages[place + 1]["content"]
    assert messages[place + 1]["compact_summary"] is True


def test_copied_rows_and_side_talk_are_left_out(scripts):
    text = json.dumps(scripts[0].convert(text_of(CLAUDE_CODE), "ours/site", "1.jsonl"))

    assert "copied" not in text
    assert "helper" not in text


def test_results_without_a_call_and_calls_without_a_result_are_left_out(scripts):
    messages = [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "function": {"name": "read", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c2", "content": "x"},
    ]

    assert scripts[0].tidy(messages) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("key sk-ant-" + "a1" * 12, "key sk-REDACTED"),
        ("token ghp_" + "A" * 36, "token gh_REDACTED"),
        ("by jane.doe@corp.example.org", "by dev@example.com"),
        ("from git@github.com:o/r", "from git@github.com:o/r"),
        ("/Users/janedoe/site/a.py", "/Users/user/site/a.py"),
        ("/home/runner/work", "/home/runner/work"),
        ("Author: Jane Doe <j@corp.org>", "Author: Dev <dev@example.com>"),
        ("de:ad:be:ef:00:01", "00:00:00:00:00:00"),
    ],
)
def test_keys_addresses_and_homes_are_taken_out(scripts, text, expected):
    assert scripts[1].make_redactor([text])(text) == expected


def test_a_name_that_is_all_over_the_home_paths_goes_everywhere(scripts):
    texts = ["/Users/janedoe/site"] * 5
    redact = scripts[1].make_redactor(texts)

    assert redact("owner JaneDoe, not janedoes") == "owner user, not janedoes"


def test_the_script_writes_a_corpus_that_can_be_read(tmp_path):
    first, copy, short = (tmp_path / f"{name}.jsonl" for name in ("first", "copy", "short"))
    first.write_text(text_of(CLAUDE_CODE))
    copy.write_text(text_of([*CLAUDE_CODE, {"type": "user", "uuid": "11", "message": {"content": "More."}}]))
    short.write_text(text_of(CLAUDE_CODE[:1]))
    out = tmp_path / "corpus.jsonl.gz"
    line = [
        sys.executable,
        SCRIPTS / "convert_sessions.py",
        first,
        copy,
        short,
        "--project",
        "ours/site",
        "--least-calls",
        "2",
    ]
    done = subprocess.run([*map(str, line), "-o", str(out)], capture_output=True, text=True, check=True)

    (session,) = read_sessions(out)
    assert "1 of 3 sessions" in done.stderr
    assert (session.project, session.harness) == ("ours/site", "claude-code")
    with gzip.open(out, "rt", encoding="utf-8") as stream:
        assert json.loads(stream.readline())["path"] == "first.jsonl"


def test_a_file_of_an_unknown_form_is_named_and_left_out(tmp_path):
    path = tmp_path / "notes.json"
    path.write_text("[1, 2]")
    line = [sys.executable, SCRIPTS / "convert_sessions.py", path, "--project", "ours/site", "-o", tmp_path / "c.jsonl"]
    done = subprocess.run([*map(str, line)], capture_output=True, text=True, check=True)

    assert "left out" in done.stderr
    assert "0 of 1 sessions" in done.stderr
