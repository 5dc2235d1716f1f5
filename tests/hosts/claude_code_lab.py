"""The real Claude Code in a home of its own, in front of a Messages API on loopback."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hosts.environments import cache_folder, environment
from hosts.messages_api import MessagesApi, Received
from loopback import free_port

__all__ = [
    "MOD",
    "SDK",
    "Lab",
    "Run",
    "blocks",
    "broken_pairs",
    "claude_python",
    "claude_version",
    "opened_lab",
    "results",
    "texts",
    "thinking",
]

SDK = os.environ.get("JEV_ENGINE_CLAUDE_SDK", "claude-agent-sdk==0.2.189")
"""The SDK brings the CLI along (2.1.332). Name another one to see whether a newer CLI behaves alike."""
ROOT = Path(__file__).resolve().parents[2]
MOD = ROOT / "adapters" / "jev_engine_adapters" / "claude_code" / "mod"
TOOLS = "Bash,Read"
PATIENCE_SECONDS = 90
FILE_LINES = 300


def claude_python() -> Path:
    """A Python with the SDK, this project and its extra `serve` in it; skips where it cannot be installed."""
    return environment("claude-code", [SDK, "starlette>=0.40", "uvicorn>=0.30"])


def claude_version(version: str) -> Path:
    """The `claude` of another version, from npm, kept between runs; skips where it cannot be installed."""
    folder = cache_folder() / f"claude-code-npm-{version}"
    found = folder / "node_modules" / "@anthropic-ai"
    npm = shutil.which("npm")
    if not (folder / "complete").exists():
        if npm is None:
            pytest.skip(f"NOT CHECKED: Claude Code {version} comes from npm, which is not here")
        folder.mkdir(parents=True, exist_ok=True)
        argv = [npm, "install", "--no-fund", "--no-audit", "--silent", f"@anthropic-ai/claude-code@{version}"]
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
        if done.returncode:
            pytest.skip(f"NOT CHECKED: Claude Code {version} cannot be installed: {done.stderr[-300:]}")
        (folder / "complete").touch()
    programs = [path for path in found.glob("claude-code-*/claude") if path.is_file()]
    if not programs:
        pytest.skip(f"NOT CHECKED: Claude Code {version} has no program for this machine")
    return programs[0]


class Run(NamedTuple):
    """One run of the CLI, from start to end."""

    result: str
    requests: list[Received]
    """What it sent to the model meanwhile."""
    seconds: float
    stderr: str
    session: str
    """Its session: another one than the lab's where it was forked."""

    @property
    def summaries(self) -> int:
        """Requests that asked for a summary."""
        return sum(request.is_summary for request in self.requests)

    @property
    def messages(self) -> list[Any]:
        """The conversation of the last request."""
        found: list[Any] = self.requests[-1].json()["messages"]
        return found


class Lab:
    """A home, a project with a few large files, and sessions in it."""

    def __init__(self, folder: Path, api: MessagesApi, *, options: Mapping[str, Any] | None = None) -> None:
        self.api = api
        self.python = claude_python()
        (package,) = self.python.parent.parent.glob("lib/python*/site-packages/claude_agent_sdk")
        self.cli = package / "_bundled" / "claude"
        self.home, self.project, self.runtime = folder / "home", folder / "project", folder / "run"
        for each in (self.home / ".claude", self.project, self.runtime):
            each.mkdir(parents=True)
        self.runtime.chmod(0o700)
        self.command = self.script("jev-engine", f'exec "{self.python}" -m jev_engine "$@"')
        self.session = str(uuid.uuid4())
        self.set_options(**(options or {}))
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "XDG_DATA_HOME": str(self.home / "data"),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "JEV_ENGINE_RUNTIME": str(self.runtime),
            "JEV_ENGINE_PORT": str(free_port()),
            "ANTHROPIC_BASE_URL": api.url,
            "ANTHROPIC_API_KEY": "sk-ant-none",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }
        for number in range(12):
            lines = [f"line {line} of file {number}: some words that fill it" for line in range(FILE_LINES)]
            (self.project / f"big{number}.txt").write_text("\n".join(lines), encoding="utf-8")

    def script(self, name: str, line: str) -> Path:
        """A program of one line of shell."""
        path = self.home.parent / name
        path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def set_options(self, **options: Any) -> None:
        """The options of the plugin, from now on."""
        self.settings(pluginConfigs={"jev-engine": {"options": {"command": str(self.command), **options}}})

    def settings(self, **more: Any) -> Path:
        """Add to the user's settings of Claude Code."""
        path = self.home / ".claude" / "settings.json"
        held = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        path.write_text(json.dumps({**held, **more}), encoding="utf-8")
        return path

    def run(self, prompt: str, *more: str, plugin: Path | None = MOD, env: Mapping[str, str] | None = None) -> Run:
        """One prompt in a process of its own; the first one begins the session, the others resume it."""
        begun = self.transcript() is not None
        argv = [str(self.cli), "-p", prompt, "--resume" if begun else "--session-id", self.session]
        argv += ["--plugin-dir", str(plugin)] if plugin is not None else []
        argv += ["--allowedTools", TOOLS, "--output-format", "json", *more]
        before, start = len(self.api.turns), time.monotonic()
        done = subprocess.run(
            argv,
            cwd=self.project,
            env={**self.env, **(env or {})},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        seconds = time.monotonic() - start
        try:
            told = json.loads(done.stdout)
            result, session = told["result"], told["session_id"]
        except (ValueError, KeyError):
            raise AssertionError(f"{prompt!r} ended with {done.returncode}: {done.stdout} {done.stderr}") from None
        return Run(result, self.api.turns[before:], seconds, done.stderr, session)

    def plugin(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """`claude plugin …`."""
        command = [str(self.cli), "plugin", *argv]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, check=False)

    def fork(self, prompt: str, *more: str, of: str | None = None, **options: Any) -> Run:
        """The same in a copy of the session, or of another one: the session itself stays as it is."""
        mine = self.session
        self.session = of or mine
        try:
            return self.run(prompt, "--fork-session", *more, **options)
        finally:
            self.session = mine

    def transcript(self, session: str | None = None) -> Path | None:
        """The file of a session, once there is one."""
        found = list((self.home / ".claude" / "projects").glob(f"*/{session or self.session}.jsonl"))
        return found[0] if found else None

    def rows(self, session: str | None = None) -> list[Any]:
        """A session's rows."""
        path = self.transcript(session)
        assert path is not None
        return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]

    def engine(self, *argv: str, stdin: str = "") -> str:
        """`jev-engine …` of this lab; what it wrote."""
        done = subprocess.run(
            [str(self.command), *argv], env=self.env, input=stdin, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def close(self) -> None:
        """End the process this lab has started, if any."""
        argv = [str(self.python), "-m", "jev_engine", "serve", "--stop"]
        subprocess.run(argv, env=self.env, capture_output=True, check=False)


@contextmanager
def opened_lab(folder: Path, **api: Any) -> Iterator[Lab]:
    """A lab in front of an API of its own, made with these options; what it has started ends with it."""
    with MessagesApi(**api) as provider:
        made = Lab(folder, provider)
        try:
            yield made
        finally:
            made.close()


def reading(count: int, then: str = "text done") -> str:
    """A script that reads so many large files, one after another."""
    return "SCRIPT: " + " ;; ".join([*(f"bash cat big{number}.txt" for number in range(count)), then])


def blocks(messages: Sequence[Any], kind: str) -> list[Any]:
    """All content blocks of one type, in order."""
    contents = [m["content"] for m in messages if isinstance(m["content"], list)]
    return [block for content in contents for block in content if block["type"] == kind]


def texts(messages: Sequence[Any]) -> list[str]:
    """Everything said, by whomever."""
    return [
        m["content"] if isinstance(m["content"], str) else block["text"]
        for m in messages
        for block in ([None] if isinstance(m["content"], str) else blocks([m], "text"))
    ]


def results(messages: Sequence[Any]) -> list[str]:
    """The texts of all results."""
    return [
        b["content"] if isinstance(b["content"], str) else "".join(p.get("text", "") for p in b["content"])
        for b in blocks(messages, "tool_result")
    ]


def thinking(messages: Sequence[Any]) -> list[str]:
    """The signatures of all thinking blocks."""
    return [block["signature"] for block in blocks(messages, "thinking")]


def broken_pairs(messages: Sequence[Any]) -> list[str]:
    """What a provider would refuse: ids twice, results that do not follow their call, placeholders of the host."""
    faults: list[str] = []
    for kind, field in (("tool_use", "id"), ("tool_result", "tool_use_id")):
        counted = Counter(block[field] for block in blocks(messages, kind))
        faults += [f"{kind} {name} {n} times" for name, n in counted.items() if n > 1]
    talk = [m for m in messages if m["role"] != "system"]
    for place, message in enumerate(talk):
        made = {block["id"] for block in blocks([message], "tool_use")}
        answered = {b["tool_use_id"] for b in blocks(talk[place + 1 : place + 2], "tool_result")}
        if made != (made & answered):
            faults.append(f"calls without result: {made - answered}")
        before = {block["id"] for block in blocks(talk[max(0, place - 1) : place], "tool_use")}
        faults += [f"result without call: {b['tool_use_id']}" for b in blocks([message], "tool_result")
                   if b["tool_use_id"] not in before]  # fmt: skip
    faults += [text for text in results(messages) if re.match(r"\[Tool result missing", text)]
    return faults


if __name__ == "__main__":
    sys.stdout.write(f"{claude_python()}\n")
