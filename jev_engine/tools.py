"""What a tool call does, from its name and arguments: its kind, the path it is about, and a key for "the same call".

Names of known hosts are listed; an unknown tool is `api`, the generic kind, so that any host works.

>>> describe_call("Bash", '{"command": "cd repo && grep -rn needle src"}')
CallInfo(kind='search', path='', partial=False)
>>> describe_call("Read", '{"file_path": "/home/me/repo/src/app/main.py", "limit": 50}')
CallInfo(kind='read', path='src/app/main.py', partial=True)
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

__all__ = ["KINDS", "CallInfo", "argument_text", "describe_call", "kind_of", "parse_arguments"]

KINDS = (
    "read", "search", "list", "edit", "git", "test", "build", "shell", "subagent", "meta", "web", "mcp", "api",
)  # fmt: skip
"""Every kind there is; `api` is a tool nothing is known about."""

COMMAND_CAP = 2_000
"""Characters of a command that are looked at: a longer one is a script whose end says little about its kind."""
PATH_CAP = 1_000
"""Characters of a path that are looked at; file systems allow no more than a few thousand."""

_NO_JSON = object()
_SHELLS = frozenset(
    "bash shell exec_command local_shell run write_stdin execute_bash terminal run_command run_terminal_cmd"
    " execute_command run_shell_command".split()
)
_NAMES = {
    "read": "read view open cat read_file scroll_down scroll_up goto notebookread view_image read_many_files",
    "search": "grep search search_dir search_file codesearch search_files grep_search codebase_search search_code"
    " search_file_content",
    "list": "glob ls list find_file find list_dir list_files list_directory file_search",
    "edit": "edit multiedit write notebookedit apply_patch create insert replace patch str_replace_editor write_file"
    " edit_file create_file str_replace search_replace write_to_file replace_in_file",
    "shell": "taskoutput bashoutput killshell taskstop process",
    "meta": "todowrite todoread update_plan taskcreate taskupdate tasklist taskget enterplanmode exitplanmode"
    " askuserquestion skill toolsearch think todo clarify",
    "subagent": "delegate_task",
}
_KIND_BY_NAME = {name: kind for kind, names in _NAMES.items() for name in names.split()}
_SUBAGENT_PREFIXES = ("task", "agent", "spawn", "wait", "send_input", "close_agent", "send_message")

_READERS = frozenset("cat head tail sed less nl bat awk jq".split())
_SEARCHERS = frozenset("grep rg ag ack".split())
_LISTERS = frozenset("ls find tree fd pwd wc du stat".split())
_VERSIONERS = frozenset("git gh jj".split())
_PREAMBLE = re.compile(r"^(?:cd\s+\S+\s*(?:&&|;)\s*)+")
_WRAPPERS = re.compile(r"^(?:[A-Z_]+=\S+\s+|sudo\s+|timeout\s+\S+\s+|rtk\s+)+")
_TESTS = re.compile(
    r"\b(?:pytest|jest|vitest|go test|cargo test|npm (?:run )?test|pnpm (?:run )?test|bun (?:run )?test|yarn test|tox"
    r"|mise run test|ctest|phpunit|rspec)\b"
)
_BUILDS = re.compile(r"\b(?:build|tsc|lint|eslint|mypy|ruff|golangci|fmt|prettier|make|compile|typecheck|install)\b")
_PATCHED = re.compile(r"\*\*\* (?:Update|Add|Delete) File: (\S+)")
_QUOTED = re.compile(r"'[^']*'")
_TOKEN = re.compile(r"[\w@.+~/-]+")
_FILE_NAME = re.compile(r"[\w@+-]+\.\w+")
_WORKTREE = re.compile(r"^.*?/(?:\.worktrees/[^/]+(?:/[^/]+)?|worktrees/[^/]+)/")

_GIT_READS = re.compile(
    r"\b(?:git|gh|jj)\s+(?:-\S+\s+)*(?:status|log|diff|show|blame|grep|branch$|remote|rev-parse|ls-files|describe|config"
    r"|shortlog|cat-file|ls-tree|pr (?:view|list|diff|checks)|issue (?:view|list)|run (?:view|list)|api|auth)\b"
)
_CHANGES = re.compile(
    r"(?:^|[;&|]\s*)(?:sudo\s+)?(?:rm|mv|cp|mkdir|rmdir|touch|chmod|chown|ln|kill|pkill|tee|dd|patch|docker|kubectl"
    r"|systemctl|brew|apt|apt-get)\b|\bsed\s+-i|[^>]>{1,2}\s*[\w./~-]"
)


class CallInfo:
    """What is known about a call from its name and arguments alone."""

    __slots__ = ("call_class", "kind", "partial", "path", "same")

    def __init__(self, kind: str, path: str, same: int, call_class: str, *, partial: bool) -> None:
        self.kind = kind
        """One of `KINDS`."""
        self.path = path
        """The file it is about, its last three parts; empty if none."""
        self.same = same
        """Equal for two calls that ask for the same thing; a hash, comparable inside one process only."""
        self.call_class = call_class
        """Its row in the table of how often calls matter (`judges.local`)."""
        self.partial = partial
        """A part of a file was asked for."""

    def __repr__(self) -> str:
        return f"CallInfo(kind={self.kind!r}, path={self.path!r}, partial={self.partial!r})"


@lru_cache(maxsize=64)  # a message and its calls are read one after the other: each text is parsed once
def _parse(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return _NO_JSON


def parse_arguments(arguments: str) -> dict[str, Any]:
    """The arguments of a call as a mapping; text that is no JSON object becomes one with a single field."""
    parsed = _parse(arguments)
    if parsed is _NO_JSON:
        return {"command": arguments}
    return parsed if isinstance(parsed, dict) else {"value": parsed}


def argument_text(arguments: str) -> str:
    """The texts and numbers inside JSON arguments, one a line; other text unchanged."""
    parsed = _parse(arguments)
    if parsed is _NO_JSON:
        return arguments
    found: list[str] = []
    waiting: list[Any] = [parsed]
    while waiting:  # a stack of our own: nesting is in a stranger's hand
        value = waiting.pop()
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, dict):
            waiting.extend(reversed(value.values()))
        elif isinstance(value, list):
            waiting.extend(reversed(value))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found.append(str(value))
    return "\n".join(found)


def _command_in(arguments: Mapping[str, Any]) -> str:
    command = arguments.get("command") or arguments.get("cmd") or ""
    return " ".join(map(str, command)) if isinstance(command, list) else str(command)


def _kind_of_command(command: str) -> str:
    bare = command[:COMMAND_CAP].strip()
    for before in (_PREAMBLE, _WRAPPERS):
        if match := before.match(bare):
            bare = bare[match.end() :]
    words = bare.split(None, 4)
    first = words[0] if words else ""
    if first in _READERS and "<<" not in bare and "-i" not in words[:3]:
        return "read"
    if first in _SEARCHERS:
        return "search"
    if first in _LISTERS:
        return "list"
    if first in _VERSIONERS:
        return "git"
    if _TESTS.search(bare):
        return "test"
    return "build" if _BUILDS.search(bare) else "shell"


def kind_of(tool: str, arguments: Mapping[str, Any]) -> str:
    """The kind of a call, one of `KINDS`."""
    name = tool.lower()
    if name in _SHELLS:
        return "shell" if name == "write_stdin" else _kind_of_command(_command_in(arguments))
    kind = _KIND_BY_NAME.get(name)
    if kind is not None:
        viewing = name == "str_replace_editor" and "view" in str(arguments.get("command") or "")[:40]
        return "read" if viewing else kind
    if name.startswith(_SUBAGENT_PREFIXES):
        return "subagent"
    if name.startswith(("web", "browser")) or "fetch" in name:
        return "web"
    return "mcp" if "__" in name else "api"


def _file_in_command(command: str) -> str:
    """The last thing in a command that looks like a file name, with its folders."""
    for token in reversed(_TOKEN.findall(_QUOTED.sub(" ", command[:COMMAND_CAP]))):
        folder, slash, last = token[:PATH_CAP].rpartition("/")
        match = _FILE_NAME.match(last)
        if match and not token.startswith("-"):
            return f"{folder}{slash}{match.group()}"
    return ""


def _path_in(kind: str, tool: str, arguments: Mapping[str, Any], command: str) -> str:
    for field in ("file_path", "path", "filePath", "notebook_path"):
        if arguments.get(field):
            return str(arguments[field])
    if tool == "apply_patch":
        patch = _PATCHED.search(str(arguments.get("input") or arguments.get("patchText") or ""))
        if patch:
            return patch.group(1)
    if "*** " in command and (match := _PATCHED.search(command)):
        return match.group(1)
    return _file_in_command(command) if kind == "read" and command else ""


def _short_path(path: str) -> str:
    """The last three parts of a path, the same in every work tree of a project."""
    bare = path[:PATH_CAP].strip().strip("\"'")
    if "worktrees/" in bare:
        bare = _WORKTREE.sub("", bare)
    return "/".join(bare.strip("/").split("/")[-3:])


def describe_call(tool: str, arguments: str) -> CallInfo:
    """Kind, path and identity of a call."""
    parsed = parse_arguments(arguments)
    kind = kind_of(tool, parsed)
    command = _command_in(parsed)
    path = _path_in(kind, tool, parsed, command)
    if kind == "read" and path:
        same = hash(("read", path, str(parsed.get("offset", "")), command))
    else:
        same = hash((kind, _canonical(parsed, arguments)))
    partial = bool(parsed.get("offset") or parsed.get("limit") or "sed -n" in command)
    call_class = _class_of(kind, command[:COMMAND_CAP])
    return CallInfo(kind, _short_path(path) if path else "", same, call_class, partial=partial)


def _canonical(parsed: Mapping[str, Any], arguments: str) -> object:
    """The arguments in a form that does not depend on the order of fields or on white space between them."""
    if all(value.__class__ in _SCALARS for value in parsed.values()):
        return frozenset(parsed.items())
    try:
        return json.dumps(parsed, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return arguments


_SCALARS = frozenset((str, int, float, bool, None.__class__))


def _class_of(kind: str, command: str) -> str:
    if kind in ("test", "build"):
        return "test"
    if kind in ("search", "list"):
        return "search"
    if kind == "git":
        return "git" if _GIT_READS.search(command) else "change"
    if kind == "shell" and _CHANGES.search(command):
        return "change"
    return "other" if kind in ("shell", "api") else kind
