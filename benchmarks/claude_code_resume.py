"""Real Claude Code sessions, compacted by the plugin inside the real CLI and resumed by a new process.

    python benchmarks/claude_code_resume.py ../shared/sessions/claude-code/*.jsonl

For each session: the characters the CLI sends before, after the compaction, and after a resume in a new process; what
a provider would refuse; whether every text said by user and assistant is still there. Needs the network once, to
install the CLI; the model behind it is a script on loopback. Ends with 1 where a session is worse than before.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from hosts.claude_code_lab import Lab, broken_pairs, results, texts, thinking  # noqa: E402  # found in the folder above
from hosts.messages_api import MessagesApi  # noqa: E402  # as above


class Line(NamedTuple):
    """What became of one session."""

    name: str
    before: int
    after: int
    resumed: int
    summaries: int
    faults: int
    lost_texts: int
    thinking: int
    note: str = ""

    @property
    def is_good(self) -> bool:
        """Smaller, and nothing broken or lost."""
        return self.resumed < self.before and not (self.faults or self.lost_texts or self.summaries)


def put(lab: Lab, file: Path) -> None:
    """A session file where the CLI looks for it."""
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line.strip()]
    names = [row["sessionId"] for row in rows if isinstance(row, dict) and isinstance(row.get("sessionId"), str)]
    lab.session = names[-1]
    folder = lab.home / ".claude" / "projects" / re.sub(r"[^A-Za-z0-9]", "-", str(lab.project))
    folder.mkdir(parents=True)
    shutil.copy(file, folder / f"{lab.session}.jsonl")


def said(messages: list[Any]) -> list[str]:
    """Texts of user and assistant, without what the host puts there anew for each request."""
    return [text for text in texts([m for m in messages if m["role"] != "system"]) if "<system-reminder>" not in text]


def measured(file: Path) -> Line:
    """Take one session through compaction and resume."""
    with tempfile.TemporaryDirectory() as folder, MessagesApi() as api:
        lab = Lab(Path(folder), api)
        try:
            put(lab, file)
            first = lab.run("SCRIPT: text Before.")
            if not first.requests:
                return Line(file.stem, 0, 0, 0, 0, 0, 0, 0, "not accepted by this CLI")
            compacted = lab.run("/compact")
            after = lab.run("SCRIPT: text After.")
            resumed = lab.run("SCRIPT: text Resumed.")
        finally:
            lab.close()
        # A skill's text, which the host puts beside its result, moves into the result.
        held = "\n".join([*said(resumed.messages), *results(resumed.messages)])
        lost = [text for text in said(first.messages) if text not in held]
        sizes = [len(run.requests[-1].body.decode()) for run in (first, after, resumed)]
        faults = [*broken_pairs(after.messages), *broken_pairs(resumed.messages)]
        signatures = thinking(resumed.messages)
        faults += ["thinking twice"] * (len(signatures) - len(set(signatures)))
        summaries = sum(run.summaries for run in (compacted, after, resumed))
        return Line(file.stem, *sizes, summaries, len(faults), len(lost), len(thinking(first.messages)), "")


def main() -> int:
    """Print a line for each session."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    files = parser.parse_args().files
    head = f"{'session':<34}{'before':>10}{'after':>10}{'resumed':>10}{'less':>7}{'summaries':>11}{'faults':>8}"
    print(f"{head}{'texts lost':>12}")
    good = True
    for file in files:
        line = measured(file)
        good = good and (line.is_good or bool(line.note))
        less = 1 - line.resumed / line.before if line.before else 0.0
        print(
            f"{line.name:<34}{line.before:>10,}{line.after:>10,}{line.resumed:>10,}{less:>7.0%}"
            f"{line.summaries:>11}{line.faults:>8}{line.lost_texts:>12}  {line.note}",
            flush=True,
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
