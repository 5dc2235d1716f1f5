"""Take keys, mail addresses, home folders and the names in them out of the texts of a session.

Names in free text can remain: read a sample before you share a corpus.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

__all__ = ["make_redactor", "redact_messages"]

Message = dict[str, Any]

SECRETS = [
    (re.compile(r"\b(?:sk|rk|pk)-(?:ant-|proj-|live-|test-)?[A-Za-z0-9_\-]{20,}"), "sk-REDACTED"),
    (re.compile(r"\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}"), "gh_REDACTED"),
    (re.compile(r"\bAKIA[0-9A-Z]{16}\b"), "AKIAREDACTED"),
    (re.compile(r"\bxox[abprs]-[A-Za-z0-9-]{10,}"), "xox-REDACTED"),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}"), "JWT-REDACTED"),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL), "[KEY REDACTED]"),
    (re.compile(r"\b(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}\b"), "00:00:00:00:00:00"),
]
EMAIL = re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){0,4}\.[A-Za-z]{2,}")
PUBLIC_MAIL = ("git@", "noreply@")
HOME = re.compile(r"(/Users/|/home/|C:\\\\?Users\\\\?)([A-Za-z0-9._-]+)")
DASHED_HOME = re.compile(r"-(Users|home)-([A-Za-z0-9._]+)-")
KEPT_HOMES = frozenset("user runner node ubuntu vscode Shared root git app me you alice bob username".split())
PLAIN_WORDS = frozenset("code build main work test tests admin demo project projects data home docs user".split())
NAMED = 5
"""A user name that stands so often in home paths is taken out wherever it stands."""
GIT_NAME = re.compile(
    r"(?m)^(\s*(?:Author|Committer|Co-[Aa]uthored-[Bb]y|Signed-off-by|Reviewed-by):\s*)[^<\n]{1,60}(?=<)"
)


def make_redactor(texts: Sequence[str]) -> Callable[[str], str]:
    """A function that takes keys, mail addresses, home folders and the names in them out of a text."""
    counts = Counter(found.group(2) for text in texts for found in HOME.finditer(text))
    names = [name for name, count in counts.items() if count >= NAMED and len(name) >= 4 and name not in KEPT_HOMES]
    names = sorted((name for name in names if name.lower() not in PLAIN_WORDS), key=len, reverse=True)
    joined = "|".join(map(re.escape, names))
    everywhere = re.compile(rf"(?<![A-Za-z0-9])(?:{joined})(?![A-Za-z0-9])", re.IGNORECASE) if names else None

    def mail(found: re.Match[str]) -> str:
        text = found.group()
        return text if text.lower().startswith(PUBLIC_MAIL) or text.endswith("example.com") else "dev@example.com"

    def home(found: re.Match[str]) -> str:
        return found.group(1) + (found.group(2) if found.group(2) in KEPT_HOMES else "user")

    def redact(text: str) -> str:
        for pattern, replacement in SECRETS:
            text = pattern.sub(replacement, text)
        text = EMAIL.sub(mail, text)
        text = HOME.sub(home, text)
        text = DASHED_HOME.sub(lambda found: f"-{found.group(1)}-user-", text)
        text = GIT_NAME.sub(lambda found: found.group(1) + "Dev ", text)
        return everywhere.sub("user", text) if everywhere is not None else text

    return redact


def _texts(messages: Sequence[Message]) -> Iterator[str]:
    for message in messages:
        yield from (message.get("content") or "", message.get("reasoning") or "")
        yield from (call["function"]["arguments"] for call in message.get("tool_calls") or ())


def redact_messages(messages: Sequence[Message]) -> None:
    """Redact every text of a session in place."""
    redact = make_redactor(list(_texts(messages)))
    for message in messages:
        for field in ("content", "reasoning"):
            if message.get(field):
                message[field] = redact(message[field])
        for call in message.get("tool_calls") or ():
            call["function"]["arguments"] = redact(call["function"]["arguments"])
