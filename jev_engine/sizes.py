"""How large the parts of a history are, in tokens.

Results that may be judged are measured one by one; short ones and texts at the rate of a sample.
"""

from __future__ import annotations

from collections.abc import Iterable

from jev_engine.tokens import IMAGE_TOKENS, TWENTIETHS, TokenCounter, sample_cost, whole
from jev_engine.transcript import Transcript

__all__ = ["MARKER_TOKENS", "Sizes", "measure"]

# About so many texts tell what a character costs in this history.
SAMPLED_TEXTS = 40
# Shorter results are priced by the rate of such results together, not one by one.
SHORT_CHARS = 400
# A marker with its outcome lines is about 300 characters.
MARKER_TOKENS = 75


class Sizes:
    """Tokens of a history; those of each result are on its unit."""

    __slots__ = ("_tokens_per_char", "chars", "total_tokens")

    def __init__(self, tokens_per_char: float, total_tokens: int, chars: int) -> None:
        self._tokens_per_char = tokens_per_char
        self.total_tokens = total_tokens
        self.chars = chars

    def of_chars(self, chars: int) -> int:
        """Tokens of so many characters of ordinary text of this history."""
        return round(chars * self._tokens_per_char)


class CostCache(dict[str, int]):
    """Costs of results by their text, in twentieths of a token."""


def measure(transcript: Transcript, cache: CostCache | None = None, counter: TokenCounter | None = None) -> Sizes:
    """Set `tokens` of every unit and return the totals. A `counter` replaces the estimates of results and texts."""
    cache = CostCache() if cache is None else cache
    texts = [entry.text for entry in transcript.entries if entry.text]
    texts.extend([call.arguments for call in transcript.calls])
    results = [call.result for call in transcript.calls if call.result]
    rate = _rate(texts[:: max(1, len(texts) // SAMPLED_TEXTS)], counter)
    small_rate = _rate([r for r in results if len(r) <= SHORT_CHARS][:SAMPLED_TEXTS], counter)
    total = sum([len(text) for text in texts]) * rate
    images = sum([entry.images for entry in transcript.entries])
    for call in transcript.calls:
        result = call.result
        if not result:
            continue
        if call.marked is not None:
            call.tokens = MARKER_TOKENS
        elif counter is not None:
            call.tokens = counter(result)
        elif len(result) <= SHORT_CHARS:
            call.tokens = int(len(result) * small_rate) + 1
        else:
            amount = cache.get(result)
            if amount is None:
                amount = cache[result] = sample_cost(result)
            call.tokens = whole(amount)
        total += call.tokens
        images += call.images
    chars = sum([len(text) for text in texts]) + sum([len(result) for result in results])
    # No text is without a token, however short.
    return Sizes(rate, max(round(total), min(chars, 1)) + images * IMAGE_TOKENS, chars)


def _rate(texts: Iterable[str], counter: TokenCounter | None) -> float:
    sample = list(texts)
    chars = sum(len(text) for text in sample)
    if not chars:
        return 0.25
    tokens = sum(counter(t) for t in sample) if counter else sum(sample_cost(t) for t in sample) / TWENTIETHS
    return tokens / chars
