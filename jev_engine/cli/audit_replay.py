"""`jev-engine audit replay`: a recorded pass once more, from its input."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from jev_engine.cli.audit_open import given_trail, open_trail
from jev_engine.cli.files import Refused
from jev_engine.cli.options import format_option, json_option
from jev_engine.cli.show import number, plain

if TYPE_CHECKING:
    from jev_engine.audit.digests import Keyed
    from jev_engine.audit.records import PassTold, TrailRead
    from jev_engine.cli.opening import Opened
    from jev_engine.result import CompressionResult

__all__ = ["replay"]

# The exit code where a pass does not come out the same.
DIFFERS = 1


@click.command()
@click.option(
    "--input", "name", required=True, type=click.Path(allow_dash=True),
    help="The session the pass was made from, or any later state of it: what has left comes from the store.",
)  # fmt: skip
@click.option(
    "--pass", "pass_id", default="last", metavar="PASS", help="Start of the pass's id.  [default: the newest]"
)
@click.option("--output", type=click.Path(exists=True, dir_okay=False), help="What the pass wrote, to compare with.")
@format_option
@click.option("--policy", type=click.Choice(["worth", "threshold"]), help="Another policy.")
@click.option("--miss-cost", type=float, metavar="CALLS", help="Policy worth: another cost of a miss.")
@click.option("--keep-result", type=float, metavar="P", help="Policy threshold: another limit for results.")
@click.option("--keep-call", type=float, metavar="P", help="Policy threshold: another limit for calls.")
@click.option("--sweep", is_flag=True, help="A table: what thresholds from 0.10 to 0.70 would have done.")
@json_option
@click.pass_context
def replay(ctx: click.Context, /, **given: Any) -> None:
    """Rebuild what a pass made, from its input and the recorded answers, and compare.

    Without other settings every decision and every byte must come out the same; exit code 1 where one does not. With
    --policy, --miss-cost, --keep-result or --keep-call it shows what another setting would have kept.
    """
    from jev_engine.cli import opening  # noqa: PLC0415  # the engine, only where something is done

    trail, told = open_trail(given_trail(ctx), given["pass_id"])
    if told.started is None:
        raise Refused("the start of this pass is no longer in the trail, so its settings are not known")
    asked = given_trail(ctx)
    opened = opening.open_session(given["name"], given["host"], None, asked.store)
    opened.file.messages = _input_of(opened, told)
    other = {name: given[name] for name in ("policy", "miss_cost", "keep_result", "keep_call")}
    if given["sweep"]:
        _sweep(opened, trail, told, as_json=given["as_json"])
    elif any(value is not None for value in other.values()):
        _what_if(opened, trail, told, other, as_json=given["as_json"])
    elif not _same(opened, trail, told, given["output"], as_json=given["as_json"]):
        ctx.exit(DIFFERS)


def _keyed() -> Keyed | None:
    from jev_engine.audit.digests import Keyed  # noqa: PLC0415
    from jev_engine.audit.keys import default_key_path, read_key  # noqa: PLC0415

    key = read_key(default_key_path(), make=False)
    return None if key is None else Keyed(key)


def _input_of(opened: Opened, told: PassTold) -> list[Any]:
    """What the pass was made from: the messages, or an earlier state of them out of the store."""
    from jev_engine.cli.opening import wait_for  # noqa: PLC0415
    from jev_engine.store.restore import earlier  # noqa: PLC0415

    started, given = told.started, opened.file.messages
    assert started is not None  # noqa: S101  # looked at before
    keyed = _keyed()
    gone = {unit.number for unit in told.out}

    async def find() -> list[Any] | None:
        async for state in earlier(given, opened.store, opened.adapter):
            input_ = state[: started.messages]
            transcript = (await opened.engine.inspect(input_, host=opened.adapter.name)).transcript
            # What the pass let go had not been let go before it.
            is_before = not any(call.marked for call in transcript.calls if call.number in gone)
            sizes = (len(input_), len(transcript.calls)) == (started.messages, started.calls)
            if is_before and sizes and (keyed is None or keyed.of_input(transcript) == started.input_digest):
                return input_
        return None

    found = wait_for(find())
    if found is None:
        return given  # the comparison says that it is another one
    if found != given:
        click.echo(f"The input, {started.messages:,} messages, was rebuilt from the store.", err=True)
    return found


def _again(opened: Opened, trail: TrailRead, told: PassTold, **other: Any) -> CompressionResult:
    from jev_engine.audit import replay as again  # noqa: PLC0415
    from jev_engine.cli.opening import wait_for  # noqa: PLC0415
    from jev_engine.engine import ContextEngine  # noqa: PLC0415
    from jev_engine.errors import ConfigError  # noqa: PLC0415

    started = told.started
    assert started is not None  # noqa: S101  # looked at before
    chars = {unit.reference: unit.chars for each in trail.passes.values() for unit in each.out if unit.reference}
    keys = {reference: key for reference, (key, _) in wait_for(opened.store.known(chars)).items()}
    try:
        config = again.config_of(told, **other)
    except ConfigError as error:
        raise click.BadParameter(str(error)) from None
    plugins = opened.engine.plugins
    rules = plugins.pins[:]
    plugins.pins.append(again.pin_rule(told.units))
    store = again.RecordedStore({}, chars, keys)
    judge = again.RecordedJudge(told.units, as_said=config.policy == "threshold")
    engine = ContextEngine(config=config, judge=judge, store=store, plugins=plugins)
    messages, host = opened.file.messages, opened.adapter.name
    # One look for the keys, by which the recorded references are found.
    look = wait_for(engine.inspect(messages, host=host))
    engine.store = again.RecordedStore(again.references_of(told, look.transcript.calls), chars, keys)
    force = started.is_forced or "keep_result" in other
    try:
        return wait_for(
            engine.compress(
                messages,
                started.tokens,
                force=force,
                host=host,
                dry_run=opened.adapter.is_read_only,
                cache_is_cold=started.cache_is_cold,
            )
        )
    finally:
        plugins.pins[:] = rules


def _same(opened: Opened, trail: TrailRead, told: PassTold, output: str | None, *, as_json: bool) -> bool:
    from jev_engine import __version__  # noqa: PLC0415
    from jev_engine.audit.replay import Check, differences  # noqa: PLC0415
    from jev_engine.cli.files import read_session  # noqa: PLC0415

    done = _again(opened, trail, told)
    keyed = _keyed()
    checks = differences(told, done, keyed)
    if output is not None:
        made = opened.file.dump(done.messages) if done.changed else opened.file.raw
        checks.append(Check("the written file, byte for byte", made == read_session(output).raw))
    is_same = all(check.is_same for check in checks)
    if as_json:
        click.echo(json.dumps({"is_same": is_same, "checks": [check._asdict() for check in checks]}))
        return is_same
    for check in checks:
        detail = f": {plain(check.detail)}" if check.detail and not check.is_same else ""
        click.echo(f"  {'same' if check.is_same else 'DIFFERENT':<10} {check.what}{detail}")
    version = told.started.origin.engine_version if told.started else __version__
    if version != __version__:
        click.echo(f"The pass was made by version {plain(version)}, this is {__version__}.")
    if keyed is None:
        click.echo("The key of this trail is not on this machine: digests could not be compared, decisions were.")
    click.echo(
        f"{'Identical' if is_same else 'NOT identical'}: pass {told.id[:12]} from its input and recorded answers."
    )
    return is_same


def _what_if(opened: Opened, trail: TrailRead, told: PassTold, other: dict[str, Any], *, as_json: bool) -> None:
    done = _again(opened, trail, told, **other)
    now = {decision.call.number: decision.action for decision in done.decisions}
    before = {number_: unit.action for number_, unit in told.units.items()}
    kept = sorted(n for n, action in now.items() if action == "keep" and before.get(n) != "keep")
    gone = sorted(n for n, action in now.items() if action != "keep" and before.get(n) == "keep")
    missed = {back.reference for back in trail.look_backs() if back.reference}
    avoided = [f"t{n}" for n in kept if told.units[n].reference in missed]
    facts = {
        "outcome": done.outcome,
        "freed_tokens": done.stats.freed_tokens,
        "freed_tokens_recorded": getattr(told.end, "freed_tokens", 0),
        "would_stay": [f"t{n}" for n in kept],
        "would_go": [f"t{n}" for n in gone],
        "look_backs_avoided": avoided,
    }
    if as_json:
        click.echo(json.dumps(facts))
        return
    click.echo(f"{done.outcome}: {number(done.stats.freed_tokens)} tokens instead of"
               f" {number(getattr(told.end, 'freed_tokens', 0))}")  # fmt: skip
    for name, title in (
        ("would_stay", "would stay"),
        ("would_go", "would go"),
        ("look_backs_avoided", "look-backs avoided"),
    ):
        labels: Any = facts[name]
        click.echo(f"  {title:<20} {len(labels):,}  {' '.join(labels[:20])}{' …' if len(labels) > 20 else ''}")


def _sweep(opened: Opened, trail: TrailRead, told: PassTold, *, as_json: bool) -> None:
    from jev_engine.audit.replay import SWEEP, swept  # noqa: PLC0415

    backs = trail.look_backs()
    rows = [
        swept(
            threshold,
            _again(opened, trail, told, policy="threshold", keep_result=threshold, keep_call=0.0),
            backs,
            told,
        )
        for threshold in SWEEP
    ]
    if as_json:
        click.echo(json.dumps([row._asdict() for row in rows]))
        return
    click.echo("keep_result   units out   tokens freed   expected misses   looked back at later")
    for row in rows:
        click.echo(f"{row.threshold:>11.2f} {row.out:>11,} {row.freed_tokens:>14,} {row.expected_misses:>17.2f}"
                   f" {row.looked_back:>22,}")  # fmt: skip
