"""The report in a browser: passes and filters, both widths, both themes, and nothing of a session as markup.

Screenshots go to the folder JEV_ENGINE_ARTEFACTS names, or to the test's own.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import anyio
import pytest
from audit_trails import KEY

from jev_engine import ContextEngine, make_config
from jev_engine.audit.jsonl import JsonlSink
from jev_engine.audit.records import read_trail
from jev_engine.audit.report import page_of
from jev_engine.testing import ScriptedJudge, call, history, result, user

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip
HOSTILE = "</script><img src=x onerror=alert(1)><b>{data}{js}&amp;\u2028"
WIDTHS = (390, 1400)
THEMES = ("light", "dark")


def written(path: Path) -> Path:
    """Two sessions of several tools, one of which is called something hostile; a long one and a short one."""
    sink = JsonlSink(path, key=KEY)
    config = make_config(min_freed_share=0.0, pin_newest_calls=1, policy="threshold", keep_result=0.4, keep_call=0.2)
    judge = ScriptedJudge(lambda call: ((call.number % 5) / 10, (call.number % 7) / 10))
    engine = ContextEngine(config=config, judge=judge, sinks=[sink])
    for session, calls in (("one", 24), ("two", 9)):
        rows = [
            row
            for n in range(calls)
            for row in (
                call(("read_file", "bash", HOSTILE, "mcp__a_server_with_a_long_name__search_everything")[n % 4], n=n),
                result(f"line {n} of {session}\n" * 200),
            )
        ]
        messages = history(user(f"Fix {session}."), *rows, user("Go on."))
        anyio.run(lambda m=messages: engine.compress(m, host="openai", force=True))
    sink.close()
    return path


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page as the command writes it."""
    return page_of(read_trail(written(tmp_path_factory.mktemp("report") / "trail.jsonl")))


def test_nothing_of_a_session_becomes_markup(page: str) -> None:
    """Its data is one element that no word of it can end, and the policy allows two hashes and nothing else."""
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    assert json.loads(data.group(1))["tools"]
    assert "<" not in data.group(1)
    assert page.count("<script") == 2
    assert "onerror" not in page.replace(data.group(1), "")

    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', page).group(1))  # type: ignore[union-attr]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert not re.search(r"https?://|\bon\w+=|style=", page.replace(data.group(1), ""))


def test_a_trail_of_nothing_is_a_page_too(tmp_path: Path) -> None:
    """No pass, no crash."""
    (tmp_path / "t.jsonl").write_text("")

    assert '"passes":[]' in page_of(read_trail(tmp_path / "t.jsonl"))


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder and keeps quiet about it."""

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site(page: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page and the harness that looks at it, on a port of this machine."""
    if BROWSER is None:
        pytest.skip("REPORT NOT LOOKED AT IN A BROWSER: no chromium on this machine")
    folder = tmp_path_factory.mktemp("site")
    (folder / "report.html").write_text(page, encoding="utf-8")
    shutil.copy(Path(__file__).parent / "harness.html", folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def browser(folder: Path, url: str, *flags: str) -> str:
    """What the browser says of an address."""
    profile = folder / "profile"
    shutil.rmtree(profile, ignore_errors=True)
    command = [str(BROWSER), *FLAGS, f"--user-data-dir={profile}", "--virtual-time-budget=5000", *flags, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout


def looked_at(folder: Path, site: str, width: int, theme: str, **more: str) -> dict[str, Any]:
    query = {"page": "report.html", "width": width, "height": 2400, "hash": f"theme={theme}", **more}
    url = f"{site}/harness.html?{urlencode(query)}"
    dom = browser(folder, url, "--dump-dom")
    found = re.search(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL)
    assert found is not None
    assert found.group(1), dom[-2_000:]
    artefacts = Path(os.environ.get("JEV_ENGINE_ARTEFACTS", folder))
    artefacts.mkdir(parents=True, exist_ok=True)
    shot = artefacts / f"report-{width}-{theme}.png"
    browser(folder, url, f"--screenshot={shot}", f"--window-size={max(width, 500)},1600")
    assert shot.stat().st_size > 10_000
    return dict(json.loads(html.unescape(found.group(1))))


@pytest.mark.slow
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_and_can_be_read(tmp_path: Path, site: str, width: int, theme: str) -> None:
    """No overflow or clipping, contrast of 4.5 at least for every text, everything reachable by keyboard."""
    found = looked_at(tmp_path, site, width, theme)

    assert found["width"] == width
    assert found["overflow"] <= 0
    assert found["clipped"] == []
    assert found["contrast"][0][0] >= 4.5, found["contrast"]
    assert found["focusable"]
    assert found["markup"] == 0
    assert found["passes"] == 2
    assert len(set(found["bars"])) == 1
    assert found["tallest"] < (200 if width < 1000 else 50)


def test_every_unit_stands_with_its_pass_and_with_whose_answer_it_was(page: str) -> None:
    """Units that were not judged too; times with their zone."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data = json.loads(found.group(1))
    who = {(unit["action"], unit["who"]) for unit in data["units"]}

    assert [sum(unit["pass"] == n for unit in data["units"]) for n in range(2)] == [24, 9]
    assert ("pinned", "a rule") in who
    assert ("keep", "scripted") in who
    assert all(unit["raw"] is not None for unit in data["units"] if unit["who"] == "scripted")
    assert all(each["at"].endswith(" UTC") for each in data["passes"])


@pytest.mark.slow
def test_a_trail_that_is_not_what_was_written_is_called_so(tmp_path: Path) -> None:
    """Before anything else on the page."""
    if BROWSER is None:
        pytest.skip("REPORT NOT LOOKED AT IN A BROWSER: no chromium on this machine")
    trail = read_trail(written(tmp_path / "trail.jsonl"))
    trail.doubt = "this trail is not what was written"
    (tmp_path / "report.html").write_text(page_of(trail), encoding="utf-8")
    dom = browser(tmp_path, (tmp_path / "report.html").as_uri(), "--dump-dom")

    assert '<p id="doubt" role="alert">Do not rely on this page: this trail is not what was written.</p>' in dom


@pytest.mark.slow
def test_filters_show_what_they_say(tmp_path: Path, site: str) -> None:
    """By tool, by action, by pass; and everything again afterwards."""
    found = looked_at(tmp_path, site, 1400, "light", drive="bash")

    assert {tool for tool, _ in found["byTool"]} == {"bash"}
    assert {action for _, action in found["byAction"]} == {"shortened"}
    assert {tool for tool, _ in found["all"]} > {"bash", "read_file"}
    assert 0 < len(found["byPass"]) < len(found["all"])
    assert len(found["byTool"]) == len([1 for tool, _ in found["all"] if tool == "bash"])
    assert found["pressed"] == 1
    assert found["again"] == len(found["all"])


@pytest.mark.slow
def test_the_file_itself_works_without_a_server(tmp_path: Path, page: str) -> None:
    """Opened from disk, under its own policy, with a filter in its address."""
    if BROWSER is None:
        pytest.skip("REPORT NOT LOOKED AT IN A BROWSER: no chromium on this machine")
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    dom = browser(tmp_path, f"{(tmp_path / 'report.html').as_uri()}#tool=bash&action=keep", "--dump-dom")
    rows = re.search(r'<tbody id="units">(.*?)</tbody>', dom, re.DOTALL)

    assert rows is not None
    assert "<span>bash</span>" in rows.group(1)
    assert "read_file" not in rows.group(1)
    assert "shortened" not in rows.group(1)
