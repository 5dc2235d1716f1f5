"""Pins: every reason, and what is no reason."""

from __future__ import annotations

from typing import Any

import pytest
from passing import long_text

from jev_engine.config import EngineConfig, make_config
from jev_engine.ledger import Ledger, LedgerEntry, assign_keys
from jev_engine.pinning import Pins, pin
from jev_engine.testing import call, history, result, user
from jev_engine.transcript import ToolCall
from jev_engine_adapters.openai import adapter

BARE = {"pin_newest_calls": 0, "pin_short_chars": 0}


def pins_of(*rows: Any, rules: Any = (), **settings: Any) -> Pins:
    transcript = adapter.read(history(user("Go."), *rows))
    assign_keys(transcript, Ledger())
    return pin(transcript, make_config(**{**BARE, **settings}), rules=rules)


def reason_for(
    tool: str = "lookup", content: str | None = None, *, is_error: bool = False, **settings: Any
) -> str | None:
    arguments = settings.pop("arguments", {})
    answer = result(long_text("a") if content is None else content, is_error=is_error)
    return pins_of(call(tool, **arguments), answer, **settings).reasons.get(1)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, None),
        ({"protect_tools": ("look*",)}, "protected tool"),
        ({"protect_tools": ("LOOKUP",)}, "protected tool"),
        ({"protect_tools": ("look",)}, None),
        ({"protect_ids": ("t1",)}, "protected id"),
        ({"protect_ids": ("call_1",)}, "protected id"),
        ({"protect_ids": ("t2",)}, None),
        ({"pin_newest_calls": 1}, "newest"),
        ({"pin_newest_messages": 1}, "newest"),
        ({"pin_short_chars": 3_000}, "short"),
        ({"pin_short_chars": 2_999}, None),
    ],
)
def test_settings_pin(settings: dict[str, Any], reason: str | None) -> None:
    """By tool, by id, by age, by size."""
    assert reason_for(**settings) == reason


@pytest.mark.parametrize(
    ("pattern", "path", "is_pinned"),
    [
        ("docs/spec/*", "docs/spec/a.md", True),
        ("docs/spec/*", "/home/me/repo/docs/spec/a.md", True),
        ("docs/spec/*", "./docs/spec/deep/a.md", True),
        ("docs/spec/*", "docs/speculation.md", False),
        ("*.lock", "a/b/Cargo.lock", True),
        ("*.LOCK", "a/b/cargo.lock", True),
        ("secrets.y?ml", "conf/secrets.yaml", True),
        ("[ab].txt", "x/b.txt", True),
        ("a.txt", "a.txt.bak", False),
        ("./docs/spec/*", "docs/spec/a.md", True),
        ("./docs/spec/*", "/home/me/repo/docs/spec/a.md", True),
        ("././a.txt", "a.txt", True),
        ("tests/", "tests/test_a.py", True),
        ("tests/", "./tests/deep/test_a.py", True),
        ("./tests/", "/home/me/repo/tests/test_a.py", True),
        ("tests/", "contests/a.py", False),
        ("tests/", "tests", False),
        ("./", "anything.py", True),
    ],
)
def test_path_patterns_pin_what_names_such_a_path(pattern: str, path: str, is_pinned: bool) -> None:  # noqa: FBT001  # a parameter of the test
    """In whole or from one of its folders on, in arguments or inside a command."""
    pinned = "protected path" if is_pinned else None

    assert reason_for(protect_paths=(pattern,), arguments={"path": path}) == pinned
    assert reason_for("bash", protect_paths=(pattern,), arguments={"command": f'cat "{path}" | head'}) == pinned


@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        ("ask_user", "human answer"),
        ("Task", "helper report"),
        ("tool_search", "definition"),
        ("send_mail", "receipt"),
        ("mcp__tracker__create_issue", "receipt"),
        ("deployService", "receipt"),
        ("create_file", None),
        ("update_plan", None),
        ("delete", None),
        ("read_mail", None),
        ("resend", None),
    ],
)
def test_names_of_tools_tell_what_cannot_be_had_again(tool: str, reason: str | None) -> None:
    """A mark on the world outside leaves a receipt; objects of the session itself do not."""
    assert reason_for(tool) == reason
    assert reason_for(tool, extra_pins=False) is None


@pytest.mark.parametrize(
    "path", ["AGENTS.md", "x/CLAUDE.md", "skills/a/SKILL.md", ".cursorrules", ".github/copilot-instructions.md"]
)
def test_instruction_files_stay(path: str) -> None:
    """Losing one loses a rule, not a fact."""
    assert reason_for("read", arguments={"path": path}) == "instructions"
    assert reason_for("read", arguments={"path": "README.md"}) is None


def test_a_refusal_is_an_error_that_says_so() -> None:
    """The flag of the host decides, not the word alone."""
    said = "Permission denied by the user. " + long_text("a")

    assert reason_for(content=said, is_error=True) == "refusal"
    assert reason_for(content=said) is None
    assert reason_for(content=long_text("a"), is_error=True) is None


def test_open_and_ambiguous_units_are_pinned_in_every_profile() -> None:
    """And the first of the reasons is shown."""
    rows = [
        call("a", call_id="k"),
        result("1" * 900, call_id="k"),
        result("2" * 900, call_id="k"),
        call("b", call_id="z"),
    ]
    for profile in ("balanced", "reference", "hermes-classic"):
        pins = pins_of(*rows, profile=profile, pin_newest_messages=0)

        assert pins.counts() == {"ambiguous: two results": 1, "open": 1}
        assert pins.candidates == []


def test_what_is_out_is_out() -> None:
    """A result that is a marker of the ledger is no candidate."""
    transcript = adapter.read(history(user("Go."), call("a"), result("[left out]" * 99)))
    assign_keys(transcript, Ledger.of([LedgerEntry("k", "truncate", "jx-1", "[left out]" * 99, 9_000)]))
    pins = pin(transcript, make_config(**BARE))

    assert pins.reasons == {1: "already out"}


def test_the_first_message_is_protected_where_it_holds_a_call() -> None:
    """A history may begin with one."""
    transcript = adapter.read(history(call("a"), result(long_text("a")), call("a"), result(long_text("b"))))

    assert pin(transcript, make_config(**BARE)).reasons == {1: "first message"}
    assert pin(transcript, make_config(**BARE, pin_first_message=False)).reasons == {}


def test_rules_of_others_pin_and_a_broken_rule_keeps() -> None:
    """Doubt keeps; one broken rule does not decide for the units it was not asked about."""

    def ours(unit: ToolCall) -> str | None:
        return "our deploy log" if unit.tool == "deploy" else None

    def broken(unit: ToolCall) -> str | None:
        raise KeyError(unit.tool)

    rows = [call("deploy"), result(long_text("a")), call("x"), result(long_text("b"))]

    assert pins_of(*rows, rules=[ours]).reasons == {1: "our deploy log"}
    assert pins_of(*rows, rules=[ours, broken]).reasons == {1: "our deploy log", 2: "pin rule failed: KeyError"}


def test_counts_are_sorted_by_size() -> None:
    """Most first, as reports show them."""
    rows = [row for n in range(5) for row in (call("a", n=n), result("x" * (900 if n < 2 else 10)))]

    assert pins_of(*rows, pin_newest_calls=2, pin_short_chars=500).counts() == {"newest": 2, "short": 1}
    assert EngineConfig().pin_short_chars == 500
