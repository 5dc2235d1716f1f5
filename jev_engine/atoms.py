"""Atoms and lines: what is characteristic enough in a text to be recognised when it is used again.

An atom is a file name, an identifier with a hump, an underscore or a digit, a dotted or kebab name, a hash, a version,
a number of four digits or more, a link; in scripts without such names a word or a run of characters.
A line is a source line or sentence long enough to be unmistakable.
Both the hindsight label and the features are built on them, so both see a text the same way.

>>> sorted(atoms_of("see src/app/main.py, call load_config() in v1.2.3"))
[b'F:main.py', b'load_config', b'v1.2.3']
>>> lines_of("  12: return parse(header, body)")
{b'return parse(header, body)'}
"""

from __future__ import annotations

import re
from array import array
from typing import Any

__all__ = ["LINE_MIN", "TEXT_CAP", "Facts", "atoms_of", "facts_of", "forget_words", "kept_atoms_of", "lines_of"]

LINE_MIN = 25
"""Shortest line that counts, in bytes after its prefix is gone."""
LINE_CAP = 200
"""Bytes of a line that are compared; a cap of the label, part of its version."""
LINE_LETTERS = 10
"""Letters a line needs, so that rulers and tables of numbers do not count."""
TEXT_CAP = 400_000
"""Characters of one text that are read; a cap of the label, part of its version."""
WORD_BYTES = 200
"""Bytes of one word that are looked at."""
PATTERN_BYTES = 64
"""Bytes of one word that the slow pattern sees: it is quadratic in hostile words (`.-` x 8,000: 0.64 s
uncut)."""
WORDS_KEPT = 1 << 15
"""Words known at once, about 3 MB; without a bound synthetic sessions of invented names take five times their size."""
WORDS_BETWEEN = 1 << 13
"""Words that may stay known between passes."""
PIECE_BYTES = 1 << 14
"""Of a long text so much is taken apart at once."""
PROSE_CHARS = 400
"""A text with less than one atom per this many characters is prose: its long words are atoms too (code: one per 50)."""
PROSE_SHARE = 0.5
"""Share of plain words among the distinct words of prose; tables and dumps have less."""
PROSE_WORD = 7
"""Shortest plain word that is characteristic in prose; shorter ones are mostly grammar."""
FOREIGN_SHARE = 0.1
"""Share of first bytes of other scripts, of all bytes, from which a text counts as foreign (all Chinese: 0.33)."""
CJK_GRAM = 4
"""Han, kana and Thai have no blanks: every run of this many characters is an atom, one term giving one to three."""
HANGUL_GRAM = 3
"""Korean words carry endings: their runs of three syllables are atoms."""
SCRIPT_WORD = 5
"""Shortest word of any other non-Latin script (Arabic, Cyrillic, Greek, …) that is an atom."""

_EXTENSIONS = (
    "py|pyi|go|ts|tsx|js|jsx|mjs|cjs|json|jsonl|md|mdx|yml|yaml|toml|rs|java|kt|c|cc|cpp|h|hpp|cs|rb|php|sh|bash|zsh|sql"
    "|css|scss|html|xml|lock|cfg|ini|txt|csv|tsv|env|log|proto|tf|vue|svelte|patch|diff|snap"
)
_ATOM = re.compile(
    rf"""
   (?P<uuid>\b[0-9a-f]{{8}}-[0-9a-f]{{4}}-[0-9a-f]{{4}}-[0-9a-f]{{4}}-[0-9a-f]{{12}}\b)
 | (?P<path>/?(?:[\w.-]+/)+[\w.-]+)
 | (?P<file>[\w-][\w.-]*\.(?:{_EXTENSIONS})\b)
 | (?P<hex>\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{{7,64}}\b)
 | (?P<dot>\b[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)+)
 | (?P<kebab>\b[a-z0-9]+(?:-[a-z0-9]+)+\b)
 | (?P<ident>\b[A-Za-z_$][\w$]{{4,}})
 | (?P<ver>\bv?\d+\.\d+\.\d+(?:[-.\w]*)?)
 | (?P<num>\b\d{{4,}}\b)
 | (?P<issue>\#\d{{2,}}\b)
""",
    re.VERBOSE,
)
_EXTENSION_SET = frozenset(_EXTENSIONS.encode().split(b"|"))
_HUMP = re.compile(rb"[a-z][A-Z]|[A-Z]{2,}[a-z]")
_NAME = re.compile(rb"_|[a-z][A-Z]|[A-Z]{2,}[a-z]|[0-9]")
_DIGIT = re.compile(rb"[0-9]")
_HEX = b"0123456789abcdef"
LONG_CHAIN = 60
"""A dotted chain longer than this was generated."""
_LETTERS = re.compile(r"[^\W\d_]+")

# Bytes of a word: letters, digits, the joints of names and paths, and everything outside ASCII.
_WORD_TABLE = bytes(c if c >= 0x80 or chr(c).isalnum() or chr(c) in "_$.-#/" else 0x20 for c in range(256))
# First bytes of letters from Cyrillic to Arabic (D0-DF), of Indic and Thai (E0, E1), and of kana, Han, Hangul (E3-ED);
# E2 is left out: arrows, boxes and dashes of program output begin with it.
_NOT_FOREIGN = bytes(c for c in range(256) if not (0xD0 <= c <= 0xE1 or 0xE3 <= c <= 0xED))
_HASH_SIGN = ord("#")
_EDGE_SIGNS = b".-"
_NAME_BYTES = bytes(c for c in range(128) if chr(c).isalnum() or chr(c) in "_$")
# Line breaks stay: the letters of many lines are counted at once.
_NOT_LETTERS = bytes(c for c in range(128) if not chr(c).isalpha() and c != 0x0A)
# What stands before a line in listings: numbers, arrows, diff signs, no-break blanks (as UTF-8 bytes).
_LINE_EDGE = b" \t\r0123456789:|+->\xe2\x86\x92\xc2\xa0"
_GREP = re.compile(rb"[\w@./+-]{1,120}:\d+[:-]")
_GREP_NUMBER = re.compile(rb":\d+[:-]")


class Facts:
    """What one text holds, without the text: kept in caches, so as small as possible."""

    __slots__ = ("atoms", "chars", "is_plain", "line_count", "lines")

    def __init__(
        self, atoms: tuple[bytes, ...], lines: array[int], line_count: int, chars: int, *, is_plain: bool
    ) -> None:
        self.atoms = atoms
        """Distinct atoms, in an order that means nothing (it differs between processes)."""
        self.lines = lines
        """Hashes of the distinct lines; only comparable inside one process."""
        self.line_count = line_count
        """Line breaks in the text."""
        self.chars = chars
        self.is_plain = is_plain
        """Prose, or a script without names: few of the tokens that source code is full of."""


def _atoms_by_pattern(word: str) -> list[str]:
    """Atoms of a word of mixed shape; slow, so only for what the plain tests do not settle."""
    found = []
    for match in _ATOM.finditer(word):
        text = match.group()
        kind = match.lastgroup
        if kind in ("num", "issue", "uuid", "ver"):
            found.append(text)
            continue
        piece = text.rstrip(".").encode("utf-8", "replace")
        if kind == "path":
            atom = _atoms_in_path(piece)
        elif kind == "kebab":
            atom = piece if len(piece) >= 8 else None
        elif kind in ("dot", "file"):
            atom = _atoms_in_dots(piece)
        else:
            atom = _atoms_in_name(piece)
        if atom:
            found.append(atom.decode("utf-8", "replace"))
    return found


def _grams(run: str) -> list[str]:
    """Atoms of one run of letters outside ASCII: words where the script has words, else overlapping pieces."""
    first = next((c for c in run if ord(c) >= 0x370), None)
    if first is None:
        return []  # accented Latin: treated as plain words
    code = ord(first)
    if 0xAC00 <= code <= 0xD7A3:
        size = HANGUL_GRAM
    elif 0x0E00 <= code <= 0x0EFF or 0x2E80 <= code <= 0x9FFF or 0xF900 <= code <= 0xFAFF or code >= 0x20000:
        size = CJK_GRAM
    else:
        return [run.lower()] if len(run) >= SCRIPT_WORD else []
    if len(run) <= size:
        return [run] if len(run) >= 2 else []
    return [run[i : i + size] for i in range(len(run) - size + 1)]


def _atoms_in_name(word: bytes) -> bytes | None:
    """A word of letters, digits, `_` and `$`: a hash, or an identifier someone made up."""
    bare = word.lstrip(b"$")
    if len(bare) >= 6 and not bare[0:1].isdigit() and _NAME.search(bare.strip(b"_")):
        return bare
    return bare if 7 <= len(bare) <= 64 and not bare.strip(_HEX) and _DIGIT.search(bare) else None


def _atoms_in_path(word: bytes) -> bytes | None:
    """The last part of a path; a link stays whole (its scheme went: the colon parts words)."""
    if word[:2] == b"//" and len(word) >= 12 and word.find(b"/", 2) > 0:
        return word[:WORD_BYTES].rstrip(b"./")
    last = word.rstrip(b"/.").rsplit(b"/", 1)[-1]
    if b"." in last[1:]:
        return b"F:" + last[-WORD_BYTES:] if len(last) >= 4 else None
    return last[-WORD_BYTES:] if len(last) >= 6 and (b"-" in last or _NAME.search(last)) else None


def _atoms_in_dots(word: bytes) -> bytes | None:
    """A file name, or a chain of names of which the last is kept if it says enough."""
    last = word.rsplit(b".", 1)[-1]
    if last in _EXTENSION_SET:
        return b"F:" + word
    if len(word) > LONG_CHAIN:  # generated: only its end is ever written again
        return last if len(last) >= 6 else None
    if len(last) >= 6 and (_HUMP.search(last) or b"_" in last):
        return last
    return word if len(word) >= 6 else None


def _classify(word: bytes) -> Any:
    """The atoms of a word: None, one as bytes, or several as a tuple."""
    if word.isalpha():
        if len(word) < 6 or word[1:].islower() or word.isupper():
            return None
        return word if _HUMP.search(word) else None
    if len(word) < 4:
        return word if len(word) == 3 and word[:1] == b"#" and word[1:].isdigit() else None
    if word.isdigit():
        return word[:WORD_BYTES]
    if word[-1] in _EDGE_SIGNS or word[0] in _EDGE_SIGNS:  # the end of a sentence, an option, a list mark
        bare = word.strip(b".-")
        return None if not bare or (bare.islower() and bare.isalpha()) else _classify(bare)
    return _classify_joined(word) if word.isascii() else _classify_foreign(word)


def _classify_joined(word: bytes) -> Any:
    """The atoms of a path, a chain of names, a number with dots, or anything else that joints hold together."""
    if b"/" in word and b"#" not in word:
        bare = word.rstrip(b"/.")
        return _atoms_in_path(bare) if b"/" in bare else _classify(bare)
    joints = word.translate(None, _NAME_BYTES)
    if not joints:
        return _atoms_in_name(word[:WORD_BYTES])
    if len(word) <= WORD_BYTES:
        if not joints.strip(b".") and b".." not in word:
            if not word[:1].isdigit():
                return _atoms_in_dots(word)
            if len(word) <= PATTERN_BYTES:
                return _atoms_in_numbers(word, len(joints))
        elif not joints.strip(b"-") and b"--" not in word:
            if word == word.lower() and b"_" not in word:
                return word if len(word) >= 8 else None
            if _is_plain_pair(word, len(joints)):
                return None
    return _several(_atoms_by_pattern(word[:PATTERN_BYTES].decode()))


def _atoms_in_numbers(word: bytes, dots: int) -> Any:
    """A version, a decimal number, a length of time, the seconds of a point in time: digits come first, dots part."""
    before, _, after = word.partition(b".")
    if dots > 1:
        if word.replace(b".", b"").isdigit():
            return word
    elif before.isdigit():
        bare = after.removesuffix(b"Z")
        if bare.isdigit():
            parts = (before,) if after is not bare else (before, after)
            return _one_or_more([part for part in parts if len(part) >= 4])
        # With a unit behind it: too short for a hash, and no number is parted by a letter.
        if len(before) < 4 and len(after) < 7 and after[:1].isdigit() and after.isalnum():
            return None
    return _several(_atoms_by_pattern(word.decode()))


def _is_plain_pair(word: bytes, hyphens: int) -> bool:
    """Two plain words, or any number of them in Title-Case: nobody made up a name there."""
    if word.istitle() and word.replace(b"-", b"").isalpha():
        return True
    before, _, after = word.partition(b"-")
    return hyphens == 1 and _is_plain(before) and _is_plain(after)


def _is_plain(word: bytes) -> bool:
    return word.isalpha() and (word[1:].islower() or word.isupper() or len(word) == 1)


def _classify_foreign(word: bytes) -> Any:
    text = word.decode("utf-8", "replace")
    found = _atoms_by_pattern(text[:PATTERN_BYTES])
    for run in _LETTERS.findall(text):
        if not run.isascii():
            found += _grams(run)
    return _several(found)


def _several(found: list[str]) -> Any:
    return _one_or_more([each.encode("utf-8", "replace") for each in found])


def _one_or_more(found: list[bytes]) -> Any:
    if not found:
        return None
    return found[0] if len(found) == 1 else tuple(found)


class _Words(dict[bytes, Any]):
    """Word to atoms (one, or several as a tuple): a word is looked at once, and equal atoms are one object."""

    def __missing__(self, word: bytes) -> Any:
        found = None
        if word.isalpha():  # most words are plain: they are settled here, without a further call
            if not (word.islower() or word[1:].islower()):
                found = _classify(word)
        elif len(word) > 3 or word[0] == _HASH_SIGN:
            found = _classify(word)
        if found is None:
            _PLAIN.add(word)
        else:
            self[word] = found
        return found


_WORDS = _Words()
_PLAIN: set[bytes] = set()
"""Words without atoms, two in three: a set takes them out of others at a third of the cost of looking each up."""


def forget_words(most: int = WORDS_BETWEEN) -> None:
    """Free the known words if they are many: they serve one pass; a later one reads little that is new."""
    if len(_WORDS) + len(_PLAIN) > most:
        _WORDS.clear()
        _PLAIN.clear()


def _look_up(words: set[bytes]) -> set[bytes]:
    """The atoms of all these words."""
    found = set(map(_WORDS.__getitem__, words - _PLAIN))
    found.discard(None)
    several = [atoms for atoms in found if atoms.__class__ is tuple]
    for atoms in several:
        found.discard(atoms)
        found.update(atoms)
    forget_words(WORDS_KEPT)
    return found


def _encode(text: str) -> bytes:
    cut = text if len(text) <= TEXT_CAP else text[:TEXT_CAP]
    if cut.isascii():
        return cut.encode("ascii")
    # File listings put an arrow between number and line; as part of a word it would make every first word new.
    return cut.encode("utf-8", "surrogatepass").replace(b"\xe2\x86\x92", b"   ")


def _words_in(raw: bytes) -> set[bytes]:
    """The distinct words; piece by piece, because the list of all words of a long text is ten times the text."""
    spaced = raw.translate(_WORD_TABLE)
    if len(spaced) <= PIECE_BYTES:
        return set(spaced.split())
    words: set[bytes] = set()
    start = 0
    while start < len(spaced):
        end = spaced.find(b" ", start + PIECE_BYTES)
        end = len(spaced) if end < 0 else end
        words.update(spaced[start:end].split())
        start = end
    return words


def _atoms_in_bytes(raw: bytes) -> tuple[set[bytes], bool]:
    """The atoms, and whether the text is prose or has none at all."""
    words = _words_in(raw)
    found = _look_up(words)
    if len(found) * PROSE_CHARS >= len(raw):
        return found, not found
    plain = [word for word in words if word.isalpha()]
    is_prose = not found or len(plain) >= PROSE_SHARE * len(words)  # otherwise it is a table, a drawing, a dump
    if is_prose:
        found.update([word.lower() for word in plain if PROSE_WORD <= len(word) <= WORD_BYTES])
    return found, is_prose


def _is_foreign(raw: bytes) -> bool:
    """Whether letters of other scripts make up a good part of the text (by their first bytes in UTF-8)."""
    return len(raw) > 0 and len(raw.translate(None, _NOT_FOREIGN)) > FOREIGN_SHARE * len(raw)


def _lines_in_bytes(raw: bytes) -> set[bytes]:
    rows = {row.strip(_LINE_EDGE) for row in raw.split(b"\n") if len(row) >= LINE_MIN}
    lines = [row for row in rows if len(row) >= LINE_MIN and b" " in row]
    if lines and _GREP_NUMBER.search(raw):
        lines = list(filter(None, map(_without_grep_prefix, lines)))
    if not lines:
        return set()
    letters = b"\n".join(lines).translate(None, _NOT_LETTERS).split(b"\n")
    return {line[:LINE_CAP] for line, kept in zip(lines, letters, strict=True) if len(kept) >= LINE_LETTERS}


def _without_grep_prefix(row: bytes) -> bytes:
    """The line behind `file:12:`; empty if too little is left."""
    if row.find(b":", 1, 120) > 0 and (grep := _GREP.match(row)):
        line = row[grep.end() :].strip(_LINE_EDGE)
        return line if len(line) >= LINE_MIN and b" " in line else b""
    return row


def atoms_of(text: str) -> set[bytes]:
    """The characteristic tokens of a text. Linear in its length for any input."""
    return _atoms_in_bytes(_encode(text))[0] if text else set()


def lines_of(text: str) -> set[bytes]:
    """The distinct long lines of a text without what listings, greps and diffs put before them."""
    return _lines_in_bytes(_encode(text)) if text else set()


def facts_of(text: str) -> Facts:
    """Atoms and line hashes of a tool result."""
    raw = _encode(text)
    atoms, is_prose = _atoms_in_bytes(raw)
    lines = array("q", list(map(hash, _lines_in_bytes(raw))))
    is_plain = is_prose or (len(raw) > len(text) and _is_foreign(raw))
    return Facts(tuple(atoms), lines, raw.count(b"\n"), len(text), is_plain=is_plain)


def kept_atoms_of(text: str) -> frozenset[bytes]:
    """Atoms of a text that a compactor keeps (messages, reasoning, arguments)."""
    return frozenset(atoms_of(text))
