"""A trail of two passes of two sessions."""

from __future__ import annotations

from pathlib import Path

import pytest
from audit_trails import messages_of, write_trail

from jev_engine.testing import user


@pytest.fixture
def trail(tmp_path: Path) -> Path:
    """The file."""
    path = tmp_path / "trail.jsonl"
    for name in ("One.", "Two."):
        messages = messages_of()
        messages[0] = user(name)
        assert write_trail(path, messages).changed
    return path
