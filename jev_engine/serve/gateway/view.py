"""What the provider is sent of a history: decisions in force, hidden calls in their place, unbound reasoning gone.

A view is a function of the history, the ledger and what is known of the conversation. The view of the request before
is taken over as far as the histories are the same, so that what was sent once is sent again byte for byte.
"""

from __future__ import annotations

from typing import Any

from jev_engine.host import Adapter
from jev_engine.ledger import KeyCache, Ledger, assign_keys
from jev_engine.rebuild import plan_changes, rebuild, validate
from jev_engine.serve.gateway.body import Body, Outgoing, dump
from jev_engine.serve.gateway.conversations import Conversation
from jev_engine.serve.gateway.form import Form

__all__ = ["View", "compose", "view_of"]


class View:
    """One history as it is sent."""

    __slots__ = ("body", "edited", "edited_ids", "key", "reasoning_removed", "rows")

    def __init__(self, body: Body, key: tuple[Any, ...]) -> None:
        self.body = body
        self.key = key
        """What it was made with beside the history."""
        self.rows: dict[int, str | None] = {}
        """The text of every row that differs, None for those that are gone."""
        self.edited: dict[bytes, int] = {}
        """Rows that decisions changed, by chain digest."""
        self.edited_ids: set[str] = set()
        """Ids of the calls that decisions changed."""
        self.reasoning_removed = 0

    def chars(self) -> int:
        """How long the body is as it is sent."""
        spans = self.body.spans
        gone = sum(spans[row][1] - spans[row][0] for row in self.rows)
        return len(self.body.text) - gone + sum(len(text) for text in self.rows.values() if text)

    def write(self, fields: dict[str, str]) -> Outgoing:
        """The body as it is sent."""
        return self.body.write(self.rows, fields)


def compose(conversation: Conversation, body: Body, form: Form) -> tuple[list[Any], list[int]]:
    """The history with hidden calls in their place, and for each of its messages the client's row.

    An answer that does not fit what was hidden in it stays as it is; its reasoning cannot be valid any more.
    """
    messages = body.messages
    if not conversation.hidden:
        return messages, []
    made: list[Any] = []
    rows: list[int] = []
    row = 0
    while row < len(messages):
        place = body.chain[row - 1] if row else b""
        found = conversation.hidden.get(place, ())
        behind = messages[row + 1] if row + 1 < len(messages) else None
        for hidden in reversed(found):
            revealed = form.reveal(messages[row], behind, hidden)
            if revealed is not None:
                said, after = revealed
                made += said
                rows += [row] * len(said)
                if after and after[0] is not behind:
                    row += behind is not None
                    made += after
                    rows += [row] * len(after)
                break
        else:
            if found and form.has_reasoning(messages[row]):
                conversation.unbound |= {body.chain[row]}
            made.append(messages[row])
            rows.append(row)
        row += 1
    return made, rows


def view_of(
    conversation: Conversation,
    body: Body,
    ledger: Ledger,
    form: Form,
    adapter: Adapter,
    keys: KeyCache,
    known: View | None,
) -> View:
    """The view of a history, `known` being an earlier one. Raises RebuildError, and whatever odd messages raise."""
    strips = bool(conversation.unbound) and form.binds_reasoning(body.fields)
    key = (ledger, conversation.answers_hidden, len(conversation.unbound) if strips else -1)
    if known is not None and known.key == key:
        grown = _grown(known, body, conversation, strips=strips)
        if grown is not None:
            return grown
    view = View(body, key)
    composed, rows = compose(conversation, body, form)
    texts: dict[int, list[Any]] = {}
    if rows:
        for message, row in zip(composed, rows, strict=True):
            texts.setdefault(row, []).append(message)
    transcript = adapter.read(composed)
    repeated = assign_keys(transcript, ledger, keys)
    changes = plan_changes(transcript, ledger, adapter, repeated)
    rebuilt = rebuild(transcript, changes, adapter)
    validate(transcript, rebuilt, adapter)
    for change in changes.values():
        view.edited_ids.update(str(call.call_id) for call, _ in change.results)
        view.edited_ids.update(str(call.call_id) for call in change.removed)
    out: dict[int, list[Any]] = {}
    for at, target in enumerate(rebuilt.index_map):
        row = rows[at] if rows else at
        left = out.setdefault(row, [])
        if at in changes:
            view.edited[body.chain[row]] = row
        if target is not None:
            left.append(rebuilt.messages[target])
    _strip(view, out, conversation, form, strips=strips)
    for row, left in out.items():
        if len(left) != 1 or left[0] is not body.messages[row]:
            view.rows[row] = ",".join(dump(message) for message in left) if left else None
    return view


def _strip(view: View, out: dict[int, list[Any]], conversation: Conversation, form: Form, *, strips: bool) -> None:
    """Take out reasoning that was made for a history that is no longer sent."""
    if not strips:
        return
    chain = view.body.chain
    for row, left in out.items():
        if chain[row] in conversation.unbound:
            kept = [form.without_reasoning(message) for message in left]
            view.reasoning_removed += sum(new is not old for new, old in zip(kept, left, strict=True))
            out[row] = [message for message in kept if message is not None]


def _grown(known: View, body: Body, conversation: Conversation, *, strips: bool) -> View | None:
    """The view of a longer history by that of its beginning; None where a decision may reach into what is new."""
    old = known.body.messages
    shared = 0
    for message, before in zip(body.messages, old, strict=False):
        if message is not before:
            break
        shared += 1
    chain = body.chain
    for row in range(shared, len(body.messages)):
        if not conversation.hidden.keys().isdisjoint(chain[max(0, row - 2) : row]):
            return None
        if strips and chain[row] in conversation.unbound:
            return None
        if not known.edited_ids.isdisjoint(_ids(body.messages[row])):
            return None
    view = View(body, known.key)
    view.rows = {row: text for row, text in known.rows.items() if row < shared}
    view.edited = {digest: row for digest, row in known.edited.items() if row < shared}
    view.edited_ids = known.edited_ids
    view.reasoning_removed = known.reasoning_removed
    return view


def _ids(message: Any) -> list[str]:
    """Ids of calls and results in a message, of either form."""
    if not isinstance(message, dict):
        return []
    found = [str(message.get("tool_call_id"))] if "tool_call_id" in message else []
    content, calls = message.get("content"), message.get("tool_calls")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict):
            found += [str(block[name]) for name in ("id", "tool_use_id") if name in block]
    found += [str(call.get("id")) for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    return found
