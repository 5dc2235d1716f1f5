"""`jev-engine inspect`: what is in a session, what is pinned, and what an asker would be shown."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from jev_engine.cli import options
from jev_engine.cli.files import Refused
from jev_engine.cli.show import (
    CallRow,
    call_table,
    console_for,
    emit,
    emit_facts,
    number,
    plain,
    progress,
    several,
    tally,
)

if TYPE_CHECKING:
    from jev_engine.cli.opening import Opened
    from jev_engine.judges.asked import PlannedRequest
    from jev_engine.passes import Pass

__all__ = ["inspect"]

# Sessions up to this many calls are listed whole; of longer ones the largest calls.
WHOLE_CALLS, LARGEST = 40, 25


@click.command()
@options.file_argument
@options.format_option
@options.setting_options
@options.judge_options
@options.store_option
@click.option("--show-state", is_flag=True, help="Print the whole text an asker would be shown, part by part.")
@click.option(
    "--show-request",
    is_flag=True,
    help="Print every request that --judge would send first, word for word, and where to.",
)
@click.option("--all", "show_all", is_flag=True, help="List every call of a long session.")
@options.json_option
def inspect(**given: Any) -> None:
    """Show the calls of a session, what is pinned and why, and what an asker would see.

    Nothing is judged, sent, stored or written.

    \b
    Examples:
      jev-engine inspect session.json
      jev-engine inspect session.jsonl --show-state --goal 'fix the parser'
      jev-engine inspect session.json --judge jev --show-request
    """  # noqa: D301  # \b keeps click from wrapping the examples
    from jev_engine.cli import opening  # noqa: PLC0415  # the engine, only where something is done
    from jev_engine.errors import JudgeError  # noqa: PLC0415
    from jev_engine.judges import JudgeRequest  # noqa: PLC0415
    from jev_engine.judges.asked import plan_requests  # noqa: PLC0415
    from jev_engine.judges.choose import planned_by, preview  # noqa: PLC0415

    config = options.make_settings(**{name: given[name] for name in ("profile", "window", "protect", "privacy")})
    opened = opening.open_session(
        given["file"], given["host"], config, given["store"], given["judge"], given["endpoint"]
    )
    with progress(f"Reading {len(opened.file.messages):,} messages"):
        seen = opening.look(opened)
        opening.warn_of_unmatched(seen.transcript, given["protect"])
        pins = seen.pins
        request = JudgeRequest(seen.transcript, pins.candidates, given["goal"], given["focus"], pins.rows, config)
        judge = opened.engine.judge
        try:
            planned = plan_requests(request) if judge is None else planned_by(judge, request)
        except JudgeError as error:
            raise Refused(str(error)) from None
    if given["show_request"]:
        if judge is None:
            raise click.UsageError("--show-request needs a judge that sends something: --judge jev, cascade or a URL.")
        for each in preview(judge, planned):
            size = f"{each.calls:,} calls, about {each.tokens:,} tokens, {len(each.body.encode()):,} bytes"
            click.echo(f"POST {each.url}    ({size}; nothing was sent)\n{plain(each.body)}\n")
        return
    if given["as_json"]:
        click.echo(json.dumps(to_json(opened, seen, planned, show_state=given["show_state"])))
        return
    _show(opened, seen, planned, show_all=given["show_all"])
    if given["show_state"]:
        for count, text in enumerate(states_of(planned), start=1):
            click.echo(f"\nState {count}:\n{plain(text)}")


def states_of(planned: list[PlannedRequest]) -> list[str]:
    """The text of each state once, in order."""
    return list(dict.fromkeys(request.state.text for request in planned))


def to_json(opened: Opened, seen: Pass, planned: list[PlannedRequest], *, show_state: bool) -> dict[str, Any]:
    """Everything `inspect` knows as one plain JSON object."""
    stats, reasons = seen.stats, seen.pins.reasons
    states = states_of(planned)
    state: dict[str, Any] = {
        "stage": planned[0].state.stage if planned else None,
        "tokens": max((-(-request.state.cost // 20) for request in planned), default=0),
        "windows": len(states),
        "requests": len(planned),
        "asked": sum(len(request.calls) for request in planned),
    }
    if show_state:
        state["texts"] = states
    return {
        "host": opened.adapter.name,
        "container": opened.file.container,
        "messages": stats.messages_before,
        "chars": stats.chars_before,
        "tokens": stats.tokens_before,
        "calls": [
            {
                "label": call.label,
                "tool": call.tool,
                "row": call.row,
                "chars": None if call.result is None else len(call.result),
                "tokens": call.tokens,
                "pinned": reasons.get(call.number),
            }
            for call in seen.transcript.calls
        ],
        "candidates": len(seen.pins.candidates),
        "pinned": stats.pinned,
        "odd": stats.odd,
        "state": state,
    }


def _show(opened: Opened, seen: Pass, planned: list[PlannedRequest], *, show_all: bool) -> None:
    console = console_for(sys.stdout)
    stats, reasons, calls = seen.stats, seen.pins.reasons, seen.transcript.calls
    rows = [
        CallRow(call, len(calls) - call.number, "pinned" if call.number in reasons else "judged",
                reasons.get(call.number, ""))
        for call in calls
    ]  # fmt: skip
    shown = rows
    if not show_all and len(rows) > WHOLE_CALLS:
        largest = sorted(rows, key=lambda row: row.call.tokens, reverse=True)[:LARGEST]
        shown = sorted(largest, key=lambda row: row.call.number)
    if shown:
        emit(console, call_table([shown], console, with_judgement=False))
    if len(shown) < len(rows):
        emit(console, f"Shown: the {LARGEST} largest of {len(rows):,} calls (--all shows every call).", "")
    facts = to_json(opened, seen, planned, show_state=False)
    state = facts["state"]
    lines = [
        ("file", f"{opened.file.name}: {opened.adapter.name}, {CONTAINERS[opened.file.container]}"),
        ("messages", f"{number(stats.messages_before)}, about {several(stats.tokens_before, 'token')}"),
        ("calls", f"{stats.calls:,}: {facts['candidates']:,} to be judged, {sum(stats.pinned.values()):,} pinned"),
    ]
    if stats.pinned:
        lines.append(("pinned", tally(stats.pinned)))
    if stats.odd:
        lines.append(("other rows", f"{tally(stats.odd)}; left as they are"))
    if planned:
        parts = f"{several(state['windows'], 'part')} (stage {state['stage']!r})"
        lines.append(("an asker", f"would see {parts}, at most {number(state['tokens'])} tokens each,"))
        asked, requests = several(state["asked"], "call"), several(state["requests"], "request")
        lines.append(("", f"and would be asked about {asked} in {requests}"))
    lines.append(("sent", _sent(opened)))
    emit_facts(console, lines)


def _sent(opened: Opened) -> str:
    judge: Any = opened.engine.judge
    if judge is None:
        return "nothing: no asker is set, the judge on this machine decides"
    asker = getattr(judge, "asked", judge).asker
    return f"nothing now; compress would send it to {asker.endpoint.url}, results as {opened.engine.config.privacy}"


CONTAINERS = {"list": "a JSON list", "object": "a JSON object with messages", "lines": "JSON Lines"}
