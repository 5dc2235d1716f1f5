"""The shipped judge: deterministic, calibrated limits, and never sure for want of evidence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from jev_engine.evaluate.corpus import read_messages
from jev_engine.judges import weights
from jev_engine.judges.features import FEATURES, FeatureCache
from jev_engine.judges.local import FLOOR_LOWEST, HIGHEST, LOWEST, local_probabilities, p_call_of

CHINESE = "数据库连接池已经耗尽。需要检查服务器的配置并且重新启动后台任务。系统管理员应当记录每一次错误发生的时间。"
JAPANESE = "データベースの接続プールが枯渇しているため、サーバーの設定を確認し、処理を再起動してください。"
KOREAN = "데이터베이스 연결 풀이 고갈되어 서버 설정을 확인하고 작업을 다시 시작해야 합니다. 알려 주세요. "
ARABIC = "تم استنفاد مجموعة اتصالات قاعدة البيانات ويجب التحقق من إعدادات الخادم وإعادة تشغيل المهام في الخلفية. "
PROSE = "The keeper of the old lighthouse walked to the shore every morning and wrote the colour of the sea down. "
LOCALES = {"chinese": CHINESE, "japanese": JAPANESE, "korean": KOREAN, "arabic": ARABIC, "prose": PROSE}


def session(body, tool="read", count=40, filler="ok"):
    """One long result among many short ones that came after it."""
    messages = [{"role": "user", "content": "please help"}]
    for i in range(count):
        text = body if i == 0 else f"{filler} {i}"
        function = {"name": tool, "arguments": json.dumps({"query": f"q{i}"})}
        messages.append({"role": "assistant", "content": "", "tool_calls": [{"id": f"c{i}", "function": function}]})
        messages.append({"role": "tool", "tool_call_id": f"c{i}", "content": text})
    return messages


def answers(messages, memory=None):
    return local_probabilities(read_messages(messages), FeatureCache(), memory)


@pytest.mark.parametrize("name", sorted(LOCALES))
@pytest.mark.parametrize("tool", ["read", "web_search", "ask_archive", "mcp__library__find"])
def test_long_results_outside_the_training_are_never_dead(name, tool):
    """Five kinds of text, from known and unknown tools: at least the average of their size."""
    body = LOCALES[name] * (5_000 // len(LOCALES[name]))
    p_result = answers(session(body, tool))[1][1]

    assert p_result >= 0.13 * 0.43


@pytest.mark.parametrize("name", sorted(LOCALES))
def test_short_results_outside_the_training_keep_a_chance(name):
    """Even a sentence."""
    assert answers(session(LOCALES[name] * 3))[1][1] >= FLOOR_LOWEST


def test_a_result_without_any_names_is_never_dead():
    """No characteristic tokens, no verdict."""
    body = "a b c d e f g h i j k l m n o p q r s t u v w x y z " * 100

    assert answers(session(body))[1][1] >= 0.13 * 0.43


def test_a_session_of_unknown_tools_is_floored_as_a_whole():
    """What was learned from known tools may not hold."""
    body = "\n".join(f"record_{i} holds value_{i}" for i in range(400))

    assert answers(session(body, tool="query_ledger"))[1][1] >= 0.13 * 0.43


def test_known_shapes_are_judged_by_the_model():
    """An acknowledgement of an edit is not floored, in no language."""
    found = answers(session("文件已更新成功 没有发现任何问题\n" * 300, tool="edit"))[1][1]

    assert found < 0.13 * 0.43


def test_every_closed_unit_has_an_answer_within_limits():
    messages = session("x = load_config(path)\n" * 50)[:-1]
    found = answers(messages)

    assert sorted(found) == list(range(1, 40))
    for p_call, p_result in found.values():
        assert 0 < p_call < 1
        assert LOWEST <= p_result <= max(HIGHEST, 1)


def test_the_same_history_gives_the_same_numbers_in_every_process():
    """String hashing differs between processes; the answers do not."""
    program = (
        "import test_local as t; "
        "print(t.answers(t.session('\\n'.join(f'def handler_{i}(request): return {i}' for i in range(99)))))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=Path(__file__).parent,
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }

    assert len(outputs) == 1


def test_the_future_changes_nothing_before_it():
    """The judge sees a history that ends now: a warm cache from a longer one gives the same answers."""
    messages = session("\n".join(f"def handler_{i}(request): return {i}" for i in range(99)))
    cache = FeatureCache()
    local_probabilities(read_messages(messages), cache)
    shorter = messages[:41]

    assert local_probabilities(read_messages(shorter), cache) == answers(shorter)


def test_memory_moves_every_answer_the_same_way():
    """A project in which less is needed lowers what is not floored."""
    messages = session("\n".join(f"def handler_{i}(request): return {i}" for i in range(99)))

    assert answers(messages, (1.0, -1.0))[1][1] < answers(messages)[1][1] < answers(messages, (1.0, 1.0))[1][1]
    assert answers(messages, (1.0, 0.0)) == answers(messages)


def test_memory_does_not_break_the_floor():
    """What was learned from code says nothing about prose."""
    assert answers(session(CHINESE * 100), (1.0, -9.0))[1][1] >= 0.13 * 0.43


@pytest.mark.parametrize(
    ("call_class", "age", "chars", "low", "high"),
    [
        ("read", 50, 80, 0.0001, 0.001),
        ("edit", 4, 4_000, 0.15, 0.5),
        ("edit", 100, 200, 0.003, 0.03),
        ("test", 10, 60, 0.03, 0.12),
    ],
)
def test_calls_matter_by_class_age_and_size(call_class, age, chars, low, high):
    """Edits of a moment ago much, old reads hardly."""
    assert low < p_call_of(call_class, age, chars) < high


def test_old_calls_matter_less():
    ages = [p_call_of("edit", age, 500) for age in (4, 8, 15, 30, 60, 200)]

    assert ages == sorted(ages, reverse=True)


@pytest.mark.parametrize("text", ["", ".-" * 8_000, "\n" * 20_000, "\ud800", "x" * 300_000])
def test_hostile_texts_are_answered(text):
    found = answers(session(text, count=6))

    assert len(found) == 6
    for p_call, p_result in found.values():
        assert 0 < p_call < 1
        assert 0 < p_result < 1


def test_weights_read_every_feature_row_the_package_makes():
    """The generated module and the features agree on the number of columns."""
    assert isinstance(weights.log_odds([0.0] * len(FEATURES)), float)
    with pytest.raises(ValueError, match="unpack"):
        weights.log_odds([0.0] * (len(FEATURES) - 1))


def test_the_module_is_small(root):
    assert (root / "jev_engine" / "judges" / "weights.py").stat().st_size <= 60_000


def test_an_empty_history_has_no_answers():
    assert answers([]) == {}
