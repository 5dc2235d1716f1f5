"""`jev-engine compress`: judge a session, show every decision, write the shorter session where asked to."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from jev_engine.cli import options
from jev_engine.cli.audit_open import protect_missed
from jev_engine.cli.audit_write import audited, named_trail
from jev_engine.cli.files import Places, Refused, check_target, write_session
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
    "--audit",
    metavar="FILE",
    help="Append every decision to this trail; a pass the trail cannot take is not made.  [default: that of your "
    "settings, where -o writes]",
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
    is_dry = given["dry_run"] or (out is None and not given["new_session"])
    trail = named_trail(given["audit"], is_dry=is_dry)
    config = _settings(given)
    if trail is not None:
        config = config.model_copy(update={"required_sinks": (*config.required_sinks, "jsonl")})
    if out == "-" and given["as_json"]:
        raise click.UsageError("--json and -o - both want standard output: write to a file, or leave one of them out.")
    opened = opening.open_session(name, given["host"], config, given["store"], given["judge"], given["endpoint"])
    read_only = opening.READ_ONLY if opened.adapter.is_read_only else None
    target = new_session.target_of(opened.adapter, name, out, beside=given["new_session"])
    out = out if target is None else target.path
    places = Places(name, opened.store.path, trail)
    if out is not None:
        if read_only:
            raise Refused(f"-o {out}: {read_only} Leave out -o to see what would go.")
        check_target(out, places)
    if given["regrets"] is not None:
        protect_missed(opened.engine, given["regrets"])
    said: list[str] = []
    with audited(opened.engine.sinks, places, makes_store=not is_dry, said=said) as opened.engine.sinks:
        result = _judge(opened, given, is_dry=is_dry)
        said += result.stats.warnings
        written, resume = (False, None) if out is None or is_dry else _write(opened, result, out, target)
    if given["as_json"]:
        told = to_json(result, is_dry_run=is_dry)
        click.echo(
            json.dumps({**told, "written_to": out if written else None, **({"resume": resume} if resume else {})})
        )
    else:
        ending = report.Ending(name, out, opened.store.path, is_dry, written, read_only, given["store"], resume)
        stream = sys.stderr if out == "-" else sys.stdout
        report.show_compression(result, ending, stream, show_all=given["show_all"])
    if result.outcome == "failed":
        click.echo("Error: the pass failed, and the session is as it was. The reason above says what to do.", err=True)
        ctx.exit(1)


def _judge(opened: Opened, given: dict[str, Any], *, is_dry: bool) -> CompressionResult:
    from jev_engine.cli import opening  # noqa: PLC0415  # as above

    with progress(f"Judging {len(opened.file.messages):,} messages"):
        result = opening.wait_for(
            opened.engine.compress(
                opened.file.messages,
                focus_topic=given["focus"],
                force=given["force"],
                host=opened.adapter.name,
                goal=given["goal"],
                dry_run=is_dry,
                waits_for_host=True,
            )
        )
    opening.warn_of_unmatched(result.transcript, given["protect"])
    for message in (*result.stats.warnings, *result.stats.failures):
        warn(message)
    return result


def _write(opened: Opened, result: CompressionResult, out: str, target: Target | None) -> tuple[bool, str | None]:
    """As `_written`, and what came of it is told to the audit trail."""
    fate = result.fate
    if fate is None:
        return _written(opened, result, out, target)
    try:
        done = _written(opened, result, out, target)
    except BaseException:
        fate.discarded("the shorter session could not be written")
        raise
    if done[0]:
        fate.committed()
    else:
        fate.discarded("there was nothing to write")
    return done


def _written(opened: Opened, result: CompressionResult, out: str, target: Target | None) -> tuple[bool, str | None]:
    """Whether the session was written, and the command by which its host goes on with it; raises Refused."""
    from jev_engine.cli.new_session import keep_spelling, rewritten  # noqa: PLC0415  # as above

    if result.outcome == "failed" or (target is not None and not target.is_named and not result.changed):
        return False, None  # another session of the same rows would help nobody
    if target is not None and result.changed:
        made = rewritten(opened, result, target.session)
        _keep_originals(opened, target.session)  # and with it those of the session it came from
        write_session(opened.file.dump(made.rows, made.index_map), out)
        return True, made.resume
    if not result.changed:
        # Written as it came, so that a script finds its file.
        write_session(opened.file.raw, out)
        return True, None
    keep_spelling(opened, result)
    _keep_originals(opened, result.session)
    write_session(opened.file.dump(result.messages, result.index_map), out)
    return True, None


def _keep_originals(opened: Opened, session: str) -> None:
    """What leads back from a file must last as long as the file does, which nobody can tell but the user."""
    from jev_engine.cli.opening import wait_for  # noqa: PLC0415  # as above
    from jev_engine.errors import StoreError  # noqa: PLC0415

    try:
        wait_for(opened.store.keep(session))
    except StoreError as error:
        warn(f"the originals will expire when they are unused for long: {error}")


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
    config = options.make_settings(**{name: given[name] for name in names})
    for idle in options.idle_options(given, config.policy):
        warn(idle)
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
