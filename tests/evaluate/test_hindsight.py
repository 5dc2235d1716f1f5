"""The hindsight label on histories small enough to check by hand."""

from __future__ import annotations

import gzip
import json

import pytest

from jev_engine.evaluate.corpus import Session, corpus_hash, cuts_of, read_messages, read_sessions, units_of
from jev_engine.evaluate.hindsight import explain, look_back

LINE = "return parse_header(body, limit)"
OTHER_LINE = "for every_item in the_queue: stop"


class History:
    """Writes messages one by one; `cut` remembers where a compaction is imagined."""

    def __init__(self):
        self.messages = []
        self.row = None
        self._calls = 0

    def user(self, text):
        self.messages.append({"role": "user", "content": text})
        return self

    def says(self, text, reasoning=""):
        self.messages.append({"role": "assistant", "content": text, "reasoning": reasoning})
        return self

    def call(self, result, tool="read", *, is_error=False, **arguments):
        self._calls += 1
        name = f"c{self._calls}"
        function = {"name": tool, "arguments": json.dumps(arguments)}
        self.messages.append({"role": "assistant", "content": "", "tool_calls": [{"id": name, "function": function}]})
        self.messages.append({"role": "tool", "tool_call_id": name, "content": result, "is_error": is_error})
        return self

    def cut(self):
        self.row = len(self.messages)
        return self

    def label(self, common=()):
        hindsight = look_back(read_messages(self.messages), lambda token: token in common)
        return hindsight.verdicts(self.row)


def history():
    return History().user("please help")


def words(verdicts):
    return ["needed" if v.needed else "refetched" if v.refetched else "dead" for v in verdicts]


def test_two_atoms_in_one_later_message_make_a_result_needed():
    verdicts = history().call("load_config and save_config").cut().says("use load_config, save_config").label()

    assert words(verdicts) == ["needed"]
    assert verdicts[0].points == 2


def test_one_atom_alone_is_not_enough():
    verdicts = history().call("load_config and save_config").cut().says("use load_config").label()

    assert words(verdicts) == ["dead"]
    assert verdicts[0].points == 1


def test_two_atoms_in_two_messages_do_not_add_up():
    verdicts = history().call("load_config save_config").cut().says("load_config").says("save_config").label()

    assert words(verdicts) == ["dead"]


def test_one_line_is_enough():
    verdicts = history().call(LINE).cut().says(f"I change\n{LINE}").label()

    assert words(verdicts) == ["needed"]


def test_a_line_counts_whatever_number_stood_before_it():
    verdicts = history().call(f"   12→  {LINE}").cut().says(LINE).label()

    assert words(verdicts) == ["needed"]


def test_nothing_written_later_leaves_it_dead():
    verdicts = history().call(LINE).cut().says("done").label()

    assert words(verdicts) == ["dead"]
    assert verdicts[0].dead


def test_a_use_before_the_cut_is_not_a_need_after_it():
    verdicts = history().call(LINE).says(LINE).cut().says(LINE).label()

    assert words(verdicts) == ["dead"]


def test_what_the_user_wrote_before_stays_and_proves_nothing():
    verdicts = history().user(LINE).call(LINE).cut().says(LINE).label()

    assert words(verdicts) == ["dead"]


def test_what_the_user_writes_between_cut_and_use_delivers_it_again():
    verdicts = history().call(LINE).cut().user(LINE).says(LINE).label()

    assert words(verdicts) == ["dead"]


def test_what_arguments_held_before_stays_and_proves_nothing():
    verdicts = history().call("ok", tool="edit", new_string=LINE).call(LINE).cut().says(LINE).label()

    assert words(verdicts) == ["dead", "dead"]


def test_a_use_in_arguments_counts():
    verdicts = history().call(LINE).cut().call("ok", tool="edit", old_string=LINE).label()

    assert words(verdicts) == ["needed"]


def test_a_use_in_reasoning_counts():
    verdicts = history().call(LINE).cut().says("hm", reasoning=LINE).label()

    assert words(verdicts) == ["needed"]


def test_a_use_by_the_user_does_not_count():
    verdicts = history().call(LINE).cut().user(LINE).label()

    assert words(verdicts) == ["dead"]


def test_a_later_result_delivers_it_again():
    verdicts = history().call(LINE).cut().call(f"{LINE}\nmore", tool="bash").says(LINE).label()

    assert not verdicts[0].needed


def test_the_latest_holder_before_the_cut_carries_the_need():
    verdicts = history().call(LINE).call(LINE).cut().says(LINE).label()

    assert words(verdicts) == ["dead", "needed"]


def test_a_result_that_arrived_after_the_use_is_not_its_source():
    verdicts = history().call(LINE).cut().says(LINE).call(LINE).label()

    assert verdicts[0].needed


def test_vocabulary_proves_nothing():
    common = {b"load_config", b"save_config"}
    verdicts = history().call("load_config save_config").cut().says("load_config save_config").label(common)

    assert words(verdicts) == ["dead"]


def test_vocabulary_lowers_the_points_but_not_below_the_rest():
    names = "load_config\nsave_config\ndrop_config"
    verdicts = history().call(names).cut().says(names).label({b"load_config"})

    assert verdicts[0].points == 2


def test_common_lines_are_marked_apart_from_atoms():
    verdicts = (
        history()
        .call("stop every single one of the processes")
        .cut()
        .says("stop every single one of the processes")
        .label({b"L:stop every single one of the processes"})
    )

    assert words(verdicts) == ["dead"]


def test_a_repeated_fetch_is_refetched_not_needed():
    body = "\n".join(f"the line with the number word{i}x in it" for i in range(12))
    verdicts = history().call(body).cut().call(body).label()

    assert words(verdicts) == ["refetched"]


def test_a_need_before_a_fetch_wins():
    body = "\n".join(f"the line with the number word{i}x in it" for i in range(12))
    verdicts = history().call(body).cut().says(body.split("\n")[0]).call(body).label()

    assert words(verdicts) == ["needed"]
    assert not verdicts[0].refetched


def test_a_short_repeat_is_no_refetch():
    verdicts = history().call(LINE).cut().call(LINE).label()

    assert words(verdicts) == ["dead"]


def test_half_a_repeat_is_no_refetch():
    body = [f"the line with the number word{i}x in it" for i in range(20)]
    new = [f"another row about the value item{i}y here" for i in range(20)]
    verdicts = history().call("\n".join(body)).cut().call("\n".join(body[:8] + new)).label()

    assert words(verdicts) == ["dead"]


def test_a_fetch_before_the_cut_is_no_refetch_after_it():
    body = "\n".join(f"the line with the number word{i}x in it" for i in range(12))
    verdicts = history().call(body).call(body).cut().says("done").label()

    assert words(verdicts) == ["dead", "dead"]


def test_file_names_are_evidence():
    verdicts = history().call("src/one.py\nsrc/two.py").cut().says("open src/one.py and lib/two.py").label()

    assert words(verdicts) == ["needed"]


def test_files_opened_by_two_calls_of_two_messages_are_two_single_points():
    verdicts = history().call("one.py two.py").cut().call("a", path="one.py").call("b", path="two.py").label()

    assert words(verdicts) == ["dead"]


def test_files_opened_by_two_calls_of_one_message_are_evidence():
    run = history().call("one.py two.py").cut()
    calls = [
        {"id": name, "function": {"name": "read", "arguments": json.dumps({"path": path})}}
        for name, path in (("p1", "one.py"), ("p2", "two.py"))
    ]
    run.messages.append({"role": "assistant", "content": "", "tool_calls": calls})

    assert words(run.label()) == ["needed"]


def test_two_units_can_be_needed_by_one_message():
    verdicts = history().call(LINE).call(OTHER_LINE).cut().says(f"{LINE}\n{OTHER_LINE}").label()

    assert words(verdicts) == ["needed", "needed"]


def test_an_error_result_can_be_needed():
    verdicts = (
        history()
        .call("Error in load_config at save_config", is_error=True)
        .cut()
        .says("load_config calls save_config")
        .label()
    )

    assert words(verdicts) == ["needed"]


def test_an_empty_result_is_dead():
    assert words(history().call("").cut().says(LINE).label()) == ["dead"]


def test_chinese_results_can_be_needed():
    verdicts = history().call("数据库连接池已经耗尽").cut().says("原因是数据库连接池").label()

    assert words(verdicts) == ["needed"]


def test_a_cut_before_the_result_does_not_judge_it():
    run = history().cut().call(LINE).says(LINE)

    assert run.label() == []


def test_one_pass_serves_every_cut():
    """A unit is needed at each cut up to its last use, and at none after it."""
    run = history().call(LINE).says("wait").says("wait").says(LINE).says("done")
    hindsight = look_back(read_messages(run.messages), lambda _: False)
    rows = range(3, len(run.messages) + 1)

    assert [hindsight.verdicts(row)[0].needed for row in rows] == [row <= 5 for row in rows]


def test_all_holders_are_named():
    """An atom is lost only when every copy of it is gone."""
    run = history().call(LINE).call(LINE).cut().says(LINE)
    hindsight = look_back(read_messages(run.messages), lambda _: False)
    (evidence,) = [e for e in hindsight.evidence_at(run.row) if e.points == 2]

    assert evidence.holders == (0, 1)
    assert evidence.unit == 1


def test_a_unit_can_be_explained_to_a_reader():
    """Verdict, the message that used it, and every token."""
    run = history().call(f"{LINE} load_config").cut().says(f"{LINE} load_config")
    lines = explain(look_back(read_messages(run.messages), lambda _: False), 0, run.row)

    assert lines[0] == f"t1 read ({len(LINE) + 12} chars) at row {run.row}: needed"
    assert any("load_config" in line for line in lines[1:])
    assert any(line.strip().startswith("2 line") for line in lines)


def test_cuts_fall_between_turns_and_leave_a_future():
    run = history()
    for number in range(40):
        run.call(f"result_{number}")
    (segment,) = Session("s", "p", "h", run.messages).segments()
    rows = cuts_of(segment)

    assert [sum(unit.result_row < row for unit in units_of(segment.transcript)) for row in rows] == [10, 15, 20, 30]


def test_a_session_is_split_at_its_compactions():
    run = history()
    for number in range(15):
        run.call(f"result_{number}")
    edge = {"role": "system", "content": "", "compact_boundary": True}
    session = Session("s", "p", "h", [*run.messages, edge, *run.messages])

    assert [len(segment.messages) for segment in session.segments()] == [31, 31]


def test_the_history_before_a_cut_holds_nothing_of_the_future():
    run = history()
    for number in range(20):
        run.call(f"result_{number}")
    (segment,) = Session("s", "p", "h", run.messages).segments()

    assert len(segment.before(21).calls) == 10


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz"])
def test_a_corpus_reads_the_same_packed_and_unpacked(tmp_path, name):
    text = json.dumps({"id": "one", "source": "p", "harness": "h", "messages": history().call("x").messages}) + "\n"
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    plain = tmp_path / "plain.jsonl"
    plain.write_text(text, encoding="utf-8")

    assert [session.session_id for session in read_sessions(path)] == ["one"]
    assert corpus_hash(path) == corpus_hash(plain)
