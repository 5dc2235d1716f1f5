"""One injected fault at a time: what is lost, how long it takes, what is reported.

    python benchmarks/faults.py                all faults, and those of the jevcompat mock where it is installed
    python benchmarks/faults.py --seconds 4    another deadline

A session of several requests is judged over loopback; the second request, or every request, meets the fault. A row is
`ok` if no answer of another request is lost, the deadline is kept within 10 %, the history is valid and the pass is
recorded. Exits 1 where one is not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from jev_engine import ContextEngine
from jev_engine.events import Event
from jev_engine.judges.asked import AskedJudge
from jev_engine.judges.jev import JevAsker
from jev_engine.testing import call, history, result, user
from jev_engine.testing.server import FaultServer, Received, Reply, answer_half

KEY = "k-faults-0123456789"
TOO_LARGE = b'{"detail":{"error_type":"max_tokens_exceeded","message":""}}'
# Over all: event loop, planning and closing take their time besides the deadline.
SLACK = 1.10


def spoiled(change: Callable[[dict[str, Any]], Any]) -> Callable[[int, Received], Reply | None]:
    """A script that changes the answers of the second request."""

    def script(number: int, received: Received) -> Reply | None:
        if number != 2:
            return None
        payload = json.loads(json.dumps(answer_half(received.json())))
        text = change(payload)
        return Reply(body=text if isinstance(text, bytes) else json.dumps(payload).encode())

    return script


def first(payload: dict[str, Any], value: Any) -> None:
    """Set the first answer's number."""
    payload["answers"][next(iter(payload["answers"]))]["noul"] = value


def doubled(payload: dict[str, Any]) -> bytes:
    """The first answer twice, with two numbers."""
    name = next(iter(payload["answers"]))
    return json.dumps(payload).replace('"answers": {', f'"answers": {{"{name}": {{"noul": 0.9}}, ', 1).encode()


def without_last(payload: dict[str, Any]) -> None:
    """One answer is missing."""
    payload["answers"].popitem()


def with_more(payload: dict[str, Any]) -> None:
    """One answer to a question nobody asked."""
    payload["answers"]["call_t99999"] = {"type": "noul", "noul": 0.9}


class Fault(NamedTuple):
    """One fault and what may be lost by it."""

    script: Any
    loses: str
    """`nothing`, `its request`, `one unit` or `everything`."""


def faults() -> dict[str, Fault]:
    """All faults by name."""
    second: dict[str, tuple[Reply, str]] = {
        "429 with Retry-After: 0": (Reply(429, headers={"Retry-After": "0"}), "nothing"),
        "429 with Retry-After: 3600": (Reply(429, headers={"Retry-After": "3600"}), "its request"),
        "429 without Retry-After": (Reply(429), "nothing"),
        "500": (Reply(500), "nothing"),
        "503": (Reply(503), "nothing"),
        "529": (Reply(529), "nothing"),
        "broken JSON": (Reply(body=b'{"answers": {'), "its request"),
        "truncated body": (Reply(cut_bytes=20), "nothing"),
        "wrong content type": (Reply(headers={"Content-Type": "text/html"}), "its request"),
        "connection reset": (Reply(reset=True), "nothing"),
        "slow drip": (Reply(drip_seconds=0.05), "its request"),
        "hang": (Reply(hang=True), "its request"),
        "oversize body": (Reply(body=b" " * 6_000_000), "its request"),
        "redirect": (Reply(307, headers={"Location": "https://example.org/"}), "its request"),
        "413": (Reply(413), "nothing"),
        "max_tokens_exceeded": (Reply(400, body=TOO_LARGE), "nothing"),
        "401": (Reply(401), "its request"),
        "402": (Reply(402), "its request"),
        "422": (Reply(422, body=b'{"detail":[{"loc":[],"msg":"","type":"missing"}]}'), "its request"),
    }
    found = {name: Fault({2: reply}, loses) for name, (reply, loses) in second.items()}
    found |= {
        "NaN": Fault(spoiled(lambda p: first(p, float("nan"))), "its request"),
        "1.3": Fault(spoiled(lambda p: first(p, 1.3)), "its request"),
        "bool": Fault(spoiled(lambda p: first(p, True)), "its request"),  # noqa: FBT003  # the fault itself
        "text": Fault(spoiled(lambda p: first(p, "0.9")), "its request"),
        "doubled answer": Fault(spoiled(doubled), "its request"),
        "missing answer": Fault(spoiled(without_last), "one unit"),
        "extra answer": Fault(spoiled(with_more), "nothing"),
        "hang, every request": Fault(lambda *_: Reply(hang=True), "everything"),
        "503, every request": Fault(lambda *_: Reply(503), "everything"),
    }
    return found


def session() -> list[dict[str, Any]]:
    """A history of 400 calls: several requests with the budget of an unknown server."""
    rows = [user("Make the importer faster.")]
    for number in range(400):
        text = f"value_{number} = load({number})\n" * 80
        rows += [call("read", path=f"src/part_{number}.py"), result(text)]
    return history(*rows)


class Heard:
    """A sink that keeps the names of what it hears."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def emit(self, event: Event) -> None:
        """Take in one event."""
        self.kinds.append(type(event).__name__)


class Run(NamedTuple):
    """What one pass came to."""

    answered: int
    of: int
    requests: int
    seconds: float
    problems: list[str]
    note: str


def run(url: str, seconds: float, *, trusted: Any = None) -> Run:
    """One pass against a server."""
    messages, heard = session(), Heard()
    asker = JevAsker(url, key=KEY)
    if trusted is not None:
        asker._tls = trusted  # noqa: SLF001  # the test's own authority; there is no setting to weaken TLS
    engine = ContextEngine(judge=AskedJudge(asker, deadline_seconds=seconds), sinks=[heard])
    started = time.monotonic()
    done = asyncio.run(engine.compress(messages, force=True))
    took = time.monotonic() - started
    problems = []
    if done.outcome == "failed" or len(done.messages) != len(messages):
        problems.append("history not valid")
    if took > seconds * SLACK + 0.3:
        problems.append("deadline missed")
    if "JudgeAsked" not in heard.kinds or heard.kinds[-1] not in ("Committed", "Discarded", "Abandoned"):
        problems.append("not recorded")
    if KEY in str(done.stats.to_json()):
        problems.append("key shown")
    answered = sum(d.probability is not None and d.probability.source != "local" for d in done.decisions)
    note = done.stats.failures[0] if done.stats.failures else "recovered"
    return Run(answered, len(done.decisions), done.stats.requests, took, problems, note)


def allowed(loses: str, of: int, largest: int) -> int:
    """The least number of units that must have an answer."""
    return {"nothing": of, "one unit": of - 1, "its request": of - largest, "everything": 0}[loses]


def show(name: str, done: Run, least: int) -> bool:
    """Print one row; returns whether all holds."""
    problems = [*done.problems, *(["answers lost"] if done.answered < least else [])]
    verdict = ", ".join(problems) or "ok"
    print(
        f"{name:<30} {done.answered:>4} of {done.of} answered  {done.seconds:5.2f} s  {verdict:<18} {done.note}",
        flush=True,
    )
    return not problems


def certificate(folder: str) -> str | None:
    """Key and certificate of loopback that ran out yesterday; None where openssl is not there."""
    key, request, extension, cert = (Path(folder) / name for name in ("key", "request", "extension", "cert"))
    extension.write_text("subjectAltName=IP:127.0.0.1")
    commands = (
        f"openssl req -newkey rsa:2048 -nodes -keyout {key} -out {request} -subj /CN=127.0.0.1",
        f"openssl x509 -req -in {request} -signkey {key} -extfile {extension} -days -1 -out {cert}",
    )
    try:
        for command in commands:
            subprocess.run(command.split(), capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return key.read_text() + cert.read_text()


def closed_port() -> str:
    """An address where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1/systemone"


def transport_faults(seconds: float) -> bool:
    """What goes wrong before a request is heard."""
    ok = show("refused connection", run(closed_port(), seconds), 0)
    with tempfile.TemporaryDirectory() as folder:
        pem = certificate(folder)
        if pem is None:
            print("expired certificate            NOT TRIED: openssl is not installed, or makes none")
            return ok
        import ssl

        with FaultServer(certificate=pem) as server:
            trusting = ssl.create_default_context(cadata=pem[pem.index("-----BEGIN CERT") :])
            done = run(server.url, seconds, trusted=trusting)
            ok &= show("expired certificate", done, 0)
            if done.answered:
                print("  an expired certificate was accepted")
                ok = False
    return ok


def mock_faults(seconds: float) -> bool:
    """The faults of the jevcompat mock, each on every response."""
    try:
        from jevcompat.mock import FAULTS, MockConfig, make_server
    except ImportError as error:
        print(f"\nJEVCOMPAT IS NOT INSTALLED ({error}): its 47 faults were not tried")
        return True
    print(f"\nfaults of the jevcompat mock: {len(FAULTS)}, each in every response")
    ok = True
    for fault in FAULTS:
        server = make_server(MockConfig(key=KEY, faults=frozenset({fault})), "127.0.0.1", 0)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/v1/systemone"
        try:
            ok &= show(str(fault), run(url, seconds), 0)
        finally:
            server.shutdown()
            server.server_close()
    return ok


def main() -> None:
    """Print the table; exit 1 where something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="deadline of a pass; the default setting is 10")
    parser.add_argument("--no-mock", action="store_true", help="leave out the faults of the jevcompat mock")
    options = parser.parse_args()
    with FaultServer() as server:
        run(server.url, options.seconds)  # imports and caches are nobody's fault
        server.requests.clear()
        base = run(server.url, options.seconds)
        sizes = [len(received.json()["questions"]) // 2 for received in server.requests]
    print(
        f"{base.requests} requests, {base.of} units, deadline {options.seconds:g} s, one fault in the second request\n"
    )
    ok = show("no fault", base, base.of)
    for name, fault in faults().items():
        with FaultServer(fault.script) as server:
            ok &= show(name, run(server.url, options.seconds), allowed(fault.loses, base.of, max(sizes)))
    ok &= transport_faults(options.seconds)
    if not options.no_mock:
        ok &= mock_faults(options.seconds)
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
