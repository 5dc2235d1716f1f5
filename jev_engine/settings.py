"""The user's own settings, and the engine they make: what every host on this machine starts from.

They are read from one file of the user, never from the project that is worked on, so that no repository can name a
judge or an address. A host's own settings come first.

>>> load_settings(path=None, miss_cost=8.0).miss_cost
8.0
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator

from jev_engine.audit.anchor import StoreAnchor
from jev_engine.audit.jsonl import JsonlSink
from jev_engine.config import EngineConfig, fault_in
from jev_engine.engine import ContextEngine
from jev_engine.errors import ConfigError, StoreError
from jev_engine.judges.choose import JUDGES, make_judge
from jev_engine.judges.weights import VERSION
from jev_engine.memory import Memories
from jev_engine.memory import default_path as memory_path
from jev_engine.plugins import Plugins, load_plugins
from jev_engine.store.sqlite import SqliteStore

__all__ = [
    "CONFIG_VARIABLE", "UserSettings", "default_config_path", "load_settings", "missing_file", "open_engine",
    "settings_to_read", "user_plugins",
]  # fmt: skip

CONFIG_VARIABLE = "JEV_ENGINE_CONFIG"
"""Names another file than the one in the user's configuration folder."""

# What it takes to read something back: where originals and trail are, and what not to load.
TO_READ = ("store", "audit", "without_plugins")

Given = Literal["default"] | Path | None


class UserSettings(EngineConfig):
    """Every setting of the engine, and which judge, store and trail it works with. Frozen."""

    judge: str = "local"
    """Who decides: `local`, `jev`, `cascade`, or the URL of a server."""

    endpoint: str | None = None
    """Where Jev is asked; a preset or a URL."""

    store: Path | None = None
    """File that keeps the originals; None for the one in the user's data folder."""

    audit: Path | None = None
    """File of the audit trail; None for none."""

    upstreams: dict[str, str] = Field(default_factory=dict)
    """Providers the gateway may speak to beside `anthropic` and `openai`, or in their place: address by name."""

    without_plugins: tuple[str, ...] = ()
    """Installed plugins that are not loaded, by entry point; while another one is broken, nothing is asked outside."""

    @field_validator("judge")
    @classmethod
    def _of_a_kind(cls, judge: str) -> str:
        if judge not in JUDGES and "://" not in judge:
            message = f"no judge goes by that name; known are {', '.join(JUDGES)}, or give a URL"
            raise ValueError(message)
        return judge

    @field_validator("store", "audit")
    @classmethod
    def _of_the_user(cls, path: Path | None) -> Path | None:
        return None if path is None else path.expanduser()

    def for_engine(self, **given: Any) -> EngineConfig:
        """The engine's part; `given` comes before it."""
        mine = {name: getattr(self, name) for name in self.model_fields_set if name in EngineConfig.model_fields}
        return EngineConfig(**{**mine, **given})


def default_config_path() -> Path:
    """The file that `JEV_ENGINE_CONFIG` names, or `config.toml` in the user's configuration folder."""
    named = os.environ.get(CONFIG_VARIABLE)
    if named:
        return Path(named)
    import platformdirs  # noqa: PLC0415  # only where a default place is needed

    return Path(platformdirs.user_config_dir("jev-engine", appauthor=False)) / "config.toml"


def load_settings(*, path: Given = "default", **given: Any) -> UserSettings:
    """The settings of the user's file, which may be missing; those given and not None come first.

    A judge that is given takes the address from the file along only where it has use for one. `path` is the file, or
    None for no file at all. Raises ConfigError, which names file, setting and what is allowed.
    """
    file = default_config_path() if path == "default" else path
    found = {} if file is None else _read(file)
    mine = {name: value for name, value in given.items() if value is not None}
    if mine.get("judge") == "local" or "://" in str(mine.get("judge")):
        found.pop("endpoint", None)
    try:
        return UserSettings(**{**found, **mine})
    except ValidationError as error:
        name, fault = fault_in(error, UserSettings.model_fields)
        # Settings that contradict each other are named in the words alone.
        is_in_file = any(each in fault if name is None else each == name for each in found.keys() - mine.keys())
        raise ConfigError(f"{file}: {fault}" if is_in_file else fault, setting=name) from None


def missing_file() -> str | None:
    """What is wrong where `JEV_ENGINE_CONFIG` names a file that is not there; None where nothing is."""
    named = os.environ.get(CONFIG_VARIABLE)
    if not named or Path(named).exists():
        return None
    return f"{CONFIG_VARIABLE} names {named!r}, which is not there: make that file, or unset the variable"


def settings_to_read() -> tuple[UserSettings, str | None]:
    """Where originals and trail are, as the user's file says, and what is wrong with that file.

    Raises nothing: a slip in one setting must not stand between a user and their originals.
    """
    try:
        return load_settings(), missing_file()
    except ConfigError as error:
        fault = str(error)
    found: dict[str, Any] = {}
    kept: dict[str, Any] = {}
    with suppress(ConfigError):
        found = _read(default_config_path())
    for name in found.keys() & set(TO_READ):
        with suppress(ValidationError):
            kept[name] = getattr(UserSettings(**{name: found[name]}), name)
    return UserSettings(**kept), fault


def user_plugins() -> Plugins:
    """Installed plugins, but for those the user's settings leave out."""
    return load_plugins(without=settings_to_read()[0].without_plugins)


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read as settings: {error}; mend it or move it away") from error


def open_engine(
    settings: UserSettings, *, key: str | None = None, sinks: Sequence[Any] = (), **given: Any
) -> ContextEngine:
    """An engine with the user's judge, store, trail, plugins and project memory; `given` are settings that come first.

    `key` is for the judge; without it, the environment's is taken.

    Project memory that cannot be used is left aside. Raises ConfigError for a judge that is none, AuditError where the
    trail's key cannot be read.
    """
    plugins = load_plugins(without=settings.without_plugins)
    try:
        memories = Memories.load(memory_path(), VERSION)
    except StoreError:
        memories = None
    store = SqliteStore(settings.store)
    trail = [] if settings.audit is None else [_trail(settings.audit, store)]
    return ContextEngine(
        config=settings.for_engine(**given),
        judge=make_judge(settings.judge, settings.endpoint, key=key, redactors=plugins.redactors),
        store=store,
        plugins=plugins,
        sinks=(*trail, *sinks),
        memories=memories,
    )


def _trail(path: Path, store: SqliteStore) -> JsonlSink:
    return JsonlSink(path, anchor=StoreAnchor(store, path))
