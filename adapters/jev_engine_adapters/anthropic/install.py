"""Setting up the gateway: one address for an agent, written into its settings or shown for the user to give it."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from jev_engine import __version__
from jev_engine.errors import HostError, ServeError
from jev_engine.hosts import Change, Finding, Plan, others_can_read
from jev_engine.serve.client import ask
from jev_engine.serve.places import places, planned_token, read_token
from jev_engine.serve.process import DEFAULT_PORT, PORT_VARIABLE, Running, default_port, elsewhere, obstacle, running

__all__ = ["GatewayIntegration", "integration"]

VARIABLE = "ANTHROPIC_BASE_URL"
AGENTS = ("none", "claude-code")
START = "jev-engine serve --ensure --idle 0"
OURS = "/gateway/"
PORT_IN_ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d{1,5})/")
CONNECT_SECONDS = 1.0


class GatewayIntegration:
    """`jev-engine setup gateway` and its kin."""

    name = "gateway"
    summary = "Any agent that takes a base URL: providers behind one address of this machine."
    options: Mapping[str, str] = {
        "agent": "claude-code: write the address into its settings; none: only show it (none)",
        "config": "folder of Claude Code's settings (~/.claude, or CLAUDE_CONFIG_DIR)",
        "port": f"port of `jev-engine serve` (of the one that runs, or {PORT_VARIABLE}, or {DEFAULT_PORT})",
    }

    def setup(self, options: Mapping[str, str]) -> Plan:
        """The token, and for Claude Code the address in the user's settings."""
        agent = _agent(options)
        token, changes = planned_token()
        found, port = running(), _wanted(options)
        warning = _warning(found, port)
        if found is not None and "port" not in options:
            port = found.port
        if not port:
            raise HostError(f"{PORT_VARIABLE} = 0 is any port: start the process first, or give -O port=NUMBER")
        root = f"http://127.0.0.1:{port}{OURS}{token}"
        given = f"Claude Code and clients of the Messages API: export {VARIABLE}={root}/anthropic"
        if agent == "claude-code":
            path = _settings_path(options)
            settings = _with_address(_read(path), f"{root}/anthropic", path)
            why = f"{VARIABLE}: requests go through the gateway"
            changes = [*changes, Change(path, _dump(settings), why, is_secret=True)]
            given = "Claude Code asks the gateway from its next start on; without the process it reaches no model."
        notes = [
            *([] if warning is None else [f"WARNING: {warning}"]),
            f"Start the process that serves the address, once a login: {START}",
            given,
            f"Clients of Chat Completions: export OPENAI_BASE_URL={root}/openai/v1",
            "The address holds a token: treat it as a password. Your own key goes on to the provider as before.",
            "Not known: whether a subscription login works behind another address; an API key does.",
        ]
        return Plan(changes, notes)

    def remove(self, options: Mapping[str, str]) -> Plan:
        """Our address leaves Claude Code's settings; the token stays, as other hosts may name it."""
        path = _settings_path(options)
        held = _read(path)
        changes = []
        if _is_ours(_environment(held).get(VARIABLE)):
            left = {name: value for name, value in held["env"].items() if name != VARIABLE}
            rest = {name: value for name, value in held.items() if name != "env"}
            changes = [
                Change(path, _dump({**rest, "env": left} if left else rest), "requests go to the provider again")
            ]
        return Plan(changes, [f"Where you set {VARIABLE} or OPENAI_BASE_URL yourself, unset it there."])

    def doctor(self, options: Mapping[str, str]) -> Iterator[Finding]:
        """Process, gateway, and what Claude Code's settings say."""
        found = running()
        yield _process_finding(found, options)
        if found is not None:
            yield _gateway_finding()
        try:
            address = _environment(_read(_settings_path(options))).get(VARIABLE)
        except HostError as error:
            yield Finding("claude-code", "bad", str(error))
            return
        path = _settings_path(options)
        if _is_ours(address) and others_can_read(path):
            text = f"{path} holds a token and others can read it; run: chmod 600 {path}"
            yield Finding("settings", "bad", text)
        yield _address_finding(address, None if found is None else found.port)


def _process_finding(found: Running | None, options: Mapping[str, str]) -> Finding:
    try:
        warning = _warning(found, _wanted(options))
    except HostError as error:
        return Finding("process", "bad", str(error))
    if found is None:
        against = obstacle()
        text = f"nothing serves the address; run: {START}" if against is None else f"cannot be started: {against}"
        return Finding("process", "bad", text if warning is None else f"{text}; {warning}")
    if warning is not None:
        return Finding("process", "bad", warning)
    if found.version != __version__:
        text = f"version {found.version} runs, this is {__version__}; jev-engine serve --stop ends it"
        return Finding("process", "note", f"{text}, then run: {START}")
    return Finding("process", "ok", f"runs as {found.pid} on port {found.port}")


def _warning(found: Running | None, wanted: int) -> str | None:
    """Where somebody else is behind the address that settings and shells name, or may come to be; None otherwise."""
    if found is not None:
        is_lost = found.wanted_port not in (None, 0, found.port)
        warning = elsewhere(found.port, found.wanted_port if is_lost else wanted)
        return warning and f"{warning}; end that program and start anew, or name a free port with {PORT_VARIABLE}"
    if wanted and _answers(wanted):
        text = f"another program listens on port {wanted}: an address with it gives that program key and token"
        return f"{text}; end it, or name a free port with {PORT_VARIABLE}"
    return None


def _answers(port: int) -> bool:
    """Whether anybody listens there; nothing is sent."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def _gateway_finding() -> Finding:
    at = places()
    try:
        told = ask(at.socket, f"{OURS}{read_token(at)}/health", timeout_seconds=10)
    except ServeError as error:
        return Finding("gateway", "bad", str(error))
    counts = told["counts"]
    if told.get("why"):
        untouched = counts.get("requests without an engine", 0)
        text = f"{untouched} requests went on untouched, because no engine can be made: {told['why']}"
        return Finding("gateway", "bad", text)
    edited, asked = counts.get("requests edited", 0), counts.get("requests", 0)
    passes, faults = counts.get("passes committed", 0), counts.get("faults", 0)
    text = f"{asked} requests, {edited} of them edited after {passes} passes, {faults} faults"
    unbound = counts.get("messages without their reasoning", 0)
    untouched = counts.get("requests without an engine", 0)
    text += f"; {unbound} messages without reasoning that was bound" if unbound else ""
    text += f"; {untouched} requests went on untouched before there was an engine" if untouched else ""
    return Finding("gateway", "ok", text)


def _address_finding(address: str | None, port: int | None) -> Finding:
    if address is None or not _is_ours(address):
        text = "its settings name no address of ours; fine, if it gets one from the shell"
        return Finding("claude-code", "note", text)
    at = places()
    if not at.token.exists() or read_token(at) not in address:
        return Finding("claude-code", "bad", "its address has another token; run: jev-engine setup gateway")
    if port is not None and f":{port}/" not in address:
        return Finding("claude-code", "bad", f"its address has another port than {port}, where the process listens")
    return Finding("claude-code", "ok", "asks the gateway")


def _agent(options: Mapping[str, str]) -> str:
    agent = options.get("agent", "none")
    if agent not in AGENTS:
        raise HostError(f"agent {agent!r} is none of {', '.join(AGENTS)}; others take the address that is shown")
    return agent


def _wanted(options: Mapping[str, str]) -> int:
    """The port that is given, that our address in Claude Code's settings has, or that the process tries first.

    0 is any. Raises HostError where none is named.
    """
    given = options.get("port")
    if given is not None:
        if not given.isdecimal() or not 0 < int(given) < 65_536:
            raise HostError(f"port {given!r} is none")
        return int(given)
    with suppress(HostError):  # which is told where the settings are looked at
        address = _environment(_read(_settings_path(options))).get(VARIABLE)
        told = PORT_IN_ADDRESS.match(str(address)) if _is_ours(address) else None
        if told is not None:
            return int(told[1])
    try:
        return default_port()
    except ServeError as error:
        raise HostError(str(error)) from error


def _settings_path(options: Mapping[str, str]) -> Path:
    folder = options.get("config") or os.environ.get("CLAUDE_CONFIG_DIR") or str(Path.home() / ".claude")
    return Path(folder).expanduser() / "settings.json"


def _read(path: Path) -> dict[str, Any]:
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise HostError(f"{path}: cannot be read as settings: {error}; mend it first") from error
    if not isinstance(held, dict) or not isinstance(held.get("env", {}), dict):
        raise HostError(f"{path}: is no object of settings; mend it first")
    return held


def _environment(held: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = held.get("env", {})
    return found


def _is_ours(address: Any) -> bool:
    return isinstance(address, str) and address.startswith("http://127.0.0.1:") and OURS in address


def _with_address(held: dict[str, Any], address: str, path: Path) -> dict[str, Any]:
    known = _environment(held).get(VARIABLE)
    if known and not _is_ours(known):
        raise HostError(
            f"{path}: {VARIABLE} is {known!r} already. To go through both, take it out there and put it into the "
            "settings of jev-engine: [upstreams] anthropic = …"
        )
    return {**held, "env": {**_environment(held), VARIABLE: address}}


def _dump(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


integration = GatewayIntegration()
