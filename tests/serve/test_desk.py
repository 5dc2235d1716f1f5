"""What plugins of hosts ask of the local process, and what they are told."""

from __future__ import annotations

import json
import os
import re
import threading

import pytest
from serve.plugin_requests import LONG, built, conversation, entry, request

from jev_engine.errors import ConfigError
from jev_engine.judges.weights import VERSION
from jev_engine.memory import Memories, Remembered
from jev_engine.serve.answers import LOG_CHARS, decision_lines
from jev_engine.serve.desk import MOST_ENGINES, Desk
from jev_engine.serve.pool import SessionPool
from jev_engine.settings import load_settings
from jev_engine.testing.server import FaultServer, Reply


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A desk with a store of its own and no settings file."""
    monkeypatch.setenv("JEV_ENGINE_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    return Desk(settings=lambda **given: load_settings(store=tmp_path / "originals.sqlite3", **given))


def texts_of(messages):
    """Results, in order."""
    return [result["text"] for row in messages for result in row["results"]]


def test_a_pass_answers_with_steps_and_no_word_of_the_conversation(desk):
    """Only what replaces a result travels back."""
    messages = conversation(12)

    answer = desk.compact(request(messages))
    after = built(messages, answer["steps"])

    assert answer["act"] == "replace"
    assert "Mend the parser" not in json.dumps(answer)
    assert "run 3" not in json.dumps(answer)
    assert sum("[jev-engine: result of Bash" in text for text in texts_of(after)) >= 8
    assert [row["text"] for row in after if row["text"]] == [messages[0]["text"]]
    assert answer["stats"]["reduction"] > 0.5
    assert "mcp__jev-engine__expand" in json.dumps(answer["steps"])


def test_the_user_sees_what_was_kept_of_how_much_and_why(desk):
    """A toast of one line, and every decision in the log."""
    answer = desk.compact(request(conversation(12)))

    assert "25 of 25 messages kept" in answer["toast"]
    assert "results shortened" in answer["toast"]
    assert "0 requests" in answer["toast"]
    assert answer["log"][0] == answer["toast"]
    assert any(line.startswith("decisions: t1:Bash:truncate p=0.") for line in answer["log"])


def test_long_decision_logs_are_cut_into_numbered_lines(desk):
    """A line of more than 4,096 characters would be cut by the host."""
    answer = desk.compact(request(conversation(300)))

    lines = [line for line in answer["log"] if line.startswith("decisions")]
    assert len(lines) > 2
    assert [line.split(":")[0] for line in lines] == [f"decisions ({n}/{len(lines)})" for n in range(1, len(lines) + 1)]
    assert max(map(len, answer["log"])) <= LOG_CHARS
    assert "t1:" in lines[0]
    assert "t297:" in lines[-1]


def test_an_original_comes_back_byte_for_byte_and_only_in_its_session(desk):
    """By the id in the marker."""
    messages = conversation(12)
    answer = desk.compact(request(messages))
    marker = next(text for text in texts_of(built(messages, answer["steps"])) if "intact as" in text)
    reference = marker.split("intact as ")[1].split(":")[0]

    asked = {**request([]), "tool": "expand", "input": {"id": reference}}
    own = desk.tool(asked)
    foreign = desk.tool({**asked, "session_id": "session-2"})

    assert own["text"].startswith(messages[2]["results"][0]["text"])
    assert not own["error"]
    assert "No original goes by this id" in foreign["text"]
    assert foreign["error"]


def test_a_copy_of_a_session_reads_what_its_markers_name(desk):
    """The plugin says which marker stands in its conversation; what stands nowhere stays unknown."""
    answer = desk.compact(request(conversation(12)))
    reference = next(t for s in answer["steps"] for _, _, *ts in s.get("results", ()) for t in ts).split("intact as ")[
        1
    ][:19]
    asked = {**request([], session="copy"), "tool": "expand", "input": {"id": reference}}

    copied = desk.tool({**asked, "marker": reference})
    another = desk.tool({**asked, "marker": "jx-0123456789abcdef"})
    found = desk.tool({**asked, "tool": "search", "input": {"query": "tool wrote"}, "marker": reference})
    stands = desk.status({**request([], session="copy"), "marker": reference})

    assert not copied["error"]
    assert another["error"]
    assert LONG.split("\n")[0] in found["text"]
    assert "9 results of this session are out" in stands["text"]


@pytest.mark.parametrize("odd", [None, {}, {"id": 3}, {"id": "jx-1", "offset": "x"}, {"id": "jx-1", "offset": -5}])
def test_odd_calls_of_the_tool_get_an_answer(desk, odd):
    """The agent reads it; nothing fails."""
    assert desk.tool({**request([]), "tool": "expand", "input": odd})["text"].startswith("[jev-engine")


def test_what_is_out_can_be_searched(desk):
    """By the agent, and by its user."""
    desk.compact(request(conversation(12)))

    by_agent = desk.tool({**request([]), "tool": "search", "input": {"query": "tool wrote"}})
    by_user = desk.status({**request([]), "query": "tool wrote"})

    assert LONG.split("\n")[0] in by_agent["text"]
    assert LONG.split("\n")[0] in by_user["text"]


def test_the_status_says_how_the_session_stands(desk):
    """Before a pass and after it."""
    before = desk.status(request([]))
    desk.compact(request(conversation(12)))

    after = desk.status(request([]))

    assert "0 results of this session are out" in before["text"]
    assert "9 results of this session are out" in after["text"]
    assert "Judge: local" in after["text"]


def test_what_the_user_pinned_stays(desk):
    """The command stands in the conversation; nothing else has to be remembered."""
    messages = conversation(12)
    pin = (
        "<command-name>/jev</command-name>\n<command-message>jev</command-message>\n<command-args>pin {}</command-args>"
    )

    one = desk.compact(request([*messages, entry(25, "user", pin.format("t2"))], session="one"))
    every = desk.compact(request([*messages, entry(25, "user", pin.format("Bash"))], session="all"))

    assert "[4, 0]" in json.dumps(one["steps"])
    assert every["act"] == "summarise"
    assert every["steps"] is None


# --- when the host's summariser takes over ---------------------------------------------------------------------------


def test_pruning_that_frees_too_little_is_handed_over_with_everything_stored(desk):
    """The summariser works on the shorter history; every message it replaces can be found again."""
    messages = conversation(6, prose=60_000)

    answer = desk.compact(request(messages, window_tokens=20_000, used_tokens=19_000))

    assert answer["act"] == "summarise"
    assert any("results" in step for step in answer["steps"])
    assert {"keep": 0} in answer["steps"]
    assert answer["stats"]["stored_messages"] == len(messages)
    assert "Mend the parser" in desk.status({**request([]), "query": "Mend the parser"})["text"]


def test_the_same_with_room_in_the_window_replaces(desk):
    """Little is better than a summary, where it is enough."""
    answer = desk.compact(request(conversation(6, prose=60_000), window_tokens=200_000, used_tokens=19_000))

    assert answer["act"] == "replace"


def test_a_pass_of_our_own_never_ends_in_a_summary(desk):
    """Nobody asked for one: the conversation stays as it is, with the reason."""
    answer = desk.compact(request(conversation(3), trigger="plugin", window_tokens=200_000, used_tokens=150_000))

    assert answer["act"] == "skip"
    assert answer["steps"] is None
    assert "left as it is" in answer["toast"]


def test_who_wants_no_summary_gets_none(desk, tmp_path, monkeypatch):
    """`handover = "never"`."""
    monkeypatch.setenv("JEV_ENGINE_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "config.toml").write_text('handover = "never"\n', encoding="utf-8")

    answer = desk.compact(request(conversation(6, prose=60_000), window_tokens=20_000, used_tokens=19_000))

    assert answer["act"] == "replace"


def test_the_same_conversation_again_is_shortened_again(desk):
    """The host never took up the first answer: the decisions in force are carried out, and count as what they save."""
    messages = conversation(12)
    first = desk.compact(request(messages))

    again = desk.compact(request(messages))

    assert (again["act"], again["steps"]) == (first["act"], first["steps"])
    assert again["stats"]["reduction"] == first["stats"]["reduction"]


def test_a_second_pass_works_on_what_the_first_left(desk):
    """Markers stay, newer results go."""
    messages = conversation(12)
    once = built(messages, desk.compact(request(messages))["steps"])
    more = [*once]
    for row in conversation(12, seed="b")[1:]:
        more.append({**row, "i": len(more)})

    twice = built(more, desk.compact(request(more))["steps"])

    assert texts_of(twice)[:9] == texts_of(once)[:9]
    assert sum("[jev-engine: result of Bash" in text for text in texts_of(twice)) == 21


@pytest.mark.parametrize(
    "wrong",
    [
        {"messages": None},
        {"messages": [None]},
        {"messages": [{"i": 0}]},
        {"host": "openai"},
        {"host": "no such host"},
        {"options": {"judge": "oracle"}},
        {"options": {"miss_cost": "dear"}},
    ],
)
def test_what_cannot_be_understood_is_left_to_the_built_in_summary(desk, wrong):
    """With the reason; nothing raises."""
    answer = desk.compact({**request(conversation(3)), **wrong})

    assert answer["act"] == "summarise"
    assert answer["steps"] is None
    assert answer["reason"]
    assert answer["toast"].startswith("left to the built-in summary")


def test_a_slip_in_the_settings_hides_no_original(tmp_path, monkeypatch):
    """Passes wait until it is mended; what is out is read all the same."""
    desk = Desk()
    store = tmp_path / "of_the_user.sqlite3"
    config = tmp_path / "config.toml"
    config.write_text(f'store = "{store}"\n', encoding="utf-8")
    monkeypatch.setenv("JEV_ENGINE_CONFIG", str(config))
    steps = desk.compact(request(conversation(12)))["steps"]
    reference = next(word for word in json.dumps(steps).split('"') if "jx-" in word).partition("jx-")[2][:16]
    asked = {**request([]), "tool": "expand", "input": {"id": f"jx-{reference}"}}
    before = desk.tool(asked)

    config.write_text(f'store = "{store}"\nmiss_cots = 8.0\n', encoding="utf-8")

    assert desk.tool(asked) == before
    assert not before["error"]
    assert "did you mean miss_cost?" in desk.compact(request(conversation(12)))["reason"]


def test_a_missing_session_is_no_session(desk):
    """Without a name nothing can be stored under it."""
    asked = request(conversation(3))
    del asked["session_id"]

    assert desk.compact(asked)["act"] == "summarise"
    assert desk.tool({**asked, "tool": "expand", "input": {"id": "jx-1"}})["error"]


def test_a_key_travels_to_the_judge_and_nowhere_else(desk):
    """It stands in no answer."""
    options = {"judge": "http://127.0.0.1:9/v1/systemone", "key": "sk-very-secret"}

    answer = desk.compact(request(conversation(12), options=options))
    engine = desk.engine_of(request([], options=options))

    assert "sk-very-secret" not in json.dumps(answer)
    assert "sk-very-secret" not in repr(engine.judge)
    assert answer["act"] in ("replace", "summarise")


def test_a_judge_outside_is_asked_and_its_user_sees_how_much_was_shown_to_it(desk):
    """State, stage and requests are in the line; the second pass runs in another event loop."""
    with FaultServer() as server:
        options = {"judge": server.url, "key": "k"}
        first = desk.compact(request(conversation(12), options=options))
        second = desk.compact(request(conversation(14), options=options))

        assert len(server.requests) >= 2
        assert server.requests[0].headers["authorization"] == "Bearer k"

    for answer in (first, second):
        assert re.search(r"state [\d,]+ tokens \(\w+.*\), \d+ requests", answer["toast"])
    assert first["stats"]["requests"] >= 1
    assert first["act"] == "replace"


def test_a_judge_that_fails_leaves_the_pass_to_the_local_one(desk):
    """No answer of somebody else is needed."""
    with FaultServer(lambda _number, _received: Reply(500)) as server:
        answer = desk.compact(request(conversation(12), options={"judge": server.url, "key": "k"}))

    assert answer["act"] == "replace"
    assert any(line.startswith("warning: ") for line in answer["log"])


def test_engines_are_shared_and_bounded(desk):
    """One for each set of options."""
    first = desk.engine_of(request([]))
    assert desk.engine_of(request([])) is first
    for cost in range(1, MOST_ENGINES + 3):
        desk.engine_of(request([], options={"miss_cost": float(cost)}))

    assert len(desk._engines) == MOST_ENGINES
    with pytest.raises(ConfigError):
        desk.engine_of(request([], options={"miss_cost": -1.0}))


def test_settings_that_were_changed_count_from_the_next_request_on(tmp_path, monkeypatch):
    """The process lives for hours; its user edits a file meanwhile."""
    config = tmp_path / "config.toml"
    config.write_text("miss_cost = 3.0\n", encoding="utf-8")
    monkeypatch.setenv("JEV_ENGINE_CONFIG", str(config))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    desk = Desk()
    before = desk.engine_of(request([])).config.miss_cost
    config.write_text("miss_cost = 7.0\n", encoding="utf-8")
    os.utime(config, ns=(1, 1))

    assert (before, desk.engine_of(request([])).config.miss_cost) == (3.0, 7.0)


def test_the_memory_of_the_project_is_used(desk):
    """It is found by the folder the session runs in."""
    memories = Memories(VERSION)
    memories.put("/work/site", Remembered(slope=1.0, intercept=0.2, sessions=6, counts={}, seen=[]))
    desk.engine_of(request([])).memories = memories

    here = desk.compact(request(conversation(12), cwd="/work/site"))
    elsewhere = desk.compact(request(conversation(12), cwd="/work/other", session="session-2"))

    assert here["stats"]["uses_memory"]
    assert not elsewhere["stats"]["uses_memory"]


def test_sessions_are_bounded_and_the_oldest_goes_first():
    """What is forgotten is in the store."""
    pool = SessionPool(most=3)
    made = []
    for name in "abcadb":
        pool.of(name, lambda name=name: made.append(name) or name)

    assert made == ["a", "b", "c", "d", "b"]
    assert len(pool) == 3
    assert pool.known("c") is None


def test_a_session_that_was_forgotten_goes_on_where_it_was(desk, tmp_path):
    """A restart loses nothing."""
    messages = conversation(12)
    first = desk.compact(request(messages))
    other = Desk(settings=lambda **given: load_settings(store=tmp_path / "originals.sqlite3", **given))

    again = other.compact(request(messages))

    assert again["steps"] == first["steps"]


def test_a_subagent_is_a_session_of_its_own(desk):
    """Its originals are not the main conversation's."""
    desk.compact(request(conversation(12), agent_id="agent-7"))

    assert "0 results" in desk.status(request([]))["text"]
    assert "9 results" in desk.status(request([], agent_id="agent-7"))["text"]


def test_two_sessions_at_once_both_get_their_answers(desk):
    """And each its own."""
    answers = {}

    def work(name, calls):
        answers[name] = desk.compact(request(conversation(calls, seed=name), session=name))

    threads = [threading.Thread(target=work, args=(f"s{n}", 20 + 40 * (n % 3))) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [answers[f"s{n}"]["rows"] for n in range(6)] == [1 + 2 * (20 + 40 * (n % 3)) for n in range(6)]
    assert {each["act"] for each in answers.values()} == {"replace"}


def test_control_characters_reach_no_terminal(desk):
    """A tool's name comes from a server of tools."""
    messages = conversation(8)
    for row in messages:
        for call in row["calls"]:
            call["name"] = "evil\x1b]0;owned\x07"

    answer = desk.compact(request(messages))

    assert "\x1b" not in json.dumps(answer["log"]).encode().decode("unicode_escape")
    assert answer["act"] == "replace"


def test_no_decisions_are_one_line():
    """An empty log would look like a fault."""

    class Nothing:
        decisions = ()

    assert decision_lines(Nothing()) == ["decisions: none"]
