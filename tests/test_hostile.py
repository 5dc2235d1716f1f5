"""Hostile input: no pattern blows up, no depth crashes, no size stalls.

The patterns run in a process of their own on inputs on which a super-linear one would take hours, within a limit that
only such a blow-up can reach.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from passing import compress
from strategies import texts

from jev_engine.judges.asked import AskedJudge
from jev_engine.testing import ScriptedAsker, assistant, call, calls, history, result, user

LIMIT_SECONDS = 60

# Written out in the child: megabytes do not go over a command line.
INPUTS = {
    "dots and dashes": "'.-' * 83_333",
    "blank lines": "'\\n' * 500_000",
    "blanks before line ends": "' \\n' * 104_166",
    "one long line": "'x' * 5_000_000",
    "one long line of digits": "'0123456789' * 20_833",
    "open tags": "'<a ' * 66_666",
    "one open tag": "'<a' + ' b' * 83_333",
    "nested names": "'<a.b-c' * 29_166",
    "outcome starts": "'\\nexit cod' * 20_833",
    "outcome letters": "'\\nE\\ne\\nF\\nT\\n=\\nB\\nn' * 12_500",
    "outcome lines": "'\\nError: x' * 20_833",
    "slashes": "'a/' * 104_166",
    "paths in quotes": "'\"a/b/c\",' * 25_000",
    "dense signs": "'A+/_=-9' * 29_166",
    "dense and broken": "('A' * 31 + ' ') * 6_250",
    "names": "'a.b' * 66_666",
    "names and dashes": "'a-' * 104_166 + '.py'",
    "instruction names": "'agents.m' * 25_000",
    "rules": "'copilot-instruction' * 10_416",
    "brackets": "'{\"a\":' * 33_333",
    "note openings": "'[jev-engine: ' * 16_666",
    "references": "'jx-0123456789abcde' * 10_416",
    "fences": "'```\\n' * 50_000",
    "humps": "'aB' * 104_166",
    "underscores": "'_a' * 104_166",
    "half characters": "'\\ud83d' * 83_333",
    "foreign": "'\u4e2d' * 83_333",
    "blanks of all kinds": "'\\x1c\\x85\\u3000' * 62_500",
}

CHILD = """
import importlib, pkgutil, re, sys
from collections import deque
text = {text}
import jev_engine
from jev_engine import markers, pinning, questions, state, tokens
from jev_engine.config import make_config
from jev_engine.testing import call, result, transcript_of
raw = text.encode("utf-8", "surrogatepass")
done = []
# `atoms` and `tools` see single words and the start of a command, cut to length; they have tests of their own.
names = [name for _, name, is_package in pkgutil.iter_modules(jev_engine.__path__) if not is_package]
rooms = [importlib.import_module(f"jev_engine.{{n}}") for n in names if n not in ("atoms", "tools", "__main__")]
for room in rooms:
    for name, pattern in vars(room).items():
        if isinstance(pattern, re.Pattern):
            subject = raw if isinstance(pattern.pattern, bytes) else text
            if room.__name__ == "jev_engine.redact":
                subject = subject[:50_000]  # linear, but at a microsecond a sign; its callers look at pieces
            pattern.search(subject), pattern.match(subject)
            deque(pattern.finditer(subject), maxlen=0)
            done.append(f"{{room.__name__.rpartition('.')[2]}}.{{name}}")
unit = transcript_of(call("read"), result(text)).calls[0]
for profile in ("balanced", "reference", "hermes-classic"):
    markers.shorten(unit, "jx-0123456789abcdef", make_config(profile=profile))
markers.find_reference(text)
unit.arguments = text
unit.is_error = True
pinning._tool_reason(text[:100_000]), pinning._content_reason(unit, text)
pinning._names_path(pinning._path_pattern(["docs/spec/*", "*secret*", "*a*b*c*", "a/*/b"]), text)
tokens.cost(text), tokens.sample_cost(text), tokens.reference_tokens(text[:50_000])
state.flat_input(text), state.render_call(unit, 0), state.render_line(unit), state.excerpt(unit)
questions.question_cost(unit, 1), questions.questions_for(unit, questions.WORDING)
print(" ".join(sorted(done)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("text", INPUTS.values(), ids=INPUTS)
def test_no_pattern_of_the_core_is_super_linear(text: str) -> None:
    """Every compiled pattern of the rooms that read texts, and the functions around them."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD.format(text=text)],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-2_000:]
    for name in (
        "markers.OUTCOME",
        "markers.WRAPPER",
        "pinning.PATH_PIECE",
        "pinning.INSTRUCTION_FILES",
        "windows.NAME",
    ):
        assert name in done.stdout


COMPRESS = """
import sys, anyio
text = {text}
from jev_engine import ContextEngine, make_config
from jev_engine.judges.asked import AskedJudge
from jev_engine.testing import ScriptedAsker, assistant, call, history, result, user
read = call("read", q=text[:200_000]), result(text)
messages = history(user(text), *read, assistant(text), call("b"), result(text), user("On."))
messages[1]["tool_calls"][0]["function"]["arguments"] = text
for judge in (None, AskedJudge(ScriptedAsker(lambda *_: 0.0))):
    engine = ContextEngine(judge=judge, config=make_config(pin_newest_calls=0, protect_paths=("docs/*",)))
    done = anyio.run(lambda: engine.compress(messages, host="openai"))
    print(done.outcome, done.reason)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "dots and dashes", "blank lines", "one long line", "open tags", "outcome lines", "slashes", "names",
        "dense signs", "fences", "half characters", "brackets", "foreign",
    ],
)  # fmt: skip
def test_no_pass_stalls_on_it(name: str) -> None:
    """The same texts as wish, arguments, result and narration, up to five megabytes each."""
    done = subprocess.run(
        [sys.executable, "-c", COMPRESS.format(text=INPUTS[name])],
        capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr[-2_000:]
    assert "failed" not in done.stdout


def deep(levels: int = 10_000) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


def itself() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "odd", [deep(), itself(), {"a": itself()}, [deep()]], ids=["deep", "itself", "inside", "deeper"]
)
@pytest.mark.parametrize("place", ["content", "arguments", "id", "name", "role", "tool_calls", "field", "row"])
@pytest.mark.parametrize("profile", ["balanced", "reference"])
def test_deep_and_self_containing_values_never_crash_a_pass(odd: Any, place: str, profile: str) -> None:
    """Ten thousand levels, or endless ones, anywhere in a message; the units beside it are judged."""
    messages = history(user("Go."), call("read"), result("text " * 900), call("odd"), result("y" * 900), user("On."))
    asked, answer = messages[3], messages[4]
    if place == "content":
        answer["content"] = odd
    elif place in ("arguments", "name"):
        asked["tool_calls"][0]["function"][place] = odd
    elif place == "id":
        asked["tool_calls"][0]["id"] = answer["tool_call_id"] = odd
    elif place == "row":
        messages.insert(3, odd)
    else:
        asked[place] = odd
    judge = AskedJudge(ScriptedAsker(lambda name, *_: 1.0 if name.startswith("call") else 0.0))
    done = compress(messages, judge=judge, profile=profile, pin_newest_calls=0, pin_newest_messages=0)

    assert "internal fault" not in done.reason
    assert done.outcome in {"committed"} | ({"nothing_to_prune"} if profile == "balanced" else set()), done.reason
    assert "t1" in {d.label for d in done.decisions if d.action == "truncate" or profile == "balanced"}
    assert not done.stats.failures


@given(st.lists(texts, min_size=3, max_size=3), st.integers(1, 3_000))
def test_any_text_anywhere_goes_through_an_asked_pass(words: list[str], times: int) -> None:
    """Half characters, control characters, long lines: wish, narration, arguments and results."""
    said, written, shown = (word * times for word in words)
    messages = history(
        user(said), calls(("read", written), ("", {}), text=shown), result(shown), result(said), assistant(written)
    )
    done = compress(messages, judge=AskedJudge(ScriptedAsker(lambda *_: 0.2)), pin_newest_calls=0)

    assert done.outcome in ("committed", "nothing_to_prune", "not_worth_it", "over_capacity"), done.reason
    assert done.messages[0] is messages[0]
    assert not done.stats.failures
