"""`jev-engine calibrate`: fit how far to believe a judge, from recorded answers and their outcomes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jev_engine.cli.files import Places, Refused, check_target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jev_engine.audit.outcomes import Outcome
    from jev_engine.calibration import Calibration

__all__ = ["calibrate"]


@click.command()
@click.argument("recorded", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--out", required=True, type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write the fitted maps there, as JSON.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the maps and the reliability as JSON.")
def calibrate(recorded: tuple[Path, ...], out: Path, *, as_json: bool) -> None:
    """Fit how far each judge's answers move the local judge.

    RECORDED are JSON Lines, one answer each: raw (what the judge said, 0 to 1), p_local (what the local judge said),
    needed (true or false), and judge, model and question_version, for each of which a map is fitted.

    \b
    Examples:
      jev-engine calibrate answers.jsonl -o jev.json
      jev-engine calibrate monday.jsonl tuesday.jsonl -o jev.json --json
    """  # noqa: D301  # \b keeps click from wrapping the examples
    from jev_engine.calibration import write_calibrations  # noqa: PLC0415  # the command answers --help at once
    from jev_engine.cli.show import warn  # noqa: PLC0415
    from jev_engine.evaluate.calibrate import fit_calibrations, read_answers  # noqa: PLC0415

    answers: list[Outcome] = []
    for path in recorded:
        check_target(str(out), Places(source=str(path)))
        try:
            with path.open(encoding="utf-8") as stream:
                answers += read_answers(stream)
        except (OSError, ValueError) as error:
            raise Refused(f"{path.name}: {error}") from None
    fitted, refused = fit_calibrations(answers)
    for reason in refused:
        warn(f"not fitted: {reason}")
    if not fitted:
        raise Refused("nothing was fitted, and nothing was written.")
    write_calibrations(fitted, out)
    parts = [(each, [answer for answer in answers if each.fits(*answer[:3])]) for each in fitted]
    if as_json:
        click.echo(json.dumps([_as_json(each, part) for each, part in parts], indent=1))
    else:
        _show(parts)
    click.echo(f"Wrote {out}", err=True)


def _curves(each: Calibration, answers: Sequence[Outcome]) -> dict[str, list[tuple[float, float, int]]]:
    """Reliability of the raw answers, of the prior map and of the fitted one."""
    from jev_engine.evaluate.calibrate import PRIOR, reliability  # noqa: PLC0415

    return {
        "raw": reliability([(answer.raw, answer.needed) for answer in answers]),
        "before": reliability([(PRIOR.step(answer.p_local, answer.raw), answer.needed) for answer in answers]),
        "after": reliability([(each.evidence.step(answer.p_local, answer.raw), answer.needed) for answer in answers]),
    }


def _as_json(each: Calibration, answers: Sequence[Outcome]) -> dict[str, Any]:
    return {**each._asdict(), "evidence": each.evidence._asdict(), "reliability": _curves(each, answers)}


def _show(parts: Sequence[tuple[Calibration, Sequence[Outcome]]]) -> None:
    from rich import box  # noqa: PLC0415  # costs 60 ms
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from jev_engine.cli.show import console_for, emit, plain  # noqa: PLC0415

    console = console_for(sys.stdout)
    for each, answers in parts:
        evidence = each.evidence
        title = " / ".join(plain(name) or "any" for name in each[:3])
        table = Table(box=box.SIMPLE_HEAD, title=Text(title, style="bold"), title_justify="left", header_style="bold")
        for name in ("Bin", "Raw p", "needed", "Prior map p", "needed", "Fitted p", "needed", "Answers"):
            table.add_column(name, justify="right")
        curves = list(_curves(each, answers).values())
        for number, bins in enumerate(zip(*curves, strict=False), 1):
            cells = [f"{value:.3f}" for p, share, _ in bins for value in (p, share)]
            table.add_row(str(number), *cells, str(bins[0][2]))
        fit = f"weight {evidence.weight:g}, typical {evidence.typical:g}, clip {evidence.clip:g}"
        loss = f"log loss {each.log_loss_before:.4f} with the prior map, {each.log_loss_after:.4f} with this one"
        emit(
            console, table, Text(f"{fit}; {each.rows:,} answers, {each.needed:,} needed; {loss} (on the same answers)")
        )
