"""The oldest versions of Claude Code that the plugin is set up for."""

from __future__ import annotations

import shutil

import pytest
from hosts.claude_code_lab import MOD, broken_pairs, claude_version, opened_lab, reading, results

from jev_engine_adapters.claude_code.install import BEHIND_FLAG, BY_DEFAULT
from jev_engine_adapters.claude_code.settings import FLAG_VARIABLE

pytestmark = pytest.mark.slow

OLDEST = {BY_DEFAULT: {}, BEHIND_FLAG: {FLAG_VARIABLE: "1"}}


@pytest.mark.parametrize("version", OLDEST, ids=lambda version: ".".join(map(str, version)))
def test_the_plugin_works_in_the_oldest_version_it_is_set_up_for(version, tmp_path):
    """Loaded, compacts without a summary, survives a resume, gives originals back."""
    program = claude_version(".".join(map(str, version)))
    with opened_lab(tmp_path) as lab:
        lab.cli = program
        lab.env |= OLDEST[version]
        # Into the folder of a plugin, these versions write their types.
        plugin = shutil.copytree(MOD, tmp_path / "plugin")

        lab.run(reading(7, "text Read them all."), plugin=plugin)
        compacted = lab.run("/compact", plugin=plugin)
        script = 'SCRIPT: tool mcp__jev-engine__expand {"id": "$REFERENCE"} ;; text Got it.'
        after = lab.run(script, plugin=plugin)

    assert compacted.requests == []
    assert after.summaries == 0
    assert sum("[jev-engine: result of" in text for text in results(after.messages)) >= 4
    assert results(after.messages)[-1].startswith((lab.project / "big0.txt").read_text(encoding="utf-8"))
    assert broken_pairs(after.messages) == []
