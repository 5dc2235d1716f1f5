"""What a conformance suite finds, as checks with names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple

__all__ = ["Check", "Report", "Skipped"]


class Check(NamedTuple):
    """One line of a report."""

    name: str
    status: Literal["passed", "failed", "skipped"]
    reason: str = ""


class Report:
    """What a suite found."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.checks: list[Check] = []

    @property
    def ok(self) -> bool:
        """No check failed; skipped ones are named with their reason."""
        return not self.names("failed")

    def names(self, status: str) -> list[str]:
        """Names of the checks with this status."""
        return [check.name for check in self.checks if check.status == status]

    def __str__(self) -> str:
        counts = ", ".join(f"{len(self.names(status))} {status}" for status in ("passed", "failed", "skipped"))
        lines = [f"{c.status:7} {c.name}{': ' * bool(c.reason)}{c.reason}" for c in self.checks]
        return "\n".join([f"{self.subject}: {counts}", *lines])

    def add(self, name: str, work: Callable[[], str | None]) -> None:
        """Run one check; `work` returns what is wrong, or None."""
        try:
            problem = work()
        except Skipped as skip:
            self.checks.append(Check(name, "skipped", str(skip)))
        except Exception as error:  # noqa: BLE001  # whatever the subject raises is the finding
            self.checks.append(Check(name, "failed", f"{type(error).__name__}: {error}"[:300]))
        else:
            self.checks.append(Check(name, "failed" if problem else "passed", problem or ""))

    async def wait(self, name: str, work: Callable[[], Awaitable[str | None]]) -> None:
        """Run one check that waits."""
        try:
            problem = await work()
        except Exception as error:  # noqa: BLE001  # whatever the subject raises is the finding
            self.checks.append(Check(name, "failed", f"{type(error).__name__}: {error}"[:300]))
        else:
            self.checks.append(Check(name, "failed" if problem else "passed", problem or ""))


class Skipped(Exception):  # not an error
    """The subject does not offer what a check is about."""
