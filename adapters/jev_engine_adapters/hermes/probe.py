"""Makes a real agent of the host and says which engine it got.

Runs in the host's own Python, given as code: from its own folder it would find our modules before the host's. It
imports nothing of this package by itself. A copy of the user's home stands in for it, so that nothing of theirs is
written.

    python -c CODE HERMES_HOME        prints one line of JSON
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

MARK = "jev-engine probe: "


def main() -> None:
    """Print what was found."""
    home = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        if (home / "config.yaml").exists():
            shutil.copy(home / "config.yaml", copy / "config.yaml")
        if (home / "plugins").is_dir():
            (copy / "plugins").symlink_to(home / "plugins", target_is_directory=True)
        os.environ["HERMES_HOME"] = str(copy)
        os.environ["TERMINAL_CWD"] = str(copy)
        os.environ.setdefault("OPENAI_API_KEY", "none")
        log = io.StringIO()
        logging.getLogger().addHandler(logging.StreamHandler(log))
        found: dict[str, Any] = {}
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                found = _look()
        except BaseException as error:  # noqa: BLE001  # whatever keeps an agent from being made is the finding
            found = {"fault": f"{type(error).__name__}: {error}"}
        lines = [line for line in log.getvalue().splitlines() if "ontext engine" in line or "jev" in line]
        print(MARK + json.dumps({**found, "log": lines[-5:]}))  # noqa: T201  # the way back
    sys.stdout.flush()
    os._exit(0)  # some versions leave threads behind that would be waited for


def _look() -> dict[str, Any]:
    from importlib import metadata  # noqa: PLC0415

    from run_agent import AIAgent  # type: ignore[import-not-found]  # noqa: PLC0415  # the host, in its own Python

    agent = AIAgent(
        base_url="http://127.0.0.1:9/v1",
        api_key="none",
        provider="custom",
        model="probe",
        enabled_toolsets=["file", "context_engine"],
        quiet_mode=True,
        skip_memory=True,
        skip_context_files=True,
        platform="cli",
    )
    engine = agent.context_compressor
    status = engine.get_status() if hasattr(engine, "get_status") else {}
    state = sys.modules.get("jev_engine_adapters.hermes.state")
    ours = sys.modules.get("jev_engine")
    trouble = None
    if state is not None:
        with contextlib.suppress(Exception):
            state.shared().engine()
        trouble = state.shared().trouble
    return {
        "version": metadata.version("hermes-agent"),
        "engine": engine.name,
        "kind": f"{type(engine).__module__}.{type(engine).__qualname__}",
        "tools": sorted(getattr(agent, "_context_engine_tool_names", ())),
        "hooks": sorted(state.shared().hooks) if state is not None else [],
        "status": {name: value for name, value in status.items() if isinstance(value, str | int | float)},
        "trouble": trouble,
        "ours": [getattr(ours, "__version__", ""), getattr(ours, "__file__", "")] if ours is not None else None,
        "enabled": bool(getattr(agent, "compression_enabled", True)),
        "in_place": bool(getattr(agent, "compression_in_place", False)),
    }


if __name__ == "__main__":
    main()
