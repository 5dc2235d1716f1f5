"""Claude Code session files are trees: the branch, and the part of it, that the model still sees is read."""

from __future__ import annotations

import copy

from claude_code_rows import Session, outcomes, text, texts, thinks, use
from hypothesis import given
from hypothesis import strategies as st

from jev_engine_adapters.claude_code import adapter


def test_rows_of_one_response_are_one_turn():
    """Claude Code writes one row per block; they share `message.id`."""
    session = Session()
    session.user("Go.")
    session.says(thinks("which file?"), response="r1")
    session.says("Two reads.", response="r1")
    session.says(use("c1"), response="r1")
    session.says(use("c2"), response="r1")
    session.result("c1", "one")
    session.result("c2", "two")
    session.says(use("c3"), response="r2")

    transcript = session.read()

    assert [call.turn for call in transcript.calls] == [1, 1, 2]
    assert transcript.spoken_turns() == {1}


def test_forked_parallel_results_are_found():
    """Each parallel result hangs off the row of its own call, so all but one are off the chain."""
    session = Session()
    session.user("Go.")
    first = session.says(use("c1"), response="r1")
    second = session.says(use("c2"), response="r1")
    third = session.says(use("c3"), response="r1")
    session.result("c2", "two", after=second)
    session.result("c3", "three", after=third)
    end = session.result("c1", "one", after=first)
    session.says("All read.", response="r2", after=end)

    transcript = session.read()

    assert outcomes(transcript) == [("c1", "one", None), ("c2", "two", None), ("c3", "three", None)]
    assert not transcript.odd


def test_host_rows_below_a_forked_result_are_seen():
    """A skill's text follows its call's result, also where that result is not on the chain."""
    session = Session()
    session.user("Go.")
    first = session.says(use("c1", "Skill"), response="r1")
    second = session.says(use("c2"), response="r1")
    session.result("c1", "Launching skill", after=first)
    session.user([text("How to review")], isMeta=True)
    session.result("c2", "two", after=second)
    session.says("Done.", response="r2")

    transcript = session.read()

    assert "How to review" in texts(transcript)
    assert transcript.odd == {"meta row": 1}


def test_an_abandoned_branch_is_left_out():
    """After a rewind the old branch stays in the file and out of the context."""
    session = Session()
    start = session.user("Go.")
    session.unit("old")
    session.user("No, the other file.", after=start)
    session.unit("new")

    transcript = session.read()

    assert [call.call_id for call in transcript.calls] == ["new"]
    assert transcript.odd == {"abandoned branch": 2}


def test_sidechain_rows_are_left_out():
    """A subagent's rows inside an old session file are not the conversation."""
    session = Session()
    session.user("Go.")
    session.says(use("c1", "Task"), response="r1")
    session.user("Look around.", isSidechain=True, after=None)
    session.says(use("s1"), response="s", isSidechain=True, after="row-2")
    session.result("c1", "the agent's report")

    transcript = session.read()

    assert outcomes(transcript) == [("c1", "the agent's report", None)]
    assert transcript.odd == {"sidechain row": 2}


def test_a_subagents_own_file_is_read():
    """There every row is a sidechain row, and they are the conversation."""
    session = Session()
    session.rows = [
        {**row, "isSidechain": True, "agentId": "a1"}
        for row in (
            {"parentUuid": None, "type": "user", "uuid": "a", "message": {"role": "user", "content": "Look."}},
            {"parentUuid": "a", "type": "assistant", "uuid": "b", "message": {"id": "r", "content": [use("c1")]}},
        )
    ]

    transcript = session.read()

    assert outcomes(transcript) == [("c1", None, None)]


def test_rows_before_the_last_compaction_are_out_of_context():
    """The summary stands for them; it is user text that no person wrote."""
    session = Session()
    session.user("Go.")
    session.unit("c1")
    session.compaction("first summary")
    session.unit("c2")
    session.compaction("second summary")
    session.unit("c3")

    transcript = session.read()

    assert [call.call_id for call in transcript.calls] == ["c3"]
    assert texts(transcript) == ["second summary"]
    assert not any(entry.is_human for entry in transcript.entries)
    assert transcript.odd == {"before the last compaction": 6, "system row": 2}


def test_rows_that_a_compaction_preserved_are_seen():
    """The boundary lists them by uuid, and the next row hangs off the last of them."""
    session = Session()
    session.user("Go.")
    session.unit("c1")
    kept = session.user("Only the lexer.")
    session.unit("c2")
    tail = session.last
    session.compaction(preservedMessages={"uuids": [kept, "row-4", tail], "anchorUuid": "row-7"})
    session.user("And now?", after=tail)
    session.unit("c3")

    transcript = session.read()

    assert [call.call_id for call in transcript.calls] == ["c2", "c3"]
    assert [entry.text for entry in transcript.entries if entry.is_human] == ["Only the lexer.", "And now?"]


def test_a_preserved_segment_is_seen():
    """Older builds name only the first and the last row that they kept."""
    session = Session()
    session.user("Go.")
    session.unit("c1")
    head = session.says(use("c2"), response="r2")
    tail = session.result("c2", "two")
    session.compaction(preservedSegment={"headUuid": head, "tailUuid": tail, "anchorUuid": "row-5"})
    session.user("And now?", after=tail)

    transcript = session.read()

    assert outcomes(transcript) == [("c2", "two", None)]
    assert texts(transcript) == ["This session is being continued.", "And now?"]


def test_a_torn_segment_is_left_to_its_summary():
    """Where the tail does not lead to the head, nothing is guessed."""
    session = Session()
    session.user("Go.")
    session.unit("c1")
    head = session.user("Only the lexer.")
    tail = session.user("Lost.", after=None)
    session.compaction(preservedSegment={"headUuid": head, "tailUuid": tail, "anchorUuid": "row-5"})
    session.user("And now?", after=tail)

    transcript = session.read()

    assert texts(transcript) == ["This session is being continued.", "And now?"]


def test_a_result_rewritten_by_a_compaction_does_not_undo_it():
    """Plugins that hand rows back get them written anew, with a link to the call before the boundary."""
    session = Session()
    session.user("Go.")
    call = session.says(use("c1"), response="r1")
    session.result("c1", "a long text")
    session.compaction()
    session.says(use("c1"), response="r1")
    session.result("c1", "cut", after=call)
    session.user("And now?")

    transcript = session.read()

    assert outcomes(transcript) == [("c1", "cut", None)]
    assert transcript.odd["before the last compaction"] == 3


def test_a_rewind_to_before_a_compaction_undoes_it():
    """A person's row that hangs off an old row continues from there."""
    session = Session()
    session.user("Go.")
    session.unit("c1")
    fork = session.last
    session.compaction()
    session.unit("c2")
    session.user("Back to the start.", after=fork)

    transcript = session.read()

    assert [call.call_id for call in transcript.calls] == ["c1"]
    assert transcript.odd == {"abandoned branch": 3, "system row": 1}


def test_a_missing_row_does_not_cut_off_the_history():
    """Where a parent is not in the file, the row before it stands in."""
    session = Session()
    session.user("Go.")
    session.unit("c1")
    session.user("Further.", after="a row that was lost")
    session.unit("c2")

    assert [call.call_id for call in session.read().calls] == ["c1", "c2"]


def test_rows_without_any_links_are_read_in_file_order():
    """Exports sometimes lose uuid and parentUuid."""
    session = Session()
    session.user("Go.")
    session.unit("c1")
    for row in session.rows:
        del row["uuid"], row["parentUuid"]

    assert outcomes(session.read()) == [("c1", "done", None)]


def test_history_copied_by_a_resume_counts_once():
    """Of two rows with one uuid the last counts; copies with new uuids hang off their own root."""
    session = Session()
    session.user("Go.")
    session.unit("c1")
    session.rows += copy.deepcopy(session.rows)
    session.user("Further.")

    same = session.read()
    for row in session.rows[:3]:
        row["uuid"] += " of the first run"
        row["parentUuid"] = row["parentUuid"] and row["parentUuid"] + " of the first run"
    renamed = session.read()

    assert outcomes(same) == outcomes(renamed) == [("c1", "done", None)]
    assert same.odd == {"copied row": 3}
    assert renamed.odd == {"abandoned branch": 3}


def test_links_in_a_circle_end_the_walk():
    """A file may be damaged in any way."""
    session = Session()
    session.user("Go.", after="row-2")
    session.unit("c1")

    assert outcomes(session.read()) == [("c1", "done", None)]


names = st.sampled_from(["a", "b", "c", "d", "e"])
rows_linked_anyhow = st.builds(
    lambda kind, uuid, parent, side, subtype, blocks, kept: {
        "type": kind,
        "uuid": uuid,
        "parentUuid": parent,
        "isSidechain": side,
        "subtype": subtype,
        "message": {"id": "r" + uuid, "content": blocks},
        "compactMetadata": {"preservedSegment": {"headUuid": kept[0], "tailUuid": kept[1]}},
    },
    kind=st.sampled_from(["user", "assistant", "assistant", "system"]),
    uuid=names,
    parent=names | st.none(),
    side=st.sampled_from([False, False, True]),
    subtype=st.sampled_from([None, "compact_boundary"]),
    blocks=st.lists(
        st.builds(use, names) | st.builds(lambda c: {"type": "tool_result", "tool_use_id": c, "content": "x"}, names),
        max_size=2,
    ),
    kept=st.tuples(names, names),
)


@given(st.lists(rows_linked_anyhow, max_size=12))
def test_links_of_any_kind_are_survived(rows):
    """Whatever the tree looks like, pairs are pairs and no row is read that is not there."""
    transcript = adapter.read(rows)

    assert all(call.is_open or call.row <= call.result_row < len(rows) for call in transcript.calls)
    assert len({(call.row, call.place) for call in transcript.calls}) == len(transcript.calls)
