"""How a command ends where it cannot do as it was told: what it says then is true, and nothing is half done."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest
from commands import CLOSED, start

from jev_engine.testing import assistant, call, history, result, user


def waits_until(path: Path) -> None:
    """Until a file is there, for a minute at most."""
    end = time.monotonic() + 60
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.005)


def test_ctrl_c_after_the_session_was_written_says_so(shell, shorten_all) -> None:
    """The command hangs at its table, which nobody reads: the session is in place by then, and can be restored."""
    rows = [row for n in range(900) for row in (call("read", path=f"src/{n}.py"), result(f"{n} of them\n" * 60))]
    path = shell.file("s.json", history(user("Fix it."), *rows, assistant("Done.")))
    out = shell.folder / "short.json"
    process = start("compress", path, "-o", out, "--json", "--store", shell.store, *shorten_all)
    waits_until(out)

    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    shell.run("restore", out, "-o", shell.folder / "back.json")

    assert process.returncode == 130
    assert f"Interrupted: {out} was written." in errors.decode()
    assert (shell.folder / "back.json").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("command", ["compress", "restore"])
def test_standard_output_that_takes_nothing_is_no_fault_of_ours(shell, messages, shorten_all, command) -> None:
    """A full disk, and a stream the caller has closed: what is wrong and what to do, and no word of reporting it."""
    path = shell.file("s.json", messages)
    shell.run("compress", path, "-o", shell.folder / "short.json", *shorten_all)
    words = (path, *shorten_all) if command == "compress" else (shell.folder / "short.json",)

    with Path("/dev/full").open("wb") as full:
        ends = [start(command, *words, "-o", "-", "--store", shell.store, stdout=each) for each in (full, CLOSED)]
    said = [process.communicate(timeout=60)[1].decode() for process in ends]

    assert [process.returncode for process in ends] == [2, 2]
    assert "standard output cannot be written: No space left on device. Name a file instead." in said[0]
    assert "standard output is closed. Name a file instead." in said[1]


def test_a_table_that_cannot_be_shown_is_no_fault_of_ours(shell, messages, shorten_all) -> None:
    """On a full disk the command fails and says whether the session was written; a closed stream is left be."""
    path, out = shell.file("s.json", messages), shell.folder / "short.json"
    words = ("compress", path, "-o", out, "--store", shell.store, *shorten_all)

    with Path("/dev/full").open("wb") as full:
        process = start(*words, stdout=full)
    said = process.communicate(timeout=60)[1].decode()
    unseen = start(*words, stdout=CLOSED)
    quiet = unseen.communicate(timeout=60)[1].decode()

    assert (process.returncode, unseen.returncode) == (1, 0)
    assert f"No space left on device while writing; {out} was written." in said
    assert quiet == ""


def test_a_link_stays_and_the_file_it_names_is_written(shell, messages, shorten_all) -> None:
    """As a shell writes through a link: one that leads nowhere yet makes the file it names."""
    path = shell.file("s.json", messages)
    (shell.folder / "there").mkdir()
    for name in ("old.json", "new.json"):
        (shell.folder / name).symlink_to(Path("there") / name)
    (shell.folder / "there/old.json").write_text("old")
    (shell.folder / "lost.json").symlink_to("nowhere/short.json")

    for name in ("old.json", "new.json"):
        done = shell.run("compress", path, "-o", shell.folder / name, *shorten_all)

        assert done.exit_code == 0
        assert (shell.folder / name).is_symlink()
        assert len(json.loads((shell.folder / "there" / name).read_text())) == len(messages)
    lost = shell.run("compress", path, "-o", shell.folder / "lost.json", *shorten_all)

    assert lost.exit_code == 2
    assert "its folder does not exist" in lost.stderr


def test_json_says_where_the_session_went(shell, messages, shorten_all) -> None:
    """And that it went nowhere."""
    path, out = shell.file("s.json", messages), shell.folder / "short.json"

    written = shell.run("compress", path, "-o", out, "--json", *shorten_all)
    dry = shell.run("compress", path, "-o", out, "--json", "--dry-run", *shorten_all)

    assert json.loads(written.stdout)["written_to"] == str(out)
    assert json.loads(dry.stdout)["written_to"] is None


def test_a_session_on_standard_output_is_called_that(shell, messages, shorten_all) -> None:
    """A dash is no name to restore from."""
    done = shell.run("compress", shell.file("s.json", messages), "-o", "-", *shorten_all)

    assert done.stderr.rstrip().endswith("Written to standard output.")
    assert len(json.loads(done.stdout)) == len(messages)
