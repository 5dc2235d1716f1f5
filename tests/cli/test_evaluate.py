"""`jev-engine evaluate` as a person runs it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner
from recorded_sessions import record, recorded, write_corpus

from jev_engine.cli import main
from jev_engine.ledger import Ledger, assign_keys
from jev_engine.testing.server import FaultServer
from jev_engine_adapters.openai import adapter


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return write_corpus(tmp_path / "ours.jsonl", [record(i, f"ours/p{i % 2}") for i in range(4)])


def run(*words):
    return CliRunner().invoke(main, ["evaluate", *map(str, words), "--jobs", "1"], catch_exceptions=False)


def test_tables_go_to_the_terminal_and_progress_to_standard_error(corpus):
    """The first table is the summary."""
    done = run(corpus, "--policy", "recency", "--policy", "worth")

    assert done.exit_code == 0
    assert done.stdout.startswith("Summary\n")
    assert "keep last 10" in done.stdout
    assert "replayed 4 of 4 sessions" in done.stderr
    assert "seed 0" in done.stdout


def test_a_report_is_written_where_asked(corpus, tmp_path):
    """Three files: a page, Markdown, figures."""
    done = run(corpus, "--policy", "recency", "--policy", "worth", "--report", tmp_path / "out")

    assert done.exit_code == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"report.html", "summary.md", "figures.json"}


def test_json_is_one_object_with_stamp_and_tables(corpus):
    """For machines."""
    done = run(corpus, "--policy", "recency", "--json", "--seed", "3", "--cuts", "2")
    data = json.loads(done.stdout)

    assert data["stamp"]["seed"] == 3
    assert data["stamp"]["command"] == "jev-engine evaluate ours.jsonl --policy recency --cuts 2 --seed 3"
    assert [row[0] for row in data["tables"]["policies"]["rows"]][:2] == ["keep last 3", "keep last 5"]


def test_the_stamp_names_no_folder_of_this_machine(corpus, tmp_path):
    """A report is for others."""
    done = run(corpus, "--policy", "recency", "--json")

    assert json.loads(done.stdout)["stamp"]["command"].startswith("jev-engine evaluate ours.jsonl")
    assert str(tmp_path) not in done.stdout


def test_a_second_run_takes_finished_sessions_from_the_cache(corpus):
    """And says so."""
    run(corpus, "--policy", "recency")
    again = run(corpus, "--policy", "recency")

    assert "4 of 4 sessions were finished before" in again.stderr


def test_answers_recorded_under_unit_keys_decide(corpus, tmp_path):
    """What the judge said then is what the engine decides by now: here, that calls matter and results do not."""
    from_engine = []
    for number in range(4):
        transcript = adapter.read(recorded(number))
        assign_keys(transcript, Ledger())
        from_engine += [
            {"kind": "decided", "key": call.key, "raw_call": 0.9, "raw_result": 0.05} for call in transcript.calls
        ]
    answers = tmp_path / "answers.jsonl"
    answers.write_text("".join(json.dumps(each) + "\n" for each in from_engine))

    replayed = json.loads(run(corpus, "--judge", answers, "--policy", "others", "--json").stdout)
    rows = replayed["tables"]["policies"]["rows"]

    assert next(row for row in rows if row[0] == "reference, asked judge")[1]["value"] > 0.3


def test_recorded_answers_of_another_judge_are_replayed(corpus, tmp_path):
    """Their keys come from the audit trail; unknown ones leave units undecided."""
    answers = tmp_path / "answers.jsonl"
    answers.write_text('{"key": "unknown", "raw_result": 0.2}\n')
    done = run(corpus, "--judge", answers, "--policy", "others", "--json")
    rows = json.loads(done.stdout)["tables"]["policies"]["rows"]

    assert next(row for row in rows if row[0] == "reference, asked judge")[1]["value"] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--policy", "keep last 11"), "no policy and no group"),
        (("--judge", "nobody"), "neither local nor medians nor a file"),
        (("--cuts", "many"), "a number of cuts"),
    ],
)
def test_bad_usage_ends_with_2_and_says_what_is_wrong(corpus, words, message):
    """Before anything is replayed."""
    done = run(corpus, *words)

    assert done.exit_code == 2
    assert message in done.stderr


MESSAGE = '{"role": "user", "content": "Hello."}'


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b'{"text": "hello"}\n', id="lines of something else"),
        pytest.param(f"[{MESSAGE}]".encode(), id="a list in one line"),
        pytest.param(f"[\n{MESSAGE}\n]".encode(), id="a list over several lines"),
        pytest.param(f"{MESSAGE}\n{MESSAGE}\n".encode(), id="one message a line"),
        pytest.param(b"17", id="a number"),
        pytest.param(b'{"id": "a", "messages": ["Hello."]}', id="messages that are texts"),
        pytest.param(
            b'{"id": "a", "messages": [{"role": "user", "content": [{"type": "text"}]}]}', id="messages of parts"
        ),
        pytest.param(b'{"id": "a", "messages": [{"content": "Hello."}]}', id="messages without a role"),
        pytest.param(
            b'{"id": "a", "messages": [{"role": "assistant", "tool_calls": ["read"]}]}', id="calls that are texts"
        ),
        pytest.param(b"", id="nothing"),
        pytest.param(b"Dear agent,", id="prose"),
        pytest.param(b"\xff\xfe\x00", id="no text"),
    ],
)
def test_a_file_that_is_no_corpus_is_refused(tmp_path, monkeypatch, content):
    """With the form that is wanted, and what to do with a session by itself."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "notes.jsonl"
    path.write_bytes(content)
    done = run(path)

    assert done.exit_code == 2
    assert "notes.jsonl is not a corpus" in done.stderr
    assert "--turns" in done.stderr


@pytest.mark.parametrize("words", [(), ("--turns",)])
@pytest.mark.parametrize("content", [b"\x1f\x8bxx", b"no archive", b""])
def test_an_archive_that_is_none_is_refused(tmp_path, monkeypatch, words, content):
    """However the session is to be replayed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "sessions.jsonl.gz"
    path.write_bytes(content)
    done = run(path, *words)

    assert done.exit_code == 2
    assert "sessions.jsonl.gz" in done.stderr


@pytest.mark.parametrize("words", [(), ("--turns",)])
def test_a_report_that_cannot_be_written_is_refused_before_the_work(corpus, tmp_path, words):
    """Not after an hour of it."""
    (tmp_path / "file").write_text("")
    done = run(corpus, "--report", tmp_path / "file/report", *words)

    assert done.exit_code == 2
    assert "--report" in done.stderr
    assert "Name another folder" in done.stderr
    assert not (tmp_path / "cache").exists()


def test_sessions_too_short_to_cut_are_said_to_be(tmp_path, monkeypatch):
    """Instead of empty tables."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = write_corpus(tmp_path / "short.jsonl", [record(1, calls=5, quoted=())])
    done = run(path)

    assert done.exit_code == 2
    assert "long enough" in done.stderr


def test_without_the_extra_the_remedy_is_named(corpus):
    """Neither numpy nor matplotlib comes with the package."""
    code = (
        "import sys\n"
        "from importlib.abc import MetaPathFinder\n"
        "import importlib.util as u\n"
        "real = u.find_spec\n"
        "u.find_spec = lambda name, package=None: None if name == 'numpy' else real(name, package)\n"
        "from jev_engine.cli import main\n"
        f"main(['evaluate', {str(corpus)!r}])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "pip install 'jev-engine[evaluate]'" in done.stderr


def test_a_judge_at_a_url_is_asked_at_every_cut_and_its_cassette_answers_again(corpus, tmp_path):
    """What was asked once can be replayed without the server, and gives the same figures."""
    cassette = tmp_path / "answers.jsonl"
    with FaultServer() as server:
        url = server.url
        live = json.loads(
            run(corpus, "--judge", url, "--record", cassette, "--policy", "others", "--json", "--cuts", "1").stdout
        )
        asked = len(server.requests)
    again = json.loads(
        run(corpus, "--judge", url, "--replay", cassette, "--policy", "others", "--json", "--cuts", "1").stdout
    )

    assert asked >= 4
    assert cassette.exists()
    assert again["tables"]["policies"]["rows"] == live["tables"]["policies"]["rows"]


def test_a_judge_is_asked_in_words_that_the_users_plugins_have_cleaned(corpus, redactor):
    """A session replayed leaves the machine as one that is compressed does."""
    redactor(
        "from jev_engine import hookimpl\n@hookimpl\ndef register_redactors(register):\n"
        "    register(lambda text: 'COMPANY')\n"
    )
    with FaultServer() as server:
        run(corpus, "--judge", server.url, "--policy", "others", "--json", "--cuts", "1")

    assert server.requests
    assert all(b"COMPANY" in each.body for each in server.requests)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--judge", "jev", "--endpoint", "nowhere"], "endpoint"),
        (["--endpoint", "typesafe"], "--endpoint needs --judge"),
        (["--judge", "http://example.test/v1/systemone"], "https"),
    ],
)
def test_a_judge_that_cannot_be_asked_is_refused_before_anything_is_replayed(corpus, words, said):
    """Exit 2, and the option is named."""
    done = run(corpus, *words)

    assert done.exit_code == 2
    assert said in done.output
