"""`jev-engine evaluate`: replay recorded sessions through the engine and count what hindsight says was missed."""

from __future__ import annotations

import gzip
import json
import os
import shlex
import sys
import tempfile
import time
import zlib
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jev_engine.cli.files import Refused
from jev_engine.errors import JevEngineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.text import Text

    from jev_engine.evaluate.plots import Plot
    from jev_engine.evaluate.results import Results
    from jev_engine.evaluate.runs import Outside, Plan
    from jev_engine.evaluate.tables import Cell, Stamp, Table

__all__ = ["evaluate"]

INTERRUPTED = 130
"""The exit code after an interrupt: 128 and the number of the signal, as shells have it."""
MAIN_TABLES = ("summary", "policies", "matched-average", "judges", "look-back")
"""Shown on the terminal; the others are in the report, or with --all."""
SAY_EVERY_SECONDS = 10.0
"""Between two lines of progress where there is no terminal to rewrite one on."""
FEW_COLUMNS = 4
"""Tables with more columns are too wide for numbers and intervals side by side."""


def _parse_cuts(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> int | tuple[int, ...] | None:
    if value is None:
        return None
    try:
        numbers = tuple(int(part) for part in value.split(","))
    except ValueError:
        numbers = (0,)
    if min(numbers) < 1:
        raise click.BadParameter("a number of cuts, or numbers of results such as 10,20,40")
    return numbers[0] if "," not in value else numbers


@click.command()
@click.argument("corpus", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--judge",
    default="local",
    metavar="local|medians|jev|cascade|URL|FILE",
    help="The judge beside the local one: published medians of Jev, a judge that is asked at every cut, or recorded "
    "answers (keys key, raw_result).",
)
@click.option("--endpoint", metavar="NAME", help="With --judge jev or cascade: typesafe, openrouter, openai-decisions.")
@click.option("--record", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="With --judge jev or cascade: keep what was asked and answered in a cassette.")  # fmt: skip
@click.option("--replay", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="With --judge jev or cascade: answer from a cassette and send nothing.")  # fmt: skip
@click.option("--policy", "policies", multiple=True, metavar="NAME", help="Only policies of this name or group.")
@click.option(
    "--cuts", callback=_parse_cuts, metavar="N|LIST", help="So many cuts per context, or after 10,20,40 results."
)
@click.option("--sessions", type=click.IntRange(1), metavar="N", help="Only so many sessions, drawn by the seed.")
@click.option("--seed", type=int, default=0, show_default=True, help="For drawing, chance and intervals.")
@click.option("--jobs", type=click.IntRange(1, 64), default=min(2, os.cpu_count() or 1), show_default=True)
@click.option("--report", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="Write report.html, summary.md and figures.json there.")  # fmt: skip
@click.option("--turns", is_flag=True, help="Replay growing sessions call by call, with several passes.")
@click.option("--window", "windows", multiple=True, type=click.IntRange(1_000), metavar="N",
              help="With --turns: a context window in tokens; 100000 and 200000 unless given.")  # fmt: skip
@click.option("--arm", "arms", multiple=True, metavar="NAME[, SETTING=VALUE]",
              help="With --turns: only these ways to keep a session small, varied by settings.")  # fmt: skip
@click.option("--system-tokens", type=click.IntRange(0), metavar="N",
              help="With --turns: tokens of the system prompt; 20000 unless given.")  # fmt: skip
@click.option("--joined", is_flag=True, help="With --turns: join contexts across their real compactions.")
@click.option("--models", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="With --turns: models that never saw a project (jev_engine.evaluate.fold_models).")  # fmt: skip
@click.option("--all", "show_all", is_flag=True, help="Show every table on the terminal.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.pass_context
def evaluate(ctx: click.Context, /, **given: Any) -> None:
    """Measure on recorded sessions how much every policy frees and how often it removes what was needed.

    CORPUS holds one session a line (JSON, packed with gzip or not); docs/rebuild-a-corpus.md says how to make one.
    Finished sessions are kept in the cache folder: an interrupted run goes on where it was.

    \b
    Examples:
      jev-engine evaluate sessions.jsonl.gz --report out/
      jev-engine evaluate sessions.jsonl.gz --sessions 20 --seed 1
      jev-engine evaluate sessions.jsonl.gz --policy worth --policy recency --json
      jev-engine evaluate sessions.jsonl.gz --judge answers.jsonl --policy others
      jev-engine evaluate sessions.jsonl.gz --turns --window 100000
      jev-engine evaluate session.json --turns --arm "worth 5, miss_cost=8"
    """  # noqa: D301  # \b keeps click from wrapping the examples
    _check_extra()
    _check_report(given["report"])
    if given["turns"]:
        _evaluate_turns(ctx, given)
        return
    for name in ("windows", "arms", "system_tokens", "joined", "models"):
        if given[name]:
            raise Refused("--window, --arm, --system-tokens, --joined and --models need --turns")
    from jev_engine.evaluate.results import Results  # noqa: PLC0415  # numpy, only where something is measured
    from jev_engine.evaluate.summary import summarise  # noqa: PLC0415

    plan = _plan(given)
    replayed = _replay(ctx, plan)
    if not any(session["cuts"] for session in replayed):
        raise Refused(f"{plan.corpus.name}: no session is long enough to be cut (16 results and 5 more after a cut).")
    results = Results(replayed, plan.seed)
    stamp = _stamp(plan, results, given)
    plots: list[Plot] = []
    if given["report"] is not None:
        from jev_engine.evaluate.plots import draw_plots  # noqa: PLC0415  # matplotlib

        plots = draw_plots(results)
    _give(summarise(results), plots, stamp, given)


def _evaluate_turns(ctx: click.Context, given: dict[str, Any]) -> None:
    from jev_engine.cli.turns import finish, plan_turns, replay_file  # noqa: PLC0415
    from jev_engine.evaluate.turn_files import is_corpus  # noqa: PLC0415

    with _corpus_named(given["corpus"]):
        plan = plan_turns(given)
    replayed = _replay(ctx, plan) if is_corpus(plan.corpus) else replay_file(plan.corpus, plan)
    done = finish(replayed, plan)
    _give(done.tables, [], done.stamp, {**given, "show_all": True})


def _give(tables: Sequence[Table], plots: Sequence[Plot], stamp: Stamp, given: dict[str, Any]) -> None:
    """Tables to the terminal or as JSON, and the report where it was asked for."""
    from jev_engine.evaluate.report import write_report  # noqa: PLC0415
    from jev_engine.evaluate.tables import as_json  # noqa: PLC0415

    if given["as_json"]:
        click.echo(json.dumps(as_json(tables, stamp), indent=1, ensure_ascii=False))
    else:
        _show(tables, stamp, show_all=given["show_all"])
    if given["report"] is not None:
        for path in write_report(tables, plots, stamp, given["report"]):
            click.echo(f"Wrote {path}", err=True)


def _check_extra() -> None:
    missing = [name for name in ("numpy", "matplotlib") if find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        raise Refused(f"evaluate needs {names}, which {'is' if len(missing) == 1 else 'are'} not installed: "
                      "pip install 'jev-engine[evaluate]'")  # fmt: skip


def _check_report(folder: Path | None) -> None:
    """Make the folder of a report before the work, so that hours of it are not lost; raises Refused."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise Refused(
            f"--report {folder}: nothing can be written there: {error.strerror}. Name another folder."
        ) from None


def _plan(given: dict[str, Any]) -> Plan:
    from jev_engine.evaluate.policies import choose  # noqa: PLC0415
    from jev_engine.evaluate.runs import Plan, read_recorded  # noqa: PLC0415

    recorded = None
    outside = _outside(given)
    if outside is None and given["judge"] not in ("local", "medians"):
        recorded = Path(given["judge"])
        try:
            read_recorded(recorded)
        except OSError as error:
            raise Refused(f"--judge {given['judge']}: neither local nor medians nor a file that can be read "
                          f"({error.strerror})") from None  # fmt: skip
        except ValueError as error:
            raise Refused(f"--judge {given['judge']}: {error}") from None
    try:
        choose(given["policies"])
    except ValueError as error:
        raise Refused(f"--policy: {error}") from None
    # One cassette, one writer.
    jobs = 1 if outside is not None and outside.record is not None else given["jobs"]
    return Plan(
        given["corpus"], given["policies"], recorded, given["cuts"], given["sessions"], given["seed"], jobs,
        outside=outside,
    )  # fmt: skip


def _outside(given: dict[str, Any]) -> Outside | None:
    """The judge that is to be asked; made once here, so that a wrong name, address or key is refused at once."""
    from jev_engine.evaluate.runs import Outside  # noqa: PLC0415
    from jev_engine.judges.choose import make_judge  # noqa: PLC0415
    from jev_engine.settings import user_plugins  # noqa: PLC0415

    name = given["judge"]
    if name not in ("jev", "cascade") and "://" not in name:
        for option in ("endpoint", "record", "replay"):
            if given[option] is not None:
                raise click.UsageError(f"--{option} needs --judge jev, cascade or a URL")
        return None
    outside = Outside(name, given["endpoint"], given["record"], given["replay"])
    try:
        make_judge(name, outside.endpoint, replay=outside.replay)
        for redactor in user_plugins().redactors:
            redactor("")  # a broken plugin stops what would be sent; here, not at each session
    except JevEngineError as error:
        raise Refused(f"--judge {name}: {error}") from None
    return outside


def _replay(ctx: click.Context, plan: Plan) -> list[dict[str, Any]]:
    import platformdirs  # noqa: PLC0415  # only where a cache is wanted

    from jev_engine.evaluate.corpus import parse_session, read_lines  # noqa: PLC0415
    from jev_engine.evaluate.runs import replay_corpus  # noqa: PLC0415

    within = Path(platformdirs.user_cache_dir("jev-engine")) / "evaluate"
    progress = _Progress()
    try:
        with _corpus_named(plan.corpus):
            parse_session(next(read_lines(plan.corpus), "null"))
            return replay_corpus(plan, within, progress)
    except KeyboardInterrupt:
        click.echo(f"\nInterrupted: {progress.done} of {progress.total} sessions are finished and kept; "
                   "the same command goes on from there.", err=True)  # fmt: skip
        ctx.exit(INTERRUPTED)
    finally:
        progress.end()


@contextmanager
def _corpus_named(path: Path) -> Iterator[None]:
    """Whatever shows inside that a file is no corpus is said as that; raises Refused."""
    try:
        yield
    except (ValueError, KeyError, TypeError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        shape = "one session a line, as a JSON object with `messages`; see docs/rebuild-a-corpus.md"
        raise Refused(
            f"{path.name} is not a corpus ({shape}): {error}. One session of any other form is replayed with --turns."
        ) from None


class _Progress:
    """How far the replay is, on standard error: in place on a terminal, now and then elsewhere."""

    def __init__(self) -> None:
        self.done = self.total = 0
        self._first: int | None = None
        self._started = self._said = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        now = time.monotonic()
        if self._first is None:
            self._first = done
            if done:
                click.echo(f"{done} of {total} sessions were finished before", err=True)
        is_terminal = sys.stderr.isatty()
        if not is_terminal and now - self._said < SAY_EVERY_SECONDS and done < total:
            return
        self._said = now
        fresh = done - self._first
        left = (now - self._started) / fresh * (total - done) if fresh else 0.0
        text = f"replayed {done} of {total} sessions" + (f", about {left:.0f} s left" if fresh and done < total else "")
        click.echo(f"\r\x1b[K{text}" if is_terminal else text, nl=not is_terminal, err=True)

    def end(self) -> None:
        """Leave the line."""
        if sys.stderr.isatty():
            click.echo("", err=True)


def _stamp(plan: Plan, results: Results, given: dict[str, Any]) -> Stamp:
    from jev_engine.evaluate.corpus import corpus_hash  # noqa: PLC0415
    from jev_engine.evaluate.hindsight import LABEL_VERSION  # noqa: PLC0415
    from jev_engine.evaluate.runs import code_version  # noqa: PLC0415
    from jev_engine.evaluate.tables import Stamp  # noqa: PLC0415

    parts = ["jev-engine", "evaluate", plan.corpus.name]
    if plan.outside is not None or plan.recorded is not None or given["judge"] != "local":
        parts += ["--judge", plan.recorded.name if plan.recorded else given["judge"]]
    for name in plan.policies:
        parts += ["--policy", name]
    if plan.cuts is not None:
        parts += ["--cuts", str(plan.cuts) if isinstance(plan.cuts, int) else ",".join(map(str, plan.cuts))]
    if plan.sessions is not None:
        parts += ["--sessions", str(plan.sessions)]
    command = shlex.join([*parts, "--seed", str(plan.seed)])
    unseen, total = results.unseen_sessions, len(results.sessions)
    judge = (
        f"local, out of fold on {unseen} of {total} sessions"
        if unseen
        else f"local, shipped weights on {total} sessions"
    )
    if 0 < unseen < total:
        judge += f" (shipped weights on {total - unseen})"
    return Stamp(plan.corpus.name, corpus_hash(plan.corpus), LABEL_VERSION, code_version(), plan.seed, command, judge)


def _show(tables: Sequence[Table], stamp: Stamp, *, show_all: bool) -> None:
    from rich import box  # noqa: PLC0415  # costs 60 ms
    from rich.table import Table as Grid  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from jev_engine.cli.show import console_for, emit, plain  # noqa: PLC0415

    console = console_for(sys.stdout)
    origin = Text(plain(stamp.line()), style="dim")
    shown = [table for table in tables if show_all or table.key in MAIN_TABLES]
    for table in shown:
        is_wide = len(table.columns) > FEW_COLUMNS
        grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
        for place, column in enumerate(table.columns):
            is_words = place == 0 or column == "reading"
            grid.add_column(column.strip(), justify="left" if is_words else "right", min_width=14 if is_words else None)
        for row in table.rows:
            grid.add_row(*[_cell(cell, is_wide=is_wide) for cell in row])
        emit(console, Text(table.title, style="bold"), grid, origin, Text(""))
    if len(shown) < len(tables):
        click.echo(f"{len(tables) - len(shown)} more tables with --all, and in the report with --report DIR.", err=True)


def _cell(cell: Cell, *, is_wide: bool) -> Text:
    """A cell of the terminal: in wide tables the interval stands below its number."""
    from rich.text import Text  # noqa: PLC0415  # costs 60 ms

    from jev_engine.cli.show import plain  # noqa: PLC0415

    if isinstance(cell, str | int):
        return Text(plain(str(cell)))
    text = Text(cell.middle())
    if interval := cell.interval():
        text.append(("\n" if is_wide else "  ") + interval, style="dim")
    return text
