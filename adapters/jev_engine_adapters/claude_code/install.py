"""Setting up Claude Code: the plugin, hooks for the audit trail, and the entries in the user's settings.

The plugin is copied beside the store and named to Claude Code as a marketplace of its own, a folder on this machine;
project settings are never touched.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jev_engine.errors import HostError, JevEngineError
from jev_engine.hosts import Change, Finding, Plan
from jev_engine.serve.places import planned_token
from jev_engine_adapters.claude_code import settings as user_settings

__all__ = ["ClaudeCode", "Route", "integration", "route_for"]

HERE = Path(__file__).parent
MOD = HERE / "mod"
MARKETPLACE = {
    "name": "jev-engine",
    "owner": {"name": "jev-engine contributors"},
    "plugins": [{"name": "jev-engine", "source": "./plugin"}],
}
VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
VERSION_SECONDS = 20
# Plugins with code are loaded by default since 2.1.287; behind a flag, 2.1.268 is the first one on which this plugin
# works (tried, with 2.1.259 to 2.1.267: they have no event `session.compact`, or do not take its answer).
BY_DEFAULT, BEHIND_FLAG = (2, 1, 287), (2, 1, 268)


class Route(NamedTuple):
    """How this version of Claude Code is served."""

    plugin: bool
    needs_flag: bool
    why: str


def route_for(version: tuple[int, int, int] | None) -> Route:
    """The route for an installed version; None where it is not known."""
    if version is None:
        return Route(plugin=True, needs_flag=False, why="Claude Code was not found; the plugin needs 2.1.287 or newer.")
    shown = ".".join(map(str, version))
    if version >= BY_DEFAULT:
        return Route(
            plugin=True, needs_flag=False, why=f"Route: the plugin, which Claude Code {shown} loads by default."
        )
    if version >= BEHIND_FLAG:
        why = f"Route: the plugin; Claude Code {shown} loads it behind a flag, which is set in your settings."
        return Route(plugin=True, needs_flag=True, why=why)
    why = (
        f"Claude Code {shown} loads no plugins with code. Only hooks are set up; use the gateway instead "
        "(jev-engine setup gateway), or shorten a session offline (jev-engine compress --latest --new-session)."
    )
    return Route(plugin=False, needs_flag=False, why=why)


def installed_version(program: str | None) -> tuple[int, int, int] | None:
    """The version of a `claude` program; None where there is none or it does not say."""
    found = shutil.which(program or "claude")
    if found is None:
        return None
    try:
        said = subprocess.run(  # noqa: S603  # the user's own program, asked for its version
            [found, "--version"], capture_output=True, text=True, timeout=VERSION_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = VERSION.search(said.stdout)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


class ClaudeCode:
    """`jev-engine setup claude-code` and its kin."""

    name = "claude-code"
    summary = "Claude Code: a plugin that compacts without a summary, and hooks for the audit trail."
    options: Mapping[str, str] = {
        "config": "folder of Claude Code's settings (~/.claude, or CLAUDE_CONFIG_DIR)",
        "claude": "the claude program, where it is not on the PATH",
        "command": "the jev-engine program the plugin starts",
        "percent": "compact from this share of the window on (60); 0 leaves it to /compact and Claude Code",
        "headless": "yes: claude -p and the SDK compact at that share as well (no)",
        "hooks": "command, http or none: how tool calls reach the audit trail (command, if a trail is set)",
        "judge": "local, jev, cascade or a URL; without it, as the settings of jev-engine say",
        "endpoint": "where Jev is asked",
    }

    def setup(self, options: Mapping[str, str]) -> Plan:
        """The plugin's files, its entry and its options in the user's settings, and hooks."""
        route = route_for(installed_version(options.get("claude")))
        folder = plugin_folder()
        path = settings_path(options)
        held = user_settings.read(path)
        changes = _plugin_changes(folder) if route.plugin else []
        wanted = user_settings.without_ours(held)
        if route.plugin:
            wanted = user_settings.with_plugin(wanted, folder, _plugin_options(options, held), flag=route.needs_flag)
        if options.get("headless") == "yes":
            wanted = user_settings.with_environment(wanted, user_settings.PERCENT_VARIABLE, _percent(options))
        hooks = options.get("hooks") or ("command" if _has_trail() else "none")
        token, made = planned_token() if hooks == "http" else ("", [])
        changes += made
        wanted = user_settings.with_hooks(wanted, hooks, _command(options), token)
        why = "names the plugin and its options" if route.plugin else "names the hooks"
        changes.append(Change(path, user_settings.dump(wanted), why))
        return Plan(changes, [route.why, *_notes(options, hooks, route)])

    def remove(self, options: Mapping[str, str]) -> Plan:
        """Our files go, and our entries in the user's settings; everything else in them stays."""
        path = settings_path(options)
        held = user_settings.read(path)
        changes = [Change(file, None, "part of the plugin", is_ours=True) for file in _own_files(plugin_folder())]
        left = user_settings.without_ours(held)
        if left != held:
            changes.append(Change(path, user_settings.dump(left), "no longer names the plugin"))
        notes = [
            "Sessions that were compacted stay as they are; jev-engine expand and restore still work on them.",
            "Originals are kept until their limits take them; jev-engine store purge forgets them now.",
        ]
        return Plan(changes, notes)

    def doctor(self, options: Mapping[str, str]) -> Iterator[Finding]:
        """Version, settings, files of the plugin, program and process."""
        version = installed_version(options.get("claude"))
        route = route_for(version)
        yield Finding("claude", _state_of(version, route), route.why)
        try:
            held = user_settings.read(settings_path(options))
        except HostError as error:
            yield Finding("settings", "bad", str(error))
            return
        yield from user_settings.findings(held, plugin_folder(), needs_flag=route.needs_flag)
        yield from _plugin_findings(plugin_folder())
        command, port = user_settings.plugin_options(held).get("command"), user_settings.hook_port(held)
        yield from _engine_findings(command, port)
        yield from _managed_findings()


def _state_of(version: tuple[int, int, int] | None, route: Route) -> Literal["ok", "note", "bad"]:
    if not route.plugin:
        return "bad"
    return "note" if version is None else "ok"


def settings_path(options: Mapping[str, str]) -> Path:
    """The user's settings of Claude Code."""
    named = options.get("config") or os.environ.get("CLAUDE_CONFIG_DIR")
    return (Path(named).expanduser() if named else Path.home() / ".claude") / "settings.json"


def plugin_folder() -> Path:
    """Where our copy of the plugin lies."""
    import platformdirs  # noqa: PLC0415  # only where a default place is needed

    return Path(platformdirs.user_data_dir("jev-engine", appauthor=False)) / "claude-code"


def _plugin_files(folder: Path) -> dict[Path, bytes]:
    """What the folder should hold: the plugin as packaged, without its tests, and the marketplace that offers it."""
    made = {folder / ".claude-plugin" / "marketplace.json": user_settings.dump(MARKETPLACE)}
    for file in sorted((*(MOD / ".claude-plugin").glob("*.json"), *(MOD / "hooks").iterdir())):
        made[folder / "plugin" / file.relative_to(MOD)] = file.read_bytes()
    return made


def _plugin_changes(folder: Path) -> list[Change]:
    wanted = _plugin_files(folder)
    stale = [path for path in _own_files(folder) if path not in wanted and path.parent.name == "hooks"]
    made = [Change(path, content, "the plugin", is_ours=True) for path, content in wanted.items()]
    return [*made, *(Change(path, None, "no part of the plugin any more", is_ours=True) for path in stale)]


def _own_files(folder: Path) -> list[Path]:
    """Everything in the folder: it is ours alone, but for the types Claude Code writes there."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _percent(options: Mapping[str, str]) -> str:
    given = options.get("percent", "60")
    if not given.isdigit() or int(given) > 95:
        raise HostError(f"percent = {given!r}: a whole number from 0 to 95 is needed")
    return given


def _command(options: Mapping[str, str]) -> str:
    """The program that plugin and hooks start; raises HostError where there is none."""
    named = options.get("command")
    beside = Path(sys.executable).parent / "jev-engine"
    found = shutil.which(named or str(beside)) or (None if named else shutil.which("jev-engine"))
    if found is None:
        raise HostError(f"{named or 'jev-engine'}: no such program; name it with --option command=PATH")
    return str(Path(found).absolute())


def _plugin_options(options: Mapping[str, str], held: Mapping[str, Any]) -> dict[str, Any]:
    """What the user has set for the plugin before, and what is given now."""
    made: dict[str, Any] = {**user_settings.plugin_options(held), "command": _command(options)}
    if "percent" in options:
        made["compactAtPercent"] = int(_percent(options))
    return {**made, **{name: options[name] for name in ("judge", "endpoint") if name in options}}


def _has_trail() -> bool:
    from jev_engine.settings import load_settings  # noqa: PLC0415  # costs 100 ms

    return load_settings().audit is not None


def _notes(options: Mapping[str, str], hooks: str, route: Route) -> list[str]:
    notes = []
    if route.plugin:
        percent = _percent(options)
        notes.append(
            f"Start a new session; /compact then uses jev-engine, and so does Claude Code at {percent} percent of "
            "the window." if percent != "0" else "Start a new session; /compact then uses jev-engine."
        )  # fmt: skip
        if options.get("headless") != "yes":
            notes.append("claude -p and the SDK compact at their own threshold; --option headless=yes lowers it.")
        notes.append("/jev shows how a session stands; jev-engine doctor claude-code checks this set-up.")
    if hooks == "none":
        notes.append(
            "No hooks: set `audit` in the settings of jev-engine to have tool calls in a trail, and set up again."
        )
    if hooks == "http":
        notes.append("The token of the local process now stands in your settings file; keep it to yourself.")
    return notes


def _plugin_findings(folder: Path) -> Iterator[Finding]:
    wanted = _plugin_files(folder)
    stale = [path.name for path, content in wanted.items() if not path.exists() or path.read_bytes() != content]
    if len(stale) == len(wanted):
        yield Finding("plugin", "bad", f"is not at {folder}; run: jev-engine setup claude-code")
    elif stale:
        yield Finding(
            "plugin", "bad", f"{', '.join(stale)} differ from this version; run: jev-engine setup claude-code"
        )
    else:
        yield Finding("plugin", "ok", f"{folder}, as packaged")


def _engine_findings(command: Any, port: int | None) -> Iterator[Finding]:
    if not isinstance(command, str) or shutil.which(command) is None:
        yield Finding(
            "program", "bad", f"{command or 'jev-engine'} cannot be started; run: jev-engine setup claude-code"
        )
        return
    yield Finding("program", "ok", command)
    try:
        said = subprocess.run(  # noqa: S603  # our own program
            [command, "serve", "--ensure"], capture_output=True, text=True, timeout=VERSION_SECONDS, check=False
        )
        if said.returncode:
            raise HostError(said.stderr.strip().split("\n")[-1])
        told = json.loads(said.stdout)
        yield Finding("process", "ok", f"answers at {told['socket']}, process {told['pid']}, port {told['port']}")
        if port is not None and told["port"] != port:
            text = f"hooks are sent to port {port}, which another program has; use --option hooks=command"
            yield Finding("hooks", "bad", text)
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, JevEngineError) as error:
        text = f"the local process does not start, each compaction starts one of its own (slower): {error}"
        yield Finding("process", "bad", text)


def _managed_findings() -> Iterator[Finding]:
    """An organisation may have switched plugins of users off; then the gateway is the way."""
    for path in (Path("/etc/claude-code/managed-settings.json"),
                 Path("/Library/Application Support/ClaudeCode/managed-settings.json")):  # fmt: skip
        if path.exists() and "allowManagedModsOnly" in path.read_text(encoding="utf-8", errors="replace"):
            yield Finding("managed settings", "note", f"{path} may switch plugins off; then use the gateway")


integration = ClaudeCode()
