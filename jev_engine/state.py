"""What an asker is shown: the goal and the history, shrunk step by step until they fit.

The ladder and its stage names are those of the reference implementation (tamaratran/fast-jev-compaction), with one
step before it: excerpts of results, the first thing to go. Where even a short ladder leaves no room, the history is
shown in windows: the goal, the newest rows, one span of old rows, and later rows that mention what the span is about.
Text and arguments are shortened only in this copy.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Sequence
from json.encoder import encode_basestring
from typing import Any

from jev_engine.config import EngineConfig
from jev_engine.tokens import TWENTIETHS, cost, reference_tokens
from jev_engine.transcript import Entry, ToolCall, Transcript

__all__ = ["STAGES", "State", "fit_state", "goal_of"]

STAGES = (
    "excerpts",
    "full",
    "inputs<=200",
    "inputs<=60",
    "texts abridged",
    "old messages collapsed",
    "old calls compacted",
    "old messages left out",
    "old calls merged",
)
# A rung above the first, for those who allow it: results in full.
WHOLE = -1
# Sizes of the reference ladder, in characters; confirmed on its vectors.
INPUT_CHARS = (1_000, 1_000, 200, 60)
ABRIDGE_FROM, ABRIDGE_HEAD, ABRIDGE_TAIL = 590, 400, 150
LINE_CHARS = 60
# Ours: an excerpt is the start and end of a result; shown whole up to the sum and a bit.
EXCERPT_CHARS = 300
# Of each text that tells the goal so much, and so many of the latest; a goal that was set may fill the room of four.
GOAL_CHARS = 500
GOAL_ROWS = 3

quote = encode_basestring
BLANKS = re.compile(r"\s+")

Cost = Callable[[str], int]


class State:
    """One state: JSON text, how it was made to fit, and the units it shows."""

    __slots__ = ("cost", "shown", "stage", "text")

    def __init__(self, text: str, stage: str, cost: int, shown: Sequence[ToolCall]) -> None:
        self.text = text
        self.stage = stage
        """One of `STAGES`, or `window`."""
        self.cost = cost
        """In twentieths of a token."""
        self.shown = shown
        """Units that can be seen in it: only these are asked about."""


def reference_cost(text: str) -> int:
    """The reference token rule in twentieths, as the exact ladder counts."""
    return reference_tokens(text) * TWENTIETHS


def goal_of(transcript: Transcript, goal: str | None, focus: str | None, *, with_first: bool = True) -> str:
    """What the session is about: the goal as set, or the first and the three latest things a person wrote.

    A focus comes on top, first.
    """
    parts = [f"Focus: {cut(focus, GOAL_CHARS)}"] if focus else []
    if goal:
        parts.append(cut(goal, GOAL_CHARS * (GOAL_ROWS + 1)))
    else:
        human = [e for e in transcript.entries if e.is_human and e.text and not e.text.isspace()]
        chosen = human[-GOAL_ROWS:]
        if with_first and human and human[0] not in chosen:
            chosen = [human[0], *chosen]
        parts.extend(cut(e.text, GOAL_CHARS) for e in chosen)
    return "\n".join(parts)


def cut(text: str, limit: int) -> str:
    """The text, or its first signs and an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def abridge(text: str) -> str:
    """Start and end of a long text, with the size of what is left out."""
    if len(text) <= ABRIDGE_FROM:
        return text
    gone = len(text) - ABRIDGE_HEAD - ABRIDGE_TAIL
    return f"{text[:ABRIDGE_HEAD]}\n[… {gone} chars omitted …]\n{text[-ABRIDGE_TAIL:]}"


def note(call: ToolCall) -> str:
    """What is said about a result instead of showing it."""
    if call.result is None:
        return "pending, no result yet"
    if call.marked is not None:
        return f"taken out earlier, {call.original_chars} chars"
    images = f", {call.images} images" if call.images else ""
    return f"{'error' if call.is_error else 'ok'}, {len(call.result)} chars{images} (omitted)"


def excerpt(call: ToolCall) -> str:
    """Start and end of a result."""
    result = call.result or ""
    if len(result) <= 2 * EXCERPT_CHARS + 40:
        return result
    return f"{result[:EXCERPT_CHARS]}\n[…]\n{result[-EXCERPT_CHARS:]}"


def render_call(call: ToolCall, stage: int) -> str:
    """One call as JSON text."""
    shown = cut(call.arguments, INPUT_CHARS[min(max(stage, 0), 3)])
    body = f'{{"id":"t{call.number}","tool":{quote(call.tool)},"input":{quote(shown)},"result":"{note(call)}"'
    if stage <= 0 and call.result and call.marked is None:
        return f'{body},"excerpt":{quote(call.result if stage == WHOLE else excerpt(call))}}}'
    return body + "}"


def render_line(call: ToolCall) -> str:
    """One call as a line of text: label, tool, start of its input, and how it ended."""
    status = "pending" if call.result is None else "error" if call.is_error else "ok"
    size = call.original_chars if call.marked is not None else len(call.result or "")
    return f"t{call.number} {call.tool} {cut(flat_input(call.arguments), LINE_CHARS)} → {status} {size}ch"


def flat_input(arguments: str) -> str:
    """The start of the arguments as `name=value` pairs without line breaks."""
    try:
        values = json.loads(arguments) if len(arguments) <= 100_000 else None
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        return BLANKS.sub(" ", arguments[: 4 * LINE_CHARS])
    pairs = []
    for name, value in values.items():
        shown = value[: 8 * LINE_CHARS] if isinstance(value, str) else compact_json({name: value})
        pairs.append(f"{name}={BLANKS.sub(' ', shown) if isinstance(value, str) else shown[: 8 * LINE_CHARS]}")
    return " ".join(pairs)


def compact_json(value: Any) -> str:
    """A value as JSON without blanks, signs as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def render(entry: Entry, stage: int, *, is_brief: bool = False) -> str | None:
    """One message as JSON text at a stage up to `inputs<=60`; None for one with nothing to show.

    `is_brief` leaves out what says nothing, and at the last of these stages shows a call as one line of text.
    """
    text = entry.text
    images = f',"images":{entry.images}' if entry.images else ""
    if not entry.calls:
        if not images and (not text or text.isspace()):
            return None
        return f'{{"i":{entry.row},"role":"{entry.role}","text":{quote(text)}{images}}}'
    if is_brief and stage >= 3:
        calls = ",".join([quote(render_line(call)) for call in entry.calls])
    else:
        calls = ",".join([render_call(call, stage) for call in entry.calls])
    if is_brief and not text:
        return f'{{"i":{entry.row},"tool_calls":[{calls}]}}'
    return f'{{"i":{entry.row},"role":"{entry.role}","text":{quote(text)}{images},"tool_calls":[{calls}]}}'


class Shown:
    """One message on the ladder."""

    __slots__ = ("calls", "cost", "entry", "is_pinned", "json", "text")

    def __init__(self, entry: Entry, json_text: str, *, is_pinned: bool) -> None:
        self.entry = entry
        self.json = json_text
        self.cost = 0
        self.is_pinned = is_pinned
        self.text = entry.text
        self.calls: list[str] = []

    def draw(self, measure: Cost) -> int:
        """Render text and calls anew; returns by how much the cost changed."""
        body = f'{{"i":{self.entry.row},"role":"{self.entry.role}","text":{quote(self.text)}'
        if self.entry.images:
            body += f',"images":{self.entry.images}'
        self.json = f'{body},"tool_calls":[{",".join(self.calls)}]}}' if self.calls else body + "}"
        before, self.cost = self.cost, measure(self.json) + TWENTIETHS
        return self.cost - before


def envelope(context: str, goal: str, history: Sequence[str]) -> str:
    """The state as the JSON text of one object."""
    return f'{{"context":{quote(context)},"goal":{quote(goal)},"history":[{",".join(history)}]}}'


def fit_history(
    entries: Sequence[Entry], pinned_rows: frozenset[int], budget: int, measure: Cost, *, first: int, last: int
) -> tuple[int, list[Shown], int] | None:
    """Climb the ladder from stage `first` to stage `last` until the history costs no more than `budget`.

    Returns stage, messages and cost, or None where it does not fit. Each step works on the oldest message first and
    stops as soon as there is room; costs are counted per message, plus one token each.
    """
    shown: list[Shown] = []
    total = 0
    for stage in range(first, min(last, 3) + 1):
        shown = [
            Shown(entry, drawn, is_pinned=entry.row in pinned_rows)
            for entry in entries
            if (drawn := render(entry, stage)) is not None
        ]
        total = 0
        for item in shown:
            item.cost = measure(item.json) + TWENTIETHS
            total += item.cost
        if total <= budget:
            return stage, shown, total
    for item in shown:
        item.calls = [render_call(call, 3) for call in item.entry.calls]
    for stage, step in ((4, _abridge), (5, _collapse), (6, _compact), (7, _leave_out)):
        if stage > last:
            return None
        for item in _in_order(shown, stage):
            total += step(item, measure)
            if total <= budget:
                return stage, [s for s in shown if s.cost], total
    if last < 8:
        return None
    merged = _merge([s for s in shown if s.cost], measure)
    total = sum(item.cost for item in merged)
    return (8, merged, total) if total <= budget else None


def _in_order(shown: list[Shown], stage: int) -> list[Shown]:
    old = [item for item in shown if not item.is_pinned]
    if stage == 4:
        return [item for item in (*old, *(s for s in shown if s.is_pinned)) if len(item.text) > ABRIDGE_FROM]
    if stage == 5:
        return [item for item in old if len(item.text) > len(_collapsed(item))]
    if stage == 6:
        return [item for item in old if item.calls]
    return [item for item in old if not item.calls]


def _collapsed(item: Shown) -> str:
    return f"[… {len(item.entry.text)} chars omitted …]"


def _abridge(item: Shown, measure: Cost) -> int:
    item.text = abridge(item.text)
    return item.draw(measure)


def _collapse(item: Shown, measure: Cost) -> int:
    item.text = _collapsed(item)
    return item.draw(measure)


def _compact(item: Shown, measure: Cost) -> int:
    item.calls = [quote(render_line(call)) for call in item.entry.calls]
    return item.draw(measure)


def _leave_out(item: Shown, _measure: Cost) -> int:
    gone, item.cost = item.cost, 0
    return -gone


def _merge(shown: list[Shown], measure: Cost) -> list[Shown]:
    """Runs of old messages that only hold calls become one message each."""
    merged: list[Shown] = []
    for item in shown:
        last = merged[-1] if merged else None
        if last is not None and all(i.calls and not i.text and not i.is_pinned for i in (last, item)):
            last.calls = last.calls + item.calls
        else:
            merged.append(item)
    for item in merged:
        item.draw(measure)
    return merged


def quick_sizes(entries: Sequence[Entry]) -> list[int]:
    """About how many characters messages take at the stages up to `texts abridged`, without rendering them."""
    lengths = [len(e.text) for e in entries]
    calls = [c for e in entries for c in e.calls]
    inputs = [len(c.arguments) for c in calls]
    frames = 20 * len(lengths) + 80 * len(inputs)
    texts = frames + sum(lengths)
    limit = 2 * EXCERPT_CHARS
    excerpts = sum([min(len(c.result), limit) if c.result else 0 for c in calls])
    sizes = [texts + sum([min(size, limit) for size in inputs]) for limit in INPUT_CHARS]
    sizes[0] += excerpts
    # As lines, calls need less around their inputs.
    sizes[3] -= 40 * len(inputs)
    return [*sizes, sizes[3] - sum([max(0, length - ABRIDGE_FROM) for length in lengths])]


# About so many messages tell what a character of a history costs.
SAMPLED_MESSAGES = 40
# Estimates from them lie within a tenth of the exact cost: what they put further above a budget does not fit it.
HOPELESS = 0.9
# No text has more: six letters are a token at least.
MOST_CHARS_PER_TOKEN = 7


def outlook(entries: Sequence[Entry]) -> list[float]:
    """About what the history costs at each stage up to `texts abridged`, in twentieths; no stage is rendered for it."""
    some = entries[:: max(1, len(entries) // SAMPLED_MESSAGES)]
    of_some, of_all = quick_sizes(some), quick_sizes(entries)
    # Calls as objects and calls as lines cost differently.
    rates = []
    for stage in (2, 3):
        drawn = [text for entry in some if (text := render(entry, stage, is_brief=True)) is not None]
        rates.append(cost(",".join(drawn)) / max(1, of_some[stage]))
    return [size * rates[stage > 2] for stage, size in enumerate(of_all)]


def fit_state(
    transcript: Transcript,
    pinned_rows: frozenset[int],
    config: EngineConfig,
    *,
    context: str,
    goal: str,
    budget_tokens: int,
    costs: Sequence[float] | None = None,
) -> State | None:
    """The whole history in one state, or None where that does not fit a short ladder.

    The reference profile climbs its whole ladder exactly; others stop before old messages are collapsed, because
    windows then show more. `costs` is the `outlook`, where it is known already.
    """
    exact = config.profile == "reference"
    measure = reference_cost if exact else cost
    frame = measure(envelope(context, goal, [])) + TWENTIETHS
    budget = budget_tokens * TWENTIETHS - frame
    if budget <= 0:
        return None
    entries = transcript.entries
    if not exact:
        costs = outlook(entries) if costs is None else costs
        quick = _fit_quickly(transcript, pinned_rows, config, budget, costs)
        if quick is None:
            return None
        name, drawn, total = quick
        return State(envelope(context, goal, drawn), name, total + frame, transcript.calls)
    fitted = fit_history(entries, pinned_rows, budget, measure, first=1, last=8)
    if fitted is None:
        return None
    stage, shown, total = fitted
    visible = [call for item in shown for call in item.entry.calls] if stage < 8 else list(transcript.calls)
    return State(envelope(context, goal, [i.json for i in shown]), STAGES[stage], total + frame, visible)


def _fit_quickly(
    transcript: Transcript, pinned_rows: frozenset[int], config: EngineConfig, budget: int, costs: Sequence[float]
) -> tuple[str, list[str], int] | None:
    """The first stage up to `texts abridged` that fits: rendered once where the outlook is right."""
    stages = [stage for stage in range(5) if costs[stage] * HOPELESS <= budget]
    if config.privacy == "sizes" or not config.show_excerpts:
        stages = [stage for stage in stages if stage > 0]
    elif config.privacy == "full" and transcript.chars() * HOPELESS <= budget / TWENTIETHS * MOST_CHARS_PER_TOKEN:
        stages = [WHOLE, *stages]
    for stage in stages:
        entries = transcript.entries
        if stage == 4:
            entries = [entry if entry.row in pinned_rows else abridged(entry) for entry in entries]
        drawn = [text for entry in entries if (text := render(entry, min(stage, 3), is_brief=True)) is not None]
        total = cost(",".join(drawn)) + TWENTIETHS
        if total <= budget:
            return "results" if stage == WHOLE else STAGES[stage], drawn, total
    return None


def abridged(entry: Entry) -> Entry:
    """The message with start and end of its text; itself where that is short."""
    if len(entry.text) <= ABRIDGE_FROM:
        return entry
    short = copy.copy(entry)
    short.text = abridge(entry.text)
    return short
