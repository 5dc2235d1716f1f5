"""What happens to one request before it is sent on, and what is learned from its answer. No sockets here.

Whatever goes wrong, the original bytes go on.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
from anyio import to_thread

from jev_engine import bridge
from jev_engine.audit.lifecycle import model_called
from jev_engine.engine import ContextEngine
from jev_engine.errors import JevEngineError, StoreError
from jev_engine.ledger import KeyCache, Ledger
from jev_engine.serve.gateway.body import BadBody, Body, Outgoing, dump
from jev_engine.serve.gateway.conversations import Conversation, Conversations, link
from jev_engine.serve.gateway.form import Form, Reply
from jev_engine.serve.gateway.records import Records
from jev_engine.serve.gateway.view import View, compose, view_of
from jev_engine.store.expand import expand
from jev_engine.trail import Trail

__all__ = ["Brain", "Prepared"]

logger = logging.getLogger("jev_engine")

CHARS_PER_TOKEN = 3.5
"""Characters of a request per token, for providers that report no usage: English text and code lie between 3 and 4."""
COLD_SECONDS = 3_600.0
"""The longest time a provider keeps a cached prefix (its extended cache); after it nothing is lost by an edit."""
MOST_KEYS = 100_000
"""Keys of units kept between requests; with more all are worked out anew."""
LONGEST_EXPAND_ID = 64


class Prepared:
    """A request as it is sent on."""

    __slots__ = ("body", "conversation", "form", "original", "outgoing", "reply", "unbound", "view")

    def __init__(self, form: Form, original: bytes) -> None:
        self.form = form
        self.original = original
        self.outgoing: Outgoing | None = None
        """The edited body; None where the original goes on."""
        self.conversation: Conversation | None = None
        self.body: Body | None = None
        self.view: View | None = None
        self.reply: Reply | None = None
        """What puts the answer together, where calls may have to be answered here."""
        self.unbound: frozenset[bytes] = frozenset()
        """Messages that lose their reasoning for good, should the provider take the request."""

    @property
    def content(self) -> bytes:
        """The bytes to send."""
        return self.original if self.outgoing is None else self.outgoing.encode()


class Brain:
    """The decisions of the gateway. One for each gateway; used from one event loop."""

    def __init__(self, engine: ContextEngine, records: Records, *, deadline_seconds: float) -> None:
        self.engine = engine
        self.conversations = Conversations(engine, records)
        self.deadline_seconds = deadline_seconds
        self.counts: Counter[str] = Counter()
        """What happened so far, by kind; no content."""
        self._keys = KeyCache()

    @property
    def tool(self) -> str | None:
        """The tool by which originals are had back, where the engine's markers name one."""
        return self.engine.config.expand_tool

    async def prepare(self, form: Form, path: str, headers: Mapping[str, str], raw: bytes) -> Prepared:
        """What to send on for a request; the original where nothing is edited, and where anything fails."""
        prepared = Prepared(form, raw)
        try:
            await self._prepare(prepared, headers, counts_only=form.is_count(path))
        except (BadBody, UnicodeDecodeError):
            self.counts["unreadable bodies"] += 1  # for the provider to refuse
        except Exception as error:  # noqa: BLE001  # whatever it is, the original goes on
            self._fault("a request was not prepared; the original goes on", error)
            prepared.outgoing = prepared.view = prepared.reply = None
        return prepared

    async def _prepare(self, prepared: Prepared, headers: Mapping[str, str], *, counts_only: bool) -> None:
        form = prepared.form
        body = await self.conversations.read(prepared.original.decode())
        if not body.messages:
            return
        hint = form.hint(headers, body.fields)
        if counts_only:
            known = self.conversations.look_up(body, hint)
            if known is None or known.is_left_alone or not len(known.session.ledger or ()):
                return
            prepared.conversation, prepared.body = known, body
            await self._edit(prepared, known, body, counts_only=True)
            return
        ends = anyio.current_time() + self.deadline_seconds
        with anyio.fail_after(self.deadline_seconds):
            found = await self.conversations.find(body, form.name, hint)
        prepared.conversation, prepared.body = found, body
        self.counts["requests"] += 1
        await found.session.in_force()
        if found.is_left_alone:
            prepared.outgoing = _without_reasoning_of(found.unbound, body, form)
            return
        await self._fill(found, form)
        if await self._wants_pass(found, body, form):
            await self.plan(found, body, form, ends=ends)
        await self._edit(prepared, found, body)

    async def _wants_pass(self, found: Conversation, body: Body, form: Form) -> bool:
        trigger = found.session.trigger
        if found.used_tokens is not None:
            trigger.usage_tokens = found.used_tokens  # a session in common has heard of another branch last
        estimate = None
        if trigger.usage_tokens is None:
            ledger = await found.session.in_force()
            chars = self._view(found, body, form, ledger).chars() if len(ledger) else len(body.text)
            estimate = round(chars / CHARS_PER_TOKEN)
        due = found.session.due(estimate)
        if not due:
            return False
        if not due.is_forced and not form.may_edit_now(body.fields, body.messages):
            self.counts["passes put off until the turn ends"] += 1
            return False
        return True

    async def plan(
        self, found: Conversation, body: Body, form: Form, *, force: bool = False, ends: float | None = None
    ) -> bool:
        """One pass within the deadline; what it decides later than that holds from the next request on."""
        messages, _ = compose(found, body, form)
        before = found.session.ledger
        is_cold = time.monotonic() - found.answered_at > COLD_SECONDS
        with anyio.CancelScope(
            deadline=anyio.current_time() + self.deadline_seconds if ends is None else ends
        ) as scope:
            try:
                await self._link(found, form)
            except JevEngineError as error:
                self._fault("a forked session could not be linked to its store", error)
                return False
            self.counts["passes"] += 1
            call = partial(bridge.run, found.session.compress, messages, None, None, force, cache_is_cold=is_cold)
            done = await to_thread.run_sync(call, abandon_on_cancel=True)
            self.counts[f"passes {done.outcome}"] += 1
        if scope.cancelled_caught:
            self.counts["passes beyond the deadline"] += 1
        return found.session.ledger is not before

    async def _link(self, found: Conversation, form: Form) -> None:
        """Before it decides anything, a conversation has a session of its own that reads what belongs to it.

        Raises StoreError where a fork cannot have one.
        """
        if self.conversations.is_shared(found):
            await found.own_session()
        if found.hint and form.hints_name_sessions and found.linked != found.session.name:
            with suppress(StoreError):
                # What a plugin or an offline rewrite stored under the host's own name can be asked back here too.
                await link(self.engine.store, found.session.name, found.hint)
                found.linked = found.session.name

    async def _edit(self, prepared: Prepared, found: Conversation, body: Body, *, counts_only: bool = False) -> None:
        """Work out what is sent; nothing is set in `prepared` before all of it is there."""
        form = prepared.form
        ledger = found.session.ledger
        if ledger is None or (not len(ledger) and not found.hidden):
            return
        view = self._view(found, body, form, ledger)
        if not view.rows:
            return
        fields = self._fields(found, body, form)
        if not counts_only and self._unbind(
            found, body, form, view, first_time=not found.offers_expand and bool(fields)
        ):
            view = self._view(found, body, form, ledger)
        prepared.outgoing, prepared.view = view.write(fields), view
        if "tools" in fields and not counts_only and self.tool is not None:
            prepared.reply = form.reply(self.tool)

    def _view(self, found: Conversation, body: Body, form: Form, ledger: Ledger) -> View:
        if len(self._keys) > MOST_KEYS:
            self._keys.clear()
        known = self.conversations.views.get(found)
        view = view_of(found, body, ledger, form, self.engine.plugins.adapter(form.name), self._keys, known)
        self.conversations.views.put(found, view)
        return view

    def _fields(self, found: Conversation, body: Body, form: Form) -> dict[str, str]:
        """Fields of the request that change beside the messages: the tool, once something is out."""
        if self.tool is None:
            return {}
        tools = form.with_tool(body, self.tool)
        return {} if tools is None else {"tools": tools}

    def _unbind(self, found: Conversation, body: Body, form: Form, view: View, *, first_time: bool) -> bool:
        """Note whose reasoning was made for what is no longer sent: from the first new edit to the end of the history.

        A tool that is new stands before every message. Returns whether something is noted that was not.
        """
        new = [row for digest, row in view.edited.items() if digest not in found.sent_edits]
        if not new and not first_time:
            return False
        first = 0 if first_time else min(new)
        before = len(found.unbound)
        found.unbound |= _with_reasoning(body, form, first)
        return len(found.unbound) > before

    def sent(self, prepared: Prepared) -> None:
        """The request was taken by the provider as it was sent."""
        self._noted(self._sent, prepared)

    def used(self, prepared: Prepared, prompt_tokens: int | None) -> None:
        """The provider has answered, and said how many tokens the prompt had, or not."""
        self._noted(self._used, prepared, prompt_tokens)

    def ended(self, prepared: Prepared, reply: Reply) -> None:
        """The answer has reached the client: remember what was hidden in it."""
        self._noted(self._ended, prepared, reply)

    def _noted(self, note: Callable[..., None], *facts: Any) -> None:
        try:
            note(*facts)
        except Exception as error:  # noqa: BLE001  # the answer goes on, whatever becomes of our notes
            self._fault("what became of a request was not noted", error)

    def _sent(self, prepared: Prepared) -> None:
        found, view = prepared.conversation, prepared.view
        if found is None or prepared.body is None:
            return
        found.answered_at = time.monotonic()
        if prepared.unbound:
            found.unbound |= prepared.unbound
            self.counts["originals without reasoning"] += 1
        if prepared.outgoing is None or view is None:
            found.sent_chars = len(prepared.body.text)
            found.sent_edits = frozenset()
            self.conversations.settle(found, prepared.body)
            return
        found.sent_chars = len(prepared.outgoing.head) + len(prepared.outgoing.tail)
        self.counts["requests edited"] += 1
        edits = frozenset(view.edited)
        has_news = edits != found.sent_edits or (prepared.reply is not None and not found.offers_expand)
        found.sent_edits = edits
        found.offers_expand = found.offers_expand or prepared.reply is not None
        self.conversations.settle(found, prepared.body)
        if has_news:
            removed = view.reasoning_removed - found.reasoning_removed
            found.reasoning_removed = view.reasoning_removed
            if removed > 0:
                self.counts["messages without their reasoning"] += removed
                logger.info("%d messages are sent without reasoning that is bound to what was edited", removed)
            self.keep(prepared)

    def keep(self, prepared: Prepared) -> None:
        """Write down what a later process needs."""
        found, view = prepared.conversation, prepared.view
        if found is not None and view is not None and view.edited:
            self.conversations.keep(found, tuple(sorted(view.edited, key=lambda digest: view.edited[digest])))

    def _used(self, prepared: Prepared, prompt_tokens: int | None) -> None:
        found = prepared.conversation
        if found is not None:
            found.used_tokens = prompt_tokens or round(found.sent_chars / CHARS_PER_TOKEN)
            found.session.trigger.report(found.used_tokens)
            if prepared.body is not None:
                self.conversations.settle(found, prepared.body)
            self._tell(prepared, found, prompt_tokens)

    def _tell(self, prepared: Prepared, found: Conversation, prompt_tokens: int | None) -> None:
        """A call of the model is told to the user's trail, where there is one."""
        if not self.engine.sinks or prepared.body is None:
            return
        fields = prepared.body.fields
        trail = Trail(self.engine.sinks, host=prepared.form.name, is_pass=False)
        facts = {"messages": len(prepared.body.messages), "max_tokens": fields.get("max_tokens")}
        trail.tell(model_called(found.session.name, model=fields.get("model"), input_tokens=prompt_tokens, **facts))

    def refused(self, prepared: Prepared) -> None:
        """The provider refused the edited request and took this one: the conversation is left alone from here on."""
        found = prepared.conversation
        if found is not None:
            found.is_left_alone = True
            found.sent_edits = frozenset()
            if prepared.outgoing is None:
                found.unbound = frozenset()  # all reasoning was taken with the original
        self.counts["edited requests refused"] += 1
        logger.warning("the provider refused an edited request and took the original: its conversation is left alone")

    def without_reasoning(self, prepared: Prepared) -> Prepared | None:
        """The original without any reasoning, for a conversation that was edited earlier.

        What the model has thought since is bound to what it was sent then. None where nothing can be left out.
        """
        found, body, form = prepared.conversation, prepared.body, prepared.form
        if found is None or body is None or not (found.unbound or found.sent_edits or found.is_left_alone):
            return None
        if not form.binds_reasoning(body.fields):
            return None
        again = Prepared(form, prepared.original)
        again.conversation, again.body = found, body
        again.unbound = found.unbound | _with_reasoning(body, form)
        again.outgoing = _without_reasoning_of(again.unbound, body, form)
        return None if again.outgoing is None else again

    async def rescue(self, prepared: Prepared) -> Prepared | None:
        """The prompt was too long: one forced pass; the request to send now, or None where nothing came of it."""
        found, body, form = prepared.conversation, prepared.body, prepared.form
        if found is None or body is None or found.is_left_alone:
            return None
        again = Prepared(form, prepared.original)
        again.conversation, again.body = found, body
        try:
            found.session.trigger.overflow()
            if not await self.plan(found, body, form, force=True):
                return None
            await self._edit(again, found, body)
        except Exception as error:  # noqa: BLE001  # whatever it is, the provider's refusal stands
            self._fault("a prompt that was too long was not shortened", error)
            return None
        if again.outgoing is None or (
            prepared.outgoing is not None and len(again.outgoing.text) >= len(prepared.outgoing.text)
        ):
            return None
        self.counts["overflows rescued"] += 1
        return again

    async def answers(self, prepared: Prepared, reply: Reply) -> list[str]:
        """What the model gets for the hidden calls of a response."""
        found = prepared.conversation
        if found is None:
            raise RuntimeError("hidden calls without a conversation")
        self.counts["calls answered here"] += len(reply.calls)
        return [await self._expanded(found, prepared.form.arguments(call)) for call in reply.calls]

    async def _expanded(self, found: Conversation, given: Any) -> str:
        given = given if isinstance(given, dict) else {}
        numbers = {name: given[name] for name in ("offset", "limit") if type(given.get(name)) is int}
        reference = str(given.get("id", ""))[:LONGEST_EXPAND_ID]
        return (await expand(self.engine.store, found.session.name, reference, **numbers)).shown

    def _ended(self, prepared: Prepared, reply: Reply) -> None:
        found, body, hidden = prepared.conversation, prepared.body, reply.hidden()
        if found is None or body is None or hidden is None:
            return
        place = body.chain[-1]
        found.hidden = {**found.hidden, place: [*found.hidden.get(place, ()), hidden]}
        found.answers_hidden += 1
        self.conversations.settle(found, body)
        self.keep(prepared)

    async def _fill(self, found: Conversation, form: Form) -> None:
        """Make the results again that an earlier process gave to hidden calls."""
        for answers in found.hidden.values():
            for hidden in answers:
                for at, part in enumerate(hidden.rounds):
                    if not part.results:
                        calls = [call for _, call in part.calls]
                        texts = [await self._expanded(found, form.arguments(call)) for call in calls]
                        hidden.rounds[at] = part._replace(results=form.results(calls, texts))

    def _fault(self, what: str, error: Exception) -> None:
        self.counts["faults"] += 1
        logger.error("%s", what, exc_info=error)


def _with_reasoning(body: Body, form: Form, first: int = 0) -> frozenset[bytes]:
    """Messages that hold reasoning, from one on."""
    rows = zip(body.chain[first:], body.messages[first:], strict=True)
    return frozenset(digest for digest, message in rows if form.has_reasoning(message))


def _without_reasoning_of(unbound: frozenset[bytes], body: Body, form: Form) -> Outgoing | None:
    """The original without reasoning made for another history; None where that is the original itself."""
    if not unbound or not form.binds_reasoning(body.fields):
        return None
    rows: dict[int, str | None] = {}
    for row, digest in enumerate(body.chain):
        if digest in unbound:
            left = form.without_reasoning(body.messages[row])
            rows[row] = None if left is None else dump(left)
    return body.write(rows) if rows else None
