"""`jev-engine audit`: read a trail back. One file for each kind of question; this one takes what they all need."""

from __future__ import annotations

import click

from jev_engine.cli import audit_check, audit_proof, audit_replay, audit_report, audit_show
from jev_engine.cli.audit_open import Given
from jev_engine.cli.files import named_file
from jev_engine.cli.options import configured

__all__ = ["audit"]


@click.group()
@click.option(
    "--file",
    type=click.Path(dir_okay=False),
    default=configured("audit"),
    help="The trail.  [default: that of your settings, or audit.jsonl in your data folder]",
)
@click.option(
    "--store",
    type=click.Path(dir_okay=False),
    default=configured("store"),
    help="The store of originals that was used, if not the one there.",
)
@click.option(
    "--session", help="Only what this session left: its name, its file, or its keyed digest as `list` shows it."
)
@click.option(
    "--key",
    type=click.Path(exists=True, dir_okay=False),
    help="The key of the trail, where it was made on another machine.  [default: audit.key in your data folder]",
)
@click.pass_context
def audit(ctx: click.Context, file: str | None, store: str | None, session: str | None, key: str | None) -> None:
    """Find out who removed what, on whose answer, and whether it was missed.

    A trail holds lengths and keyed digests, not content. `jev-engine compress … --audit FILE` writes one.

    \b
    Examples:
      jev-engine audit --file trail.jsonl list
      jev-engine audit --file trail.jsonl explain t12
      jev-engine audit --file trail.jsonl verify --anchor
    """  # noqa: D301  # \b keeps click from wrapping the examples
    from jev_engine.audit.keys import default_trail_path  # noqa: PLC0415

    ctx.obj = Given(default_trail_path() if file is None else named_file(file, "--file"), session, store, key)


for command in (
    *audit_show.COMMANDS,
    *audit_check.COMMANDS,
    *audit_proof.COMMANDS,
    audit_report.report,
    audit_replay.replay,
):
    audit.add_command(command)
