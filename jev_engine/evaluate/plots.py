"""The standard plots, as SVG text that takes the page's own colour for lines and letters.

Nothing of a session is drawn but counts. The same results give the same bytes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray

from jev_engine.evaluate.bootstrap import Bootstrap
from jev_engine.evaluate.corpus_tables import LOOK_BACK_STEPS, look_back_rows, needed_by
from jev_engine.evaluate.findings import budget_names, worth_names
from jev_engine.evaluate.results import Results

mpl.use("Agg")  # before pyplot: no display is asked for

from matplotlib import pyplot as plt  # see above

__all__ = ["Plot", "draw_plots"]

Floats = NDArray[np.float64]

INK = "#010203"
"""Stands for the page's text colour and is replaced by `currentColor`."""
BLUE, ORANGE, GREEN, RED, GREY = "#3b7dd8", "#d9822b", "#3a9d6a", "#cf4f4f", "#8a8f98"
"""Told apart on white and on near-black, and by most colour-blind readers with the markers used."""
SIZE = (4.9, 3.9)
"""Inches: natural width of a narrow screen, so that letters stay readable there."""
RELIABILITY_BINS = 12
"""Bins of equal mass; nothing is drawn where fewer results than bins are needed."""


class Plot(NamedTuple):
    """One figure."""

    title: str
    caption: str
    svg: str


@contextmanager
def _figure(x: str, y: str) -> Iterator[tuple[Any, list[str]]]:
    """Axes to draw on; the SVG is the one item of the list afterwards."""
    style: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "jev-engine",
        "font.size": 10,
        "font.family": "sans-serif",
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    done: list[str] = []
    with mpl.rc_context(style):
        figure, axes = plt.subplots(figsize=SIZE)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.grid(visible=True, color=INK, alpha=0.15, linewidth=0.6)
        yield axes, done
        figure.tight_layout()
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        plt.close(figure)
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    done.append(re.sub(r'(<svg[^>]*?) width="[^"]*"| height="[^"]*pt"', r"\1", svg, count=2))


def draw_plots(results: Results) -> list[Plot]:
    """All standard plots that the replayed policies allow."""
    plots = [_freed_against_missed(results), _reliability(results), _needed(results, "age"), _needed(results, "size")]
    plots.append(_look_back(results))
    return [plot for plot in plots if plot is not None]


def _means(results: Results, names: list[str]) -> tuple[Floats, Floats]:
    boot = results.boot
    freed = [100 * boot.mean(results.freed(name)).value for name in names]
    missed = [boot.mean(results.column(name, "missed")).value for name in names]
    return np.array(freed), np.array(missed)


def _freed_against_missed(results: Results) -> Plot | None:
    known = results.policies
    lines = [
        ("worth, local judge", worth_names(results), BLUE, "o-"),
        ("budget, local judge", budget_names(results), "#2f9fd0", "<-"),
        ("worth, age and size", worth_names(results, ", age and size"), GREEN, "^--"),
        ("worth, constant p", worth_names(results, ", constant p"), GREY, "v:"),
        ("keep last 3 … 20", [name for name in known if name.startswith("keep last")], ORANGE, "s-"),
        ("threshold, local judge", [name for name in known if name.startswith("threshold")], RED, "x:"),
        ("random", [name for name in known if name.startswith("random,")], INK, "d:"),
        ("largest first", [name for name in known if name.startswith("largest first,")], "#8e63c7", "P:"),
        ("oracle by bytes", [name for name in known if name.startswith("oracle,")], "#2aa5a0", "*-"),
    ]
    single = [
        ("oracle", "oracle (hindsight)"),
        ("reference", "reference, asked judge"),
        ("paths", "superseded reads by path"),
        ("2,000 head", "the same, 2,000-character head stays"),
    ]
    with _figure("context freed, %", "misses per compaction") as (axes, done):
        for title, names, colour, form in lines:
            if names:
                freed, missed = _means(results, names)
                order = np.argsort(freed)
                axes.plot(freed[order], missed[order], form, color=colour, label=title, markersize=4, linewidth=1.3)
        for title, name in single:
            if name in known:
                freed, missed = _means(results, [name])
                axes.plot(freed, missed, "o", color=INK, markersize=5, fillstyle="none")
                axes.annotate(
                    title,
                    (freed[0], missed[0]),
                    xytext=(5, 5 if title == "oracle" else -10),
                    textcoords="offset points",
                    fontsize=8,
                )
        axes.set_ylim(bottom=-0.04)
        axes.set_xlim(left=0)
        axes.legend(fontsize=7.5, frameon=False, loc="upper left")
    caption = "Every policy, mean over sessions. Lower right is better: more freed, less missed."
    return Plot("Freed against missed", caption, done[0])


def _reliability(results: Results) -> Plot | None:
    units = results.judged
    p, needed = units.local, units.needed.astype(np.float64)
    if needed.sum() < RELIABILITY_BINS:
        return None
    order = np.argsort(p, kind="stable")
    places = np.array_split(order, RELIABILITY_BINS)
    with _figure("predicted P(needed)", "share needed") as (axes, done):
        for place in places:
            boot = Bootstrap(units.session[place].tolist(), results.seed, 200)
            counts = np.bincount(np.unique(units.session[place], return_inverse=True)[1]).astype(np.float64)
            share = boot.ratio_of_sessions(boot.per_session(needed[place]) * counts, counts)
            x, floor = max(float(p[place].mean()), 1e-4), 2e-4
            low, high = share.low or 0.0, share.high or 0.0
            axes.plot([x, x], [max(low, floor), max(high, floor)], color=BLUE, linewidth=1)
            axes.plot([x], [max(share.value, floor)], "o" if share.value else "v", color=BLUE, markersize=5)
        axes.plot([1e-4, 1], [1e-4, 1], color=INK, linewidth=0.8, linestyle=":")
        axes.set_xscale("log")
        axes.set_yscale("log")
    caption = (
        f"{RELIABILITY_BINS} bins of equal mass on log axes, with 95 % intervals over sessions; on the dotted line"
        " predicted and actual agree. A triangle at the bottom: none needed."
    )
    return Plot("Reliability of the local judge", caption, done[0])


def _needed(results: Results, field: str) -> Plot | None:
    units = results.units if field == "age" else results.judged
    names, shares, p_means, ends = [], [], [], []
    for name, chosen in needed_by(units, field):
        if chosen.any():
            part = units.where(chosen)
            boot = Bootstrap(part.session.tolist(), results.seed, 200)
            counts = np.bincount(np.unique(part.session, return_inverse=True)[1]).astype(np.float64)
            share = boot.ratio_of_sessions(boot.per_session(part.needed.astype(np.float64)) * counts, counts)
            names.append(name)
            shares.append(100 * share.value)
            ends.append((100 * (share.value - (share.low or 0.0)), 100 * ((share.high or 0.0) - share.value)))
            p_means.append(100 * float(part.local.mean()))
    what = "age in calls" if field == "age" else "size in characters"
    places = np.arange(len(names))
    with _figure(what, "needed, %") as (axes, done):
        axes.bar(places, shares, color=BLUE, alpha=0.75, width=0.7, yerr=np.clip(np.array(ends).T, 0, None), ecolor=INK)
        axes.plot(places, p_means, "D", color=ORANGE, markersize=5, label="local judge's mean p")
        axes.set_xticks(places, names, rotation=40, ha="right", fontsize=8)
        axes.legend(fontsize=8, frameon=False, loc="upper right" if field == "age" else "upper left")
    caption = "Share of results needed later, every row counting once, with 95 % intervals over sessions."
    return Plot(f"Needed by {what}", caption, done[0])


def _look_back(results: Results) -> Plot | None:
    steps = [f"{a + 1}-{b}" for a, b in LOOK_BACK_STEPS]
    places = np.arange(len(steps))
    if not results.lookbacks:
        return None
    with _figure("calls after the boundary", "calls that look back, %") as (axes, done):
        for real, colour, shift, title in ((True, RED, -0.18, "real compactions"), (False, GREY, 0.18, "control")):
            names, backs, calls = look_back_rows(results, real=real)
            if not names:
                continue
            boot = Bootstrap(names, results.seed)
            shares = [boot.ratio(backs[:, step], calls[:, step]) for step in range(len(steps))]
            values = np.nan_to_num([share.value for share in shares])
            low = np.nan_to_num(np.array([share.low or 0.0 for share in shares]))
            high = np.nan_to_num(np.array([share.high or 0.0 for share in shares]))
            ends = 100 * np.clip(np.array([values - low, high - values]), 0, None)
            label = f"{title} ({len(names)})"
            axes.bar(places + shift, 100 * values, 0.34, color=colour, alpha=0.8, yerr=ends, ecolor=INK, label=label)
        axes.set_xticks(places, steps)
        axes.legend(fontsize=8, frameon=False)
    caption = (
        "A property of the corpus: its agents were compacted by their own hosts. The excess over the control is what"
        " those compactions cost in look-backs; ours cannot be measured without a live agent."
    )
    return Plot("Look-backs after real compactions", caption, done[0])
