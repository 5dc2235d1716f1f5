"""The table of policies: what each entry takes out at one cut of a small session."""

from __future__ import annotations

import pytest
from recorded_sessions import FAR_BACK, call, recorded, result, source_text

from jev_engine.answers import RawAnswer
from jev_engine.evaluate.corpus import read_messages
from jev_engine.evaluate.policies import ORDERS, POLICIES, View, choose, luck, published_medians
from jev_engine.judges.features import FeatureCache, tabulate


def view_of(messages, needed=frozenset(), seed=0):
    table = tabulate(read_messages(messages), FeatureCache())
    view = View(table, (seed, "s1", 0, len(messages)), frozenset(needed))
    view.local = {call.number: RawAnswer(0.02, 0.1) for call in view.calls}
    view.rules = {call.number: RawAnswer(1.0, 0.05) for call in view.calls}
    view.asked = published_medians(view)
    return view


def out_of(name, view):
    (policy,) = choose([name])
    return {number for number, answer in policy.answers(view).items() if answer.p_result == 0.0}


def test_every_policy_has_a_name_of_its_own_and_settings_the_engine_takes():
    names = [policy.name for policy in POLICIES]

    assert len(set(names)) == len(names)
    assert all(policy.config().window_tokens for policy in POLICIES)


def test_the_policies_the_issue_names_are_there():
    groups = {policy.group for policy in POLICIES}
    names = {policy.name for policy in POLICIES}

    assert groups == {
        "worth", "baseline worth", "budget", "recency", "head", "rule", "others", "threshold", "order", "bound",
    }  # fmt: skip
    assert {"keep last 3", "keep last 5", "keep last 10", "keep last 20"} <= names
    assert {"worth 1", "worth 3", "worth 5", "worth 10", "threshold 0.05", "threshold 0.70"} <= names
    assert {"oldest first", "largest first", "random"} <= set(ORDERS)


def test_policies_are_chosen_by_name_or_by_group():
    assert [policy.name for policy in choose(["keep last 10"])] == ["keep last 10"]
    assert all(policy.group == "recency" for policy in choose(["recency"]))
    assert choose() == list(POLICIES)


def test_an_unknown_policy_is_refused_with_the_groups_there_are():
    with pytest.raises(ValueError, match="groups are worth, baseline worth"):
        choose(["keep last 11"])


def test_chance_is_the_same_for_the_same_seed_and_another_for_another():
    assert luck(0, "s1", 3) == luck(0, "s1", 3) != luck(1, "s1", 3)
    assert 0 <= luck("anything") < 1


def test_published_medians_scatter_a_little_around_what_was_measured():
    answers = published_medians(view_of(recorded(1))).values()

    assert all(0.115 <= answer.p_result <= 0.175 and 0.27 <= answer.p_call <= 0.33 for answer in answers)
    assert len({answer.p_result for answer in answers}) > 30


def test_a_read_is_superseded_when_its_path_is_read_or_edited_later():
    messages = [
        {"role": "user", "content": "Fix it."},
        call(0, file_path="/w/a.py"), result(0, source_text(1, 0)),
        call(1, file_path="/w/b.py"), result(1, source_text(1, 1)),
        call(2, "Edit", file_path="/w/a.py", new_string="x"), result(2, "done"),
    ]  # fmt: skip

    assert out_of("superseded reads by path", view_of(messages)) == {1}


def test_a_result_is_contained_when_a_later_one_shows_most_of_its_lines():
    messages = [
        {"role": "user", "content": "Fix it."},
        call(0, file_path="/w/a.py"), result(0, source_text(1, 0, lines=20)),
        call(1, file_path="/w/b.py"), result(1, source_text(1, 1)),
        call(2, file_path="/w/c.py"), result(2, source_text(1, 0, lines=60)),
    ]  # fmt: skip

    assert out_of("contained in a later result", view_of(messages)) == {1}


def test_only_cheap_kinds_go_where_only_they_may():
    messages = [
        {"role": "user", "content": "Fix it."},
        call(0, "Bash", command="pytest -q"), result(0, source_text(1, 0)),
        call(1, file_path="/w/b.py"), result(1, source_text(1, 1)),
    ]  # fmt: skip

    assert out_of("cheap kinds only", view_of(messages)) == {1}


def test_the_oracle_keeps_exactly_what_is_needed():
    view = view_of(recorded(1), needed={4, 9})

    assert out_of("oracle (hindsight)", view) == set(view.ages) - {4, 9}


@pytest.mark.parametrize(("order", "first"), [("oldest first", 1), ("largest first", 7)])
def test_an_order_takes_its_first_until_the_bytes_are_out(order, first):
    messages = recorded(1, quoted=())
    messages[2 * 7]["content"] = source_text(1, 6, lines=120)

    assert first in out_of(f"{order}, 30% of bytes", view_of(messages))


def test_orders_free_about_the_same_bytes_and_never_the_newest_three():
    view = view_of(recorded(1))
    sizes = {call.number: view.chars(call) for call in view.calls}
    total = sum(size for number, size in sizes.items() if view.ages[number] > 3)

    for order in ORDERS:
        out = out_of(f"{order}, 50% of bytes", view)
        freed = sum(sizes[number] for number in out)

        assert 0.5 <= freed / total < 0.55
        assert all(view.ages[number] > 3 for number in out)


def test_a_budget_is_spent_on_the_lowest_p_per_character_and_never_passed():
    view = view_of(recorded(1))  # every old result has the same size and p = 0.1

    assert len(out_of("budget 0.5", view)) in (4, 5)
    assert out_of("budget 0.25", view) <= out_of("budget 0.5", view)


def test_the_far_result_that_is_quoted_is_no_age_the_newest_three_cover():
    assert FAR_BACK > 3
