"""`inspect`, `restore`, `doctor`, `--help` and `--version`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from jev_engine import __version__
from jev_engine.cli import Commands, main
from jev_engine.testing import assistant, call, history, result, user


def test_version_is_that_of_the_package() -> None:
    """One line, for bug reports."""
    assert CliRunner().invoke(main, ["--version"]).stdout == f"jev-engine {__version__}\n"


@pytest.mark.parametrize("name", ["compress", "inspect", "restore", "doctor"])
def test_help_teaches_by_two_examples(name) -> None:
    """Each command shows how it is called."""
    shown = CliRunner().invoke(main, [name, "--help"])

    assert shown.exit_code == 0
    assert shown.stdout.count(f"      jev-engine {name}") + shown.stdout.count(f"    jev-engine {name}") >= 2


def test_help_loads_neither_the_engine_nor_rich() -> None:
    """Help answers at once."""
    code = (
        "import sys, jev_engine.cli; print([m for m in ('rich', 'pydantic', 'anyio', 'asyncio') if m in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_unknown_commands_end_with_2() -> None:
    """Bad usage."""
    assert CliRunner().invoke(main, ["shrink"]).exit_code == 2


def test_a_fault_of_ours_ends_with_1_and_asks_for_a_report() -> None:
    """No traceback for a person; exit code 1."""

    def explode() -> None:
        raise ZeroDivisionError("\x1b[2J")

    group = Commands("jev-engine", commands=[click.Command("explode", callback=explode)])
    done = CliRunner().invoke(group, ["explode"])

    assert done.exit_code == 1
    assert "report" in done.stderr
    assert "ZeroDivisionError: \\x1b[2J" in done.stderr


def test_inspect_lists_calls_pins_and_what_an_asker_would_see(shell, messages) -> None:
    """Facts for people."""
    done = shell.run("inspect", shell.file("s.json", messages))

    text = " ".join(done.stdout.split())
    assert "t1 read_file src/part_0.py" in text
    assert "8: 5 to be judged, 3 pinned" in text
    assert "would see 1 part (stage 'excerpts')" in text
    assert "sent nothing" in text
    assert shell.names() == {"s.json"}


def test_inspect_as_json_holds_the_same(shell, messages) -> None:
    """Facts for scripts, the state only where asked for."""
    path = shell.file("s.jsonl", "\n".join(map(json.dumps, messages)))

    short = json.loads(shell.run("inspect", path, "--json").stdout)
    full = json.loads(shell.run("inspect", path, "--json", "--show-state", "--goal", "Mend the parser").stdout)

    assert (short["host"], short["container"], len(short["calls"])) == ("openai", "lines", 8)
    assert short["pinned"] == {"newest": 3}
    assert short["calls"][7]["pinned"] == "newest"
    assert short["state"]["asked"] == short["candidates"] == 5
    assert "texts" not in short["state"]
    assert json.loads(full["state"]["texts"][0])["goal"] == "Mend the parser"


def test_inspect_counts_rows_it_does_not_understand(shell, messages) -> None:
    """Odd rows are kept, counted, and named by kind."""
    done = shell.run("inspect", shell.file("s.json", [*messages, {"role": "oracle", "content": "?"}]))

    assert "1 unknown role; left as they are" in done.stdout


def test_restore_prints_the_session_where_no_out_is_named(shell, messages, shorten_all) -> None:
    """Made for a pipe: the session on standard output, words on standard error."""
    shell.run("compress", shell.file("s.json", messages), "-o", shell.folder / "short.json", *shorten_all)

    done = shell.run("restore", shell.folder / "short.json")

    assert json.loads(done.stdout) == messages
    assert "1 pass undone" in done.stderr


def test_restore_keeps_what_came_after_the_pass(shell, messages, shorten_all) -> None:
    """The session went on; only what was taken out comes back."""
    shell.run("compress", shell.file("s.json", messages), "-o", shell.folder / "short.json", *shorten_all)
    later = [*json.loads((shell.folder / "short.json").read_text()), assistant("And one thing more.")]

    done = shell.run("restore", shell.file("later.json", later))

    assert json.loads(done.stdout) == [*messages, later[-1]]


def test_markers_that_no_record_covers_lead_back_one_by_one(shell, messages, shorten_all) -> None:
    """Two shortened sessions pasted together: only the first has a record that fits."""
    shell.run("compress", shell.file("s.json", messages), "-o", shell.folder / "short.json", *shorten_all)
    short = json.loads((shell.folder / "short.json").read_text())

    done = shell.run("restore", shell.file("twice.json", [*short, *short]))

    assert done.exit_code == 0
    assert json.loads(done.stdout) == [*messages, *messages]
    assert "5 results were put back by marker" in done.stderr


def test_restore_writes_claude_code_files(shell, claude_rows, shorten_all) -> None:
    """Rows of the host come back as they were; only the name of the session is a new one."""
    path = shell.file("s.jsonl", "".join(json.dumps(row) + "\n" for row in claude_rows))
    shell.run("compress", path, "-o", shell.folder / "short.jsonl", *shorten_all)

    done = shell.run("restore", shell.folder / "short.jsonl", "-o", shell.folder / "back.jsonl")

    assert done.exit_code == 0
    back = [json.loads(line) for line in (shell.folder / "back.jsonl").read_text(encoding="utf-8").splitlines()]
    plain = [{name: value for name, value in row.items() if name != "sessionId"} for row in back]
    assert plain == [{name: value for name, value in row.items() if name != "sessionId"} for row in claude_rows]


def test_restore_from_another_store_is_refused(shell, messages, shorten_all) -> None:
    """Half a session is not passed off as the whole."""
    shell.run("compress", shell.file("s.json", messages), "-o", shell.folder / "short.json", *shorten_all)
    shell.store = shell.folder / "other.sqlite3"

    done = shell.run("restore", shell.folder / "short.json", "-o", shell.folder / "back.json")

    assert done.exit_code == 2
    assert "--store" in done.stderr
    assert not (shell.folder / "back.json").exists()


def test_restore_of_a_session_that_was_never_shortened_says_so_and_writes_nothing(shell, messages) -> None:
    """A pass that only removed calls leaves no marker: without its store the two look alike."""
    done = shell.run("restore", shell.file("s.json", messages), "-o", shell.folder / "back.json")

    assert done.exit_code == 2
    assert "there is nothing to restore" in done.stderr
    assert "--store" in done.stderr
    assert shell.names() == {"s.json"}


def test_restore_of_a_session_that_only_quotes_markers_says_so(shell, messages, shorten_all) -> None:
    shell.run("compress", shell.file("s.json", messages), "-o", shell.folder / "short.json", *shorten_all)
    short = json.loads((shell.folder / "short.json").read_text())
    marker = next(row["content"] for row in short if row["role"] == "tool" and "[jev-engine: " in row["content"])
    printed = (call("bash", command="cat short.json"), result(marker))
    quoting = history(user("What is this?"), *printed, assistant("A marker."))

    done = shell.run("restore", shell.file("q.json", quoting), "-o", shell.folder / "back.json")

    assert done.exit_code == 2
    assert "only quote markers" in done.stderr


def test_two_records_that_fit_alike_are_named_and_one_can_be_chosen(shell, messages) -> None:
    """Sessions that differ in what was removed only: nobody can tell their shortened forms apart."""
    words = ("--profile", "reference", "--keep-result", "1", "--keep-call", "1", "--force")
    days = {}
    for name in ("a", "b"):
        days[name] = [
            {**row, "content": f"{name}\n{row['content']}"} if row["role"] == "tool" and n < 8 else row
            for n, row in enumerate(messages)
        ]
        done = shell.run("compress", shell.file(f"{name}.json", days[name]), "-o", shell.folder / f"{name}.out", *words)
        assert done.exit_code == 0, done.stderr
    assert (shell.folder / "a.out").read_bytes() == (shell.folder / "b.out").read_bytes()

    done = shell.run("restore", shell.folder / "a.out", "-o", shell.folder / "back.json")
    numbers = re.search(r"records (\d+), (\d+)", done.stderr)

    assert done.exit_code == 2
    assert numbers is not None
    back = [
        json.loads(shell.run("restore", shell.folder / "a.out", "--record", number).stdout)
        for number in sorted(numbers.groups(), key=int)
    ]
    assert back == [days["a"], days["b"]]


def test_doctor_finds_a_healthy_installation_healthy(shell) -> None:
    """Python, packages, plugins, store, self-test; nothing is written."""
    done = shell.run("doctor")

    assert done.exit_code == 0
    for word in ("python", "pydantic", "claude-code, ", "openai", "self-test", "All is well."):
        assert word in done.stdout
    assert shell.names() == set()


def test_doctor_names_a_store_that_is_damaged(shell, messages, shorten_all) -> None:
    """Before somebody needs what is in it."""
    shell.run("compress", shell.file("s.json", messages), "-o", shell.folder / "short.json", *shorten_all)
    body = bytearray(shell.store.read_bytes())
    body[-4_096 + 8 : -4_096 + 24] = b"\xff" * 16
    shell.store.write_bytes(body)

    done = shell.run("doctor")

    assert done.exit_code == 1
    assert "is damaged" in " ".join(done.stdout.split())


def test_doctor_names_a_store_that_others_can_read(shell, messages, shorten_all) -> None:
    """Originals are for their owner only; the remedy is a command."""
    shell.run("compress", shell.file("s.json", messages), "-o", shell.folder / "short.json", *shorten_all)
    shell.store.chmod(0o644)

    done = shell.run("doctor")

    assert done.exit_code == 1
    assert "chmod 600" in done.stdout
    assert "1 to repair" in done.stdout


def test_a_plugin_that_does_not_work_is_named_and_nothing_else_suffers(shell, messages, tmp_path) -> None:
    """An installed package whose entry point cannot be loaded."""
    package = tmp_path / "site/bad_plugin-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: bad-plugin\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[jev_engine]\nbad = no_such_module\n")
    path = shell.file("s.json", messages)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(package.parent), *sys.path])}

    found = {}
    for words in (["doctor"], ["compress", str(path), "--json"]):
        line = [sys.executable, "-m", "jev_engine", *words, "--store", str(shell.store)]
        found[words[0]] = subprocess.run(line, capture_output=True, text=True, check=False, env=environment)

    assert found["doctor"].returncode == 1
    assert "bad does not work" in found["doctor"].stdout
    assert "plugin 'bad' does not work" in found["compress"].stderr
    assert json.loads(found["compress"].stdout)["calls"] == 8


def test_doctor_names_a_store_that_is_none(shell) -> None:
    """A damaged file is found before it is needed."""
    shell.store.parent.mkdir()
    shell.store.write_text("no database" * 100)

    done = shell.run("doctor")

    assert done.exit_code == 1
    assert "bad" in done.stdout
