"""`import jev_engine` has no effect but the import."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from typing import Any

# Runs in a fresh interpreter. Hooks come before the import; what they saw is printed as one JSON object after it.
WATCH = r"""
import json, os, sys, sysconfig, threading, time
import jev_engine_adapters  # its path is the second source root; the package itself holds a docstring only

seen = {"environment": [], "written": [], "opened": [], "network": [], "processes": []}
adapters = os.path.dirname(jev_engine_adapters.__file__)
del sys.modules["jev_engine_adapters"]
import importlib.util
core = os.path.dirname(importlib.util.find_spec("jev_engine").origin)
own = (core + os.sep, adapters + os.sep)
libraries = tuple({os.path.realpath(p) + os.sep for p in (
    *sysconfig.get_paths().values(), sys.prefix, sys.base_prefix, core, adapters)})

class Watched(type(os.environ)):
    def __getitem__(self, key):
        frame = sys._getframe(1)
        while frame and frame.f_code.co_filename.startswith("<frozen"):
            frame = frame.f_back
        callers = []
        while frame and len(callers) < 3:  # os.getenv -> Mapping.get -> here
            callers.append(frame.f_code.co_filename)
            frame = frame.f_back
        if str(key).upper().startswith("JEV") or any(c.startswith(own) for c in callers):
            seen["environment"].append(str(key))
        return super().__getitem__(key)

os.environ.__class__ = Watched
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC

def watch(event, args):
    if event == "open":
        path, _, flags = args
        if flags & WRITING:
            seen["written"].append(str(path))
        elif isinstance(path, str) and not os.path.realpath(path).startswith(libraries):
            seen["opened"].append(path)
    elif event.split(".")[0] == "socket":
        seen["network"].append(event)
    elif event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate",
                   "os.chmod", "sqlite3.connect") or event.split(".")[0] in ("shutil", "tempfile"):
        seen["written"].append(f"{event} {args[:1]}")
    elif event.split(".")[0] in ("subprocess", "pty") or event in ("os.system", "os.exec", "os.posix_spawn", "os.fork"):
        seen["processes"].append(event)

sys.addaudithook(watch)
before = set(sys.modules)
start = time.perf_counter()
import jev_engine
seen["seconds"] = time.perf_counter() - start
seen["threads"] = [thread.name for thread in threading.enumerate()]
seen["modules"] = sorted(set(sys.modules) - before)
print(json.dumps(seen))
"""

# Each is slow to import, or would be an effect of its own; all are loaded by the function that needs them.
LATE = {
    "asyncio",
    "click",
    "httpx",
    "jev_engine_adapters",
    "numpy",
    "opentelemetry",
    "rich",
    "socket",
    "sqlite3",
    "ssl",
    "tenacity",
    "trio",
}


@cache
def watched_import() -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-B", "-c", WATCH], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


def test_the_watch_itself_sees_what_it_is_for() -> None:
    planted = "import os, socket; os.getenv('JEV_KEY'); open(os.devnull, 'w').close(); socket.socket().close()\n"
    planted += "import subprocess; subprocess.run([sys.executable, '-c', ''])\nimport threading\n"
    planted += "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"

    done = subprocess.run(
        [sys.executable, "-B", "-c", WATCH.replace("import jev_engine\n", planted)],
        capture_output=True,
        text=True,
        check=True,
    )
    seen = json.loads(done.stdout)

    assert "JEV_KEY" in seen["environment"]
    assert all(seen[kind] for kind in ("written", "network", "processes"))
    assert len(seen["threads"]) == 2
    assert {"socket", "subprocess"} <= set(seen["modules"])


def test_importing_reads_no_environment() -> None:
    assert watched_import()["environment"] == []


def test_importing_touches_no_disk_outside_the_packages() -> None:
    assert watched_import()["written"] == []
    assert watched_import()["opened"] == []


def test_importing_opens_no_connection_and_starts_nothing() -> None:
    assert watched_import()["network"] == []
    assert watched_import()["processes"] == []
    assert watched_import()["threads"] == ["MainThread"]


def test_importing_leaves_heavy_modules_for_later() -> None:
    assert LATE & set(watched_import()["modules"]) == set()


def test_importing_prints_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", "import jev_engine"], capture_output=True, text=True, check=True)

    assert (done.stdout, done.stderr) == ("", "")


def test_import_time_is_shown_and_no_matter_of_seconds() -> None:
    seconds = watched_import()["seconds"]
    print(f"import jev_engine: {seconds * 1000:.0f} ms")  # noqa: T201 - the figure is the point

    assert 0 < seconds < 5  # a fifth of a second where it was measured; what is slow is named in LATE
