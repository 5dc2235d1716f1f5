"""What was done to a trail is found: a changed byte, a line removed, added or moved, an end cut off."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jev_engine.audit.anchor import FileAnchor
from jev_engine.audit.chain import LINE_END, Head, seal
from jev_engine.audit.verify import verify
from jev_engine.errors import AuditError


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def test_a_trail_as_written_is_whole(trail: Path) -> None:
    """Two sessions, two chains."""
    found = verify(trail, FileAnchor.beside(trail).read())

    assert found.is_whole
    assert len(found.heads) == 2
    assert found.lines == len(lines_of(trail)) == sum(head.lines for head in found.heads.values())


def test_every_flipped_byte_is_found(trail: Path) -> None:
    """One bit of every seventh byte, in every line, whatever it stands in."""
    raw = trail.read_bytes()
    for at in range(0, len(raw), 7):
        trail.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        assert not verify(trail).is_whole, f"byte {at}: {raw[max(0, at - 20) : at + 20]!r}"


def test_every_line_that_is_removed_is_found(trail: Path) -> None:
    """All but the last of a chain, which only the anchor knows."""
    lines = lines_of(trail)
    ends = {json.loads(line)["chain"]: index for index, line in enumerate(lines)}
    anchor = FileAnchor.beside(trail).read()
    for index in range(len(lines)):
        trail.write_bytes(b"".join([*lines[:index], *lines[index + 1 :]]))
        assert not verify(trail, anchor).is_whole
        assert verify(trail).is_whole == (index in ends.values())


def test_lines_that_are_doubled_or_moved_are_found(trail: Path) -> None:
    """Any line twice, any two neighbours of a chain swapped."""
    lines = lines_of(trail)
    for index in range(len(lines) - 1):
        trail.write_bytes(b"".join([*lines[: index + 1], *lines[index:]]))
        assert not verify(trail).is_whole
        if json.loads(lines[index])["chain"] == json.loads(lines[index + 1])["chain"]:
            trail.write_bytes(b"".join([*lines[:index], lines[index + 1], lines[index], *lines[index + 2 :]]))
            assert not verify(trail).is_whole


def test_a_line_that_was_made_up_is_found(trail: Path) -> None:
    """Also one whose own hash is right."""
    lines = lines_of(trail)
    chain = json.loads(lines[0])["chain"]
    event = b'{"kind":"committed"}'
    start, _ = seal(chain, Head(1, "0" * 64), event, with_prev=True)
    trail.write_bytes(b"".join([lines[0], start + event + LINE_END, *lines[1:]]))

    assert not verify(trail).is_whole


def test_an_upkeep_line_that_was_made_up_is_named(trail: Path) -> None:
    """Its hash may be right; what it says of is not there."""
    for event in (b'{"until":7}', b'{"until":{"a":1}}', b"{}", b'{"until":{"a":[1]}}'):
        start, _ = seal("upkeep", Head(0, "0" * 64), event, with_prev=True)
        trail.write_bytes(start + event + LINE_END)
        assert not verify(trail).is_whole


def test_only_the_anchor_shows_a_file_that_was_cut_off(trail: Path) -> None:
    """At any line."""
    lines = lines_of(trail)
    anchor = FileAnchor.beside(trail).read()
    for end in range(1, len(lines)):
        trail.write_bytes(b"".join(lines[:end]))
        assert verify(trail).is_whole
        faults = verify(trail, anchor).faults
        assert faults
        assert "cut off" in faults[0].what


def test_a_chain_written_anew_is_found_by_the_anchor(trail: Path) -> None:
    """Whoever recomputes every hash still needs the anchor."""
    heads: dict[str, Head] = {}
    made = []
    for line in lines_of(trail):
        found = json.loads(line)
        event = json.dumps({**found["event"], "at": 1.0}).encode()
        sealed, heads[found["chain"]] = seal(
            found["chain"], heads.get(found["chain"], Head(0, "0" * 64)), event, with_prev=found["n"] == 1
        )
        made.append(sealed + event + LINE_END)
    trail.write_bytes(b"".join(made))

    assert verify(trail).is_whole
    assert [fault.what for fault in verify(trail, FileAnchor.beside(trail).read()).faults if "anew" in fault.what]


@given(st.binary(max_size=300))
def test_any_bytes_can_be_looked_at(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    """Rubbish is named, never a crash."""
    path = tmp_path_factory.mktemp("any") / "t.jsonl"
    path.write_bytes(raw)

    assert verify(path).lines >= len(verify(path).faults)


def test_no_trail_is_a_plain_error(tmp_path: Path) -> None:
    """With the path in it."""
    with pytest.raises(AuditError, match="no trail at"):
        verify(tmp_path / "none.jsonl")
