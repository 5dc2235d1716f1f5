"""What a tool call does, read from its name and arguments."""

from __future__ import annotations

import json

import pytest

from jev_engine.tools import KINDS, argument_text, describe_call, kind_of, parse_arguments


@pytest.mark.parametrize(
    ("tool", "arguments", "kind"),
    [
        ("Read", {"file_path": "/a/b.py"}, "read"),
        ("Grep", {"pattern": "x"}, "search"),
        ("Glob", {"pattern": "*.py"}, "list"),
        ("Edit", {"file_path": "/a/b.py"}, "edit"),
        ("write_file", {"path": "a"}, "edit"),
        ("str_replace_editor", {"command": "view", "path": "/a"}, "read"),
        ("str_replace_editor", {"command": "create", "path": "/a"}, "edit"),
        ("Bash", {"command": "cat a.txt"}, "read"),
        ("Bash", {"command": "cat <<EOF > a.txt"}, "shell"),
        ("Bash", {"command": "sed -i s/a/b/ a.txt"}, "shell"),
        ("Bash", {"command": "cd /repo && sudo rg needle"}, "search"),
        ("Bash", {"command": "ls -la"}, "list"),
        ("Bash", {"command": "git status"}, "git"),
        ("Bash", {"command": "FOO=1 pytest -q"}, "test"),
        ("Bash", {"command": "npm run build"}, "build"),
        ("Bash", {"command": "python script.py"}, "shell"),
        ("shell", {"command": ["bash", "-lc", "echo hi"]}, "shell"),
        ("Task", {"prompt": "look"}, "subagent"),
        ("TaskOutput", {}, "shell"),
        ("TodoWrite", {"todos": []}, "meta"),
        ("WebFetch", {"url": "x"}, "web"),
        ("browser_navigate", {"url": "x"}, "web"),
        ("mcp__jira__get_issue", {}, "mcp"),
        ("get_flight_details", {"id": 1}, "api"),
        ("", {}, "api"),
    ],
)
def test_the_kind_follows_from_name_and_arguments(tool, arguments, kind):
    """Known hosts are listed, shell commands are looked into, everything else is generic."""
    assert kind_of(tool, arguments) == kind
    assert kind in KINDS


@pytest.mark.parametrize(
    ("tool", "arguments", "path"),
    [
        ("Read", {"file_path": "/home/me/repo/src/app/main.py"}, "src/app/main.py"),
        ("read", {"filePath": "main.py"}, "main.py"),
        ("Read", {"file_path": "/repo/.worktrees/one/two/src/a.py"}, "src/a.py"),
        ("Bash", {"command": "sed -n '1,50p' src/app/main.py"}, "src/app/main.py"),
        ("Bash", {"command": "python main.py"}, ""),
        ("apply_patch", {"input": "*** Begin Patch\n*** Update File: src/a.py\n"}, "src/a.py"),
        ("Grep", {"pattern": "x"}, ""),
    ],
)
def test_the_path_is_the_same_in_every_checkout(tool, arguments, path):
    """Its last three parts, without work trees."""
    assert describe_call(tool, json.dumps(arguments)).path == path


def test_the_same_call_has_the_same_key_whatever_the_order_of_its_fields():
    """Order and white space in the arguments mean nothing."""
    one = describe_call("Grep", '{"pattern": "x", "path": "src"}')
    two = describe_call("Grep", '{"path":"src","pattern":"x"}')
    other = describe_call("Grep", '{"path":"src","pattern":"y"}')

    assert one.same == two.same
    assert one.same != other.same


def test_nested_arguments_have_a_key_too():
    """Lists and objects inside are compared by content."""
    one = describe_call("TodoWrite", '{"todos": [{"a": 1, "b": 2}]}')
    two = describe_call("TodoWrite", '{"todos": [{"b": 2, "a": 1}]}')

    assert one.same == two.same


def test_a_part_of_a_file_is_told_from_the_whole():
    """By offset, limit, or the line range of sed."""
    assert describe_call("Read", '{"file_path": "a.py", "offset": 5}').partial
    assert describe_call("Bash", json.dumps({"command": "sed -n '1,5p' a.py"})).partial
    assert not describe_call("Read", '{"file_path": "a.py"}').partial


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("Edit", {}, "edit"),
        ("Bash", {"command": "pytest"}, "test"),
        ("Bash", {"command": "git log -3"}, "git"),
        ("Bash", {"command": "git commit -m x"}, "change"),
        ("Bash", {"command": "rm -rf build"}, "build"),
        ("Bash", {"command": "mv a b"}, "change"),
        ("Bash", {"command": "python x.py"}, "other"),
        ("Glob", {}, "search"),
        ("anything", {}, "other"),
    ],
)
def test_the_class_of_a_call_tells_changes_from_looks(tool, arguments, expected):
    """The table of how often calls matter is by class."""
    found = describe_call(tool, json.dumps(arguments)).call_class

    assert found == ("test" if expected == "build" else expected)


def test_arguments_that_are_no_object_are_wrapped():
    """Free text is taken for a command, other JSON for a value."""
    assert parse_arguments("not json") == {"command": "not json"}
    assert parse_arguments("[1]") == {"value": [1]}


def test_the_text_of_arguments_has_their_line_breaks():
    """JSON hides them behind escapes; lines of an edit must be recognised."""
    arguments = json.dumps({"new": "one\ntwo", "list": ["three", 4, True, None]})

    assert argument_text(arguments) == "one\ntwo\nthree\n4"
    assert argument_text("plain") == "plain"


@pytest.mark.parametrize(
    "command",
    ["cd a" + ";" * 8_000, ".-" * 8_000, "cat " + "a/" * 8_000, "[" * 30_000, "'" * 9_001, "sudo " * 4_000],
)
def test_hostile_commands_are_described(command):
    """Patterns see a bounded piece."""
    assert describe_call("Bash", json.dumps({"command": command})).kind in KINDS
    assert describe_call("Bash", command).kind in KINDS
