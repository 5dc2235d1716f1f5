"""The user's `settings.json` of Claude Code: what in it is ours, and everything else left as it is."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jev_engine.errors import HostError
from jev_engine.hosts import Finding
from jev_engine.serve import places
from jev_engine.serve.process import default_port

__all__ = [
    "FLAG_VARIABLE", "PERCENT_VARIABLE", "dump", "findings", "hook_kind", "hook_port", "note_of", "plugin_entry",
    "plugin_options", "read", "variable", "with_environment", "with_hooks", "with_plugin", "without_ours", "wrote",
]  # fmt: skip

PLUGIN = "jev-engine@jev-engine"
MARKET = "jev-engine"
FLAG_VARIABLE = "CLAUDE_CODE_ENABLE_FUNCTION_HOOKS"
PERCENT_VARIABLE = "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE"
VARIABLES = (FLAG_VARIABLE, PERCENT_VARIABLE)
ENTRIES = {"extraKnownMarketplaces": (MARKET,), "enabledPlugins": (PLUGIN,), "pluginConfigs": (PLUGIN,)}
RELAY = Path(places.__file__).with_name("relay.py")
HEARD = ("PreToolUse", "PostToolUse", "PostToolUseFailure", "PreCompact", "PostCompact", "SessionStart", "SessionEnd")
"""Events that say something about calls, compactions and sessions."""
STARTS = ("SessionStart", "PreCompact")
"""Those that may start the local process; the others only pass on what it can take."""
NOT_OVER_HTTP = ("SessionStart", "SessionEnd")
"""Claude Code sends no HTTP for the first, and may be gone before the answer to the second."""
HOOK_SECONDS = 5
OUR_FOLDER_NAME = "claude-code"
"""The marketplace we write is a folder of this name; one of the same name from elsewhere is the user's own."""
OUR_URL = re.compile(r"http://127\.0\.0\.1:\d+/hooks\Z")


def read(path: Path) -> dict[str, Any]:
    """The settings, empty where there are none; raises HostError for a file that is no JSON object."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise HostError(f"{path}: cannot be read as JSON: {error}; mend it or move it away") from error
    if not isinstance(held, dict):
        raise HostError(f"{path}: holds no JSON object; mend it or move it away")
    return held


def dump(settings: Mapping[str, Any]) -> bytes:
    """As Claude Code writes it; half a surrogate pair, which has no UTF-8, makes all of it ASCII."""
    try:
        return (json.dumps(settings, indent=2, ensure_ascii=False) + "\n").encode()
    except UnicodeEncodeError:
        return (json.dumps(settings, indent=2) + "\n").encode()


def plugin_entry(held: Mapping[str, Any]) -> dict[str, Any]:
    """All that stands there for the plugin."""
    return dict(_part(_part(held, "pluginConfigs"), PLUGIN))


def plugin_options(held: Mapping[str, Any]) -> dict[str, Any]:
    """What the user has set for the plugin."""
    return dict(_part(plugin_entry(held), "options"))


def with_plugin(
    held: Mapping[str, Any],
    folder: Path,
    options: Mapping[str, Any],
    *,
    flag: bool,
    entry: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The settings with the plugin enabled, and its options; `entry` is what its entry held beside them.

    Its two tools need no permission: the plugin answers a call before anybody is asked.
    """
    source = {"source": {"source": "directory", "path": str(folder)}}
    made = {
        **held,
        "extraKnownMarketplaces": {**_part(held, "extraKnownMarketplaces"), MARKET: source},
        "enabledPlugins": {**_part(held, "enabledPlugins"), PLUGIN: True},
        "pluginConfigs": {**_part(held, "pluginConfigs"), PLUGIN: {**(entry or {}), "options": dict(options)}},
    }
    return with_environment(made, FLAG_VARIABLE, "1") if flag else made


def variable(held: Mapping[str, Any], name: str) -> Any:
    """What Claude Code sets a variable to; None where the settings do not name it."""
    return _part(held, "env").get(name)


def with_environment(held: Mapping[str, Any], name: str, value: str) -> dict[str, Any]:
    """The settings with a variable that Claude Code sets for its sessions."""
    return {**held, "env": {**_part(held, "env"), name: value}}


def with_hooks(held: Mapping[str, Any], kind: str, command: str, token: str = "") -> dict[str, Any]:
    """The settings with our hooks; raises HostError for a kind that is none of command, http, none."""
    if kind == "none":
        return dict(held)
    if kind not in ("command", "http"):
        raise HostError(f"hooks = {kind!r}: command, http or none is needed")
    hooks = dict(_part(held, "hooks"))
    for event in HEARD:
        ours = _http_hook(token) if kind == "http" and event not in NOT_OVER_HTTP else _command_hook(event, command)
        groups = hooks.get(event)
        hooks[event] = [*(groups if isinstance(groups, list) else []), {"matcher": "", "hooks": [ours]}]
    return {**held, "hooks": hooks}


def _command_hook(event: str, command: str) -> dict[str, Any]:
    argv = [sys.executable, "-I", "-S", str(RELAY), str(places.places().socket)]
    argv += [command] if event in STARTS else []
    return {"type": "command", "command": shlex.join(argv), "timeout": HOOK_SECONDS}


def _http_hook(token: str) -> dict[str, Any]:
    url = f"http://127.0.0.1:{default_port()}/hooks"
    return {"type": "http", "url": url, "headers": {"Authorization": f"Bearer {token}"}, "timeout": HOOK_SECONDS}


def _is_ours(hook: Any) -> bool:
    if not isinstance(hook, dict):
        return False
    command, url = str(hook.get("command", "")), str(hook.get("url", ""))
    return (RELAY.name in command and "jev_engine" in command) or OUR_URL.match(url) is not None


def _our_hooks(held: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    groups = [group for each in _part(held, "hooks").values() if isinstance(each, list) for group in each]
    inside = [group.get("hooks") for group in groups if isinstance(group, dict)]
    return [hook for hooks in inside if isinstance(hooks, list) for hook in hooks if _is_ours(hook)]


def hook_port(held: Mapping[str, Any]) -> int | None:
    """The port that hooks are sent to over loopback; None where they are not."""
    urls = [str(hook.get("url")) for hook in _our_hooks(held) if hook.get("type") == "http"]
    return int(urls[0].split(":")[2].split("/")[0]) if urls else None


def hook_kind(held: Mapping[str, Any]) -> str | None:
    """How our hooks in the settings reach the process: command or http; None where there are none."""
    kinds = {str(hook.get("type")) for hook in _our_hooks(held)}
    return None if not kinds else "http" if "http" in kinds else "command"


def note_of(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What a set-up wrote, and what stood in its place before: enough for `without_ours` to put it back.

    `before` are the settings without ours. A variable that had our value already is the user's own.
    """
    was, now = _part(before, "env"), _part(after, "env")
    written = {name: now[name] for name in VARIABLES if name in now and now[name] != was.get(name)}
    replaced = {
        part: {key: held[key] for key in keys if key in held}
        for part, keys in (*ENTRIES.items(), ("env", tuple(written)))
        if (held := _part(before, part))
    }
    return {
        "variables": written,
        "plugin": _is_our_market(after, otherwise=False),
        "before": {part: kept for part, kept in replaced.items() if kept},
    }


def wrote(held: Mapping[str, Any], note: Mapping[str, Any] | None, name: str) -> bool:
    """Whether a variable stands as an earlier set-up wrote it: then it is ours."""
    value = variable(held, name)
    return value is not None and _part(note or {}, "variables").get(name) == value


def without_ours(held: Mapping[str, Any], note: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The settings as they would be without us; parts that are then empty go, if only we can have made them.

    `note` is what an earlier set-up wrote: without it a variable, or a marketplace from elsewhere, is the user's own.
    """
    left = dict(held)
    before = _part(note or {}, "before")
    ours: dict[str, tuple[str, ...]] = {"env": tuple(name for name in VARIABLES if wrote(held, note, name))}
    if _is_our_market(held, otherwise=bool((note or {}).get("plugin"))):
        ours |= ENTRIES
    for name, keys in ours.items():
        part, was = _part(held, name), _part(before, name)
        back = {key: was[key] for key in keys if key in was}
        kept = {key: back.get(key, value) for key, value in part.items() if key not in keys or key in back}
        if isinstance(held.get(name), dict) or back:
            _keep(left, name, {**kept, **back})
    hooks = {}
    for event, groups in _part(held, "hooks").items():
        kept_groups = [_without_hooks(group) for group in groups] if isinstance(groups, list) else groups
        if not isinstance(kept_groups, list):
            hooks[event] = kept_groups
        elif any(group is not None for group in kept_groups) or not groups:
            hooks[event] = [group for group in kept_groups if group is not None]
    if isinstance(held.get("hooks"), dict):
        _keep(left, "hooks", hooks)
    return left


def _is_our_market(held: Mapping[str, Any], *, otherwise: bool) -> bool:
    """Whether the plugin comes from a folder that we made."""
    markets = _part(held, "extraKnownMarketplaces")
    if MARKET not in markets:
        return otherwise
    source = _part(_part(markets, MARKET), "source")
    return source.get("source") == "directory" and Path(str(source.get("path"))).name == OUR_FOLDER_NAME


def _without_hooks(group: Any) -> Any:
    """A group of hooks without ours; None where nothing else was in it."""
    inside = group.get("hooks") if isinstance(group, dict) else None
    if not isinstance(inside, list) or not any(_is_ours(hook) for hook in inside):
        return group
    kept = [hook for hook in inside if not _is_ours(hook)]
    return {**group, "hooks": kept} if kept else None


def _keep(left: dict[str, Any], name: str, value: Any) -> None:
    """Put a part back, unless it is empty now and was not before."""
    if value or (name in left and not left[name]):
        left[name] = value
    else:
        left.pop(name, None)


def _part(held: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = held.get(name)
    return part if isinstance(part, dict) else {}


def findings(held: Mapping[str, Any], folder: Path, *, needs_flag: bool) -> Iterator[Finding]:
    """What the settings say about the plugin and the hooks."""
    named = _part(_part(_part(held, "extraKnownMarketplaces"), MARKET), "source").get("path")
    if _part(held, "enabledPlugins").get(PLUGIN) is not True:
        yield Finding("settings", "bad", "the plugin is not enabled; run: jev-engine setup claude-code")
    elif named != str(folder):
        yield Finding("settings", "bad", f"the plugin is looked for at {named}; run: jev-engine setup claude-code")
    else:
        yield Finding("settings", "ok", "the plugin is enabled")
    if needs_flag and _part(held, "env").get(FLAG_VARIABLE) != "1":
        yield Finding("settings", "bad", f"{FLAG_VARIABLE} is not set; run: jev-engine setup claude-code")
    hooks = _our_hooks(held)
    text = f"{len(hooks)} hooks tell the audit trail" if hooks else "none: tool calls are in no trail"
    yield Finding("hooks", "ok" if hooks else "note", text)
    if held.get("disableAllHooks"):
        yield Finding("hooks", "bad", "disableAllHooks is set in your settings: neither plugin nor hooks run")
