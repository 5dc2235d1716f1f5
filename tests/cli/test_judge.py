"""`--judge`: who is asked, what would be sent, what it cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from jev_engine.cli import main
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


TAKES_OUT = """from jev_engine import hookimpl
@hookimpl
def register_redactors(register):
    register(lambda text: text.replace("signature", "COMPANY"))
"""


@pytest.mark.parametrize(
    "text",
    [f"import nothing_of_this_name\n{TAKES_OUT}", TAKES_OUT.replace("redactors(", "redactor("), "import jev_engine\n"],
    ids=["import", "misspelled", "no hook"],
)
def test_while_a_plugin_is_broken_nothing_is_sent(
    shell: Any, session: Any, redactor: Any, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been there to take secrets out. Who knows better says so in the settings."""
    redactor(text)
    with FaultServer() as server:
        done = shell.run("compress", session, "--judge", server.url, "--force", "--json")
        shown = shell.run("inspect", session, "--judge", server.url, "--show-request")
        doctor = shell.run("doctor")
        assert server.requests == []

        (tmp_path / "config.toml").write_text('without_plugins = ["company"]\n')
        monkeypatch.setenv("JEV_ENGINE_CONFIG", str(tmp_path / "config.toml"))
        allowed = shell.run("compress", session, "--judge", server.url, "--force", "--json")
        assert len(server.requests) == 1

    assert done.exit_code == 0
    assert "nothing was sent" in json.loads(done.stdout)["stats"]["failures"][0]
    assert "plugin 'company' does not work" in done.stderr
    assert (shown.exit_code, "signature" in shown.stdout) == (2, False)
    assert (doctor.exit_code, "without_plugins" in doctor.stdout) == (1, True)
    assert json.loads(allowed.stdout)["stats"]["failures"] == []
    assert "company" not in allowed.stderr


def test_a_plugin_that_works_takes_its_words_out_of_what_is_sent(shell: Any, session: Any, redactor: Any) -> None:
    redactor(TAKES_OUT)
    with FaultServer() as server:
        shell.run("compress", session, "--judge", server.url, "--force")

    assert b"COMPANY" in server.requests[0].body
    assert b"signature" not in server.requests[0].body


def test_evaluate_asks_nobody_outside_while_a_plugin_is_broken(session: Any, redactor: Any) -> None:
    redactor("raise OSError")
    with FaultServer() as server:
        done = CliRunner().invoke(main, ["evaluate", str(session), "--judge", server.url])

    assert (done.exit_code, server.requests) == (2, [])
    assert "without_plugins" in done.stderr
