"""Common tokens: what many projects, or most sessions of one project, contain proves nothing.

Shipped as hashes only, so that no text of anybody's session is in the package.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from importlib.resources import files
from pathlib import Path

from jev_engine.evaluate.corpus import Session
from jev_engine.evaluate.hindsight import LINE_MARK, tokens_of
from jev_engine.tools import argument_text

__all__ = ["Vocabulary", "count_vocabulary", "hash_token", "load_vocabulary", "save_vocabulary"]

HASH_BYTES = 6
"""Bytes per token: with 3,000 entries and a million tokens asked, 1 in 100,000 is taken for common by chance."""
ATOM_PROJECTS = 3
"""Projects an atom must be found in to be common."""
LINE_PROJECTS = 2
"""The same for lines."""
LOCAL_SHARE = 0.5
"""Share of a project's sessions an atom must be found in to be that project's vocabulary; it stands in for the
system prompt and project notes, which sessions do not record."""
LOCAL_SESSIONS = 3
"""And at least this many sessions."""
LOCAL_PROJECT = 10
"""Sessions a project needs to have a vocabulary of its own."""


class Vocabulary:
    """Hashes of tokens that prove nothing, over all projects and per project."""

    __slots__ = ("common", "local")

    def __init__(self, common: frozenset[bytes], local: dict[str, frozenset[bytes]]) -> None:
        self.common = common
        self.local = local

    def of_project(self, project: str) -> Callable[[bytes], bool]:
        """A test for tokens that prove nothing in this project."""
        known = self.common | self.local.get(project, frozenset())

        def is_common(token: bytes) -> bool:
            return hash_token(token) in known

        return is_common

    def __or__(self, other: Vocabulary) -> Vocabulary:
        projects = self.local.keys() | other.local.keys()
        none: frozenset[bytes] = frozenset()
        local = {name: self.local.get(name, none) | other.local.get(name, none) for name in projects}
        return Vocabulary(self.common | other.common, local)


def hash_token(token: bytes) -> bytes:
    """The hash a token is known by, the same in every process."""
    return hashlib.blake2b(token, digest_size=HASH_BYTES).digest()


def _texts(session: Session) -> Iterator[str]:
    for message in session.messages:
        yield message.get("content") or ""
        for call in message.get("tool_calls") or ():
            yield argument_text(call["function"]["arguments"] or "")


def count_vocabulary(sessions: Iterable[Session]) -> Vocabulary:
    """Count in how many projects and sessions each token occurs, and keep the common ones."""
    seen: dict[str, Counter[bytes]] = defaultdict(Counter)
    sizes: Counter[str] = Counter()
    for session in sessions:
        sizes[session.project] += 1
        tokens: set[bytes] = set()
        for text in _texts(session):
            tokens |= tokens_of(text)
        seen[session.project].update(tokens)
    projects: Counter[bytes] = Counter()
    for counts in seen.values():
        projects.update(counts.keys())
    common = [
        token
        for token, count in projects.items()
        if count >= (LINE_PROJECTS if token.startswith(LINE_MARK) else ATOM_PROJECTS)
    ]
    local = {name: _local(counts, sizes[name]) for name, counts in seen.items()}
    return Vocabulary(frozenset(map(hash_token, common)), local)


def _local(counts: Counter[bytes], sessions: int) -> frozenset[bytes]:
    if sessions < LOCAL_PROJECT:
        return frozenset()
    least = max(LOCAL_SESSIONS, LOCAL_SHARE * sessions)
    return frozenset(
        hash_token(token) for token, count in counts.items() if count >= least and not token.startswith(LINE_MARK)
    )


def save_vocabulary(vocabulary: Vocabulary, path: Path) -> None:
    """Write the common hashes, sorted, without any text. Projects' own vocabularies are not written."""
    path.write_bytes(b"".join(sorted(vocabulary.common)))


def load_vocabulary(path: Path | None = None) -> Vocabulary:
    """The vocabulary that ships with the package, or the one written to `path`."""
    source = files("jev_engine.evaluate").joinpath("data/vocabulary.bin") if path is None else path
    raw = source.read_bytes()
    hashes = frozenset(raw[i : i + HASH_BYTES] for i in range(0, len(raw), HASH_BYTES))
    return Vocabulary(hashes, {})
