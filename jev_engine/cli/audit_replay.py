"""`jev-engine audit replay`: a recorded pass once more, from its input."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from jev_engine.cli.audit_open import Given, given_trail
from jev_engine.cli.files import Refused
from jev_engine.cli.options import format_option, idle_options, json_option
from jev_engine.cli.show import number, plain, warn

if TYPE_CHECKING:
    from jev_engine.audit.records import PassTold
    from jev_engine.audit.replay import Check
    from jev_engine.cli.audit_again import Found
    from jev_engine.result import CompressionResult

__all__ = ["replay"]

# The exit code where a pass does not come out the same.
DIFFERS = 1
# Labels of a list that are shown.
MOST_LABELS = 20
SETTINGS = ("policy", "miss_cost", "keep_result", "keep_call")
NOT_FOUND = (
    "no pass of this trail was made from this session, nor from an earlier state of it that the store knows "
    "(audit --store FILE names another store)"
)


@click.command()
@click.option(
    "--input", "name", required=True, type=click.Path(allow_dash=True),
    help="The session the pass was made from, or any later state of it: what has left comes from the store.",
)  # fmt: skip
@click.option(
    "--pass", "pass_id", metavar="PASS", help="Start of the pass's id.  [default: the newest made from this input]"
)
@click.option("--output", type=click.Path(exists=True, dir_okay=False), help="What the pass wrote, to compare with.")
@format_option
@click.option("--policy", type=click.Choice(["worth", "threshold"]), help="Another policy.")
@click.option("--miss-cost", type=float, metavar="CALLS", help="Policy worth: another cost of a miss.")
@click.option("--keep-result", type=float, metavar="P", help="Policy threshold: another limit for results.")
@click.option("--keep-call", type=float, metavar="P", help="Policy threshold: another limit for calls.")
@click.option(
    "--sweep", is_flag=True,
    help="A table of thresholds: 0.10, 0.35, and those that part the answers of the pass into tenths. Calls stay, "
    "unless --keep-call is given.",
)  # fmt: skip
@json_option
@click.pass_context
def replay(ctx: click.Context, /, **given: Any) -> None:
    """Rebuild what a pass made, from its input and the recorded answers, and compare.

    Without other settings every decision and every byte must come out the same; exit code 1 where one does not. With
    --policy, --miss-cost, --keep-result or --keep-call it shows what a pass under another setting would have made of
    the same input and answers.
    """
    _refuse_idle(given)
    other = {name: given[name] for name in SETTINGS if given[name] is not None}
    found = _find(given_trail(ctx), given)
    is_other = bool(other) or given["sweep"]
    if is_other and (found is None or not found.is_input):
        raise Refused(f"{NOT_FOUND if found is None else 'that pass was made from another history'}: "
                      "what another setting would have done can be shown for its own input only")  # fmt: skip
    if found is None:
        _tell_none(as_json=given["as_json"])
        ctx.exit(DIFFERS)
    _tell_of(found)
    if given["sweep"]:
        _sweep(found, given["keep_call"], as_json=given["as_json"])
    elif other:
        _what_if(found, other, as_json=given["as_json"])
    elif not _same(found, given["output"], as_json=given["as_json"]):
        ctx.exit(DIFFERS)


def _refuse_idle(given: dict[str, Any]) -> None:
    """Options that would mean nothing beside each other are not taken without a word."""
    if given["sweep"]:
        named = [f"--{name.replace('_', '-')}" for name in SETTINGS[:3] if given[name] is not None]
        if named:
            raise click.UsageError(f"--sweep goes through --keep-result under --policy threshold: leave out {named[0]}")
    if given["output"] and (given["sweep"] or any(given[name] is not None for name in SETTINGS)):
        raise click.UsageError("--output is what the pass wrote, not what another setting would have: leave it out")


def _find(trail: Given, given: dict[str, Any]) -> Found | None:
    from jev_engine.cli.audit_again import find  # noqa: PLC0415  # the engine, only where something is done

    return find(trail, given["name"], given["host"], given["pass_id"])


def _tell_of(found: Found) -> None:
    """What the user should know before the answer, on standard error."""
    from jev_engine import __version__  # noqa: PLC0415
    from jev_engine.audit.replay import unknown_settings  # noqa: PLC0415

    started = found.told.started
    version = started.origin.engine_version if started else __version__
    if version != __version__:
        warn(f"the pass was made by version {version}, this is {__version__}")
    strangers = unknown_settings(found.told)
    if strangers:
        warn(f"settings of the pass that this version does not know are left out: {', '.join(strangers)}")
    if found.is_rebuilt:
        click.echo(f"The input, {len(found.input):,} messages, was rebuilt from the store.", err=True)


def _tell_none(*, as_json: bool) -> None:
    if as_json:
        check = {"what": "input", "is_same": False, "detail": NOT_FOUND}
        click.echo(json.dumps({"is_same": False, "pass": None, "bytes_compared": False, "checks": [check]}))
        return
    click.echo(f"  DIFFERENT  input: {NOT_FOUND}")
    click.echo("NOT identical: --pass PASS compares with one of them all the same, `list` shows their ids.")


def _same(found: Found, output: str | None, *, as_json: bool) -> bool:
    from jev_engine.audit.replay import differences  # noqa: PLC0415
    from jev_engine.cli.audit_again import again, settings_for  # noqa: PLC0415

    told, has_key = found.told, found.keyed is not None
    done = again(found, settings_for(found))
    checks = differences(told, done, found.keyed)
    if output is not None:
        checks.append(_written(found, done, output))
    is_same = all(check.is_same for check in checks)
    if as_json:
        facts = {
            "is_same": is_same,
            "pass": told.id,
            "outcome": told.outcome,
            "bytes_compared": has_key,
            "doubt": found.trail.doubt,
        }
        click.echo(json.dumps({**facts, "checks": [check._asdict() for check in checks]}))
        return is_same
    for check in checks:
        detail = f": {plain(check.detail)}" if check.detail and not check.is_same else ""
        click.echo(f"  {'same' if check.is_same else 'DIFFERENT':<10} {check.what}{detail}")
    if told.end is None or told.outcome.startswith("abandoned"):
        click.echo(f"The pass ended so: {plain(told.outcome)}. What is compared is what it was about to do.")
    where = f"pass {told.id[:12]} from its input and recorded answers"
    if not is_same:
        click.echo(f"NOT identical: {where}.")
    elif has_key:
        click.echo(f"Identical: {where}.")
    else:
        why = "There is no key here" if found.key is None else "The key here is not this trail's"
        click.echo(f"Decisions are the same, bytes were not compared with the trail: {where}.")
        click.echo(f"{why}, so its digests say nothing (audit --key FILE names the key).")
    return is_same


def _written(found: Found, done: CompressionResult, output: str) -> Check:
    """Whether a file holds what the pass wrote."""
    from jev_engine.audit.replay import Check  # noqa: PLC0415
    from jev_engine.cli.reading import read_session  # noqa: PLC0415

    adapter: Any = found.opened.adapter
    file, rows, index_map = read_session(output), done.messages, done.index_map
    if done.changed and hasattr(adapter, "new_session"):
        # Written under an id of its own, which only the file knows.
        new = adapter.new_session(found.input, rows, adapter.session_id(file.messages) or "")
        rows, index_map = new.rows, new.index_map
    is_untouched = not done.changed and not found.is_rebuilt and found.input == found.opened.file.messages
    # The rows of a lost input are none of the file's: all are written anew.
    places = () if found.is_rebuilt else index_map
    made = found.opened.file.raw if is_untouched else found.opened.file.dump(rows, places)
    if made == file.raw or not found.is_rebuilt:
        return Check("the written file, byte for byte", made == file.raw)
    # How the lost input was set in lines and spaces is not known.
    return Check("the written file, message for message", list(rows) == file.messages)


def _what_if(found: Found, other: dict[str, Any], *, as_json: bool) -> None:
    from jev_engine.cli.audit_again import again, settings_for  # noqa: PLC0415

    config = settings_for(found, **other)
    idle = idle_options(other, config.policy)
    if idle:
        raise click.UsageError(f"{idle[0]}: add --policy, or leave it out")
    done = again(found, config)
    facts = _compared(found, done, config.policy)
    if as_json:
        click.echo(json.dumps(facts))
        return
    honest = "" if facts["is_calibrated"] else " (uncalibrated)"
    click.echo(f"{done.outcome}: {plain(done.reason)}")
    click.echo(
        f"  {'tokens freed':<20} {number(facts['freed_tokens'])} instead of {number(facts['freed_tokens_recorded'])}"
    )
    click.echo(f"  {'expected misses':<20} {facts['expected_misses']:.2f} instead of"
               f" {facts['expected_misses_recorded']:.2f}{honest}")  # fmt: skip
    for name in ("would_stay", "would_go", "would_be_removed", "would_be_shortened", "look_backs_avoided"):
        labels: list[str] = facts[name]
        shown = f"{' '.join(labels[:MOST_LABELS])}{' …' if len(labels) > MOST_LABELS else ''}"
        click.echo(f"  {name.replace('_', ' '):<20} {len(labels):,}  {shown}".rstrip())
    for note in facts["notes"]:
        click.echo(note)


def _notes(told: PassTold, policy: str) -> list[str]:
    """What keeps an answer about another setting from being the whole truth."""
    from jev_engine.audit.replay import said_nothing  # noqa: PLC0415

    notes = []
    if told.started is not None and told.started.is_forced and policy == "worth":
        notes.append("The pass was forced: units go until its target is reached, whatever a miss costs.")
    if told.asked is None:
        return notes
    by_local = sum(unit.by == "local" for unit in told.units.values())
    if told.answered is not None and told.answered.settled:
        notes.append(f"{told.answered.settled:,} units were settled here and not asked about; under another setting "
                     "others may be.")  # fmt: skip
    elif said_nothing(told):
        notes.append("The judge's answers had carried no signal; at a threshold such units stay.")
    elif by_local:
        notes.append(f"About {by_local:,} units the judge had said nothing; the local judge's answer stands for it.")
    return notes


def _compared(found: Found, done: CompressionResult, policy: str) -> dict[str, Any]:
    """A pass under another setting against the recorded one."""
    told = found.told
    end = told.end or told.proposed
    steps = {d.call.number: (told.units[d.call.number].action, d.action) for d in done.decisions}
    stays = [n for n, (before, now) in steps.items() if now == "keep" != before]
    missed = {back.reference for back in found.trail.look_backs() if back.reference}
    return {
        "pass": told.id,
        "outcome": done.outcome,
        "outcome_recorded": told.outcome,
        "reason": done.reason,
        "freed_tokens": done.stats.freed_tokens,
        "freed_tokens_recorded": getattr(end, "freed_tokens", 0),
        "expected_misses": done.stats.expected_misses,
        "expected_misses_recorded": getattr(end, "expected_misses", 0.0),
        "is_calibrated": told.is_calibrated,
        "would_stay": _labels(stays),
        "would_go": _labels([n for n, (before, now) in steps.items() if before == "keep" != now]),
        "would_be_removed": _labels([n for n, step in steps.items() if step == ("truncate", "remove")]),
        "would_be_shortened": _labels([n for n, step in steps.items() if step == ("remove", "truncate")]),
        "look_backs_avoided": _labels([n for n in stays if told.units[n].reference in missed]),
        "notes": _notes(told, policy),
        "doubt": found.trail.doubt,
    }


def _labels(numbers: Sequence[int]) -> list[str]:
    return [f"t{n}" for n in sorted(numbers)]


def _sweep(found: Found, keep_call: float | None, *, as_json: bool) -> None:
    from jev_engine.audit.replay import swept, thresholds_of  # noqa: PLC0415
    from jev_engine.cli.audit_again import again, settings_for  # noqa: PLC0415

    backs = found.trail.look_backs()
    rows = []
    for threshold in thresholds_of(found.told):
        limits = {"policy": "threshold", "keep_result": threshold, "keep_call": keep_call or 0.0}
        rows.append(swept(threshold, again(found, settings_for(found, **limits)), backs, found.told))
    if as_json:
        click.echo(json.dumps([row._asdict() for row in rows]))
        return
    is_raw = any(row.expected_misses is None for row in rows)
    sums = "sum of answers" if is_raw else "expected misses"
    click.echo(
        f"keep_result  answers below  outcome           units out  tokens freed  {sums:>15}  looked back at later"
    )
    for row in rows:
        click.echo(f"{row.threshold:>11g}  {row.below:>13,}  {row.outcome:<16}  {row.out:>9,}  {row.freed_tokens:>12,}"
                   f"  {row.sum_of_answers:>15.2f}  {row.looked_back:>20,}")  # fmt: skip
    for note in _notes(found.told, "threshold"):
        click.echo(note)
    if is_raw:
        click.echo("These answers were never fitted to outcomes: their sum is no number of misses to expect.")
