"""What leaves the machine: the copy of a history that an asker is shown, without secrets and within the privacy mode.

Texts, arguments, the goal and excerpts are cleaned before anything is cut, so that no secret is cut in half and missed.
A cleaner that fails lets nothing out.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

from jev_engine.errors import ConfigError, JudgeError
from jev_engine.judges import JudgeRequest
from jev_engine.redact import is_plain, redact, redact_arguments
from jev_engine.state import EXCERPT_CHARS, INPUT_CHARS
from jev_engine.transcript import Entry, ToolCall, Transcript

__all__ = ["Cleaner", "Redactor"]

Redactor = Callable[[str], str]
"""Takes secrets out of a text; what it raises stops the request."""

# Shown of arguments are 1,000 characters at most; the rest is cleaned as far as a secret may begin in what is shown.
ARGUMENT_CHARS = INPUT_CHARS[0] + 400
# Of a result, so much around what is shown: behind its head, for a secret to be known by its beginning, and before its
# tail, for the beginning of one that ends in it. A private key is known by its last line as well.
HEAD_CHARS, TAIL_CHARS = EXCERPT_CHARS + 400, EXCERPT_CHARS + 1_000
# Texts without a secret that are remembered; with more all are forgotten.
KNOWN_TEXTS = 50_000
# Texts up to the first are looked over together, so many at a time.
SHORT_CHARS, TOGETHER = 500, 16


class Cleaner:
    """Makes clean copies. Remembers which texts hold no secret, so that later passes need not look again."""

    def __init__(self, redactors: Sequence[Redactor] = ()) -> None:
        self._redactors = tuple(redactors)
        self._clean: set[str] = set()

    def request(self, request: JudgeRequest, *, shows_results: bool) -> JudgeRequest:
        """The request as others may see it; raises JudgeError where a redactor fails.

        Without `shows_results` results stay as they are, and the privacy mode becomes `sizes`, so that none is shown.
        """
        config = request.config
        if not shows_results:
            config = config.model_copy(update={"privacy": "sizes"})
        try:
            transcript = self._transcript(request.transcript, shows_results=shows_results, whole=_shows_all(request))
            goal = self.text(request.goal) if request.goal else request.goal
            focus = self.text(request.focus) if request.focus else request.focus
        except ConfigError as error:
            # What it says is about settings, and for the user; any other fault may quote what was to be cleaned.
            raise JudgeError(f"{error}; nothing was sent") from None
        except Exception as error:  # noqa: BLE001  # a redactor is somebody else's: whatever it raises, nothing leaves
            raise JudgeError(f"redaction failed ({type(error).__name__}); nothing was sent") from None
        calls = transcript.calls
        candidates = [calls[call.number - 1] for call in request.candidates]
        return JudgeRequest(transcript, candidates, goal, focus, request.pinned_rows, config)

    def text(self, text: str) -> str:
        """One text, cleaned."""
        return self._cleaned(text, redact)

    def _cleaned(self, text: str, built_in: Redactor) -> str:
        if text in self._clean:
            return text
        cleaned = built_in(text)
        for redactor in self._redactors:
            cleaned = redactor(cleaned)
            # One that returns nothing has failed, not found a text without secrets.
            cleaned.encode("utf-8", "surrogatepass")
        if cleaned == text:
            if len(self._clean) >= KNOWN_TEXTS:
                self._clean.clear()
            self._clean.add(text)
        return cleaned

    def _transcript(self, transcript: Transcript, *, shows_results: bool, whole: bool) -> Transcript:
        self._look_over(transcript)
        changed: dict[int, ToolCall] = {}
        for call in transcript.calls:
            arguments = call.arguments
            if len(arguments) > ARGUMENT_CHARS:
                cleaned = self._cleaned(arguments[:ARGUMENT_CHARS], redact) + arguments[ARGUMENT_CHARS:]
            else:
                cleaned = self._cleaned(arguments, redact_arguments)
            result = self._result(call.result, whole=whole) if shows_results and call.result else call.result
            if cleaned != arguments or result is not call.result:
                clean = copy.copy(call)
                clean.arguments, clean.result = cleaned, result
                changed[call.number] = clean
        entries = [self._entry(entry, changed) for entry in transcript.entries]
        calls = [changed.get(call.number, call) for call in transcript.calls] if changed else transcript.calls
        return Transcript(transcript.messages, entries, calls, transcript.odd)

    def _look_over(self, transcript: Transcript) -> None:
        """Find what surely holds no secret, many texts at a time: most do not, and looking at each takes longer."""
        if self._redactors:
            return
        texts = [call.arguments for call in transcript.calls if len(call.arguments) <= SHORT_CHARS]
        texts += [entry.text for entry in transcript.entries if 0 < len(entry.text) <= SHORT_CHARS]
        texts = [text for text in texts if text not in self._clean]
        for start in range(0, len(texts), TOGETHER):
            some = texts[start : start + TOGETHER]
            if is_plain("\n".join(some)):
                self._clean.update(some)

    def _entry(self, entry: Entry, changed: dict[int, ToolCall]) -> Entry:
        text = self.text(entry.text) if entry.text else entry.text
        calls = entry.calls
        if changed and any(call.number in changed for call in calls):
            calls = [changed.get(call.number, call) for call in calls]
        if text == entry.text and calls is entry.calls:
            return entry
        clean = copy.copy(entry)
        clean.text, clean.calls = text, calls
        return clean

    def _result(self, result: str, *, whole: bool) -> str:
        """The result, cleaned where it may be shown."""
        if whole or len(result) <= HEAD_CHARS + TAIL_CHARS:
            cleaned = self.text(result)
            return result if cleaned == result else cleaned
        head, tail = result[:HEAD_CHARS], result[-TAIL_CHARS:]
        clean_head, clean_tail = self.text(head), self.text(tail)
        if clean_head == head and clean_tail == tail:
            return result
        # Blanks for the middle, which nobody looked at: it must not move up to where it would be shown.
        return clean_head + " " * (len(result) - HEAD_CHARS - TAIL_CHARS) + clean_tail


def _shows_all(request: JudgeRequest) -> bool:
    return request.config.privacy == "full"
