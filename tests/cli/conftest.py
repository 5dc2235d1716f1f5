"""A shell whose store and files lie in the test's own folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from jev_engine.cli import main
from jev_engine.testing import assistant, call, history, result, user

# Everything that may be judged goes, whatever judge ships.
SHORTEN_ALL = ("--policy", "threshold", "--keep-result", "1", "--keep-call", "0")


class Shell:
    """Runs commands as a person does, with a store of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "store/originals.sqlite3"

    def run(self, command: str, *words: str | Path, stdin: bytes | str | None = None) -> Result:
        line = [command, *map(str, words), "--store", str(self.store)]
        return CliRunner().invoke(main, line, input=stdin, catch_exceptions=False)

    def file(self, name: str, content: Any) -> Path:
        path = self.folder / name
        if not isinstance(content, bytes):
            content = (content if isinstance(content, str) else json.dumps(content)).encode()
        path.write_bytes(content)
        return path

    def names(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def redactor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Installs a plugin whose module has the text it is given."""

    def install(text: str) -> None:
        package = tmp_path / "site/company-1.0.dist-info"
        package.mkdir(parents=True)
        (package / "METADATA").write_text("Metadata-Version: 2.1\nName: company\nVersion: 1.0\n")
        (package / "entry_points.txt").write_text("[jev_engine]\ncompany = company_plugin\n")
        (package.parent / "company_plugin.py").write_text(text)
        monkeypatch.syspath_prepend(str(package.parent))
        monkeypatch.delitem(sys.modules, "company_plugin", raising=False)

    return install


@pytest.fixture
def shorten_all() -> tuple[str, ...]:
    return SHORTEN_ALL


@pytest.fixture
def messages() -> list[dict[str, Any]]:
    """Eight reads of 3,000 characters, each its own text, and a condition of the user."""
    reads = [
        row
        for n in range(8)
        for row in (
            call("read_file", path=f"src/part_{n}.py", text=f"Now part {n}."),
            result(f"part {n}: a line of its own\n" * 120),
        )
    ]
    return history(user("Fix the parser. Never change the signature of parse_row."), *reads, assistant("Done."))


@pytest.fixture
def claude_rows() -> list[dict[str, Any]]:
    """A short Claude Code session: one call with its result, one row each."""
    rows: list[dict[str, Any]] = []

    def row(kind: str, content: Any, **message: Any) -> None:
        parent = rows[-1]["uuid"] if rows else None
        body = {"role": kind, "content": content, **message}
        rows.append({"type": kind, "uuid": f"row-{len(rows)}", "parentUuid": parent, "message": body})

    row("user", "Fix the parser.")
    for n in range(6):
        row("assistant", [{"type": "tool_use", "id": f"u{n}", "name": "Read", "input": {"n": n}}], id=f"r{n}")
        row("user", [{"type": "tool_result", "tool_use_id": f"u{n}", "content": f"line {n}\n" * 300}])
    return rows
