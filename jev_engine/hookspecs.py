"""What a plugin can add. Every hook receives a `register` callable and returns nothing.

from jev_engine import hookimpl

@hookimpl
def register_pins(register):
    register(lambda call: "our deploy log" if call.tool == "deploy" else None)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pluggy

__all__ = ["hookimpl", "hookspec"]

hookspec = pluggy.HookspecMarker("jev_engine")
hookimpl = pluggy.HookimplMarker("jev_engine")


@hookspec
def register_adapters(register: Callable[[Any], None]) -> None:
    """Register adapters: `register(adapter)`, see `jev_engine.host.Adapter`."""


@hookspec
def register_judges(register: Callable[[str, Callable[[], Any]], None]) -> None:
    """Register judges: `register(name, factory)`, see `jev_engine.judges.Judge`."""


@hookspec
def register_askers(register: Callable[[str, Callable[[], Any]], None]) -> None:
    """Register askers, which `judges.asked.AskedJudge` makes a judge of: `register(name, factory)`."""


@hookspec
def register_stores(register: Callable[[str, Callable[[], Any]], None]) -> None:
    """Register stores: `register(name, factory)`, see `jev_engine.store.OriginalStore`."""


@hookspec
def register_event_sinks(register: Callable[[Any], None]) -> None:
    """Register sinks that hear of every event: `register(sink)`, see `jev_engine.events.EventSink`."""


@hookspec
def register_pins(register: Callable[[Any], None]) -> None:
    """Register rules that pin units: `register(rule)`, see `jev_engine.pinning.PinRule`."""


@hookspec
def register_redactors(register: Callable[[Any], None]) -> None:
    """Register what takes secrets out of texts before anybody outside sees them: `register(redactor)`.

    A redactor gets a text and returns it without secrets; it runs after the built-in one. What it raises stops the
    request: nothing is sent.
    """


@hookspec
def register_hosts(register: Callable[[Any], None]) -> None:
    """Register what sets up a host: `register(integration)`, see `jev_engine.hosts.HostIntegration`."""
