"""The HTML page: self-contained, escaped, the same for the same results."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest
from recorded_sessions import record, write_corpus

from jev_engine.evaluate.bootstrap import Measure
from jev_engine.evaluate.plots import Plot, draw_plots
from jev_engine.evaluate.report import render_html, write_report
from jev_engine.evaluate.results import Results
from jev_engine.evaluate.runs import Plan, replay_corpus
from jev_engine.evaluate.summary import summarise
from jev_engine.evaluate.tables import Stamp, Table

STAMP = Stamp("ours.jsonl", "c0ffee", "h2", "0.1", 0, "jev-engine evaluate ours.jsonl --seed 0", "local")
VOID = {"meta", "br", "img", "link", "input", "hr"}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    path = write_corpus(folder / "ours.jsonl", [record(i, quoted=(20, 27 + i, 38)) for i in range(5)])
    return Results(replay_corpus(Plan(path), folder / "cache"), seed=0)


@pytest.fixture(scope="module")
def page(results):
    return render_html(summarise(results), draw_plots(results), STAMP)


class Balance(HTMLParser):
    """Open elements; fails where one is closed that is not open."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        """Closed at once."""

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_well_formed(page):
    balance = Balance()
    balance.feed(page)

    assert balance.open == []


def test_nothing_is_fetched_and_nothing_runs(page):
    assert "<script" not in page
    assert not re.search(r"(?:src|href)\s*=\s*[\"'](?!#)", page)
    assert "@import" not in page
    assert "url(" not in re.sub(r"url\(#[\w-]+\)", "", page)
    assert not re.search(r"https?://(?!www\.w3\.org/)", page)


def test_the_page_serves_dark_screens_and_narrow_ones(page):
    assert "prefers-color-scheme: dark" in page
    assert 'content="width=device-width, initial-scale=1"' in page
    assert "overflow-x: auto" in page


def test_the_standard_plots_take_the_colour_of_the_page(results):
    plots = draw_plots(results)

    assert [plot.title for plot in plots] == [
        "Freed against missed",
        "Reliability of the local judge",
        "Needed by age in calls",
        "Needed by size in characters",
    ]
    assert all("currentColor" in plot.svg and "#010203" not in plot.svg for plot in plots)


def test_the_same_results_give_the_same_page(results, page):
    again = render_html(summarise(results), draw_plots(results), STAMP)

    assert again == page


def test_every_table_and_the_plots_name_their_origin(page, results):
    assert page.count("corpus c0ffee") == len(summarise(results)) + 2


def test_no_text_of_a_session_is_on_the_page(page):
    for word in ("handler_", "part_"):
        assert word in json.dumps(record(0))
        assert word not in page


def test_names_from_a_corpus_are_escaped():
    hostile = "<script>alert(1)</script>"
    table = Table("t", hostile, hostile, (hostile,), [[hostile]])
    page = render_html([table], [Plot(hostile, hostile, "<svg></svg>")], STAMP._replace(command=hostile))

    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 5


def test_an_interval_is_set_apart_from_its_number():
    page = render_html([Table("t", "T", "", ("a",), [[Measure(0.5, 0.4, 0.6)]])], [], STAMP)

    assert '50.0 <span class="interval">[40.0, 60.0]</span>' in page


def test_page_markdown_and_figures_are_written(tmp_path, results):
    paths = write_report(summarise(results), [], STAMP, tmp_path / "out")

    assert [path.name for path in paths] == ["report.html", "summary.md", "figures.json"]
    assert all(path.stat().st_size > 1_000 for path in paths)
