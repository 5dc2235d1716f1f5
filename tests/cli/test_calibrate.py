"""`jev-engine calibrate`: known maps are found again, and too little is refused."""

from __future__ import annotations

import json
import math
import random

import pytest
from click.testing import CliRunner

from jev_engine.answers import Evidence, logit
from jev_engine.audit.outcomes import Outcome
from jev_engine.calibration import read_calibrations
from jev_engine.cli import main
from jev_engine.errors import ConfigError
from jev_engine.evaluate.calibrate import fit_evidence, log_loss, read_answers, reliability


def drawn(count, evidence, seed=1):
    """Answers whose outcomes follow a known map."""
    dice = random.Random(seed)  # noqa: S311  # no secret is drawn
    for _ in range(count):
        p_local = min(0.9, max(0.002, dice.betavariate(0.5, 6)))
        raw = 1 / (1 + math.exp(-dice.gauss(logit(0.14), 0.6)))
        p = evidence.step(p_local, raw)
        yield Outcome("jev", "jev-1.13", "q2", raw, p_local, dice.random() < p)


def write(path, answers):
    path.write_text("".join(json.dumps(answer._asdict()) + "\n" for answer in answers))
    return path


def run(*words):
    return CliRunner().invoke(main, ["calibrate", *map(str, words)], catch_exceptions=False)


def test_a_known_map_is_found_again():
    """Up to what so many answers can tell."""
    found = fit_evidence(list(drawn(8_000, Evidence(1.6, 0.12, 2.5))))

    assert found.weight == pytest.approx(1.6, abs=0.3)
    assert found.typical == pytest.approx(0.12, abs=0.03)


def test_answers_without_signal_end_up_without_weight():
    """The local judge alone is better than noise."""
    answers = list(drawn(6_000, Evidence(0.0, 0.15, 1.5)))
    found = fit_evidence(answers)

    assert found.weight < 0.3
    assert log_loss(answers, found) < log_loss(answers, Evidence())


def test_the_file_is_versioned_and_holds_one_map_per_judge(tmp_path):
    """Model and wording count as well."""
    answers = [*drawn(400, Evidence()), *[answer._replace(model="jev-2") for answer in drawn(400, Evidence(), seed=2)]]
    out = tmp_path / "jev.json"
    done = run(write(tmp_path / "answers.jsonl", answers), "-o", out)

    maps = read_calibrations(out)
    assert done.exit_code == 0
    assert json.loads(out.read_text())["version"] == 1
    assert [each.model for each in maps] == ["jev-1.13", "jev-2"]
    assert maps[0].fits("jev", "jev-1.13", "q2")
    assert not maps[0].fits("jev", "jev-1.13", "q3")
    assert maps[0].rows == 400
    assert maps[0].log_loss_after <= maps[0].log_loss_before


def test_reliability_before_and_after_is_shown(tmp_path):
    """On the terminal as a table, with --json as lists."""
    path = write(tmp_path / "answers.jsonl", drawn(400, Evidence()))

    assert "Fitted p" in run(path, "-o", tmp_path / "a.json").stdout
    (one,) = json.loads(run(path, "-o", tmp_path / "b.json", "--json").stdout)
    assert set(one["reliability"]) == {"raw", "before", "after"}


def test_too_few_answers_are_refused_and_nothing_is_written(tmp_path):
    """Three numbers need more than a handful."""
    done = run(write(tmp_path / "answers.jsonl", drawn(30, Evidence())), "-o", tmp_path / "jev.json")

    assert done.exit_code == 2
    assert "at least 50 answers" in done.stderr
    assert not (tmp_path / "jev.json").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"raw": 0.5, "p_local": 0.1}', "line 1 is no recorded answer: no 'needed'"),
        ('{"raw": 1.5, "p_local": 0.1, "needed": true}', "line 1: raw and p_local are probabilities"),
        ("hello", "line 1"),
    ],
)
def test_a_bad_line_is_named(line, message):
    """With what is wrong with it."""
    with pytest.raises(ValueError, match=message):
        read_answers([line])


def test_reliability_bins_hold_equal_numbers():
    """Lowest probabilities first."""
    bins = reliability([(i / 100, i >= 50) for i in range(100)], bins=4)

    assert [count for _, _, count in bins] == [25, 25, 25, 25]
    assert [share for _, share, _ in bins] == [0.0, 0.0, 1.0, 1.0]


def test_a_file_that_is_no_calibration_is_refused(tmp_path):
    """Naming the command that makes one."""
    path = tmp_path / "other.json"
    path.write_text("{}")

    with pytest.raises(ConfigError, match="jev-engine calibrate"):
        read_calibrations(path)
