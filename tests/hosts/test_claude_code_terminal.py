"""The plugin in Claude Code's terminal, where it may compact by itself between turns."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import termios
import time

import pytest
from hosts.claude_code_lab import MOD, opened_lab, reading

pytestmark = pytest.mark.slow

KEY = "sk-ant-none-of-the-provider"
PATIENCE_SECONDS = 40


@pytest.fixture
def lab(tmp_path):
    """A home whose user has been through the first questions."""
    # Seven tenths of the window of the model that is the default.
    with opened_lab(tmp_path, input_tokens=700_000) as made:
        state = {
            "hasCompletedOnboarding": True,
            "theme": "dark",
            "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
            "projects": {str(made.project): {"hasTrustDialogAccepted": True}},
        }
        (made.home / ".claude.json").write_text(json.dumps(state), encoding="utf-8")
        made.env |= {"ANTHROPIC_API_KEY": KEY, "TERM": "xterm", "COLUMNS": "160", "LINES": "50"}
        yield made


class Terminal:
    """Claude Code in a terminal of its own."""

    def __init__(self, lab, *more):
        # Into the folder of a plugin that it watches, Claude Code writes its types.
        plugin = shutil.copytree(MOD, lab.home / "plugin")
        argv = [str(lab.cli), "--session-id", lab.session, "--plugin-dir", str(plugin), "--allowedTools", "Bash", *more]
        self.shown = ""
        self._screen, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        self._process = subprocess.Popen(
            argv, cwd=lab.project, env=lab.env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)

    def type(self, text):
        """Type a line, as a person would: the text first, the key to send it a moment later."""
        os.write(self._screen, text.encode())
        self.wait_for("", seconds=0.5)
        os.write(self._screen, b"\r")

    def wait_for(self, pattern, seconds=PATIENCE_SECONDS):
        """Until the screen has shown something; whether it has."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            ready, _, _ = select.select([self._screen], [], [], 0.1)
            if ready:
                try:
                    raw = os.read(self._screen, 65_536).decode("utf-8", "replace")
                except OSError:
                    return False
                self.shown += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", raw)
            if pattern and re.search(pattern, self.shown):
                return True
        return not pattern

    def close(self):
        """End it."""
        self._process.kill()
        self._process.wait()
        os.close(self._screen)


def boundaries(lab):
    """How often the session was compacted."""
    return sum(row.get("subtype") == "compact_boundary" for row in lab.rows()) if lab.transcript() else 0


def test_it_compacts_by_itself_when_the_chosen_share_is_in_use(lab):
    """Once after the turn, without a request and without starting itself again."""
    terminal = Terminal(lab)
    try:
        terminal.wait_for("for agents", seconds=15)
        terminal.type(reading(6, "text Read them all."))
        ends = time.monotonic() + PATIENCE_SECONDS
        while not boundaries(lab) and time.monotonic() < ends:
            terminal.wait_for("", seconds=0.3)
        terminal.wait_for("", seconds=2)
    finally:
        terminal.close()

    assert boundaries(lab) == 1, terminal.shown[-2_000:]
    assert lab.api.summaries == []
    assert "messages kept" in terminal.shown.replace("\r", "").replace("\n", " ")


def test_where_nothing_may_go_it_asks_once_and_again_after_growth_without_a_word(lab):
    """A conversation of words only: whoever typed them hears nothing of passes that they did not ask for."""
    log = lab.home / "debug.log"
    terminal = Terminal(lab, "--debug-file", str(log))

    def asked():
        """How often the engine was asked whether something may go, by its own account."""
        return log.read_text(encoding="utf-8").count("left as it is") if log.exists() else 0

    def say(word, used, until):
        """One turn, and what it led to."""
        lab.api.input_tokens = used
        turns, ends = len(lab.api.turns), time.monotonic() + PATIENCE_SECONDS
        terminal.type(f"SCRIPT: text {word}")
        while (len(lab.api.turns) == turns or asked() < until) and time.monotonic() < ends:
            terminal.wait_for("", seconds=0.3)
        terminal.wait_for("", seconds=1.5)
        return asked()

    try:
        terminal.wait_for("for agents", seconds=15)
        found = [say("Onewise", 700_000, 1), say("Twowise", 705_000, 1), say("Threewise", 740_000, 1)]
        found.append(say("Fourwise", 760_000, 2))
    finally:
        terminal.close()

    assert found == [1, 1, 1, 2]
    assert boundaries(lab) == 0
    assert lab.api.summaries == []
    assert "messages kept" not in terminal.shown.replace("\r", "").replace("\n", " ")
