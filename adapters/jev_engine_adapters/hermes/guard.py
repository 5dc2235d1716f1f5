"""What makes a member of the host's contract safe to call."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["never_raises"]

logger = logging.getLogger("jev_engine.hermes")

P = ParamSpec("P")
T = TypeVar("T")


def never_raises(answer: Callable[..., T]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A member of the contract: what goes wrong in it is written to the log, and `answer` of its arguments returned.

    The host is in the middle of a turn and mostly catches nothing.
    """

    def wrap(member: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(member)
        def guarded(*args: P.args, **options: P.kwargs) -> T:
            try:
                return member(*args, **options)
            except Exception:
                logger.exception("%s failed; the host goes on as if it had nothing to say", member.__name__)
                return answer(*args, **options)

        return guarded

    return wrap
