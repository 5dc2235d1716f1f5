"""Setting up the gateway: one address for an agent, written into its settings or shown for the user to give it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jev_engine.errors import HostError, ServeError
from jev_engine.hosts import Change, Finding, Plan
from jev_engine.serve.client import ask
from jev_engine.serve.places import places, planned_token, read_token
from jev_engine.serve.process import DEFAULT_PORT, running

__all__ = ["GatewayIntegration", "integration"]

VARIABLE = "ANTHROPIC_BASE_URL"
AGENTS = ("none", "claude-code")
START = "jev-engine serve --ensure --idle 0"
OURS = "/gateway/"


class GatewayIntegration:
    """`jev-engine setup gateway` and its kin."""

    name = "gateway"
    summary = "Any agent that takes a base URL: providers behind one address of this machine."
    options: Mapping[str, str] = {
        "agent": "claude-code: write the address into its settings; none: only show it (none)",
        "config": "folder of Claude Code's settings (~/.claude, or CLAUDE_CONFIG_DIR)",
        "port": f"port of `jev-engine serve` ({DEFAULT_PORT})",
    }

    def setup(self, options: Mapping[str, str]) -> Plan:
        """The token, and for Claude Code the address in the user's settings."""
        agent = _agent(options)
        token, changes = planned_token()
        root = f"http://127.0.0.1:{_port(options)}{OURS}{token}"
        notes = [
            f"Start the process that serves the address, once a login: {START}",
            f"Claude Code and clients of the Messages API: export {VARIABLE}={root}/anthropic",
            f"Clients of Chat Completions: export OPENAI_BASE_URL={root}/openai/v1",
            "The address holds a token: treat it as a password. Your own key goes on to the provider as before.",
            "Not known: whether a subscription login works behind another address; an API key does.",
        ]
        if agent == "claude-code":
            path = _settings_path(options)
            held = _read(path)
            wanted = _with_address(held, f"{root}/anthropic", path)
            changes = [*changes, Change(path, _dump(wanted), f"{VARIABLE}: requests go through the gateway")]
            notes[1] = "Claude Code asks the gateway from its next start on; without the process it reaches no model."
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
        """Extra, process, gateway, and what Claude Code's settings say."""
        missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
        if missing:
            yield Finding("extra", "bad", f"{', '.join(missing)} missing: pip install 'jev-engine[serve]'")
        at = places()
        found = running(at)
        if found is None:
            yield Finding("process", "bad", f"nothing serves the address; run: {START}")
        else:
            yield Finding("process", "ok", f"runs as {found.pid} on port {found.port}")
            yield _gateway_finding()
        try:
            address = _environment(_read(_settings_path(options))).get(VARIABLE)
        except HostError as error:
            yield Finding("claude-code", "bad", str(error))
            return
        yield _address_finding(address, None if found is None else found.port)


def _gateway_finding() -> Finding:
    at = places()
    try:
        told = ask(at.socket, f"{OURS}{read_token(at)}/health", timeout_seconds=10)
    except ServeError as error:
        return Finding("gateway", "bad", str(error))
    counts = told["counts"]
    edited, asked = counts.get("requests edited", 0), counts.get("requests", 0)
    passes, faults = counts.get("passes committed", 0), counts.get("faults", 0)
    text = f"{asked} requests, {edited} of them edited after {passes} passes, {faults} faults"
    unbound = counts.get("messages without their reasoning", 0)
    return Finding(
        "gateway", "ok", text + (f"; {unbound} messages without reasoning that was bound" if unbound else "")
    )


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


def _port(options: Mapping[str, str]) -> int:
    given = options.get("port", str(DEFAULT_PORT))
    if not given.isdigit() or not 0 < int(given) < 65_536:
        raise HostError(f"port {given!r} is none")
    return int(given)


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
