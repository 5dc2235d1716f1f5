"""The command `jev-engine`.

Exit codes: 0 for any honest outcome, 2 for bad usage or a file that cannot be read, 1 for a fault of ours, 130 after
Ctrl-C. rich and the engine are imported when a command needs them, so that `--help` answers at once.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

import click

from jev_engine import __version__
from jev_engine.cli.audit import audit
from jev_engine.cli.calibrate import calibrate
from jev_engine.cli.compress import compress
from jev_engine.cli.doctor import doctor
from jev_engine.cli.evaluate import evaluate
from jev_engine.cli.expand import expand
from jev_engine.cli.files import last_words
from jev_engine.cli.inspect import inspect
from jev_engine.cli.learn import learn
from jev_engine.cli.restore import restore
from jev_engine.cli.search import search
from jev_engine.cli.serve import serve
from jev_engine.cli.setup import remove, setup
from jev_engine.cli.show import plain
from jev_engine.cli.store import store
from jev_engine.errors import ConfigError, JevEngineError

__all__ = ["Commands", "main"]

FAULT, REFUSED, INTERRUPTED = 1, 2, 130
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class Commands(click.Group):
    """A group that turns whatever a command raises into a message and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which a person meets them."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; file names and arguments in messages are shown without control characters."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo(f"\nInterrupted: {plain(last_words(ctx))}.", err=True)
            ctx.exit(INTERRUPTED)
        except click.ClickException as error:
            shown = "\n".join(plain(line) for line in error.message.split("\n"))
            error.message = shown  # type: ignore[misc]  # final for subclasses; what is shown has to be plain
            raise
        except ConfigError as error:
            click.echo(f"Error: {plain(str(error))}", err=True)
            ctx.exit(REFUSED)
        except JevEngineError as error:
            click.echo(f"Error: {plain(str(error))}", err=True)
            ctx.exit(FAULT)
        except (click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise  # click ends these itself; the last is a reader who went away
        except Exception as error:  # noqa: BLE001  # the last place that can tell a person what happened
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                click.echo(f"Error: {error.strerror} while writing; {plain(last_words(ctx))}.", err=True)
                ctx.exit(FAULT)
            name = plain(f"{type(error).__name__}: {error}")
            click.echo(f"Error: a fault of jev-engine, {plain(last_words(ctx))}. Please report it: {name}", err=True)
            ctx.exit(FAULT)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="jev-engine", message="%(prog)s %(version)s")
def main() -> None:
    """Shorten old tool output in an agent's session; every original can be had back.

    \b
    Examples:
      jev-engine compress session.json             show what would go, and why
      jev-engine compress session.json -o out.json write the shorter session
      jev-engine restore out.json -o back.json     get the whole session back

    Works offline, without a key. FILE may be - for standard input.
    """  # noqa: D301  # \b keeps click from wrapping the examples
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller: what is shown goes nowhere
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  # open to the end
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a sign gets an escape instead of a traceback.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


for command in (
    *(compress, inspect, restore, expand, search, store, audit),
    *(setup, doctor, remove, serve),
    *(evaluate, learn, calibrate),
):
    main.add_command(command)
