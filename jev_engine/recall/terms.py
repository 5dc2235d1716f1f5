"""The terms a text is found by: words, and names whole and in parts.

>>> sorted(terms_of("see src/parseRow.py"))
['parse', 'parserow', 'parserow.py', 'py', 'row', 'see', 'src', 'src/parserow.py']
"""

from __future__ import annotations

import re
from itertools import chain

__all__ = ["TERMS_CAP", "terms_of"]

TERMS_CAP = 400_000
"""Characters of one text that are indexed, as in `atoms.TEXT_CAP`: 100 pages of the longest result an agent reads."""
LONGEST_WORD = 200
"""Bytes of a word that is looked at; longer ones are encoded data, which nobody searches for."""
LONGEST_TERM = 64
"""Characters of one term; of a longer path its last parts are found."""
SHORTEST_TERM = 2
"""Characters; a single one is no term."""
SHORTEST_NUMBER = 4
"""Shorter numbers are mostly those of lines, as in `atoms`: a listing has hundreds of them, and none tells anything."""
CJK_GRAM = 2
"""Scripts without blanks are found by pairs of signs: the usual choice for search without a dictionary."""
WORDS_KEPT = 1 << 16
"""Words remembered per process, about 15 MB, as in `atoms.WORDS_KEPT`."""

# Letters, digits, the joints of names and paths, and everything outside ASCII make words.
_WORD_TABLE = bytes(c if c >= 0x80 or chr(c).isalnum() or chr(c) in "_$.-/" else 0x20 for c in range(256))
ARROW = "\N{RIGHTWARDS ARROW}".encode()
_EDGE = b"._-/$"
_JOINTS = re.compile(r"[./$-]+")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_NO_BLANKS = re.compile("[\u0e00-\u0eff\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff]+")
_FOREIGN_WORD = re.compile(r"\w+")
# Grammar of English: in nearly every text, so it tells none from another.
STOP = frozenset(
    "a an and are as at be been but by can could did do does for from had has have he her here his how i if in"
    " into is it its let me my no not now of on or our out she should so than that the their them then there these"
    " they this to up us was we were what when where which who why will with would you your".split()
)


class _Terms(dict[bytes, tuple[str, ...]]):
    """Word to terms: each distinct word of the process is taken apart once."""

    def __missing__(self, word: bytes) -> tuple[str, ...]:
        if word.isalpha() and word.isascii() and word[1:].islower():  # most words are plain: settled here
            term = word.lower().decode()
            found: tuple[str, ...] = () if term in STOP or not SHORTEST_TERM <= len(term) <= LONGEST_TERM else (term,)
        else:
            found = tuple(dict.fromkeys(_take_apart(word)))
        self[word] = found
        return found


_TERMS = _Terms()


def terms_of(text: str) -> set[str]:
    """The distinct terms of a text, lower case. Linear in its length; only its first `TERMS_CAP` characters count."""
    found = set(chain.from_iterable(map(_TERMS.__getitem__, set(_words(text)))))
    if len(_TERMS) > WORDS_KEPT:
        _TERMS.clear()
    return found


def _words(text: str) -> list[bytes]:
    cut = text[:TERMS_CAP]
    if cut.isascii():
        return cut.encode("ascii").translate(_WORD_TABLE).split()
    # File listings put an arrow between number and line; as part of a word it would make every first word new.
    return cut.encode("utf-8", "replace").replace(ARROW, b" ").translate(_WORD_TABLE).split()


def _take_apart(word: bytes) -> list[str]:
    if len(word) > LONGEST_WORD:
        return []
    text = word.strip(_EDGE).decode("utf-8", "replace")
    if text.isascii():
        return [term for term in _of_name(text) if _is_telling(term)]
    return _of_foreign(text)


def _is_telling(term: str) -> bool:
    if term.isdigit():
        return SHORTEST_NUMBER <= len(term) <= LONGEST_TERM
    return SHORTEST_TERM <= len(term) <= LONGEST_TERM and term not in STOP


def _of_name(text: str) -> list[str]:
    """A word, a name, a path: whole, its pieces between joints, and their parts."""
    if text.isalpha() and (text.islower() or text[1:].islower()):
        return [text.lower()]
    if text.isdigit():
        return [text]
    found = [text.lower()]
    pieces = [text] if text.replace("_", "").isalnum() else _JOINTS.split(text)
    if len(pieces) > 1:
        found.append(text.rsplit("/", 1)[-1].lower())
    for piece in pieces:
        lower = piece.lower()
        if lower.isalpha() and (lower == piece or piece[1:].islower()):
            found.append(lower)
            continue
        found.append(lower.strip("_"))
        parts = _PARTS.findall(piece)
        if len(parts) > 1:
            found += [part.lower() for part in parts]
    return found


def _of_foreign(text: str) -> list[str]:
    found: list[str] = []
    for run in _NO_BLANKS.findall(text):
        found += [run[i : i + CJK_GRAM] for i in range(max(1, len(run) - CJK_GRAM + 1))]
    found += [word.lower()[:LONGEST_TERM] for word in _FOREIGN_WORD.findall(_NO_BLANKS.sub(" ", text))]
    return [term for term in found if term]
