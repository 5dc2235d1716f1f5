"""`jev-engine serve`: the local process that plugins, hooks and the gateway speak to."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from typing import Any

import click

from jev_engine.cli.options import Amount

__all__ = ["serve"]

ROUTES = ("compact", "tool", "status")


@click.command()
@click.option("--port", type=click.IntRange(0, 65_535), help="Port on 127.0.0.1.  [default: 47180, or any free one]")
@click.option(
    "--idle",
    type=Amount(min=0),
    metavar="SECONDS",
    help="End after so long without a request; 0: never.  [default: 1800]",
)
@click.option("--ensure", "action", flag_value="ensure", help="Start one in the background unless one runs; say where.")
@click.option(
    "--status", "action", flag_value="status", help="Say whether one runs, and what would keep it from running."
)
@click.option("--stop", "action", flag_value="stop", help="End the one that runs.")
@click.option(
    "--once",
    type=click.Choice(ROUTES),
    help="Answer one request from standard input, without any process staying behind.",
)
def serve(port: int | None, idle: float | None, action: str | None, once: str | None) -> None:
    """Run the local process for plugins, hooks and the gateway: one per user, gone when idle.

    Listens on a socket that only this user can open, and on 127.0.0.1 for requests that bring the token.
    Plugins start it themselves.

    \b
    Examples:
      jev-engine serve --ensure
      jev-engine serve --status
    """  # noqa: D301  # \b keeps click from wrapping the examples
    if once is not None:
        _answer(once)
        return
    from jev_engine.serve import process  # noqa: PLC0415  # the engine, only where something is done

    if action is None:
        idle_seconds = process.IDLE_SECONDS if idle is None else idle
        if not process.serve(port=port, idle_seconds=idle_seconds, warn=partial(click.echo, err=True)):
            click.echo("Another process of yours is running already.", err=True)
    elif action == "ensure":
        found = process.ensure(port=port, idle_seconds=idle)
        _tell(found)
        _warn(process.elsewhere(found.port, port))
    elif action == "status":
        running = process.running()
        if running is not None:
            _tell(running)
            return
        obstacle = process.obstacle()
        click.echo(json.dumps({"running": False, **({} if obstacle is None else {"obstacle": obstacle})}))
    else:
        click.echo(json.dumps({"stopped": process.stop()}))


def _tell(found: Any) -> None:
    from jev_engine.serve.places import places  # noqa: PLC0415  # as above

    click.echo(json.dumps({"running": True, "socket": str(places().socket), **found._asdict()}))


def _warn(elsewhere: str | None) -> None:
    """Behind the answer, where no program reads it."""
    from jev_engine.serve.environment import leaves_settings_out  # noqa: PLC0415  # as above

    if elsewhere is not None:
        click.echo(f"Warning: {elsewhere}.", err=True)
    if leaves_settings_out(os.environ):
        text = "JEV_ENGINE_CONFIG counts for the process of all sessions only together with JEV_ENGINE_RUNTIME"
        click.echo(f"Warning: {text}.", err=True)


def _answer(route: str) -> None:
    """The same answers as the process gives, from this one: slower, and nothing has to run."""
    from jev_engine.serve.desk import Desk  # noqa: PLC0415  # as above
    from jev_engine.serve.environment import leaves_settings_out  # noqa: PLC0415
    from jev_engine.settings import CONFIG_VARIABLE  # noqa: PLC0415

    try:
        given = json.load(sys.stdin)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"standard input is no JSON: {error}") from None
    if not isinstance(given, dict):
        raise click.UsageError("standard input is no JSON object")
    if leaves_settings_out(os.environ):  # as the process does: both answer for one session, from one store
        del os.environ[CONFIG_VARIABLE]
    desk = Desk(may_wait=False)
    click.echo(json.dumps(desk.routes()[f"/plugin/{route}"](given)))
