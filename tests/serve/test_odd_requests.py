"""Requests that are not what they should be: an answer says so, and nothing is raised."""

from __future__ import annotations

import json
import math

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serve.plugin_requests import conversation, request

from jev_engine.cli import main
from jev_engine.serve.activity import Activity
from jev_engine.serve.desk import Desk
from jev_engine.settings import load_settings

NUMBERS = st.integers() | st.floats() | st.sampled_from([math.inf, -math.inf, math.nan, 1e308, 10**400, -1, 0, True])
ODD = st.recursive(
    st.none() | NUMBERS | st.text(max_size=5) | st.sampled_from(["\ud83d", "x" * 2_000, "jx-0", "anthropic"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = (
    "v", "host", "session_id", "agent_id", "trigger", "expand_tool", "options", "messages", "window_tokens",
    "used_tokens", "instructions", "cwd", "marker", "query", "reason", "input", "tool", "output_reserve_tokens",
)  # fmt: skip
OPTIONS = ("judge", "endpoint", "miss_cost", "goal", "policy", "privacy", "handover", "trigger_share", "profile", "key")


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A desk with a store of its own."""
    folder = tmp_path_factory.mktemp("odd")
    return Desk(settings=lambda **given: load_settings(path=None, store=folder / "o.sqlite3", **given))


def asked(path):
    """A good request of its kind."""
    whole = request(conversation(3), window_tokens=20_000, used_tokens=19_000, cwd="/work")
    if path == "/plugin/tool":
        return {**whole, "tool": "expand", "input": {"id": "jx-0123456789abcdef", "offset": 0, "limit": 10}}
    return whole


@pytest.mark.parametrize("path", sorted(Desk().routes()))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    changed=st.dictionaries(st.sampled_from(FIELDS), ODD, max_size=3), gone=st.sets(st.sampled_from(FIELDS), max_size=1)
)
def test_whatever_stands_in_its_fields_a_request_is_answered(desk, path, changed, gone):
    """With something that is JSON."""
    given_ = {name: value for name, value in {**asked(path), **changed}.items() if name not in gone}

    answer = desk.routes()[path](given_)

    assert isinstance(answer, dict)
    json.dumps(answer)


@pytest.mark.parametrize("path", sorted(Desk().routes()))
@settings(max_examples=30, deadline=None)
@given(options=st.dictionaries(st.sampled_from(OPTIONS), ODD, max_size=2))
def test_whatever_its_options_are_too(desk, path, options):
    """With something that is JSON again."""
    answer = desk.routes()[path]({**asked(path), "options": options})

    assert isinstance(answer, dict)
    json.dumps(answer)


@settings(max_examples=60, deadline=None)
@given(row=st.integers(0, 6), field=st.sampled_from(["i", "role", "text", "calls", "results"]), value=ODD)
def test_whatever_stands_in_a_row(desk, row, field, value):
    """The conversation is left to the host's own summariser."""
    messages = conversation(3)
    messages[row][field] = value

    answer = desk.compact(request(messages))

    assert answer["act"] in ("replace", "summarise", "skip")
    json.dumps(answer)


def repr_short(value):
    """A name for a test."""
    return repr(value)[:12]


@pytest.mark.parametrize("tokens", [math.inf, -math.inf, math.nan, 10**400, -5, 0, "many", None, True], ids=repr_short)
@pytest.mark.parametrize("trigger", ["plugin", "manual"])
def test_a_number_that_is_none_counts_as_not_given(desk, tokens, trigger):
    """The pass is the one without it."""
    odd = request(conversation(12), session="odd", trigger=trigger, window_tokens=tokens, used_tokens=tokens)
    plain = request(conversation(12), session="plain", trigger=trigger)

    assert desk.compact(odd)["act"] == desk.compact(plain)["act"]


@pytest.mark.parametrize("text", ["[]", "3", "null", '"a"', "[{}]", "true", "1e999", "NaN"])
@pytest.mark.parametrize("route", ["compact", "tool", "status"])
def test_the_command_takes_an_object_only(text, route):
    """Bad usage, and no fault of ours."""
    done = CliRunner().invoke(main, ["serve", "--once", route], input=text)

    assert done.exit_code == 2
    assert "no JSON object" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("seconds", [math.nan, -math.inf, -1.0, math.inf, 0.0, 50.0])
def test_a_wish_to_be_kept_never_makes_it_less_patient(seconds):
    """And what it tells of its patience is a number of JSON."""
    activity = Activity(20.0)

    activity.keep(seconds)

    assert activity.patience_seconds >= 20.0
    assert json.loads(json.dumps(activity.told_patience, allow_nan=False)) >= 0
