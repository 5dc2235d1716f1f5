"""`jev-engine compress`: judge a session, show every decision, write the shorter session where asked to."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from jev_engine.cli import options
from jev_engine.cli.audit_open import protect_missed, wire
from jev_engine.cli.files import Refused, check_target, write_session
from jev_engine.cli.show import progress, warn

if TYPE_CHECKING:
    from jev_engine.cli.new_session import Target
    from jev_engine.cli.opening import Opened
    from jev_engine.config import EngineConfig
    from jev_engine.result import CompressionResult

__all__ = ["compress"]


@click.command()
@click.argument("file", required=False, type=click.Path(allow_dash=True))
@click.option(
    "-o", "--out", metavar="OUT", help="Write the shorter session there. Without it, nothing is written or stored."
)
@click.option("--latest", is_flag=True, help="Take the session of Claude Code that was used last in this folder.")
@click.option(
    "--new-session", is_flag=True, help="Write it beside FILE, as a session of its own that the host can resume."
)
@options.format_option
@options.setting_options
@options.judge_options
@click.option("--policy", type=click.Choice(["worth", "threshold"]), help="How answers become decisions.")
@click.option("--miss-cost", type=float, metavar="CALLS", help="Policy worth: what a miss costs; higher keeps more.")
@click.option(
    "--keep-result", type=float, metavar="P", help="Policy threshold: results stay whole from here on, 0 to 1."
)
@click.option("--keep-call", type=float, metavar="P", help="Policy threshold: below it a whole call may go, 0 to 1.")
@click.option("--force", is_flag=True, help="Go on although little would be freed, and aim for the target.")
@click.option("--dry-run", is_flag=True, help="Write and store nothing, even with -o.")
@options.store_option
@click.option(
    "--audit", metavar="FILE", help="Append every decision to this trail; a pass the trail cannot take is not made."
)
@click.option("--regrets", metavar="TRAIL", help="Leave tools alone whose output was often missed, as this trail says.")
@click.option("--all", "show_all", is_flag=True, help="Show every call of a long session.")
@options.json_option
@click.pass_context
def compress(ctx: click.Context, /, **given: Any) -> None:
    """Shorten what a session no longer needs, and show why.

    Without -o this is a dry run. The input file is never changed. Originals go to the store before anything leaves,
    and `jev-engine restore OUT` brings them back.

    A session file of Claude Code becomes a session of its own, under a new id: `claude --resume ID` goes on with it.

    \b
    Examples:
      jev-engine compress session.json
      jev-engine compress --latest --new-session
      jev-engine compress session.json -o shorter.json --protect 'docs/spec/*' --miss-cost 10
    """  # noqa: D301  # \b keeps click from wrapping the examples
    from jev_engine.cli import new_session, opening, report  # noqa: PLC0415  # rich and the engine, only when needed

    out, name = given["out"], _file(given)
    config = _settings(given)
    if out == "-" and given["as_json"]:
        raise click.UsageError("--json and -o - both want standard output: write to a file, or leave one of them out.")
    opened = opening.open_session(name, given["host"], config, given["store"], given["judge"], given["endpoint"])
    read_only = opening.READ_ONLY if opened.adapter.is_read_only else None
    target = new_session.target_of(opened.adapter, name, out, beside=given["new_session"])
    out = out if target is None else target.path
    if out is not None:
        if read_only:
            raise Refused(f"-o {out}: {read_only} Leave out -o to see what would go.")
        check_target(out, name, opened.store.path)
    is_dry = out is None or given["dry_run"]
    if given["regrets"]:
        protect_missed(opened.engine, given["regrets"])
    if given["audit"]:
        wire(opened.engine, given["audit"], opened.store, is_dry=is_dry)
    with progress(f"Judging {len(opened.file.messages):,} messages"):
        result = opening.wait_for(
            opened.engine.compress(
                opened.file.messages,
                focus_topic=given["focus"],
                force=given["force"],
                host=opened.adapter.name,
                goal=given["goal"],
                dry_run=is_dry,
            )
        )
    opening.warn_of_unmatched(result.transcript, given["protect"])
    for message in (*result.stats.warnings, *result.stats.failures):
        warn(message)
    written, resume = (False, None) if out is None or is_dry else _write(opened, result, out, target)
    if given["as_json"]:
        told = to_json(result, is_dry_run=is_dry)
        click.echo(json.dumps({**told, "resume": resume, "written_to": out} if resume else told))
    else:
        ending = report.Ending(name, out, opened.store.path, is_dry, written, read_only, given["store"], resume)
        stream = sys.stderr if out == "-" else sys.stdout
        report.show_compression(result, ending, stream, show_all=given["show_all"])
    if result.outcome == "failed":
        click.echo("Error: the pass failed, and the session is as it was. The reason above says what to do.", err=True)
        ctx.exit(1)


def _write(opened: Opened, result: CompressionResult, out: str, target: Target | None) -> tuple[bool, str | None]:
    """Whether the session was written, and the command by which its host goes on with it; raises Refused."""
    from jev_engine.cli.new_session import rewritten  # noqa: PLC0415  # as above

    if result.outcome == "failed" or (target is not None and not target.is_named and not result.changed):
        return False, None  # another session of the same rows would help nobody
    if target is not None and result.changed:
        made = rewritten(opened, result, target.session)
        write_session(opened.file.dump(made.rows), out)
        return True, made.resume
    # An unchanged session is written as it came, so that a script finds its file.
    write_session(opened.file.dump(result.messages) if result.changed else opened.file.raw, out)
    return True, None


def _file(given: dict[str, Any]) -> str:
    """The session that is meant; raises UsageError or Refused."""
    if given["latest"]:
        if given["file"] is not None:
            raise click.UsageError("--latest and FILE both name a session: leave one of them out.")
        from jev_engine.cli.new_session import latest_file  # noqa: PLC0415  # as above

        return latest_file(given["host"])
    if given["file"] is None:
        raise click.UsageError("Missing argument 'FILE'.")
    return str(given["file"])


def _settings(given: dict[str, Any]) -> EngineConfig:
    names = ("profile", "window", "protect", "privacy", "policy", "miss_cost", "keep_result", "keep_call")
    required = ("jsonl",) if given["audit"] else None
    config = options.make_settings(required_sinks=required, **{name: given[name] for name in names})
    for name, policy in (("miss_cost", "worth"), ("keep_result", "threshold"), ("keep_call", "threshold")):
        if given[name] is not None and config.policy != policy:
            warn(f"--{name.replace('_', '-')} has no effect under --policy {config.policy}; it belongs to {policy}")
    return config


def to_json(result: CompressionResult, *, is_dry_run: bool) -> dict[str, Any]:
    """The result as one plain JSON object."""
    stats = result.stats
    numbers = stats.to_json()
    top = ("messages_before", "messages_after", "chars_before", "chars_after", "tokens_before", "tokens_after", "calls")
    decisions = [
        {
            "label": decision.label,
            "tool": decision.call.tool,
            "action": decision.action,
            "reason": decision.reason,
            "p_call": decision.probability.p_call if decision.probability else None,
            "p_result": decision.probability.p_result if decision.probability else None,
            "chars": len(decision.call.result or ""),
            "chars_after": 0 if decision.action == "remove" else decision.chars_after,
        }
        for decision in result.decisions
    ]
    return {
        "outcome": result.outcome,
        "reason": result.reason,
        **{name: numbers.pop(name) for name in top},
        "pinned": numbers.pop("pinned"),
        "decisions": decisions,
        "stats": {**numbers, "session": result.session, "is_dry_run": is_dry_run},
    }
