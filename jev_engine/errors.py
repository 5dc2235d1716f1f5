"""The errors this library raises.

    JevEngineError
    ├── ConfigError          a setting is out of range or contradicts another
    ├── TranscriptError      a history or file cannot be read as a list of messages
    ├── AdapterError         a host format is unknown, broken, or does not allow the request
    │   └── UnknownAdapter
    ├── JudgeError           a judge could not answer
    │   ├── JudgeUnavailable   nobody answered in time
    │   ├── BadAnswer          an answer broke the contract; its request is void
    │   └── RequestTooLarge    the asker takes only smaller requests; the judge asks again in halves
    ├── RebuildError         the rebuilt history broke the promise; the input is returned
    ├── HostError            a host cannot be set up, removed or looked at
    ├── ServeError           the local process cannot be started, or does not answer
    ├── AuditError           a trail cannot be read or written, or a required sink did not take its events
    └── StoreError           originals could not be saved or read
        ├── OriginalNotFound
        ├── OriginalExpired
        ├── OriginalUnreadable
        └── AmbiguousRecord    records of several passes fit a history; it is not guessed which is its own

`ContextEngine.compress` catches all of them and returns the untouched history with the reason.
"""

from __future__ import annotations

from typing import Any


class JevEngineError(Exception):
    """Base of every error raised on purpose by this library."""


class ConfigError(JevEngineError, ValueError):
    """A setting is out of range, unknown or contradicts another one.

    `setting` names it, as the user wrote it.
    """

    def __init__(self, message: str, *, setting: str | None = None) -> None:
        super().__init__(message)
        self.setting = setting


class TranscriptError(JevEngineError, ValueError):
    """A history or a session file cannot be read."""


class AdapterError(JevEngineError):
    """A host format is broken or does not allow what was asked of it."""


class UnknownAdapter(AdapterError, LookupError):
    """No adapter goes by that name; `known` lists those that do."""

    def __init__(self, message: str, *, known: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.known = known


class JudgeError(JevEngineError):
    """A judge could not answer.

    `verdict` says what was sent to it all the same; None where nothing was, or nobody knows.
    """

    def __init__(self, message: str = "", *, verdict: Any = None) -> None:
        super().__init__(message)
        self.verdict = verdict


class JudgeUnavailable(JudgeError):
    """Nobody answered before the deadline."""


class BadAnswer(JudgeError):
    """An answer broke the contract of `Asker`; the request it came in is void."""


class RequestTooLarge(JudgeError):
    """An asker refused a request for its size; the same questions may fit a smaller one."""


class RebuildError(JevEngineError):
    """The rebuilt history differs from the input by more than its edits."""


class HostError(JevEngineError):
    """A host cannot be set up, removed or looked at."""


class ServeError(JevEngineError):
    """The local process cannot be started, or does not answer."""


class AuditError(JevEngineError):
    """A trail cannot be read or written, or a required sink has not taken its events."""


class StoreError(JevEngineError):
    """Originals could not be saved or read."""


class OriginalNotFound(StoreError, LookupError):
    """No original goes by that reference in this session."""


class OriginalExpired(StoreError, LookupError):
    """An original was there, and a limit of the store on age, number or size has taken it."""


class OriginalUnreadable(StoreError):
    """An original is there but its bytes do not match their digest."""


class AmbiguousRecord(StoreError):
    """Records of several passes fit a history and would bring different messages back; `numbers` are theirs."""

    def __init__(self, message: str, *, numbers: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.numbers = numbers
