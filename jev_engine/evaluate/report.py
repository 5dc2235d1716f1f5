"""The report: one self-contained HTML page, the same tables as Markdown, and the figures as JSON.

No script, no font or picture from elsewhere, no text of any session.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from jev_engine.evaluate.plots import Plot
from jev_engine.evaluate.tables import Stamp, Table, as_json, as_markdown

__all__ = ["render_html", "write_report"]

STYLE = """
:root { color-scheme: light dark; --page: #fcfcfb; --ink: #1d2127; --soft: #5c6470; --line: #dcdfe4; --band: #f2f3f5; }
@media (prefers-color-scheme: dark) {
  :root { --page: #15181c; --ink: #e4e6e9; --soft: #9aa2ad; --line: #31363d; --band: #1d2127; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.1rem; margin: 2.4rem 0 .4rem; }
p { margin: .4rem 0; max-width: 46rem; }
.soft, figcaption { color: var(--soft); font-size: .85rem; }
.stamp { color: var(--soft); font: .75rem/1.5 ui-monospace, monospace; overflow-wrap: anywhere; max-width: none; }
.wide { overflow-x: auto; border: 1px solid var(--line); border-radius: 4px; margin: .6rem 0 .3rem; }
table { border-collapse: collapse; font-size: .82rem; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th { background: var(--band); font-weight: 600; vertical-align: bottom; }
th:first-child, td:first-child, .words td:last-child, .words th:last-child { text-align: left; }
td { white-space: nowrap; }
td:first-child, .words td:last-child { white-space: normal; min-width: 9rem; }
.words td:first-child { min-width: 13rem; }
tbody tr:last-child td { border-bottom: 0; }
tbody tr:nth-child(even) { background: var(--band); }
.interval { color: var(--soft); white-space: nowrap; }
.plots { display: grid; gap: 1.5rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
figure { margin: 0; }
figure h3 { font-size: .95rem; margin: 0 0 .2rem; }
figure svg { width: 100%; height: auto; display: block; }
@media (max-width: 600px) {
  .words td, .words td:first-child { white-space: normal; min-width: 0; }
  .words th, .words td { padding: .3rem .4rem; font-size: .76rem; }
}
code { font: .95em ui-monospace, monospace; }
nav { font-size: .85rem; margin: 1rem 0; }
nav a { color: inherit; margin-right: .9rem; white-space: nowrap; display: inline-block; }
"""


def _prose(text: str) -> str:
    """Escaped text, with `names` set as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _cell(cell: object) -> str:
    text = _prose(str(cell))
    value, bracket, interval = text.partition(" [")
    return f'{value} <span class="interval">[{interval}</span>' if bracket and interval.endswith("]") else text


def _table(table: Table, stamp: Stamp) -> str:
    head = "".join(f"<th>{escape(column.strip())}</th>" for column in table.columns)
    rows = "".join("<tr>" + "".join(f"<td>{_cell(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    words = ' class="words"' if table.key == "summary" else ""
    return (
        f'<section id="{escape(table.key)}"><h2>{escape(table.title)}</h2><p class="soft">{_prose(table.about)}</p>'
        f'<div class="wide"><table{words}><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
        f'<p class="stamp">{escape(stamp.line())}</p></section>\n'
    )


def _figure(plot: Plot) -> str:
    title = escape(plot.title)
    picture = plot.svg.replace("<svg", f'<svg role="img" aria-label="{title}"', 1)
    return f"<figure><h3>{title}</h3>{picture}<figcaption>{escape(plot.caption)}</figcaption></figure>\n"


def render_html(tables: Sequence[Table], plots: Sequence[Plot], stamp: Stamp) -> str:
    """The page."""
    links = "".join(f'<a href="#{escape(table.key)}">{escape(table.title)}</a>' for table in tables)
    first, *others = [_table(table, stamp) for table in tables] or [""]
    figures = "".join(map(_figure, plots))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>jev-engine: how often a compaction removes what was needed</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>How often a compaction removes what was needed</h1>
<p>Recorded agent sessions, cut where a compaction could have happened. Every policy runs through the engine; hindsight
then says which results the agent used verbatim afterwards. Numbers in brackets are 95 % bootstrap intervals over
sessions.</p>
<p class="soft">The original run saw everything, so paraphrased use and hidden reasoning do not count: true need
is higher.
Judge: {escape(stamp.judge)}.</p>
<p class="stamp">{escape(stamp.line())}</p>
<nav>{links}</nav>
{first}
<section id="plots"><h2>Plots</h2>
<div class="plots">
{figures}</div>
<p class="stamp">{escape(stamp.line())}</p></section>
{"".join(others)}</main>
</body>
</html>
"""


def write_report(tables: Sequence[Table], plots: Sequence[Plot], stamp: Stamp, folder: Path) -> list[Path]:
    """Write `report.html`, `summary.md` and `figures.json`; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = json.dumps(as_json(tables, stamp), indent=1, ensure_ascii=False)
    texts = {
        "report.html": render_html(tables, plots, stamp),
        "summary.md": as_markdown(tables, stamp),
        "figures.json": figures + "\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]
