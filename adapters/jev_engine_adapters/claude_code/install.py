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
from jev_engine.hosts import Change, Finding, Plan, others_can_read
from jev_engine.serve.places import planned_token
from jev_engine_adapters.claude_code import settings as user_settings
from jev_engine_adapters.claude_code import setups

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
MOST_PERCENT = 95
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
        """The plugin's files, its entry and its options in the user's settings, and hooks.

        What an earlier set-up was told, and what its user changed since, stays where no option says otherwise.
        """
        folder, path = plugin_folder(), settings_path(options)
        held, note = user_settings.read(path), setups.earlier(folder, path)
        before = user_settings.without_ours(held, note)
        chosen = _chosen(options, held, note)
        version = installed_version(chosen.claude)
        route = route_for(version)
        wanted = before
        if route.plugin:
            flag = route.needs_flag or (
                version is None and user_settings.wrote(held, note, user_settings.FLAG_VARIABLE)
            )
            entry, given = user_settings.plugin_entry(held), _plugin_options(options, held, chosen)
            wanted = user_settings.with_plugin(wanted, folder, given, flag=flag, entry=entry)
        if chosen.headless and chosen.percent != "0":
            wanted = user_settings.with_environment(wanted, user_settings.PERCENT_VARIABLE, chosen.percent)
        token, made = planned_token() if chosen.hooks == "http" else ("", [])
        wanted = user_settings.with_hooks(wanted, chosen.hooks, chosen.command, token)
        noted = {**user_settings.note_of(before, wanted), **chosen.noted}
        why = "names the plugin and its options" if route.plugin else "names the hooks"
        changes = [
            *(_plugin_changes(folder) if route.plugin else []),
            *made,
            *setups.changes(folder, path, noted),
            Change(path, user_settings.dump(wanted), why, is_secret=bool(token)),
        ]
        return Plan(changes, [route.why, *_notes(chosen, route)])

    def remove(self, options: Mapping[str, str]) -> Plan:
        """Our files go, and our entries in the user's settings; what they replaced comes back, the rest stays."""
        folder, path = plugin_folder(), settings_path(options)
        held = user_settings.read(path)
        is_last = not setups.others(folder, path)
        files = [file for file in _own_files(folder) if is_last and file != folder / setups.FILE]
        left = user_settings.without_ours(held, setups.earlier(folder, path))
        changes = setups.changes(folder, path, None)
        changes += [Change(file, None, "part of the plugin", is_ours=True) for file in files]
        if left != held:
            changes.append(Change(path, user_settings.dump(left), "no longer names the plugin"))
        shared = [] if is_last else ["The plugin's files stay: other settings files name them."]
        notes = [
            *shared,
            "Sessions that were compacted stay as they are; jev-engine expand and restore still work on them.",
            "Originals are kept until their limits take them; jev-engine store purge forgets them now.",
        ]
        return Plan(changes, notes)

    def doctor(self, options: Mapping[str, str]) -> Iterator[Finding]:
        """Version, settings, files of the plugin, program and process."""
        folder, path = plugin_folder(), settings_path(options)
        version = installed_version(_claude(options, setups.earlier(folder, path)))
        route = route_for(version)
        yield Finding("claude", _state_of(version, route), route.why)
        try:
            held = user_settings.read(path)
        except HostError as error:
            yield Finding("settings", "bad", str(error))
            return
        yield from user_settings.findings(held, folder, needs_flag=route.needs_flag)
        if user_settings.hook_kind(held) == "http" and others_can_read(path):
            yield Finding("settings", "bad", f"{path} holds a token and others can read it; run: chmod 600 {path}")
        yield from _plugin_findings(folder)
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


class Chosen(NamedTuple):
    """What a set-up goes by: what is given now, else what it finds, else what fits."""

    command: str
    percent: str
    headless: bool
    hooks: str
    claude: str | None
    noted: dict[str, Any]
    """For the next set-up: what only its user can know."""


def _chosen(options: Mapping[str, str], held: Mapping[str, Any], note: Mapping[str, Any] | None) -> Chosen:
    """Raises HostError for what makes no sense."""
    found = user_settings.wrote(held, note, user_settings.PERCENT_VARIABLE)
    headless = options.get("headless")
    if headless not in (None, "yes", "no"):
        raise HostError(f"headless = {headless!r}: yes or no is needed")
    command, by_default = _command(options, held, note)
    hooks, is_by_trail = _hooks(options, held, note)
    claude = _claude(options, note)
    noted = {
        "command": command if by_default else None,
        "hooks": None if is_by_trail and hooks == "none" else hooks,
        "claude": claude,
    }
    return Chosen(
        command,
        _percent(options, held, note),
        found if headless is None else headless == "yes",
        hooks,
        claude,
        noted={name: value for name, value in noted.items() if value is not None},
    )


def _claude(options: Mapping[str, str], note: Mapping[str, Any] | None) -> str | None:
    """The `claude` that was named, now or before; None for the one on the PATH."""
    named, before = options.get("claude"), (note or {}).get("claude")
    return named or (before if isinstance(before, str) and shutil.which(before) else None)


def _hooks(options: Mapping[str, str], held: Mapping[str, Any], note: Mapping[str, Any] | None) -> tuple[str, bool]:
    """The kind of hooks, and whether only the settings of jev-engine decide.

    Hooks that an earlier set-up was told to leave out, or that were taken out of the settings since, stay out.
    """
    kind = options.get("hooks") or user_settings.hook_kind(held)
    if kind is None and (note or {}).get("hooks") is not None:
        kind = "none"
    return (kind, False) if kind is not None else ("command" if _has_trail() else "none", True)


def _percent(options: Mapping[str, str], held: Mapping[str, Any], note: Mapping[str, Any] | None) -> str:
    """The share: as given, else as the plugin has it, else as an earlier set-up wrote it for headless sessions."""
    if "percent" not in options:
        name = user_settings.PERCENT_VARIABLE
        written = user_settings.variable(held, name) if user_settings.wrote(held, note, name) else None
        for each in (user_settings.plugin_options(held).get("compactAtPercent"), written):
            if str(each).isdecimal() and int(str(each)) <= MOST_PERCENT:
                return str(each)
    given = options.get("percent", "60")
    if not given.isdecimal() or int(given) > MOST_PERCENT:
        raise HostError(f"percent = {given!r}: a whole number from 0 to {MOST_PERCENT} is needed")
    return given


def _command(options: Mapping[str, str], held: Mapping[str, Any], note: Mapping[str, Any] | None) -> tuple[str, bool]:
    """The program that plugin and hooks start, and whether we have chosen it; raises HostError where there is none.

    One that its user has named, here or to the plugin, stays for as long as it is there.
    """
    named, before = options.get("command"), user_settings.plugin_options(held).get("command")
    if named is None and isinstance(before, str) and before != (note or {}).get("command") and shutil.which(before):
        return before, False
    beside = Path(sys.executable).parent / "jev-engine"
    found = shutil.which(named or str(beside)) or (None if named else shutil.which("jev-engine"))
    if found is None:
        raise HostError(f"{named or 'jev-engine'}: no such program; name it with --option command=PATH")
    return str(Path(found).absolute()), named is None


def _plugin_options(options: Mapping[str, str], held: Mapping[str, Any], chosen: Chosen) -> dict[str, Any]:
    """What the user has set for the plugin before, and what is given now."""
    made: dict[str, Any] = {**user_settings.plugin_options(held), "command": chosen.command}
    if "percent" in options:
        made["compactAtPercent"] = int(chosen.percent)
    return {**made, **{name: options[name] for name in ("judge", "endpoint") if name in options}}


def _has_trail() -> bool:
    from jev_engine.settings import load_settings  # noqa: PLC0415  # costs 100 ms

    return load_settings().audit is not None


def _notes(chosen: Chosen, route: Route) -> list[str]:
    notes = []
    if route.plugin:
        percent = chosen.percent
        notes.append(
            f"Start a new session; /compact then uses jev-engine, and so does Claude Code at {percent} percent of "
            "the window." if percent != "0" else "Start a new session; /compact then uses jev-engine."
        )  # fmt: skip
        if not chosen.headless:
            notes.append("claude -p and the SDK compact at their own threshold; --option headless=yes lowers it.")
        notes.append("/jev shows how a session stands; jev-engine doctor claude-code checks this set-up.")
    if "command" not in chosen.noted:
        notes.append(f"The program is {chosen.command}, as it was named; --option command=PATH names another.")
    if chosen.hooks == "none" and "hooks" in chosen.noted:
        notes.append("No hooks, as was chosen; --option hooks=command has tool calls in the trail.")
    elif chosen.hooks == "none":
        notes.append(
            "No hooks: set `audit` in the settings of jev-engine to have tool calls in a trail, and set up again."
        )
    if chosen.hooks == "http":
        notes.append("The token of the local process now stands in your settings file, which only you can read.")
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
            [command, "serve", "--status"], capture_output=True, text=True, timeout=VERSION_SECONDS, check=False
        )
        if said.returncode:
            raise HostError(said.stderr.strip().split("\n")[-1])
        told = json.loads(said.stdout)
        if "obstacle" in told:
            raise HostError(told["obstacle"])
        if not told["running"]:
            yield Finding("process", "ok", "does not run now; the plugin starts it when it is needed")
            return
        yield Finding("process", "ok", f"answers at {told['socket']}, process {told['pid']}, port {told['port']}")
        if port is not None and told["port"] != port:
            text = f"hooks are sent to port {port}, which another program has; use --option hooks=command"
            yield Finding("hooks", "bad", text)
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, JevEngineError) as error:
        text = f"the local process cannot start, each compaction starts one of its own (slower): {error}"
        yield Finding("process", "bad", text)


def _managed_findings() -> Iterator[Finding]:
    """An organisation may have switched plugins of users off; then the gateway is the way."""
    for path in (Path("/etc/claude-code/managed-settings.json"),
                 Path("/Library/Application Support/ClaudeCode/managed-settings.json")):  # fmt: skip
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:  # most often: not there
            continue
        if "allowManagedModsOnly" in text:
            yield Finding("managed settings", "note", f"{path} may switch plugins off; then use the gateway")


integration = ClaudeCode()
