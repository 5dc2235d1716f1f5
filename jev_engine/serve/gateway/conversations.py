"""Which conversation a request belongs to: sessions recognised by their beginning, forks and retries included.

A client sends its whole history every time. A request that begins with the newest one of a conversation continues it;
the same request again is a retry; one that leaves it earlier is a fork, which keeps the decisions made until then and
goes its own way from there. Where a client names its session, two names are two conversations; one that begins with
answers of the other is its fork.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any, Generic, NamedTuple, TypeVar

from anyio import to_thread

from jev_engine import bridge
from jev_engine.engine import ContextEngine
from jev_engine.ledger import Ledger
from jev_engine.serve.gateway.body import Body
from jev_engine.serve.gateway.hidden import Hidden
from jev_engine.serve.gateway.records import Record, Records
from jev_engine.sessions import Session
from jev_engine.store import OriginalStore

__all__ = ["Conversation", "Conversations", "Newest", "State"]

MOST_CONVERSATIONS = 1_000
"""Conversations known at once; beyond it the one unused for longest is forgotten."""
MOST_TIPS = 40_000
"""Places at which requests ended and may be continued: 20 for each conversation, under its name and under any."""
MOST_HISTORIES = 64
MOST_HISTORY_CHARS = 16_000_000
"""Histories kept to read and edit the next request faster; parsed, they take about four times their length."""


LARGE_CHARS = 2_000_000
"""A body of so many characters takes about 10 ms to parse; other streams should not wait that long."""

K = TypeVar("K")
V = TypeVar("V")


class Newest(Generic[K, V]):
    """The newest of things that hold whole histories, up to a number and a length in characters."""

    def __init__(self, chars_of: Callable[[V], int]) -> None:
        self._chars_of = chars_of
        self._things: OrderedDict[K, V] = OrderedDict()
        self._chars = 0

    def put(self, key: K, thing: V) -> None:
        """Take one in; the oldest go where there is no room."""
        self.drop(key)
        self._things[key] = thing
        self._chars += self._chars_of(thing)
        while len(self._things) > MOST_HISTORIES or (self._chars > MOST_HISTORY_CHARS and len(self._things) > 1):
            self.drop(next(iter(self._things)))

    def get(self, key: K) -> V | None:
        """One of them, if it is still here."""
        return self._things.get(key)

    def drop(self, key: K) -> None:
        """Forget one."""
        thing = self._things.pop(key, None)
        if thing is not None:
            self._chars -= self._chars_of(thing)

    def newest_first(self) -> Iterator[V]:
        """All of them."""
        return reversed(self._things.values())


async def link(store: OriginalStore, new: str, old: str) -> None:
    """Let a session read what another one has; raises StoreError.

    It writes, and a database may be busy: who waits for it can stop waiting at any time.
    """
    await to_thread.run_sync(bridge.run, store.link_session, new, old, abandon_on_cancel=True)


class State(NamedTuple):
    """What a conversation was at one of its requests; a fork begins with it."""

    session: Session
    ledger: Ledger | None
    unbound: frozenset[bytes]
    sent_edits: frozenset[bytes]
    hidden: Mapping[bytes, Sequence[Hidden]]
    answers_hidden: int
    offers_expand: bool
    is_left_alone: bool
    answered_at: float
    sent_chars: int
    used_tokens: int | None
    reasoning_removed: int


class Conversation:
    """One line of history: its session, and what the gateway knows beyond the session's ledger.

    Collections are replaced, never changed, so that a `State` may hold them.
    """

    def __init__(self, session: Session, form: str, hint: str) -> None:
        self.session = session
        self.form = form
        self.hint = hint
        self.tip = b""
        """The chain digest of its newest request."""
        self.unbound: frozenset[bytes] = frozenset()
        """Assistant messages whose reasoning was made for a history that is no longer sent, by chain digest."""
        self.sent_edits: frozenset[bytes] = frozenset()
        """The rows edited in what was sent last, by chain digest; empty after originals were sent."""
        self.hidden: Mapping[bytes, Sequence[Hidden]] = {}
        """Calls answered here, by chain digest of the request they answered."""
        self.answers_hidden = 0
        """How many answers with hidden calls there were."""
        self.offers_expand = False
        """The tool is in what is sent, from the first edit on."""
        self.is_left_alone = False
        """The provider refused an edited request and took the original: nothing is edited any more."""
        self.answered_at = time.monotonic()
        self.sent_chars = 0
        self.used_tokens: int | None = None
        """Prompt tokens of its last answer."""
        self.reasoning_removed = 0
        """Messages that are sent without their reasoning."""
        self.linked = ""
        """The session of ours that reads what the host's own session has stored."""

    def state(self) -> State:
        """What it is now."""
        own = {name: getattr(self, name) for name in State._fields if name != "ledger"}
        return State(ledger=self.session.ledger, **own)

    async def fork(self, state: State, tip: bytes) -> Conversation:
        """A conversation that goes on from an earlier state under the tip of its own first request.

        Hosts send side requests (titles, suggestions, summaries) that begin like the conversation and end there; so
        the session stays in common until one of them decides something.
        """
        child = Conversation(state.session, self.form, self.hint)
        child.tip = tip
        for name in State._fields:
            if name not in ("session", "ledger"):
                setattr(child, name, getattr(state, name))
        if state.session.ledger is not state.ledger:
            await child.own_session(Ledger() if state.ledger is None else state.ledger)
        return child

    async def own_session(self, ledger: Ledger | None = None) -> None:
        """Take a session of its own, with a ledger or that of the common one; raises StoreError and keeps that."""
        common = self.session
        name = f"{common.name.partition('.')[0]}.{self.tip.hex()[:12]}"
        own = Session(common.engine, name, host=common.host, came_from=common.name)
        ledger = await common.in_force() if ledger is None else ledger
        if len(ledger):
            await link(common.engine.store, own.name, common.name)
        own.ledger = ledger
        own.trigger = copy(common.trigger)
        own.trigger.usage_tokens = self.used_tokens
        self.session = own


class _Place(NamedTuple):
    """A request that may be continued."""

    conversation: Conversation
    state: State


class Conversations:
    """All conversations this process knows, the least recently used forgotten first."""

    def __init__(self, engine: ContextEngine, records: Records) -> None:
        self.engine = engine
        self.records = records
        self._all: OrderedDict[Conversation, None] = OrderedDict()
        self._tips: OrderedDict[tuple[str | None, bytes], _Place] = OrderedDict()
        self._bodies: Newest[int, Body] = Newest(lambda body: len(body.text))
        self.views: Newest[Conversation, Any] = Newest(lambda view: len(view.body.text))
        """What was last sent of a conversation, see `view.View`."""

    def __len__(self) -> int:
        return len(self._all)

    async def read(self, text: str) -> Body:
        """Parse a body with the help of the one that begins most alike, a large one in a thread; raises BadBody."""
        known = max(
            (body for body in self._bodies.newest_first() if _starts_alike(body, text)),
            key=lambda body: _shared_messages(body, text),
            default=None,
        )
        body = Body.read(text, known) if len(text) < LARGE_CHARS else await to_thread.run_sync(Body.read, text, known)
        self._remember(body, known)
        return body

    def _remember(self, body: Body, known: Body | None) -> None:
        if known is not None and len(body.text) >= len(known.text):
            self._bodies.drop(id(known))  # the longer one knows all that the shorter one did
        self._bodies.put(id(body), body)

    async def find(self, body: Body, form: str, hint: str) -> Conversation:
        """The conversation a request belongs to, made where there is none; the request becomes its newest one."""
        place, at = self._known(body, hint)
        if place is None:
            place = self._of_another_name(body)
            if place is None:
                found = self._recorded(body, form, hint) or self._made(body, form, hint)
            else:
                found = await place.conversation.fork(place.state, body.chain[-1])
                found.hint = hint
        else:
            found = place.conversation
            if found.tip != body.chain[at] or found not in self._all:
                # It has gone on elsewhere since that request, or was forgotten and may have changed through another.
                found = await found.fork(place.state, body.chain[-1])
        self._note(found, body)
        return found

    def look_up(self, body: Body, hint: str) -> Conversation | None:
        """The conversation a request belongs to, if it is known; nothing is noted."""
        place, _ = self._known(body, hint)
        return None if place is None else place.conversation

    def is_shared(self, conversation: Conversation) -> bool:
        """Whether another conversation of this process has the same session."""
        return any(each.session is conversation.session for each in self._all if each is not conversation)

    def settle(self, conversation: Conversation, body: Body) -> None:
        """What became of a request is known: forks of it begin with that."""
        if conversation.tip != body.chain[-1]:
            return  # it has gone on meanwhile
        place = _Place(conversation, conversation.state())
        for key in ((conversation.hint, conversation.tip), (None, conversation.tip)):
            self._tips[key] = place

    def _known(self, body: Body, hint: str) -> tuple[_Place | None, int]:
        chain = body.chain
        for at in range(len(chain) - 1, -1, -1):
            found = self._tips.get((hint, chain[at]))
            if found is not None:
                return found, at
        return None, -1

    def _of_another_name(self, body: Body) -> _Place | None:
        """A conversation under another name whose answers this one begins with: what a host makes when it forks."""
        chain, messages = body.chain, body.messages
        first = next((i for i, m in enumerate(messages) if isinstance(m, dict) and m.get("role") == "assistant"), None)
        if first is None:
            return None
        for at in range(len(chain) - 1, first, -1):
            found = self._tips.get((None, chain[at]))
            if found is not None:
                return found
        return None

    def _recorded(self, body: Body, form: str, hint: str) -> Conversation | None:
        """A conversation of an earlier process, by the record of its passes."""
        record = self.records.find(body.chain, hint)
        if record is None:
            return None
        found = Conversation(Session(self.engine, record.session, host=form), form, hint)
        _take(record, found)
        return found

    def _made(self, body: Body, form: str, hint: str) -> Conversation:
        name = f"{hint or 'gateway'}-{body.chain[-1].hex()[:12]}"
        return Conversation(Session(self.engine, name, host=form), form, hint)

    def _note(self, found: Conversation, body: Body) -> None:
        found.tip = body.chain[-1]
        self._all[found] = None
        self._all.move_to_end(found)
        self.settle(found, body)
        while len(self._tips) > MOST_TIPS:
            self._tips.popitem(last=False)
        while len(self._all) > MOST_CONVERSATIONS:
            old, _ = self._all.popitem(last=False)
            self.views.drop(old)

    def keep(self, conversation: Conversation, edits: tuple[bytes, ...]) -> None:
        """Write down what a later process needs to go on with a conversation that has been edited."""
        self.records.save(
            Record(
                session=conversation.session.name,
                hint=conversation.hint,
                edits=edits,
                unbound=conversation.unbound,
                hidden=dict(conversation.hidden),
                offers_expand=conversation.offers_expand,
            )
        )


def _take(record: Record, conversation: Conversation) -> None:
    conversation.unbound, conversation.hidden = record.unbound, dict(record.hidden)
    conversation.offers_expand = record.offers_expand
    conversation.sent_edits = frozenset(record.edits)


def _starts_alike(body: Body, text: str) -> bool:
    return bool(body.spans) and text.startswith(body.text[: body.spans[0][1]])


def _shared_messages(body: Body, text: str) -> int:
    """Messages both share, found by halving: nearly always all of them."""
    low, high = 1, len(body.spans)
    while low < high:
        middle = (low + high + 1) // 2
        start, end = body.spans[low - 1][1], body.spans[middle - 1][1]
        if text.startswith(body.text[start:end], start):
            low = middle
        else:
            high = middle - 1
    return low
