"""Options that several commands share, and the settings they make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from jev_engine.cli.show import warn

if TYPE_CHECKING:
    from jev_engine.config import EngineConfig
    from jev_engine.settings import UserSettings

__all__ = [
    "Amount",
    "audit_option",
    "configured",
    "file_argument",
    "format_option",
    "idle_options",
    "json_option",
    "judge_options",
    "make_settings",
    "setting_options",
    "store_option",
    "user_settings",
]

F = TypeVar("F", bound=Callable[..., Any])


class Amount(click.FloatRange):
    """A number in a range; neither infinity nor what is no number (NaN compares with nothing, and passes any bound)."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number; raises BadParameter."""
        found: float = super().convert(value, param, ctx)
        if not isfinite(found):
            self.fail(f"{value!r} is no finite number.", param, ctx)
        return found


file_argument = click.argument("file", type=click.Path(allow_dash=True))
format_option = click.option(
    "--format",
    "host",
    default="auto",
    metavar="auto|openai|anthropic|claude-code",
    help="Form of the session; found out by itself unless named. Plugins add more.",
)


def configured(name: str) -> Callable[[], str | None]:
    """The default of an option that says where something is: what the user's own settings say of it.

    What is wrong with another setting is a warning, once.
    """

    def default() -> str | None:
        from jev_engine.settings import settings_to_read  # noqa: PLC0415  # pydantic costs 100 ms

        settings, fault = settings_to_read()
        told = click.get_current_context().find_root().meta.setdefault(__name__, set())
        if fault is not None and fault not in told:
            told.add(fault)
            warn(f"{fault}; here nothing else of your settings is read but where the originals are")
        value = getattr(settings, name)
        return None if value is None else str(value)

    return default


def user_settings(**given: Any) -> UserSettings:
    """The user's own settings for a command that decides or sends something; raises ConfigError."""
    from jev_engine.errors import ConfigError  # noqa: PLC0415  # pydantic costs 100 ms
    from jev_engine.settings import load_settings, missing_file  # noqa: PLC0415

    fault = missing_file()
    if fault is not None:
        raise ConfigError(fault)
    return load_settings(**given)


def _endpoint() -> str | None:
    """The address of the settings, unless a judge was named here that has no use for it."""
    context = click.get_current_context()
    is_named = context.get_parameter_source("judge") is ParameterSource.COMMANDLINE
    if is_named and context.params.get("judge") not in ("jev", "cascade"):
        return None
    return user_settings().endpoint


store_option = click.option(
    "--store",
    type=click.Path(dir_okay=False),
    default=configured("store"),
    help="File that keeps the originals, instead of the one in your data folder.",
)
audit_option = click.option(
    "--audit",
    metavar="FILE",
    help="Tell this audit trail of it.  [default: that of your settings]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead, for scripts.")

# To which policy a setting belongs.
POLICY_OF = {"miss_cost": "worth", "keep_result": "threshold", "keep_call": "threshold"}
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
        default=lambda: user_settings().judge,
        show_default="local",
        metavar="local|jev|cascade|URL",
        help="Who decides: this machine alone, Jev as well, or Jev where this machine is not sure. All but local send "
        "what docs/what-leaves-the-machine.md says; the key of a URL is taken from JEV_ENGINE_API_KEY.",
    ),
    click.option(
        "--endpoint",
        default=_endpoint,
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

    guarded: dict[str, Any] = {name: patterns for name, patterns in protections(protect).items() if patterns}
    try:
        return user_settings(window_tokens=window, **guarded, **settings).for_engine()
    except ConfigError as error:
        name, message = error.setting, str(error)
        if name is None or not message.startswith(f"{name} = "):
            raise  # the user's file is at fault, and the message begins with its name
        option = OPTION_NAMES.get(name, "--" + name.replace("_", "-"))
        raise click.BadParameter(message.removeprefix(f"{name} = "), param_hint=f"'{option}'") from None


def idle_options(given: Mapping[str, Any], policy: str) -> list[str]:
    """What to say of options that were given and mean nothing to a policy.

    >>> idle_options({"miss_cost": 9.0, "keep_result": None}, "threshold")
    ['--miss-cost has no effect under --policy threshold; it belongs to worth']
    """
    return [
        f"--{name.replace('_', '-')} has no effect under --policy {policy}; it belongs to {its_own}"
        for name, its_own in POLICY_OF.items()
        if given.get(name) is not None and policy != its_own
    ]


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
