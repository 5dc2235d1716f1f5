"""`jev-engine setup hermes`, `doctor hermes` and `remove hermes`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jev_engine import __version__
from jev_engine.errors import HostError
from jev_engine.hosts import Change, Finding, Plan
from jev_engine_adapters.hermes.package import FOLDER, files
from jev_engine_adapters.hermes.settings_file import BY_HAND, is_on, switch_off, switch_on

__all__ = ["HermesIntegration", "integration"]

PROBE = Path(__file__).with_name("probe.py")
PROBE_MARK = "jev-engine probe: "
PROBE_SECONDS = 120
ASK_SECONDS = 30
SUMMARIZING = (
    "Hermes prints 'summarizing earlier conversation' before it calls any engine; up to 0.19 no engine can change that."
    " Words are summarised only when `/jev` says that a pass was handed over."
)
WHY_A_FOLDER = "An update of Hermes rebuilds its environment and would take a pip installation away without a word."
NEXT = (
    "Takes effect in sessions that start from now on. `/jev` in a chat tells the state;"
    " `jev-engine doctor hermes` makes a real agent and looks."
)
LEFT = (
    "Originals that were left out stay in the store: `jev-engine store` lists them, `jev-engine restore` brings back."
)
HYGIENE = (
    "the gateway has a limit of its own at 85 % of the window and then asks for a pass whatever the engine says;"
    " that pass is as reversible as any other"
)


class Home(NamedTuple):
    """Where a host keeps its things."""

    path: Path

    @property
    def settings(self) -> Path:
        """The host's settings."""
        return self.path / "config.yaml"

    @property
    def plugin(self) -> Path:
        """The folder of our plugin."""
        return self.path / "plugins" / FOLDER


class HermesIntegration:
    """Hermes Agent."""

    name = "hermes"
    summary = "Hermes Agent: a plugin folder of its own in HERMES_HOME, and two settings"
    options: Mapping[str, str] = {
        "home": "HERMES_HOME; otherwise the variable of that name, or ~/.hermes",
        "python": "the Python that runs Hermes, for `doctor`; otherwise found by the command `hermes`",
    }

    def setup(self, options: Mapping[str, str]) -> Plan:
        """A self-contained plugin folder, and the settings that load it and choose its engine."""
        home = _home(options)
        if not home.path.is_dir():
            raise HostError(f"{home.path} is no folder: install Hermes first, or name its home with home=")
        text = _read(home.settings)
        wanted = files()
        changes = [Change(home.plugin / name, content, "the plugin", is_ours=True) for name, content in wanted.items()]
        changes += [
            Change(path, None, "of an earlier version", is_ours=True)
            for path in _present(home.plugin)
            if path.relative_to(home.plugin).as_posix() not in wanted
        ]
        changed = switch_on(text)
        _compare(text, changed, options)
        changes.append(Change(home.settings, changed.encode(), "loads the plugin and chooses its engine"))
        notes = [f"Route: {home.plugin}, which holds all it needs. {WHY_A_FOLDER}", NEXT]
        if os.environ.get("HERMES_SAFE_MODE"):
            notes.append("HERMES_SAFE_MODE is set: Hermes loads no plugin while it is.")
        return Plan(changes, notes)

    def remove(self, options: Mapping[str, str]) -> Plan:
        """The folder and both settings away; originals and trail stay where they are."""
        home = _home(options)
        changes = []
        text = _read(home.settings)
        if any(is_on(text)):
            changed = switch_off(text)
            _compare(text, changed, options)
            changes.append(Change(home.settings, changed.encode(), "no plugin, and the engine chosen before"))
        changes += [Change(path, None, "the plugin", is_ours=True) for path in _present(home.plugin)]
        return Plan(changes, [LEFT])

    def doctor(self, options: Mapping[str, str]) -> Iterator[Finding]:
        """Makes a real agent in the host's own Python and says which engine it got, and why."""
        home = _home(options)
        if not home.path.is_dir():
            yield Finding("home", "bad", f"{home.path} is no folder; name it with home=")
            return
        yield Finding("home", "ok", str(home.path))
        yield from _look_at_settings(home)
        yield from _look_at_folder(home)
        if os.environ.get("HERMES_SAFE_MODE"):
            yield Finding("safe mode", "bad", "HERMES_SAFE_MODE is set: Hermes loads no plugin")
        python = find_python(options)
        if python is None:
            yield Finding("host", "note", "the Python of Hermes was not found; name it with python= to have it checked")
            return
        yield from _look_at_agent(python, home)


def _home(options: Mapping[str, str]) -> Home:
    named = options.get("home") or os.environ.get("HERMES_HOME") or "~/.hermes"
    return Home(Path(named).expanduser())


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise HostError(f"{path}: cannot be read: {error}; write this by hand:\n{BY_HAND}") from error


def _present(folder: Path) -> list[Path]:
    """Files that are there, deepest first: a folder goes with its last file. Raises HostError for one of another."""
    if folder.is_symlink():
        raise HostError(f"{folder} is a link to {folder.resolve()}, which is not ours to change: take the link away")
    found = [path for path in folder.rglob("*") if path.is_file() or path.is_symlink()]
    return sorted(found, key=lambda path: (-len(path.parts), str(path)))


def find_python(options: Mapping[str, str]) -> Path | None:
    """The Python that runs the host, or None."""
    named = options.get("python")
    if named:
        return Path(named).expanduser()
    tried = []
    command = shutil.which("hermes")
    if command is not None:
        script = Path(command).resolve()
        first = script.read_bytes()[:300].split(b"\n", 1)[0].decode("utf-8", "replace")
        found = re.match(r"#!\s*(\S*python[\d.]*)\s*$", first)
        tried += [Path(found.group(1))] if found else []
        tried.append(script.parent / "python")
    tried += [Path("~/.hermes/hermes-agent/venv/bin/python").expanduser(), Path(sys.executable)]
    return next((python for python in tried if python.exists() and _asked(python, HAS_HOST) is not None), None)


def _asked(python: Path, code: str, given: str = "") -> str | None:
    """What the host's Python prints; None where it fails."""
    try:
        done = subprocess.run(  # noqa: S603  # the user's own Python, by its path
            [python, "-P", "-c", code], input=given, capture_output=True, text=True, timeout=ASK_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


HAS_HOST = "import sys; from importlib.util import find_spec; sys.exit(find_spec('run_agent') is None)"
COMPARE = """
import json, sys, yaml
before, after = json.load(sys.stdin)
old = yaml.safe_load(before) or {}
try:
    new = yaml.safe_load(after) or {}
except yaml.YAMLError:
    new = {"it": "does not load"}
for data in (old, new):
    for key, inner in (("plugins", "enabled"), ("context", "engine")):
        part = data.get(key) or {}
        if inner == "enabled":
            for each in (inner, "disabled"):
                names = [n for n in part.get(each) or [] if n != "jev-engine"]
                part = {**part, each: names} if names else {k: v for k, v in part.items() if k != each}
        else:
            part = {k: v for k, v in part.items() if k != inner}
        data[key] = part
        if not part:
            del data[key]
print("same" if old == new else "different")
"""


def _compare(before: str, after: str, options: Mapping[str, str]) -> None:
    """Where the host's own YAML parser can be asked, nothing but the two settings may differ; raises HostError."""
    python = find_python(options)
    said = None if python is None else _asked(python, COMPARE, json.dumps([before, after]))
    if said is not None and said.strip() == "different":
        raise HostError(f"config.yaml has a form that cannot be changed safely; write this by hand:\n{BY_HAND}")


def _look_at_settings(home: Home) -> Iterator[Finding]:
    try:
        enabled, chosen = is_on(_read(home.settings))
    except HostError as error:
        yield Finding("settings", "note", f"{home.settings} has a form that is not read here: {error}")
        return
    for is_there, what in ((enabled, f"plugins.enabled names {FOLDER}"), (chosen, f"context.engine is {FOLDER}")):
        missing = f"not so in {home.settings}; run `jev-engine setup hermes`"
        yield Finding(what, "ok" if is_there else "bad", "yes" if is_there else missing)


def _look_at_folder(home: Home) -> Iterator[Finding]:
    text = _read(home.plugin / "plugin.yaml")
    if not text:
        yield Finding("plugin folder", "note", f"{home.plugin} is not there: a pip installation goes with host updates")
        return
    version = re.search(r"^version: (\S+)$", text, re.MULTILINE)
    is_same = version is not None and version.group(1) == __version__
    told = f"{home.plugin}, version {version.group(1) if version else '?'}"
    hint = "" if is_same else f"; this is {__version__}: run `jev-engine setup hermes` again"
    yield Finding("plugin folder", "ok" if is_same else "note", told + hint)


def _look_at_agent(python: Path, home: Home) -> Iterator[Finding]:
    command = [str(python), "-P", "-c", PROBE.read_text(encoding="utf-8"), str(home.path)]
    try:
        done = subprocess.run(  # noqa: S603  # the user's own Python, by its path
            command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError) as error:
        yield Finding("agent", "bad", f"{python} could not be run: {error}")
        return
    line = next((line for line in done.stdout.splitlines() if line.startswith(PROBE_MARK)), None)
    if line is None:
        yield Finding("agent", "bad", f"{python} said nothing: {done.stderr[-300:].strip()}")
        return
    yield from judge(json.loads(line[len(PROBE_MARK) :]))


def judge(found: Mapping[str, Any]) -> Iterator[Finding]:
    """What the probe found, in words."""
    log = "; ".join(str(each) for each in found.get("log", ()))
    if "fault" in found:
        yield Finding("agent", "bad", f"Hermes cannot make an agent: {found['fault']}" + (f" ({log})" if log else ""))
        return
    yield Finding("host", "ok", f"hermes-agent {found['version']}")
    if found["engine"] != FOLDER:
        why = log or "the plugin was not loaded"
        yield Finding("active engine", "bad", f"{found['engine']}, Hermes' own, and not {FOLDER}: {why}")
        return
    place = (found.get("ours") or ["", ""])[1]
    yield Finding("active engine", "ok", f"{found['engine']} from {place}")
    if found.get("trouble"):
        yield Finding("engine", "bad", f"degraded, Hermes' own compressor does the work: {found['trouble']}")
    status = found.get("status", {})
    window, threshold = status.get("context_length", 0), status.get("threshold_tokens", 0)
    yield Finding(
        "trigger", "ok", f"a pass is due from {threshold:,} of {window:,} tokens, for a model of such a window"
    )
    tools = found.get("tools") or []
    told = ", ".join(tools) if tools else "none: the toolset context_engine is not enabled, markers name no tool"
    yield Finding("tools", "ok" if tools else "note", told)
    if not found.get("enabled", True):
        yield Finding("compression", "note", "compression.enabled is false: only /compress makes a pass")
    if not found.get("in_place"):
        yield Finding("sessions", "note", "a pass gives the session a new id here; originals go along")
    yield Finding("hooks", "ok" if found.get("hooks") else "note", f"{len(found.get('hooks') or [])} listened to")
    yield Finding("'summarizing'", "note", SUMMARIZING)
    yield Finding("gateway", "note", HYGIENE)


integration = HermesIntegration()
