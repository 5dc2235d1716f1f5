"""Finding adapters, hosts, judges, stores, sinks and pin rules: built in, or from plugins.

Entry points of the group `jev_engine` are loaded one at a time: a broken one is named, the others work. What is broken
may have been there to take secrets out of texts, so while a plugin is broken nothing is shown to anybody outside.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Container, Iterable, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple, NoReturn

import pluggy

from jev_engine import hookspecs
from jev_engine.errors import ConfigError, UnknownAdapter
from jev_engine.host import Adapter
from jev_engine.hosts import HostIntegration
from jev_engine.pinning import PinRule

__all__ = ["BrokenPlugin", "Plugins", "load_plugins"]

GROUP = "jev_engine"
# Name and module of the adapters in this distribution; a module is imported when its adapter is asked for.
BUILT_IN = {
    "openai": "jev_engine_adapters.openai",
    "hermes": "jev_engine_adapters.hermes",
    "claude-code": "jev_engine_adapters.claude_code",
    "claude-code-plugin": "jev_engine_adapters.claude_code.plugin",
    "anthropic": "jev_engine_adapters.anthropic",
    "langgraph": "jev_engine_adapters.langgraph",
    "langgraph-delete": "jev_engine_adapters.langgraph.deleting",
}
# Name and module of what sets up, checks and removes each host; the module has an attribute `integration`.
HOSTS = {
    "hermes": "jev_engine_adapters.hermes.install",
    "claude-code": "jev_engine_adapters.claude_code.install",
    "gateway": "jev_engine_adapters.anthropic.install",
}
# Order of sniffing: narrower forms first. Messages API messages are told from Chat Completions by their blocks.
SNIFF_ORDER = ("claude-code", "anthropic", "hermes", "openai", "langgraph")


# A name so close to that of a hook is a slip of the pen: one letter more or less makes 0.95 and above.
SAME_WORD = 0.9


class BrokenPlugin(NamedTuple):
    """A plugin that does not work."""

    name: str
    reason: str
    may_redact: bool = True
    """It may be the one that takes secrets out of texts; false for an adapter that failed at its own work."""


class Plugins:
    """Everything that plugins registered. Broken ones are listed in `broken`; what else those register counts."""

    def __init__(self) -> None:
        self._manager = pluggy.PluginManager(GROUP)
        self._manager.add_hookspecs(hookspecs)
        self._adapters: dict[str, Adapter] = {}
        self.judges: dict[str, Callable[[], Any]] = {}
        self.askers: dict[str, Callable[[], Any]] = {}
        self.stores: dict[str, Callable[[], Any]] = {}
        self.sinks: list[Any] = []
        self.pins: list[PinRule] = []
        self.hosts: dict[str, HostIntegration] = {}
        self.broken: list[BrokenPlugin] = []
        self._redactors: list[Callable[[str], str]] = []

    @property
    def redactors(self) -> list[Callable[[str], str]]:
        """What takes secrets out of texts; while a plugin is broken, one that raises ConfigError and says which."""
        broken = next((each for each in self.broken if each.may_redact), None)
        if broken is None:
            return list(self._redactors)

        def refuse(_: str) -> NoReturn:
            raise ConfigError(
                f"plugin {broken.name!r} does not work and may be one that takes secrets out ({broken.reason}); mend or"
                " uninstall it, or name it in the setting `without_plugins`",
                setting="without_plugins",
            )

        return [refuse]

    def add(self, plugin: Any, name: str | None = None) -> None:
        """Register one plugin object and call its hooks; its faults are noted in `broken`."""
        label = name or str(getattr(plugin, "__name__", type(plugin).__name__))
        hooks: dict[str, Callable[..., None]] = {
            "register_adapters": self._add_adapter,
            "register_judges": self.judges.__setitem__,
            "register_askers": self.askers.__setitem__,
            "register_stores": self.stores.__setitem__,
            "register_event_sinks": self.sinks.append,
            "register_pins": self.pins.append,
            "register_redactors": self._redactors.append,
            "register_hosts": self._add_host,
        }
        try:
            registered = self._manager.register(plugin, name=label)
            self._name_unheard(plugin, label, hooks)
        except Exception as error:  # noqa: BLE001  # a plugin is somebody else's: whatever it raises, it is named
            self._note(label, f"{type(error).__name__}: {error}")
            return
        for hook, register in hooks.items():
            # One at a time: the pins of a plugin hold, whatever its sink is worth.
            try:
                self._call(hook, registered, register)
            except Exception as error:  # noqa: BLE001  # as above
                self._note(label, f"{type(error).__name__}: {error}")

    def _name_unheard(self, plugin: Any, label: str, hooks: Iterable[str]) -> None:
        """Note hooks that nobody will ever call, and a plugin without any: its author meant something by it."""
        callers = self._manager.get_hookcallers(plugin) or []
        for caller in callers:
            mine = [each for each in caller.get_hookimpls() if each.plugin is plugin]
            if not caller.has_spec() and not all(each.optionalhook for each in mine):
                near = get_close_matches(caller.name, hooks, 1)
                meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(hooks)}"
                self._note(label, f"{caller.name} is no hook; {meant}")
        heard = {caller.name for caller in callers}
        names = [each for each in dir(plugin) if each.startswith("register_") and each not in heard]
        unmarked = [each for each in names if get_close_matches(each, hooks, 1, SAME_WORD)]
        for each in unmarked:
            self._note(label, f"{each} is not marked with @hookimpl, so it is not called")
        if not callers and not unmarked:
            self._note(label, "it has no hook: nothing in it is marked with @hookimpl")

    def _call(self, hook: str, name: str | None, register: Callable[..., None]) -> None:
        others = [p for n, p in self._manager.list_name_plugin() if n != name and p is not None]
        if self._manager.subset_hook_caller(hook, others)(register=register):
            message = f"{hook} returns something; what it has, it gives to `register`"
            raise TypeError(message)

    def _add_adapter(self, adapter: Adapter) -> None:
        self._adapters[adapter.name] = adapter

    def _add_host(self, integration: HostIntegration) -> None:
        self.hosts[integration.name] = integration

    def _note(self, name: str, reason: str, *, may_redact: bool = True) -> None:
        broken = BrokenPlugin(name, reason, may_redact)
        if broken not in self.broken:
            self.broken.append(broken)

    def load_entry_points(self, *, without: Container[str] = ()) -> None:
        """Load the plugins installed beside this package, one at a time; those named in `without` are left alone."""
        from importlib.metadata import entry_points  # noqa: PLC0415  # costs 40 ms: only when plugins are wanted

        for point in entry_points(group=GROUP):
            if point.name in without:
                continue
            try:
                plugin = point.load()
            except Exception as error:  # noqa: BLE001  # importing somebody else's code may raise anything
                self._note(point.name, f"{type(error).__name__}: {error}")
            else:
                self.add(plugin, point.name)

    def adapter(self, name: str) -> Adapter:
        """The adapter of that name; raises UnknownAdapter."""
        if name in self._adapters:
            return self._adapters[name]
        module = BUILT_IN.get(name)
        if module is None:
            known = self.adapter_names()
            broken = f"; broken plugins: {', '.join(b.name for b in self.broken)}" if self.broken else ""
            raise UnknownAdapter(f"no adapter goes by {name!r}; known are {', '.join(known)}{broken}", known=known)
        adapter: Adapter = importlib.import_module(module).adapter
        self._adapters[name] = adapter
        return adapter

    def adapter_names(self) -> tuple[str, ...]:
        """Names of all adapters, built in and registered."""
        return tuple(sorted({*BUILT_IN, *self._adapters}))

    def host(self, name: str) -> HostIntegration:
        """What sets up the host of that name; raises UnknownAdapter."""
        if name in self.hosts:
            return self.hosts[name]
        module = HOSTS.get(name)
        if module is None:
            known = self.host_names()
            raise UnknownAdapter(f"no host goes by {name!r}; known are {', '.join(known)}", known=known)
        found: HostIntegration = importlib.import_module(module).integration
        self.hosts[name] = found
        return found

    def host_names(self) -> tuple[str, ...]:
        """Names of all hosts that can be set up, built in and registered."""
        return tuple(sorted({*HOSTS, *self.hosts}))

    def sniff(self, messages: Sequence[Any]) -> Adapter | None:
        """The first adapter that recognises the form, registered ones before those built in."""
        for name in (*(n for n in self._adapters if n not in BUILT_IN), *SNIFF_ORDER):
            try:
                adapter = self.adapter(name)
                if adapter.sniff(messages):
                    return adapter
            except Exception as error:  # noqa: BLE001  # one broken adapter must not hide the others
                self._note(name, f"{type(error).__name__}: {error}", may_redact=False)
        return None


def load_plugins(extra: Iterable[Any] = (), *, entry_points: bool = True, without: Container[str] = ()) -> Plugins:
    """Installed plugins, but for those whose entry point is named in `without`, and those given."""
    plugins = Plugins()
    if entry_points:
        plugins.load_entry_points(without=without)
    for plugin in extra:
        plugins.add(plugin)
    return plugins
