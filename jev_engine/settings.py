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
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator

from jev_engine.audit.anchor import StoreAnchor
from jev_engine.audit.jsonl import JsonlSink
from jev_engine.config import EngineConfig
from jev_engine.engine import ContextEngine
from jev_engine.errors import ConfigError, StoreError
from jev_engine.judges.choose import make_judge
from jev_engine.judges.weights import VERSION
from jev_engine.memory import Memories
from jev_engine.memory import default_path as memory_path
from jev_engine.plugins import load_plugins
from jev_engine.store.sqlite import SqliteStore

__all__ = ["CONFIG_VARIABLE", "UserSettings", "default_config_path", "load_settings", "open_engine"]

CONFIG_VARIABLE = "JEV_ENGINE_CONFIG"
"""Names another file than the one in the user's configuration folder."""

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

    `path` is the file, or None for no file at all. Raises ConfigError, which names file, setting and what is allowed.
    """
    file = default_config_path() if path == "default" else path
    found = {} if file is None else _read(file)
    mine = {name: value for name, value in given.items() if value is not None}
    try:
        return UserSettings(**{**found, **mine})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        name = str(first["loc"][0]) if first["loc"] else None
        where = f"{file}: " if name is not None and name in found and name not in mine else ""
        shown = f"{name} = {first['input']!r}: " if name else ""
        raise ConfigError(f"{where}{shown}{first['msg']}", setting=name) from None


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
    plugins = load_plugins()
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
