"""`--judge`: who is asked, what would be sent, what it cost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jev_engine.testing.server import FaultServer

KEY = "k-0123456789abcdef"


@pytest.fixture
def session(shell: Any, messages: list[dict[str, Any]]) -> Any:
    messages[0]["content"] += " My API_TOKEN=abcdefghijkl."
    return shell.file("session.json", messages)


def test_compress_asks_the_server_at_a_url(shell: Any, session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JEV_ENGINE_API_KEY", KEY)
    with FaultServer() as server:
        done = shell.run("compress", session, "--judge", server.url, "--json", "--force")

    stats = json.loads(done.stdout)["stats"]
    assert done.exit_code == 0
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert stats["requests"] == len(server.requests) == 1
    assert stats["judge_tokens"] > 0
    assert stats["judge_model"] == "jev-1.13.0"
    assert "judge_price" in stats
    assert KEY not in done.output


def test_what_inspect_shows_is_what_compress_sends(shell: Any, session: Any) -> None:
    with FaultServer() as server:
        shown = shell.run("inspect", session, "--judge", server.url, "--show-request")
        assert server.requests == []
        shell.run("compress", session, "--judge", server.url, "--force")

    first, body = shown.stdout.split("\n")[:2]
    assert first.startswith(f"POST {server.url}")
    assert json.loads(body) == server.requests[0].json()
    assert "abcdefghijkl" not in shown.stdout
    assert "[redacted]" in shown.stdout


def test_the_privacy_mode_is_obeyed(shell: Any, session: Any) -> None:
    with FaultServer() as server:
        for mode in ("excerpts", "sizes"):
            shell.run("compress", session, "--judge", server.url, "--force", "--privacy", mode)

    assert [b"a line of its own" in each.body for each in server.requests] == [True, False]


def test_a_server_that_is_down_costs_no_session(shell: Any, session: Any) -> None:
    done = shell.run("compress", session, "--judge", "http://127.0.0.1:9/v1/systemone", "--force", "--json")

    assert done.exit_code == 0
    assert json.loads(done.stdout)["stats"]["failures"]
    assert "could not be reached" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--judge", "jov"), "no judge goes by 'jov'"),
        (("--judge", "jev", "--endpoint", "typesave"), "typesafe, openrouter, openai-decisions"),
        (("--judge", "http://example.org/"), "use https"),
        (("--endpoint", "typesafe"), "the local judge has no endpoint"),
    ],
    ids=["judge", "endpoint", "http", "local"],
)
def test_a_judge_that_is_none_is_refused(shell: Any, session: Any, words: tuple[str, ...], said: str) -> None:
    done = shell.run("compress", session, *words)

    assert done.exit_code == 2
    assert said in " ".join(done.stderr.replace("│", " ").split())


def test_show_request_needs_a_judge_that_sends(shell: Any, session: Any) -> None:
    done = shell.run("inspect", session, "--show-request")

    assert done.exit_code == 2
    assert "needs a judge that sends something" in done.stderr
