"""Environments with real hosts in them, made once and kept between runs.

    python = environment("hermes-0.19", ["hermes-agent==0.19.0"], no_deps=["hermes-agent==0.19.0"])
    subprocess.run([python, "-c", "import run_agent, jev_engine"])

This project is seen in them from its source tree, so that a change counts at once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import platformdirs
import pytest

__all__ = ["cache_folder", "environment"]

ROOT = Path(__file__).resolve().parents[2]
# What this project needs at run time; ranges, so that a host's own pins hold.
OURS = ["anyio>=4.4", "click>=8.1", "httpx>=0.27,<1", "platformdirs>=4", "pluggy>=1.5", "pydantic>=2.7,<3", "rich>=13",
        "tenacity>=9"]  # fmt: skip
INSTALL_SECONDS = 900
STALE_SECONDS = 1_200


def environment(
    name: str,
    requirements: Sequence[str],
    python: str = sys.executable,
    *,
    no_deps: Sequence[str] = (),
    with_ours: bool = True,
) -> Path:
    """The Python of an environment that has these requirements, installed where that has not been done before.

    `no_deps` are installed first, without what they depend on. `with_ours=False` leaves this project out. Skips the
    test, loudly, where the requirements cannot be installed.
    """
    wanted = "\n".join([python, *no_deps, "--", *requirements, str(with_ours), str(ROOT)])
    digest = hashlib.sha256(wanted.encode()).hexdigest()[:12]
    cache = cache_folder()
    folder = cache / f"{name}-{digest}"
    found = folder / "bin" / "python"
    if (folder / "complete").exists():
        return found
    lock = cache / f"{name}-{digest}.lock"
    cache.mkdir(parents=True, exist_ok=True)
    while not _taken(lock):
        time.sleep(0.5)
        if (folder / "complete").exists():
            return found
    try:
        if not (folder / "complete").exists():
            _install(folder, requirements, python, no_deps, with_ours=with_ours)
    except subprocess.SubprocessError as error:
        shutil.rmtree(folder, ignore_errors=True)
        said = getattr(error, "stderr", b"") or b""
        pytest.skip(f"NOT CHECKED: {name} cannot be installed: {said.decode(errors='replace')[-300:] or error}")
    finally:
        lock.unlink(missing_ok=True)
    return found


def cache_folder() -> Path:
    """Where hosts are kept between runs: not the folder that tests are sent to."""
    return Path(os.environ.get("JEV_ENGINE_TEST_HOSTS") or _cache())


def _cache() -> str:
    """The user's own cache, whatever the tests have set."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("XDG_CACHE_HOME", raising=False)
        return platformdirs.user_cache_dir("jev-engine") + "/test-hosts"


def _taken(lock: Path) -> bool:
    with suppress(FileExistsError):
        lock.touch(exist_ok=False)
        return True
    with suppress(FileNotFoundError):
        if time.time() - lock.stat().st_mtime > STALE_SECONDS:
            lock.unlink()
    return False


def _install(
    folder: Path, requirements: Sequence[str], python: str, no_deps: Sequence[str], *, with_ours: bool
) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    _run([python, "-m", "venv", str(folder)])
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    if no_deps:
        _run([*pip, "--no-deps", *no_deps])
    ours = OURS if with_ours else []
    if requirements or ours:
        _run([*pip, *requirements, *ours])
    if with_ours:
        (packages,) = (folder / "lib").glob("python*/site-packages")
        (packages / "jev_engine_source.pth").write_text(f"{ROOT}\n{ROOT / 'adapters'}\n", encoding="utf-8")
    (folder / "complete").touch()


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=INSTALL_SECONDS)
