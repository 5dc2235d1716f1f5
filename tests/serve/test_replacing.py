"""Upgrades: an older process is replaced where it stands, and nobody who is being answered is cut off."""

from __future__ import annotations

import socket
from contextlib import contextmanager

import pytest
from loopback import free_port, until
from serve.installations import Installation

from jev_engine import __version__
from jev_engine.serve import process
from jev_engine.serve.client import ask
from jev_engine.serve.places import places
from jev_engine.serve.versions import is_older

OLD = "0.0.9"


@pytest.fixture
def at(tmp_path, monkeypatch):
    """Places of a test's own; whatever runs there ends with it."""
    monkeypatch.setenv("JEV_ENGINE_RUNTIME", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("JEV_ENGINE_PORT", str(free_port()))
    yield places()
    process.stop()


@pytest.fixture(scope="module")
def old_one(tmp_path_factory):
    """An installation of an older version."""
    return Installation(tmp_path_factory.mktemp("old"), OLD)


@contextmanager
def running(installation, port=0, idle=0.0):
    """The process of another installation; it is to have ended with the block."""
    with installation.serve("--port", str(port), "--idle", str(idle)) as started:
        yield until(process.running)
        started.wait(30)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("idle", "asked", "kept"), [(0.0, None, 0.0), (0.0, 60.0, 0.0), (600.0, None, 600.0), (600.0, 0.0, 0.0)]
)
def test_the_new_one_listens_where_the_old_one_did_and_is_as_patient(at, old_one, idle, asked, kept):
    """Addresses in settings and shells go on to work; a gateway that was to stay stays."""
    port = free_port()
    with running(old_one, port, idle) as old:
        new = process.ensure(idle_seconds=asked)

    assert old.version == OLD
    assert (new.version, new.port) == (__version__, port)
    assert new.patience_seconds == kept
    assert new.pid != old.pid
    assert process.running(at) is not None


@pytest.mark.slow
def test_a_port_that_is_asked_for_counts_more(at, old_one):
    """And the log says nothing of the other one."""
    port = free_port()
    with running(old_one):
        new = process.ensure(port=port)

    assert new.port == port
    assert "Warning" not in at.log.read_text(encoding="utf-8")


@pytest.mark.slow
def test_an_old_one_that_is_answering_goes_on_until_it_has(at, old_one):
    """A request has begun; the plugin that asks meanwhile gets the old process."""
    with running(old_one) as old:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.connect(str(at.socket))
            asking.sendall(b"POST /plugin/status HTTP/1.1\r\nhost: jev-engine\r\ncontent-length: 100\r\n\r\n{")
            until(lambda: process.running(at).in_flight)
            meanwhile = [process.ensure().pid for _ in range(3)]
            asking.sendall(b'"session_id": "s"' + b" " * 81 + b"}")
            answer = asking.recv(65_536)
        until(lambda: process.running(at).in_flight == 0)
        after = process.ensure()

    assert meanwhile == [old.pid] * 3
    assert answer.startswith(b"HTTP/1.1 200")
    assert after.version == __version__


@pytest.mark.slow
def test_two_installations_do_not_replace_each_other_for_ever(at, old_one):
    """The newer one's process serves both."""
    with running(old_one) as old:
        pids = [old.pid]
        for _ in range(2):
            pids += [process.ensure().pid, old_one.ensure()["pid"]]

    assert len(set(pids)) == 2
    assert len(set(pids[1:])) == 1
    assert process.running(at).version == __version__


@pytest.mark.slow
def test_to_end_only_where_nothing_is_asked_is_not_the_same_as_to_end(at, old_one):
    """Who stops it means it."""
    with running(old_one) as old, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.connect(str(at.socket))
        asking.sendall(b"POST /plugin/status HTTP/1.1\r\nhost: jev-engine\r\ncontent-length: 100\r\n\r\n{")
        until(lambda: ask(at.socket, "/health")["in_flight"])
        assert not process.stop(at, even_busy=False)
        assert process.running(at).pid == old.pid
        assert process.stop(at)
        assert process.running(at) is None


ORDERED = ["0.0.9", "0.1.0.dev1", "0.1.0a1", "0.1.0b2", "0.1.0rc1", "0.1.0rc2", "0.1.0", "0.1.0.post1", "0.1.1", "0.10"]


@pytest.mark.parametrize("place", range(len(ORDERED)))
def test_versions_are_in_order(place):
    """Each is older than all behind it, and than none before it."""
    assert [is_older(ORDERED[place], other) for other in ORDERED] == [at > place for at in range(len(ORDERED))]


@pytest.mark.parametrize("version", ["", "unknown", "main", "0.1.0-gabc", "0.1.0+local", "0.1"])
def test_a_version_that_says_nothing_replaces_nothing(version):
    """Neither way."""
    assert not is_older(version, "0.1.0")
    assert not is_older("0.1.0", version)
