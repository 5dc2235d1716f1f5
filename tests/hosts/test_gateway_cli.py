"""The real Claude Code behind the gateway, in front of a Messages API on loopback; no plugin."""

from __future__ import annotations

import json
import os
import signal

import pytest
from hosts.claude_code_lab import Lab, broken_pairs, reading, results
from hosts.gateway_sessions import SESSIONS, put, said
from hosts.messages_api import MessagesApi
from loopback import free_port
from serve.gateway_lab import Running, SigningApi, breaks, engine_of, gateway_for, markers

pytestmark = pytest.mark.slow

WINDOW_TOKENS = 60_000
EXPAND = 'tool jev_expand {"id": "$REFERENCE"}'


class Behind:
    """A lab whose CLI talks to a gateway."""

    def __init__(self, folder, api, **settings):
        self.api = api
        self.running = Running(gateway_for(api.url, engine_of(window_tokens=WINDOW_TOKENS, **settings)))
        self.lab = Lab(folder, api)

    def __enter__(self):
        self.running.__enter__()
        return self

    def __exit__(self, *_):
        self.running.__exit__(None, None, None)
        self.lab.close()

    def run(self, prompt, *more):
        return self.lab.run(prompt, *more, plugin=None, env={"ANTHROPIC_BASE_URL": self.running.anthropic})


@pytest.fixture
def behind(tmp_path):
    """The CLI behind a gateway, and a provider that checks what thinking was made for."""
    with SigningApi() as api, Behind(tmp_path, api) as made:
        yield made


def edited(api):
    return [turn for turn in api.turns if markers(turn.json()["messages"])]


def test_requests_are_pruned_and_stay_so(behind):
    """Within a turn, in the next turn and in the next process; every bit of thinking fits its history."""
    first = behind.run(reading(10, "bash echo a &&& bash echo b ;; text Read them all."))
    second = behind.run("SCRIPT: bash echo c ;; text Still here.")
    third = behind.run("SCRIPT: text And again.")

    assert (first.result, second.result, third.result) == ("Read them all.", "Still here.", "And again.")
    assert behind.api.refusals == []
    assert len(edited(behind.api)) >= 4
    assert breaks(behind.api) == behind.running.counts["passes committed"]
    for turn in behind.api.turns:
        assert broken_pairs(turn.json()["messages"]) == []
    assert first.messages[0] == third.messages[0]
    rows = behind.lab.rows()
    assert not any("[jev-engine: result of" in json.dumps(row) for row in rows)
    assert behind.running.counts.get("faults", 0) == 0


def test_a_retry_of_the_host_sends_the_same_pruned_bytes(tmp_path):
    """The provider is overloaded once behind the first edit; the CLI asks again."""
    refused = []

    def overloaded(received):
        if b"[jev-engine: result of" in received.body and not refused:
            refused.append(received.body)
            return 529
        return 200

    with MessagesApi(status=overloaded) as api, Behind(tmp_path, api) as behind:
        turn = behind.run(reading(10))

    bodies = [request.body for request in api.turns]
    assert turn.result == "done"
    assert bodies.count(refused[0]) == 2


def test_before_the_first_pass_nothing_differs(behind, tmp_path):
    """The CLI sends what it would send without a gateway, and gets the same answers."""
    behind.run(reading(2))
    with MessagesApi() as api:
        direct = Lab(tmp_path / "direct", api)
        direct.run(reading(2), plugin=None)

    through, plain = ([turn.json() for turn in each.turns] for each in (behind.api, api))
    assert [list(request) for request in through] == [list(request) for request in plain]
    assert [request["tools"] for request in through] == [request["tools"] for request in plain]
    assert results(through[-1]["messages"]) == results(plain[-1]["messages"])
    assert behind.running.counts == {"requests": 3}
    kept = ("anthropic-version", "anthropic-beta", "x-api-key", "user-agent", "x-app")
    assert {n: behind.api.turns[-1].headers.get(n) for n in kept} == {n: api.turns[-1].headers.get(n) for n in kept}


def test_an_original_is_had_back_without_the_client_knowing(behind):
    """The model calls a tool the CLI does not have; the CLI sees one answer and keeps nothing of it."""
    behind.run(reading(10))
    expanded = behind.run(f"SCRIPT: text Look. &&& {EXPAND} ;; bash echo c &&& {EXPAND} ;; text Got it.")
    after = behind.run("SCRIPT: text Again.")

    assert expanded.result == "Got it."
    assert behind.running.counts["calls answered here"] == 2
    assert "toolu" in json.dumps(behind.lab.rows())
    assert '"name": "jev_expand"' not in json.dumps(behind.lab.rows())
    shown = [text for text in results(after.messages) if "this is the whole original" in text]
    assert len(shown) == 2
    assert shown[0].startswith("line 0 of file 0: some words")
    assert behind.api.refusals == []
    assert breaks(behind.api) == behind.running.counts["passes committed"]
    assert broken_pairs(after.messages) == []


def test_an_engine_that_dies_in_between_leaves_the_session_running(behind):
    """What the CLI holds is whole, so the originals go on; it never sees an error."""
    behind.run(reading(10))
    assert edited(behind.api)
    brain = behind.running.gateway.brain
    brain.engine.plugins = brain.engine.store = None
    after = behind.run("SCRIPT: bash echo c ;; text Still here.")

    assert after.result == "Still here."
    assert behind.running.counts["faults"] >= 2
    assert markers(after.messages) == 0
    assert len(results(after.messages)) == 11


def test_the_hosts_own_compaction_works_on_what_is_pruned(tmp_path):
    """`/compact` through the gateway: a summary of the shorter history, and the session goes on.

    The CLI keeps thinking of before behind its summary, which a provider that checks it refuses with and without us.
    """
    with MessagesApi() as api, Behind(tmp_path, api) as behind:
        behind.run(reading(10))
        compacted = behind.run("/compact")
        after = behind.run("SCRIPT: text Still here.")

    assert compacted.summaries == 1
    assert markers(compacted.requests[-1].json()["messages"]) >= 4
    assert after.result == "Still here."
    assert broken_pairs(after.messages) == []


def test_a_fork_under_another_name_keeps_the_decisions(behind):
    """`--fork-session` gives it a name of its own and the history of the other: what it shares is sent alike."""
    behind.run(reading(10))
    before = behind.api.turns[-1].json()["messages"]
    forked = behind.run("SCRIPT: text Elsewhere.", "--fork-session")

    assert forked.result == "Elsewhere."
    assert markers(before) >= 4
    assert behind.api.refusals == []
    assert results(forked.messages) == results(before)
    names = {turn.headers["x-claude-code-session-id"] for turn in behind.api.turns}
    assert len(names) == 2


def test_set_up_for_claude_code_it_needs_nothing_else(tmp_path):
    """The address in the user's settings, the process of `jev-engine serve`, which is killed once, and off again."""
    port = str(free_port())
    with SigningApi() as api:
        lab = Lab(tmp_path, api)
        config = lab.home / "config" / "jev-engine" / "config.toml"
        config.parent.mkdir(parents=True)
        judged = 'policy = "threshold"\nkeep_result = 1.0\nkeep_call = 0.0\n'
        config.write_text(
            f'window_tokens = {WINDOW_TOKENS}\n{judged}[upstreams]\nanthropic = "{api.url}"\n', encoding="utf-8"
        )
        options = ("-O", "agent=claude-code", "-O", f"config={lab.home / '.claude'}", "-O", f"port={port}")
        lab.engine("setup", "gateway", "--yes", *options)
        serve = ("serve", "--ensure", "--port", port, "--idle", "60")
        process = json.loads(lab.engine(*serve))
        del lab.env["ANTHROPIC_BASE_URL"]
        try:
            turn = lab.run(reading(10), plugin=None)
            told = lab.engine("doctor", "gateway", "-O", f"config={lab.home / '.claude'}")
            os.kill(process["pid"], signal.SIGKILL)
            lab.engine(*serve)
            after = lab.run("SCRIPT: bash echo c ;; text Still here.", plugin=None)
        finally:
            lab.close()
        lab.engine("remove", "gateway", "--yes", "-O", f"config={lab.home / '.claude'}")

    assert turn.result == "done"
    assert after.result == "Still here."
    assert len(edited(api)) >= 3
    assert api.refusals == []
    assert results(after.messages)[:10] == results(turn.messages)
    assert "asks the gateway" in told
    assert "11 requests" in told
    assert "ANTHROPIC_BASE_URL" not in (lab.home / ".claude" / "settings.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SESSIONS)
def test_real_sessions_are_pruned_on_their_way(tmp_path, shared, name):
    """Resumed with and without the gateway: smaller requests, clean pairs, the same texts, and the same ever after."""
    with MessagesApi() as api, Behind(tmp_path, api) as behind:
        file = put(behind.lab, shared / "sessions" / "claude-code" / f"{name}.jsonl")
        held = file.read_bytes()
        direct = behind.lab.run("SCRIPT: text Before.", plugin=None)
        if not direct.requests:
            pytest.skip(f"NOT CHECKED: this CLI does not accept {name}")
        file.write_bytes(held)
        pruned = behind.run("SCRIPT: text Before.")
        after = behind.run("SCRIPT: text After.")
        counts = behind.running.counts

    assert broken_pairs(pruned.messages) == broken_pairs(after.messages) == []
    assert said(pruned.messages) == said(direct.messages)
    assert counts["passes"] >= 1
    assert counts.get("faults", 0) == 0
    if counts.get("requests edited"):
        assert len(pruned.requests[-1].body) < len(direct.requests[-1].body)
        assert after.messages[: len(pruned.messages) - 1] == pruned.messages[:-1] or counts["passes"] > 1
    else:
        assert name == "three-compactions"  # nothing in it is worth a pass
