"""A line that its writer did not finish, told from one that somebody put there."""

from __future__ import annotations

import json
import re
from codecs import getincrementaldecoder
from collections.abc import Callable

from jev_engine.audit.files import LINE_START

__all__ = ["cut_off"]

# What may be left of a word, a number or an escape that was cut.
PIECE = re.compile(r"|t|tr|tru|f|fa|fal|fals|n|nu|nul|-|[.eE][-+]?|\\?u[0-9a-f]{0,3}")
# What comes before the number, as far as it goes; then chain and number, which a comma ends.
BEFORE = re.compile(rb'\{"chain":"[0-9a-z]{0,64}(?:"(?:,(?:"(?:n(?:":?)?)?)?)?)?')
NUMBERED = re.compile(rb'\{"chain":"([0-9a-z]{1,64})","n":([1-9][0-9]{0,15}(?:,|$))')


def cut_off(raw: bytes, may_come: Callable[[str, str], bool]) -> bool:
    """Whether a line is the start of one that may come next in its chain. Anything else was changed or added.

    `may_come` is asked for a chain and a number, in digits, with a comma behind where that is all of it.
    """
    text = raw.rstrip(b"\n")
    if LINE_START.startswith(text) or BEFORE.fullmatch(text):
        return True
    found = NUMBERED.match(text)
    if found is None or text.endswith(b"}}") or not _is_json_so_far(text):
        return False
    return may_come(found[1].decode(), found[2].decode())


def _is_json_so_far(text: bytes) -> bool:
    try:
        # A character of several bytes may have been cut too.
        whole = getincrementaldecoder("utf-8")().decode(text)
        json.loads(whole)
    except json.JSONDecodeError as error:
        rest = whole[error.pos :]
        return error.msg.startswith("Unterminated string") or PIECE.fullmatch(rest) is not None
    except ValueError:
        return False
    return False  # nothing is missing, and still it is no line of ours
