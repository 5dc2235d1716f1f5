"""`jev-engine setup HOST` and `jev-engine remove HOST`: shown first, then written with a backup, or not at all."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from jev_engine.cli import options
from jev_engine.cli.files import Refused
from jev_engine.cli.show import plain, several, warn

if TYPE_CHECKING:
    from jev_engine.hosts import Carried, Change, HostIntegration, Plan

__all__ = ["find_host", "given_options", "option_option", "remove", "setup"]

F = TypeVar("F", bound=Callable[..., Any])

# Files of our own are only counted from here on: a copied package has hundreds.
MOST_OWN_FILES = 6
MOST_DIFF_LINES = 60

host_argument = click.argument("host")
option_option = click.option(
    "--option",
    "-O",
    "pairs",
    multiple=True,
    metavar="NAME=VALUE",
    help="Something this host wants to know; a name it does not know is answered with those it does. Repeatable.",
)


def given_options(integration: HostIntegration, pairs: Sequence[str]) -> dict[str, str]:
    """The options as names and values; raises BadParameter, which lists what the host understands."""
    made: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or name not in integration.options:
            known = "; ".join(f"{each}: {text}" for each, text in integration.options.items()) or "none"
            raise click.BadParameter(
                f"{pair!r} is no NAME=VALUE that {integration.name} understands. It understands {known}",
                param_hint="'--option'",
            )
        made[name] = value
    return made


def find_host(name: str) -> HostIntegration:
    """The host of that name, plugins included; raises Refused."""
    from jev_engine.errors import UnknownAdapter  # noqa: PLC0415  # as below: only where something is done
    from jev_engine.settings import user_plugins  # noqa: PLC0415

    plugins = user_plugins()
    try:
        return plugins.host(name)
    except UnknownAdapter as error:
        for broken in plugins.broken:
            warn(f"plugin {broken.name!r} does not work: {broken.reason}")
        raise Refused(str(error)) from None


def _common(function: F) -> F:
    for option in (
        options.json_option,
        click.option(
            "--yes", "-y", is_flag=True, help="Do not ask before writing; with --json nothing is written without it."
        ),
        click.option("--dry-run", is_flag=True, help="Show what would be written, and write nothing."),
        option_option,
        host_argument,
    ):
        function = option(function)
    return function


@click.command()
@_common
def setup(host: str, pairs: tuple[str, ...], dry_run: bool, yes: bool, as_json: bool) -> None:  # noqa: FBT001
    """Put jev-engine into a host: hermes, claude-code or gateway.

    Shows every change first. A file of yours that changes is copied beside itself before; where one change fails, all
    are undone. Run it again after an update of jev-engine or of the host: what is in place already stays as it is.

    \b
    Examples:
      jev-engine setup hermes --dry-run
      jev-engine setup claude-code --yes
      jev-engine doctor hermes          is it in use?
    """  # noqa: D301  # \b keeps click from wrapping the examples
    integration = find_host(host)
    plan = integration.setup(given_options(integration, pairs))
    _carry_out(plan, f"{host} is set up already.", dry_run=dry_run, yes=yes, as_json=as_json)


@click.command()
@_common
def remove(host: str, pairs: tuple[str, ...], dry_run: bool, yes: bool, as_json: bool) -> None:  # noqa: FBT001
    """Take jev-engine out of a host. Originals stay in the store, and backups where they are.

    \b
    Examples:
      jev-engine remove hermes --dry-run
    """  # noqa: D301  # \b keeps click from wrapping the examples
    integration = find_host(host)
    plan = integration.remove(given_options(integration, pairs))
    _carry_out(plan, f"{host} holds nothing of jev-engine.", dry_run=dry_run, yes=yes, as_json=as_json)


def _carry_out(plan: Plan, nothing: str, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    from jev_engine.hosts import Carried, carry_out  # noqa: PLC0415

    due = [change for change in plan.changes if not change.is_done()]
    if not as_json:
        _show(due, nothing)
    is_written = bool(due) and not dry_run and (yes or not as_json)
    if is_written and not yes:
        if not sys.stdin.isatty():
            raise Refused("nobody can be asked here: add --yes to write this, or --dry-run to only see it.")
        is_written = click.confirm("Write this?", default=True)
    carried = carry_out(plan) if is_written else Carried([], [])
    if as_json:
        click.echo(json.dumps(_to_json(plan, due, carried, is_written=is_written)))
        return
    _show_end(due, carried, plan.notes, is_written=is_written)


def _show_end(due: Sequence[Change], carried: Carried, notes: Sequence[str], *, is_written: bool) -> None:
    for path in carried.backups:
        click.echo(f"backup   {plain(str(path))}")
    if is_written:
        click.echo(f"Written: {several(len(carried.changed), 'file')}.")
    elif due:
        click.echo("Nothing was written.")
    for note in notes:
        click.echo(f"- {plain(note)}")


def _to_json(plan: Plan, due: Sequence[Change], carried: Carried, *, is_written: bool) -> dict[str, Any]:
    return {
        "is_written": is_written,
        "changes": [
            {
                "path": str(each.path),
                "why": each.why,
                "is_removal": each.content is None,
                "is_ours": each.is_ours,
                "is_secret": each.is_secret,
            }
            for each in due
        ],
        "backups": [str(path) for path in carried.backups],
        "notes": plan.notes,
    }


def _show(due: Sequence[Change], nothing: str) -> None:
    if not due:
        click.echo(nothing)
        return
    own = [change for change in due if change.is_ours]
    for change in due:
        if not change.is_ours:
            _show_diff(change)
        elif len(own) < MOST_OWN_FILES:
            click.echo(f"{_verb(change)} {plain(str(change.path))}  ({plain(change.why)})")
    if len(own) >= MOST_OWN_FILES:
        folder = Path(os.path.commonpath([change.path for change in own]))
        size = sum(len(change.content or b"") for change in own)
        click.echo(f"{_verb(own[0])} {len(own)} files under {plain(str(folder))}, {size:,} bytes ({plain(own[0].why)})")


def _verb(change: Change) -> str:
    if change.content is None:
        return "remove  "
    return "write   " if change.before() is None else "change  "


def _show_diff(change: Change) -> None:
    from difflib import unified_diff  # noqa: PLC0415

    click.echo(f"{_verb(change)} {plain(str(change.path))}  ({plain(change.why)})")
    before, after = (
        text.decode("utf-8", "replace").split("\n") if text else [] for text in (change.before(), change.content)
    )
    lines = list(unified_diff(before, after, lineterm="", n=1))[2:]
    if change.is_open():
        click.echo("    holds a secret: readable by its owner only from now on")
    for line in lines[:MOST_DIFF_LINES]:
        click.echo(f"    {plain(line)}")
    if len(lines) > MOST_DIFF_LINES:
        click.echo(f"    … {len(lines) - MOST_DIFF_LINES} more lines")
