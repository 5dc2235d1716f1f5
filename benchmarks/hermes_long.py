"""Long sessions through the Hermes engine: the scorecard's objections, each with a run over recorded sessions.

    python benchmarks/hermes_long.py                   all parts, three projects
    python benchmarks/hermes_long.py --projects 1
    python benchmarks/hermes_long.py --part times      one of: row, calls, breaks, times

Sessions of one project are joined to one long session and played message by message to the engine that Hermes gets, in
the order of Hermes' calls: usage after each answer, `should_compress` before each request, `compress` where it says so,
a boundary where the history changed. System prompt and tools are 15,000 tokens, four characters are a token, the
window is 100,000. Where the engine hands over, a summariser keeps the first message and the newest six and replaces
the rest by 10,000 characters.

- row: twenty compactions in a row, freed share of each; stuck is a request above the window, and there may be none
- calls: 541 and 2,000 calls between two compactions, judged by an asker through windows and by the local judge; every
  candidate has to be decided on an answer of its own
- breaks: requests of which the beginning is not the one before, per 100 requests, for this engine and for the profile
  `reference` with answers as the real judge gives them (calls near 0.55, results near 0.20)
- times: CPU time of a turn in which nothing fires, and of a pass with the local judge and the store on disk, as ratios
  to one `json.loads(json.dumps(messages))` of the same history; bars 0.1 and 12

Read from ../shared/corpus; without it nothing is measured and it says so. Exits 1 where something does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from jev_engine import ContextEngine, make_config
from jev_engine.judges.asked import AskedJudge
from jev_engine.store.memory import MemoryStore
from jev_engine.store.sqlite import SqliteStore
from jev_engine.testing import ScriptedJudge
from jev_engine_adapters.hermes.engine import HermesEngine
from jev_engine_adapters.hermes.state import Shared

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT.parent / "shared" / "corpus" / "trajectories.jsonl.gz"
WINDOW, SYSTEM_TOKENS, SUMMARY_CHARS = 100_000, 15_000, 10_000
PASSES = 20
QUIET_BAR, PASS_BAR = 0.1, 12.0
Message = dict[str, Any]


class Summariser:
    """Stands in for the host's own."""

    def __init__(self, model: str) -> None:
        self._last_compress_aborted = False

    def compress(self, messages: list[Message], current_tokens: Any = None) -> list[Message]:
        """The first message, a summary, and the newest rows from an assistant's on."""
        start = len(messages) - 6
        while start < len(messages) - 1 and messages[start]["role"] == "tool":
            start += 1
        summary = {"role": "assistant", "content": "s" * SUMMARY_CHARS, "_compressed_summary": True}
        return [messages[0], summary, *messages[start:]]


def install_summariser() -> None:
    """Where the engine looks for it."""
    package, module = ModuleType("agent"), ModuleType("agent.context_compressor")
    module.ContextCompressor = Summariser  # type: ignore[attr-defined]
    sys.modules["agent"], sys.modules["agent.context_compressor"] = package, module


def projects(count: int) -> list[tuple[str, list[Message]]]:
    """The longest projects of the corpus, each as one session."""
    joined: dict[str, list[Message]] = defaultdict(list)
    with gzip.open(CORPUS, "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            for message in record["messages"]:
                if message.get("role") in ("user", "assistant", "tool") and not message.get("compact_summary"):
                    joined[record["source"]].append({k: v for k, v in message.items() if k not in ("meta", "usage")})
    longest = sorted(joined.items(), key=lambda each: -sum(m["role"] == "tool" for m in each[1]))
    return longest[:count]


def tokens_of(message: Message) -> int:
    """Four characters are a token."""
    return len(json.dumps(message)) // 4


class Play:
    """One long session, message by message."""

    def __init__(self, engine: ContextEngine, messages: list[Message], *, window: int = WINDOW) -> None:
        self.hermes = HermesEngine(Shared(lambda: engine), is_copy=True)
        self.hermes.update_model(model="m", context_length=window)
        self.hermes.get_tool_schemas()
        self.hermes.on_session_start("s")
        self.window = window
        self.coming = messages
        self.history: list[Message] = []
        self.tokens = SYSTEM_TOKENS
        self.requests = self.breaks = self.stuck = 0
        self.passes: list[tuple[int, int, str]] = []

    def run(self, passes: int | None = None) -> Play:
        """Play until so many compactions were made, or to the end."""
        for message in self.coming:
            if message["role"] == "assistant" and not self._request():
                self.stuck += 1
            self.history.append(message)
            self.tokens += tokens_of(message)
            if passes is not None and len(self.passes) >= passes:
                break
        return self

    def _request(self) -> bool:
        """One call of the model; False where the prompt does not fit."""
        hermes = self.hermes
        self.requests += 1
        for _ in range(3):
            if not hermes.should_compress(self.tokens):
                break
            self._compact()
        if self.tokens > self.window:
            self._compact()  # the provider refuses, and the host asks for a pass
        hermes.update_from_response({"prompt_tokens": self.tokens})
        return self.tokens <= self.window

    def _compact(self) -> None:
        before = self.tokens
        made = self.hermes.compress(self.history, current_tokens=before)
        if made is self.history:
            return
        self.history = list(made)
        self.tokens = SYSTEM_TOKENS + sum(map(tokens_of, made))
        self.breaks += 1
        session = self.hermes.session
        self.passes.append((before, self.tokens, session.last_words))
        self.hermes.on_session_start("s", boundary_reason="compression", old_session_id="s")


def row(found: list[tuple[str, list[Message]]]) -> bool:
    """Twenty compactions in a row."""
    ok = True
    for name, messages in found:
        play = Play(ContextEngine(), messages).run(PASSES)
        shares = [(before - after) / before for before, after, _ in play.passes]
        handed = ["h" if "took over" in words else " " for _, _, words in play.passes]
        shown = " ".join(f"{share:.0%}{mark}".strip() for share, mark in zip(shares, handed, strict=True))
        good = not play.stuck and len(play.passes) == PASSES
        ok &= good
        print(f"{name}: {len(play.passes)} compactions in {play.requests} requests, {play.stuck} stuck; freed {shown}")
        print(
            f"  highest request {max(b for b, _, _ in play.passes):,} tokens, h = handed over  {'ok' if good else 'NO'}"
        )
    return ok


class InstantAsker:
    """Answers every question at once."""

    async def ask(self, state: str, questions: Mapping[str, Mapping[str, Any]]) -> Mapping[str, float]:
        """Numbers between 0 and 0.5, by the digits of a question's name."""
        return {name: (sum(name.encode()) * 37 % 101) / 202 for name in questions}


def calls(found: list[tuple[str, list[Message]]]) -> bool:
    """Many calls between two compactions."""
    ok = True
    every = [message for _, messages in found for message in messages]
    for wanted in (541, 2_000):
        history, count = [], 0
        for message in every:
            count += len(message.get("tool_calls") or ())
            if count > wanted:
                break
            history.append(message)
        for name, judge in (("asked", AskedJudge(InstantAsker())), ("local", None)):
            engine = ContextEngine(judge=judge)
            play = Play(engine, [], window=10_000_000)
            engine = play.hermes.session.engine(offers_tools=True)
            tokens = sum(map(tokens_of, history))
            done = asyncio.run(engine.compress(history, tokens, host="hermes", force=True))
            decided = [d for d in done.decisions if d.probability is not None]
            good = len(decided) == len(done.decisions) > 0 and not done.stats.hidden
            ok &= good
            stats = done.stats
            print(
                f"{wanted} calls, {name}: {stats.calls} calls, {len(decided)} of {len(done.decisions)} candidates"
                f" decided, {stats.hidden} hidden, {stats.requests} requests over {stats.windows} windows,"
                f" {done.outcome}  {'ok' if good else 'NO'}"
            )
    return ok


def like_the_real_judge(call: Any) -> tuple[float, float]:
    """Calls near 0.55, results near 0.20, a little apart."""
    noise = int(call.key[:4], 16) / 65_535 - 0.5
    return 0.55 + 0.2 * noise, 0.20 + 0.2 * noise


def breaks(found: list[tuple[str, list[Message]]]) -> bool:
    """Broken prefixes per 100 requests."""
    totals = {"balanced": [0, 0], "reference": [0, 0]}
    for name, messages in found:
        told = []
        for profile, total in totals.items():
            judge = ScriptedJudge(like_the_real_judge, is_calibrated=False) if profile == "reference" else None
            play = Play(ContextEngine(config=make_config(profile=profile), judge=judge), messages).run()
            total[0] += play.breaks
            total[1] += play.requests
            told.append(f"{profile} {100 * play.breaks / play.requests:.2f} ({play.breaks} in {play.requests})")
        print(f"{name}: breaks per 100 requests: {', '.join(told)}")
    ours, theirs = (100 * broken / max(1, requests) for broken, requests in totals.values())
    print(f"in total: balanced {ours:.2f}, reference {theirs:.2f}  {'ok' if ours < theirs else 'NO'}")
    return ours < theirs


def histories() -> Iterator[list[Message]]:
    """Ten sessions of at least 40 calls, spread over the corpus."""
    with gzip.open(CORPUS, "rt", encoding="utf-8") as lines:
        long = [line for line in lines if line.count('"role":"tool"') + line.count('"role": "tool"') >= 40]
    for line in long[:: max(1, len(long) // 10)][:10]:
        yield [m for m in json.loads(line)["messages"] if m.get("role") in ("user", "assistant", "tool")]


def times(_: list[tuple[str, list[Message]]]) -> bool:
    """What a turn costs, quiet and with a pass."""
    ok, quiet_sum, pass_sum, trip_sum = True, 0.0, 0.0, 0.0
    clock = time.process_time
    with tempfile.TemporaryDirectory() as folder:
        for number, messages in enumerate(histories()):
            trips, quiets, took = [], [], []
            for turn in range(3):
                start = clock()
                json.loads(json.dumps(messages))
                trips.append(clock() - start)
                store = SqliteStore(Path(folder) / f"{number}-{turn}.sqlite3") if turn else MemoryStore()
                play = Play(ContextEngine(store=store), [], window=100_000_000)
                hermes, used = play.hermes, sum(map(tokens_of, messages))
                hermes.should_compress(used)
                start = clock()
                for _ in range(100):
                    hermes.should_compress(used)
                    hermes.update_from_response({"prompt_tokens": used})
                quiets.append((clock() - start) / 100)
                start = clock()
                hermes.compress(messages, current_tokens=used, force=True)
                took.append(clock() - start)
            trip, quiet, passed = min(trips), min(quiets), min(took[1:])
            trip_sum, quiet_sum, pass_sum = trip_sum + trip, quiet_sum + quiet, pass_sum + passed
            good = quiet <= QUIET_BAR * trip and passed <= PASS_BAR * trip
            ok &= good
            size = len(json.dumps(messages)) / 1e6
            print(
                f"session of {size:5.2f} MB: quiet turn {quiet / trip:.4f} ({quiet * 1e6:.0f} us),"
                f" pass {passed / trip:5.2f}  {'ok' if good else 'NO'}"
            )
    quiet, passed = quiet_sum / trip_sum, pass_sum / trip_sum
    print(f"in total: quiet turn {quiet:.4f} (bar {QUIET_BAR}), pass {passed:.2f} (bar {PASS_BAR})")
    return ok


PARTS = {"row": row, "calls": calls, "breaks": breaks, "times": times}


def main() -> None:
    """Run the parts and print them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--projects", type=int, default=3)
    parser.add_argument("--part", choices=PARTS, action="append")
    given = parser.parse_args()
    if not CORPUS.exists():
        print("NOT MEASURED: ../shared/corpus is not there")
        return
    install_summariser()
    found = projects(given.projects)
    held = [print(f"--- {name}") or PARTS[name](found) for name in given.part or PARTS]
    sys.exit(0 if all(held) else 1)


if __name__ == "__main__":
    main()
