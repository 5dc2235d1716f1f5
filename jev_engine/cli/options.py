"""Options that several commands share, and the settings they make."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from jev_engine.config import EngineConfig

__all__ = [
    "configured",
    "file_argument",
    "format_option",
    "json_option",
    "judge_options",
    "make_settings",
    "setting_options",
    "store_option",
]

F = TypeVar("F", bound=Callable[..., Any])

file_argument = click.argument("file", type=click.Path(allow_dash=True))
format_option = click.option(
    "--format",
    "host",
    default="auto",
    metavar="auto|openai|anthropic|claude-code",
    help="Form of the session; found out by itself unless named. Plugins add more.",
)


def configured(name: str) -> Callable[[], str | None]:
    """The default of an option: what the user's own settings say, see `jev_engine.settings`."""

    def default() -> str | None:
        from jev_engine.settings import default_config_path, load_settings  # noqa: PLC0415  # pydantic costs 100 ms

        if not default_config_path().exists():
            return None
        value = getattr(load_settings(), name)
        return None if value is None else str(value)

    return default


store_option = click.option(
    "--store",
    type=click.Path(dir_okay=False),
    default=configured("store"),
    help="File that keeps the originals, instead of the one in your data folder.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead, for scripts.")

# Settings by the option that sets them, where the names differ.
OPTION_NAMES = {"window_tokens": "--window"}

SETTINGS = (
    click.option(
        "--profile",
        type=click.Choice(["balanced", "reference", "hermes-classic"]),
        help="Fills all settings nobody named.  [default: balanced]",
    ),
    click.option("--goal", help="What the session is about; otherwise read from what the user wrote."),
    click.option("--focus", help="What this pass should keep in mind."),
    click.option(
        "--protect",
        multiple=True,
        metavar="PATTERN",
        help="Never judge calls this matches: by tool name ('deploy_*'), by a path in the arguments ('docs/spec/*'), "
        "or by label or call id ('t12'). Tried as all three; tool:, path: or id: in front narrows it. Repeatable.",
    ),
    click.option(
        "--window", type=int, metavar="TOKENS", help="Context window of the agent's model.  [default: 200000]"
    ),
)


JUDGE = (
    click.option(
        "--judge",
        default=lambda: configured("judge")() or "local",
        show_default="local",
        metavar="local|jev|cascade|URL",
        help="Who decides: this machine alone, Jev as well, or Jev where this machine is not sure. All but local send "
        "what docs/what-leaves-the-machine.md says; the key of a URL is taken from JEV_ENGINE_API_KEY.",
    ),
    click.option(
        "--endpoint",
        default=configured("endpoint"),
        metavar="NAME|URL",
        help="Where Jev is asked: typesafe, openrouter, openai-decisions or a URL.  [default: typesafe]",
    ),
    click.option(
        "--privacy",
        type=click.Choice(["excerpts", "sizes", "full"]),
        help="What is shown of results: start and end, their size only, or all.  [default: excerpts]",
    ),
)


def judge_options(function: F) -> F:
    """Add the options that say who is asked, and what is shown."""
    for option in reversed(JUDGE):
        function = option(function)
    return function


def setting_options(function: F) -> F:
    """Add the options for the settings that decide what is judged."""
    for option in reversed(SETTINGS):
        function = option(function)
    return function


def make_settings(*, window: int | None, protect: tuple[str, ...], **settings: Any) -> EngineConfig:
    """The settings: the user's own, and before them what was given; raises BadParameter, which names the option."""
    from jev_engine.errors import ConfigError  # noqa: PLC0415
    from jev_engine.settings import load_settings  # noqa: PLC0415  # pydantic costs 100 ms

    guarded: dict[str, Any] = {name: patterns for name, patterns in protections(protect).items() if patterns}
    try:
        return load_settings(window_tokens=window, **guarded, **settings).for_engine()
    except ConfigError as error:
        name = error.setting
        option = OPTION_NAMES.get(name, "--" + name.replace("_", "-")) if name else None
        message = str(error).removeprefix(f"{name} = ") if name else str(error)
        raise click.BadParameter(message, param_hint=f"'{option}'" if option else None) from None


def protections(patterns: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The settings `protect_…` for patterns as a person writes them.

    >>> protections(("t12", "tool:deploy_*"))
    {'protect_tools': ('t12', 'deploy_*'), 'protect_paths': ('t12',), 'protect_ids': ('t12',)}
    """
    made: dict[str, list[str]] = {"tool": [], "path": [], "id": []}
    for pattern in patterns:
        kind, colon, rest = pattern.partition(":")
        if colon and kind in made:
            made[kind].append(rest)
        else:
            for each in made.values():
                each.append(pattern)
    return {f"protect_{kind}s": tuple(found) for kind, found in made.items()}
