"""`jev-engine setup hermes` and `remove hermes`: two settings line by line, and a folder that stands on its own."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jev_engine.errors import HostError
from jev_engine.hosts import HostIntegration, carry_out
from jev_engine_adapters.hermes.install import integration, judge
from jev_engine_adapters.hermes.package import files
from jev_engine_adapters.hermes.settings_file import is_on, switch_off, switch_on

BOTH = (True, True)

PLAIN = "plugins:\n  enabled:\n    - jev-engine\ncontext:\n  engine: jev-engine\n"
CASES = {
    "nothing": ("", PLAIN),
    "other things": (
        "# mine\nmodel:\n  default: x  # why\n",
        "# mine\nmodel:\n  default: x  # why\n\n" + PLAIN,
    ),
    "a list in one line": (
        "plugins:\n  enabled: [a, 'b']  # keep\ncontext:\n  engine: compressor # default\n",
        "plugins:\n  enabled: [a, 'b', jev-engine]  # keep\ncontext:\n  engine: jev-engine # default\n",
    ),
    "an empty list": (
        "context: {}\nplugins:\n  enabled: []\n",
        "context:\n  engine: jev-engine\nplugins:\n  enabled:\n    - jev-engine\n",
    ),
    "a list as far left as its key": (
        "plugins:\n  enabled:\n  - a # first\n  # more\n  - b\n\n# tail\nmodel: x",
        ("plugins:\n  enabled:\n  - a # first\n  # more\n  - b\n  - jev-engine\n\n# tail\nmodel: x\n"
        "context:\n  engine: jev-engine\n"),
    ),
    "wide indents and a rival": (
        "plugins: # none yet\ncontext:\n    # which one\n    engine: lcm\n    other: 1\nz: 2\n",
        ("plugins: # none yet\n  enabled:\n    - jev-engine\ncontext:\n    # which one\n"
        "    engine: jev-engine  # jev-engine: was lcm\n    other: 1\nz: 2\n"),
    ),
    "line ends of another system": (
        "model: x\r\n",
        "model: x\r\n\r\nplugins:\r\n  enabled:\r\n    - jev-engine\r\ncontext:\r\n  engine: jev-engine\r\n",
    ),
    "quoted names": (
        '"plugins":\n  "enabled":\n    - "jev-engine"\n"context":\n  "engine": "jev-engine"\n',
        '"plugins":\n  "enabled":\n    - "jev-engine"\n"context":\n  "engine": "jev-engine"\n',
    ),
    "disabled before": (
        "plugins:\n  disabled: [jev-engine, x]\n  enabled:\n    - a\n",
        "plugins:\n  disabled: [x]\n  enabled:\n    - a\n    - jev-engine\ncontext:\n  engine: jev-engine\n",
    ),
    "disabled alone": (
        "plugins:\n  disabled:\n    - jev-engine\n  enabled: []\n",
        "plugins:\n  disabled: []\n  enabled:\n    - jev-engine\ncontext:\n  engine: jev-engine\n",
    ),
    "the same words elsewhere": (
        "other:\n  plugins:\n    enabled: [x]\n  context:\n    engine: y\n",
        ("other:\n  plugins:\n    enabled: [x]\n  context:\n    engine: y\n\n"
        "plugins:\n  enabled:\n    - jev-engine\ncontext:\n  engine: jev-engine\n"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_settings_are_written_and_nothing_else_changes(case: str) -> None:
    before, after = CASES[case]

    assert switch_on(before) == after
    assert switch_on(after) == after
    assert is_on(after) == BOTH


@pytest.mark.parametrize("case", CASES)
def test_the_settings_go_again(case: str) -> None:
    """What the user had chosen before comes back."""
    before, after = CASES[case]
    back = switch_off(after)

    assert is_on(back) == (False, False)
    assert [word for word in before.split() if word.startswith("#") and word not in back.split()] == []
    assert ("engine: lcm\n" in back) == ("engine: lcm\n" in before)
    assert ("default: x  # why" in back) == ("default: x  # why" in before)


@pytest.mark.parametrize(
    "odd",
    [
        "plugins: {enabled: [a]}\n",
        "plugins:\n  enabled: [a,\n    b]\n",
        "plugins:\n  enabled: all\n",
        "plugins:\n\tenabled: []\n",
        "a: 1\n---\nb: 2\n---\n",
        "plugins:\n  x: 1\nplugins:\n  y: 2\n",
        "\ufeffplugins:\n  enabled: [a]\n",
        "\ufeff",
        "x: 1\n...\n",
        "x: 1\n... # end\n",
        "x: 1\n---\ny: 2\n",
        "--- {x: 1}\n",
        "? plugins\n: {}\n",
        "{x: 1}\n",
        "- x\n",
        "  x: 1\n",
        "x: 1 # one\rplugins: {}\n",
        "x: 1 # one\u2028plugins: {}\n",
        "!!map\nx: 1\n",
        "a scalar\n",
    ],
)
def test_a_form_that_is_not_plain_is_refused_with_what_to_write(odd: str) -> None:
    with pytest.raises(HostError, match=r"(?s)write this by hand:\nplugins:\n  enabled:\n    - jev-engine\n"):
        switch_on(odd)


# What any YAML file may hold, plain or not: put together at random, most of it is no file at all.
PIECES = (
    "plugins:", "context:", "  enabled:", "  - a", "    - jev-engine", "  enabled: [a, b]", "  engine: lcm", "x: 1",
    "---", "...", "--- # one", "\ufeffx: 1", "? plugins", ": {}", "%YAML 1.1", "# mine", "", "  # mine", "plugins: {}",
    "{x: 1}", "- x", "plugins: &a", "x: |", "x: >-", "  plugins:", "x: 'plugins:", "  context: 1'", "x: [1,", "  2]",
    "\tx: 1", "x: 1\u2028context: 2", "x: 1\x85", "x: 1\ry: 2", "'plugins':", '"context":', "plugins: !!map", "  x: 1",
    "... # end", "context: ~", "!!map", "plugins: null # none", "context: # which", "  disabled: [jev-engine]",
)  # fmt: skip


def meant(text: str) -> Any:
    """What the host reads, by a parser that is not ours; None where it reads no settings."""
    yaml = pytest.importorskip("yaml", reason="NOT CHECKED: no YAML parser to compare with")
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        return None
    return {} if found is None else found if isinstance(found, dict) else None


@example(["x: 1", "..."])
@example(["\ufeffx: 1", "plugins:", "  enabled: [a, b]"])
@given(st.lists(st.sampled_from(PIECES), max_size=7))
@settings(max_examples=1_500, deadline=None)
def test_any_file_is_refused_or_means_the_same_but_for_both_settings(pieces: list[str]) -> None:
    text = "".join(f"{piece}\n" for piece in pieces)
    before = meant(text)
    try:
        made = switch_on(text)
        back = switch_off(made)
    except HostError:
        return
    if before is None:
        return  # the host reads nothing of it either
    after = meant(made)

    assert after is not None, made
    assert "jev-engine" in after["plugins"]["enabled"]
    assert after["context"]["engine"] == "jev-engine"
    assert without_ours(after) == without_ours(before)
    assert without_ours(meant(back)) == without_ours(before)


def without_ours(found: Any) -> Any:
    """Settings less what `switch_on` may write."""
    left = {key: value for key, value in found.items() if key not in ("plugins", "context")}
    plugins, context = found.get("plugins") or {}, found.get("context") or {}
    for name in ("enabled", "disabled"):
        left[name] = [each for each in plugins.get(name) or [] if each != "jev-engine"]
    left["plugins"] = {key: value for key, value in plugins.items() if key not in ("enabled", "disabled")}
    left["context"] = {key: value for key, value in context.items() if key != "engine"}
    return left


NAMES = st.sampled_from(["alpha", "beta", "plugins2", "contexts", "enabled", "engine"])
LINES = st.lists(st.tuples(NAMES, st.sampled_from(["1", "text # c", "'q'", "[a, b]", ""])), max_size=5)


@given(LINES, st.booleans(), st.booleans())
def test_any_plain_file_keeps_every_line(lines: list[tuple[str, str]], has_plugins: bool, has_context: bool) -> None:  # noqa: FBT001
    """Sections of any names around ours, whose keys look like ours."""
    text = "".join(f"s{n}:\n  {key}: {value}\n  # {n}\n" for n, (key, value) in enumerate(lines))
    text += "plugins:\n  other: 1\n" if has_plugins else ""
    text += "context:\n  other: 2\n" if has_context else ""
    made = switch_on(text)

    assert is_on(made) == BOTH
    assert switch_on(made) == made
    assert [line for line in made.splitlines() if line in text.splitlines() and line] == text.splitlines()
    assert is_on(switch_off(made)) == (False, False)


# --- the folder ------------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    (tmp_path / "config.yaml").write_text("model: x  # mine\n")
    return tmp_path


def test_the_integration_is_one() -> None:
    assert isinstance(integration, HostIntegration)


def test_setting_up_writes_folder_and_settings_and_keeps_a_backup(home: Path) -> None:
    done = carry_out(integration.setup({}))

    assert is_on((home / "config.yaml").read_text()) == BOTH
    assert [path.read_text() for path in done.backups] == ["model: x  # mine\n"]
    assert (home / "plugins" / "jev-engine" / "plugin.yaml").exists()
    assert not carry_out(integration.setup({})).changed


def test_an_older_folder_is_replaced_file_by_file(home: Path) -> None:
    carry_out(integration.setup({}))
    folder = home / "plugins" / "jev-engine"
    (folder / "lib" / "gone.py").write_text("old")
    (folder / "__init__.py").write_text("old")
    carry_out(integration.setup({}))

    assert not (folder / "lib" / "gone.py").exists()
    assert "register" in (folder / "__init__.py").read_text()


def test_removing_leaves_nothing_of_ours(home: Path) -> None:
    """Also what the host's Python has compiled there meanwhile."""
    carry_out(integration.setup({}))
    compiled = home / "plugins" / "jev-engine" / "__pycache__"
    compiled.mkdir()
    (compiled / "x.pyc").write_bytes(b"")
    carry_out(integration.remove({}))

    assert is_on((home / "config.yaml").read_text()) == (False, False)
    assert "model: x  # mine\n" in (home / "config.yaml").read_text()
    assert not (home / "plugins" / "jev-engine").exists()


def test_a_plugin_folder_that_is_a_link_is_not_ours(home: Path, tmp_path: Path) -> None:
    """Such as a developer's checkout: nothing behind it is written or removed."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "work.py").write_text("x = 1\n")
    (home / "plugins").mkdir()
    (home / "plugins" / "jev-engine").symlink_to(checkout)

    for plan in (integration.setup, integration.remove):
        with pytest.raises(HostError, match="is a link"):
            plan({"home": str(home)})
    assert [path.name for path in checkout.iterdir()] == ["work.py"]


@pytest.mark.parametrize("item", ["- name: b\n      k: v", "- a\n    -\n      b", "- - b\n      - c"])
def test_a_list_with_items_of_several_lines_is_refused_or_kept(item: str) -> None:
    """No row of ours may land within one."""
    yaml = pytest.importorskip("yaml", reason="NOT CHECKED: needs pyyaml")
    text = f"plugins:\n  enabled:\n    - a\n    {item}\n"
    try:
        changed = switch_on(text)
    except HostError:
        return
    assert yaml.safe_load(changed)["plugins"]["enabled"] == [*yaml.safe_load(text)["plugins"]["enabled"], "jev-engine"]


def test_planning_writes_nothing(home: Path) -> None:
    before = sorted(home.rglob("*"))
    integration.setup({})
    integration.remove({})
    list(integration.doctor({}))

    assert sorted(home.rglob("*")) == before


def test_a_home_that_is_none_is_told(home: Path) -> None:
    with pytest.raises(HostError, match="install Hermes first"):
        integration.setup({"home": str(home / "nowhere")})
    assert [finding.state for finding in integration.doctor({"home": str(home / "nowhere")})] == ["bad"]


def test_the_host_can_load_the_folder() -> None:
    """The word that makes hosts take a plugin for a memory provider, a kind, and a manifest that installers know."""
    made = files()
    shim = made["__init__.py"].decode()

    assert "MemoryProvider" not in shim
    assert "register_memory_provider" not in shim
    assert b"kind: standalone\nmanifest_version: 1\n" in made["plugin.yaml"]
    assert {name.split("/")[1] for name in made if name.startswith("lib/")} == {
        "README.txt", "jev_engine", "jev_engine_adapters", "platformdirs", "pluggy", "tenacity",
    }  # fmt: skip
    assert any("licen" in name.lower() and "pluggy" in name for name in made)
    assert all(ast.parse(content) for name, content in made.items() if name.endswith(".py"))


def test_the_folder_needs_nothing_of_this_project(tmp_path: Path) -> None:
    """Started with an import path that has the folder and the host's own packages, but not the source tree."""
    for name, content in files().items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    code = (
        "import sys; root = sys.argv[1]; own = sys.argv[2]\n"
        "sys.path[:] = [p for p in sys.path if not p.startswith(own) and '__editable__' not in p]\n"
        "sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in repr(f)]\n"
        "sys.path.insert(0, root + '/lib')\n"
        "from jev_engine_adapters.hermes.engine import HermesEngine\n"
        "import jev_engine, pluggy\n"
        "e = HermesEngine(); e.update_model(context_length=70000); e.on_session_start('s')\n"
        "rows = [{'role': 'user', 'content': 'x'}]\n"
        "for n in range(9):\n"
        "    rows.append({'role': 'assistant', 'content': '', 'tool_calls': [{'id': str(n), 'type': 'function',"
        " 'function': {'name': 'read', 'arguments': str(n)}}]})\n"
        "    rows.append({'role': 'tool', 'tool_call_id': str(n), 'content': f'line {n} of it\\n' * 2000})\n"
        "made = e.compress(rows, current_tokens=69000, force=True)\n"
        "print(jev_engine.__file__, pluggy.__file__, made is not rows)\n"
    )
    own = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), own], capture_output=True, text=True, check=False, cwd=tmp_path
    )

    assert done.stdout.split() == [
        f"{tmp_path}/lib/jev_engine/__init__.py", f"{tmp_path}/lib/pluggy/__init__.py", "True",
    ], done.stderr  # fmt: skip


# --- what doctor says ------------------------------------------------------------------------------------------------

FOUND = {
    "version": "0.19.0", "engine": "jev-engine", "tools": ["jev_expand"], "hooks": ["pre_api_request"], "log": [],
    "status": {"context_length": 128_000, "threshold_tokens": 64_000}, "trouble": None, "ours": ["0.1.0", "/x"],
    "enabled": True, "in_place": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("found", "state", "words"),
    [
        ({}, "ok", "a pass is due from 64,000"),
        ({"engine": "compressor", "log": ["Context engine 'jev-engine' not found"]}, "bad", "not found"),
        ({"fault": "ValueError: no"}, "bad", "cannot make an agent: ValueError: no"),
        ({"trouble": "settings.toml: no"}, "bad", "degraded"),
        ({"tools": []}, "note", "context_engine is not enabled"),
        ({"enabled": False}, "note", "only /compress"),
        ({"in_place": False}, "note", "a new id"),
        ({}, "note", "summarizing"),
        ({}, "note", "85 %"),
    ],
)
def test_doctor_says_which_engine_is_active_and_why(found: dict[str, object], state: str, words: str) -> None:
    said = [finding for finding in judge({**FOUND, **found}) if words in finding.text or words in finding.what]

    assert [finding.state for finding in said] == [state]
