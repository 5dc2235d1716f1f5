"""An asker that talks to Jev, or to any server of the same form, over HTTP.

    asker = JevAsker("typesafe")            the key is in TYPESAFE_API_KEY, or given as key=
    judge = AskedJudge(asker)

Nothing is sent before a judge is asked, and no key is read before an asker is built.
"""

from __future__ import annotations

import os
import random
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from threading import Lock
from typing import Any

import anyio
import tenacity

from jev_engine.errors import BadAnswer, ConfigError, JudgeError, JudgeUnavailable, RequestTooLarge
from jev_engine.judges import DEADLINE_SECONDS
from jev_engine.judges.endpoints import PRESETS, Endpoint, endpoint_for, is_loopback
from jev_engine.judges.pace import CoolDown, Pace
from jev_engine.judges.wire import Answers, Questions, body_of, error_type_of, read_reply

__all__ = ["JevAsker"]

ATTEMPTS = 4
"""Of one request, the first included; none starts after the deadline of whoever asked."""
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.25, 2.0
RESPONSE_BYTES = 4_000_000
"""Largest response read: 800 answers are 100 kB in the longest form seen."""
GIVE_UP_AFTER = 4
"""So many requests of a pass that fail while none is answered: the rest is not sent."""
CHARS_PER_TOKEN = 4
"""For the rate limit, where a rough count is enough."""
RETRIED = frozenset({408, 429, 529})
"""Statuses that may pass, besides those from 500 on (docs/choosing-a-judge.md)."""
TOO_LARGE = frozenset({"max_tokens_exceeded", "context_length_exceeded", "request_too_large"})
"""Names of the errors by which a server answers 400 where a request is too large."""
KEYED_HOSTS = frozenset(preset.host for preset in PRESETS.values())
"""Hosts that are never asked without a key."""
WORDS = {
    400: "the request was refused",
    401: "the key was refused",
    402: "out of credit",
    403: "no key, or a key without the right",
    404: "nothing answers at this address",
    408: "the server waited too long",
    413: "the request is too large",
    422: "the request was not understood",
    429: "rate limit",
    529: "overloaded",
}


class _Key:
    """A key that shows itself to nobody but the request it is for."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._value}"}

    def is_in(self, text: str) -> bool:
        return self._value in text

    def __repr__(self) -> str:
        return "<a key>"

    def __reduce__(self) -> Any:
        message = "a key is not stored or copied"
        raise TypeError(message)


class _Passing(JudgeUnavailable):
    """A fault that may pass; `wait_seconds` is what the server asked for."""

    def __init__(self, message: str, wait_seconds: float | None = None) -> None:
        super().__init__(message)
        self.wait_seconds = wait_seconds


class JevAsker:
    """Asks one endpoint: a preset (`typesafe`, `openrouter`, `openai-decisions`) or the URL of a server like it.

    One object serves any number of passes, event loops and threads. It holds a key, a cool-down after failures and a
    rate limit, and no connection: those live as long as a pass.

    `url` moves a preset to another address. `client` is used instead of a connection of our own: anything with an
    async `.post(url, content=, headers=, timeout=)` that gives `.status_code`, `.headers` and `.content`.
    Raises ConfigError for an endpoint that is not safe, and for a key that no header can carry.
    """

    def __init__(
        self,
        endpoint: str | Endpoint = "typesafe",
        *,
        key: str | None = None,
        url: str | None = None,
        model: str | None = None,
        client: Any = None,
        deadline_seconds: float = DEADLINE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.endpoint = endpoint if isinstance(endpoint, Endpoint) else endpoint_for(endpoint, url=url)
        self.model = model or self.endpoint.model
        self.url = self.endpoint.url
        self.budget = self.endpoint.budget
        self.price = self.endpoint.price
        self.deadline_seconds = deadline_seconds
        given = key if key is not None else os.environ.get(self.endpoint.key_variable)
        self._key = _Key(_checked(given, self.endpoint)) if given else None
        self._client = client
        self._pace = Pace(self.endpoint.tokens_per_second, clock)
        self._cool_down = CoolDown(clock)
        self._tls: ssl.SSLContext | None = None
        self._tls_lock = Lock()

    def __repr__(self) -> str:
        key = "with a key" if self._key else "without a key"
        return f"<JevAsker {self.endpoint.name} {self.model}, {key}>"

    def hides(self, text: str | None) -> bool:
        """Whether a text from a server repeats the key, and is therefore passed on to nobody."""
        return self._key is not None and text is not None and self._key.is_in(text)

    async def ask(self, state: str, questions: Questions) -> Mapping[str, Any]:
        """Answer one request within the deadline, over a connection of its own; see `jev_engine.judges.Asker`.

        Raises JudgeUnavailable, RequestTooLarge or BadAnswer.
        """
        async with self.connect() as line:
            with anyio.move_on_after(self.deadline_seconds):
                return await line.ask(state, questions)
        raise JudgeUnavailable(f"{self.endpoint.name} did not answer within {self.deadline_seconds:g} s")

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[_Line]:
        """Connections for one pass: an asker that is closed with the block.

        Raises JudgeUnavailable during the cool-down that follows failures, and where a preset has no key.
        """
        wait = self._cool_down.remaining()
        if wait > 0:
            raise JudgeUnavailable(f"{self.endpoint.name} failed before; asked again in {wait:.0f} s")
        if self._key is None and self._client is None and self.endpoint.host in KEYED_HOSTS:
            raise JudgeUnavailable(f"no key for {self.endpoint.name}: set {self.endpoint.key_variable} or give key=")
        async with nullcontext(self._client) if self._client is not None else self._new_client() as client:
            line = _Line(self, client, is_ours=self._client is None)
            try:
                yield line
            except JudgeError:
                self._note(line)
                raise
        # Not in `finally`: a pass that was cancelled says nothing about the endpoint.
        self._note(line)

    def _note(self, line: _Line) -> None:
        if line.answered:
            self._cool_down.clear()
        elif line.asked > line.refused:
            self._cool_down.grow(line.wait_seconds)

    def _new_client(self) -> Any:
        import httpx  # noqa: PLC0415  # costs 75 ms: only where something is asked

        on_this_machine = is_loopback(self.endpoint.host)
        verify: ssl.SSLContext | bool = False
        if self.endpoint.url.startswith("https"):
            with self._tls_lock:
                # Reading the certificates takes 30 ms, so it is done once for all passes.
                self._tls = self._tls or httpx.create_ssl_context()
            verify = self._tls
        # A proxy from the environment is for the world outside; what stays on this machine goes straight.
        return httpx.AsyncClient(
            verify=verify, timeout=self.deadline_seconds, follow_redirects=False, trust_env=not on_this_machine
        )


class _Line:
    """The connections of one pass, and how they fared."""

    def __init__(self, asker: JevAsker, client: Any, *, is_ours: bool) -> None:
        self._asker = asker
        self._client = client
        self._is_ours = is_ours
        self.asked = self.answered = self.failed = self.refused = 0
        self.sent = self.sent_bytes = 0
        self.wait_seconds: float | None = None

    async def ask(self, state: str, questions: Questions) -> Answers:
        """One request: in pace, with retries while they can still help."""
        asker = self._asker
        if self.failed >= GIVE_UP_AFTER and not self.answered:
            raise JudgeUnavailable(f"{asker.endpoint.name} failed {self.failed} times in this pass; not asked again")
        self.asked += 1
        body = body_of(asker.endpoint, asker.model, state, questions)
        try:
            async for attempt in tenacity.AsyncRetrying(
                retry=tenacity.retry_if_exception_type(_Passing),
                wait=_wait,
                stop=_is_late,
                sleep=anyio.sleep,
                reraise=True,
            ):
                with attempt:
                    await anyio.sleep(asker._pace.reserve(len(body) // CHARS_PER_TOKEN))  # noqa: SLF001  # same file
                    answers = await self._try(body)
        except RequestTooLarge:
            self.refused += 1
            raise
        except _Passing as error:
            self.failed += 1
            self.wait_seconds = error.wait_seconds or self.wait_seconds
            raise JudgeUnavailable(str(error)) from None
        except JudgeError:
            self.failed += 1
            raise
        self.answered += 1
        return answers

    async def _try(self, body: bytes) -> Answers:
        endpoint = self._asker.endpoint
        self.sent += 1
        self.sent_bytes += len(body)
        try:
            status, headers, content = await self._send(body)
        except JudgeError:
            raise
        except Exception as error:  # noqa: BLE001  # a client is somebody else's, and its text may repeat headers
            name = type(error).__name__
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise JudgeUnavailable(f"the certificate of {endpoint.name} is not valid") from None
            raise _Passing(f"{endpoint.name} could not be reached ({name})") from None
        if status != 200:
            name = error_type_of(content)
            raise _refusal(endpoint, status, headers, "" if self._asker.hides(name) else name)
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json" and not kind.endswith("+json"):
            raise BadAnswer("the response is not JSON by its content type")
        answers = read_reply(endpoint, content)
        if self._asker.hides(answers.model):
            answers.model = None
        return answers

    async def _send(self, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        asker = self._asker
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            # Unpacked sizes cannot be capped before they are unpacked.
            "Accept-Encoding": "identity",
            "User-Agent": "jev-engine",
            **(asker._key.headers() if asker._key else {}),  # noqa: SLF001  # same file
        }
        url = asker.endpoint.url
        if not self._is_ours:
            response = await self._client.post(url, content=body, headers=headers, timeout=asker.deadline_seconds)
            if getattr(response, "history", None):
                raise BadAnswer("the client followed a redirect; make it with follow_redirects=False")
            if len(response.content) > RESPONSE_BYTES:
                raise BadAnswer(f"the response is larger than {RESPONSE_BYTES:,} bytes")
            return response.status_code, response.headers, response.content
        async with self._client.stream("POST", url, content=body, headers=headers) as response:
            if response.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
                raise BadAnswer("the response is packed although that was not asked for")
            return response.status_code, response.headers, await _read_capped(response)


async def _read_capped(response: Any) -> bytes:
    """The body of a streamed response; raises BadAnswer where it is too long."""
    content = bytearray()
    is_too_long = False
    try:
        async for chunk in response.aiter_raw():
            content += b"" if is_too_long else chunk
            if len(content) > RESPONSE_BYTES and not is_too_long:
                is_too_long = True
                # The next read fails then, which ends the generators below in order; leaving the loop would not.
                await response.aclose()
    except Exception:
        if not is_too_long:
            raise
    if is_too_long:
        raise BadAnswer(f"the response is larger than {RESPONSE_BYTES:,} bytes")
    return bytes(content)


def _refusal(endpoint: Endpoint, status: int, headers: Mapping[str, str], name: str) -> JudgeError:
    """The error for a response that is not 200, of that name. Its text holds nothing that was sent."""
    words = WORDS.get(status, "a redirect, which is not followed" if 300 <= status < 400 else "the server failed")
    message = f"{endpoint.name} answered {status}: {words}" + (f" ({name})" if name else "")
    if status == 413 or (status == 400 and name in TOO_LARGE):
        return RequestTooLarge(message)
    if status in RETRIED or status >= 500:
        return _Passing(message, _retry_after(headers))
    return JudgeUnavailable(message)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds the server asks to wait; None where it does not say, or says it in no form known."""
    for field, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(field, "")
        if text.isascii() and text.strip().replace(".", "", 1).isdigit():
            return float(text) * scale
    try:
        at = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def _wait(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome is not None else None
    asked_for = getattr(error, "wait_seconds", None)
    if asked_for is not None:
        return float(asked_for)
    wait: float = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** (state.attempt_number - 1))
    return wait * random.uniform(0.5, 1.0)  # noqa: S311  # spreads retries, guards no secret


def _is_late(state: tenacity.RetryCallState) -> bool:
    """Enough attempts, or the next one would start after the deadline of whoever asked."""
    left = anyio.current_effective_deadline() - anyio.current_time()
    return state.attempt_number >= ATTEMPTS or state.upcoming_sleep >= left


def _checked(key: str, endpoint: Endpoint) -> str:
    """The key, if a header can carry it; the error never shows it."""
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(
            f"the key for {endpoint.name} holds a line break, blank or non-ASCII sign; copy it again", setting="key"
        )
    return key
