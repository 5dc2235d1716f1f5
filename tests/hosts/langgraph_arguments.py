"""An agent with the middleware: its arguments, its trigger, prompts that are too long, threads and loops."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph_agents import (
    CountingJudge,
    PlannedModel,
    agent,
    ask,
    config,
    engine,
    pairs_are_whole,
    plain,
    prefix_breaks,
    steps,
    thread,
)

from jev_engine import ContextEngine
from jev_engine.errors import ConfigError
from jev_engine.store.sqlite import SqliteStore
from jev_engine.testing import ScriptedJudge
from jev_engine_adapters.langgraph import (
    JevMiddleware,
    compacted_view,
)
from jev_engine_adapters.langgraph.runs import is_overflow


@pytest.mark.parametrize("is_async", [False, True])
def test_a_prompt_the_provider_refuses_is_shortened_once_and_sent_again(is_async):
    """Overflow: one forced pass whatever the trigger says; where nothing can be freed the provider's error stands."""

    def plan(number, messages):
        if sum(len(str(m.content)) for m in messages) > 100_000:
            raise ContextOverflowError("prompt is too long")
        return steps(20)(number, messages)

    model = PlannedModel(plan=plan)
    jev = JevMiddleware(engine(CountingJudge(lambda _: (0.9, 0.1)), trigger_share=0.9, target_share=0.1))
    built = agent(model, jev, checkpointer=InMemorySaver())
    done = anyio.run(built.ainvoke, ask(), thread()) if is_async else built.invoke(ask(), thread())
    stuck = PlannedModel(plan=lambda *_: (_ for _ in ()).throw(ContextOverflowError("prompt is too long")))
    hopeless = agent(stuck, JevMiddleware(engine()))

    assert done["messages"][-1].content == "All done."
    with pytest.raises(ContextOverflowError):
        anyio.run(hopeless.ainvoke, ask("x " * 90_000)) if is_async else hopeless.invoke(ask("x " * 90_000))
    assert len(stuck.seen) == 1


class ProviderError(Exception):
    def __init__(self, text, status_code=400):
        super().__init__(text)
        self.status_code = status_code


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (ProviderError("This model's maximum context length is 128000 tokens."), True),
        (ProviderError("prompt is too long: 210000 tokens > 200000 maximum"), True),
        (ProviderError("context_length_exceeded", status_code=413), True),
        (ProviderError("maximum context length", status_code=500), False),
        (ProviderError("invalid api key", status_code=401), False),
        (ValueError("no such tool"), False),
    ],
)
def test_which_errors_say_that_a_prompt_is_too_long(error, is_one):
    """By class where LangChain has one, else by the providers' words and their status."""
    assert is_overflow(error) is is_one


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"trigger": ("messages", 9)}, "trigger = \\('messages', 9\\): say"),
        ({"trigger": 0.5}, "trigger = 0.5 is no pair"),
        ({"trigger": ("tokens", 10**9)}, "outside of the window of 200,000 tokens"),
        ({"keep": ("turns", 3)}, "keep = \\('turns', 3\\): say"),
        ({"mode": "other"}, "mode = 'other' is none of view, persist, marker"),
        ({"on_drop": "other"}, "on_drop = 'other'"),
        ({"bound_reasoning": "other"}, "bound_reasoning = 'other'"),
    ],
)
def test_arguments_out_of_range_are_named(arguments, says):
    """With what to say instead."""
    with pytest.raises(ConfigError, match=says):
        JevMiddleware(engine(), **arguments)


def test_arguments_fill_the_engines_own_settings_and_no_more():
    """The given engine stays as it is; what nobody named stays as the engine has it."""
    given = ContextEngine()
    jev = JevMiddleware(
        given, trigger=("fraction", 0.6), keep=("messages", 8), exclude_tools=["ask_*"], expand_tool=False
    )
    made = jev.engine.config

    assert (made.trigger_share, made.pin_newest_messages, made.protect_tools) == (0.6, 8, ("ask_*",))
    assert (made.policy, made.miss_cost, made.target_share) == ("worth", 5.0, 0.30)
    assert given.config == ContextEngine().config
    assert JevMiddleware(given, trigger=("tokens", 40_000)).engine.config.trigger_share == 0.2
    assert JevMiddleware(given, expand_tool=False).engine is given


def test_the_window_of_the_model_counts():
    """A profile names it; a window the user set stays."""
    small = {"max_input_tokens": 40_000}
    for given, expected in ((engine(trigger_share=0.5), 1), (engine(trigger_share=0.5, window_tokens=400_000), 0)):
        model = PlannedModel(plan=steps(12), profile=small)
        agent(model, JevMiddleware(given, min_batch_tokens=0), checkpointer=InMemorySaver()).invoke(ask(), thread())
        assert (prefix_breaks(model.seen) >= 1) is bool(expected)


def test_reported_usage_beats_estimates():
    """A model that reports 200 times the tokens is believed, and a report from before a pass is not used after it."""

    def plan(number, messages):
        said = steps(12)(number, messages)
        tokens = sum(len(str(m.content)) for m in messages) // 4
        used = {"input_tokens": tokens * 20, "output_tokens": 1, "total_tokens": tokens * 20 + 1}
        return said.model_copy(update={"usage_metadata": used})

    model, judge = PlannedModel(plan=plan), CountingJudge(lambda _: (0.9, 0.1))
    agent(model, JevMiddleware(engine(judge, trigger_share=0.5), min_batch_tokens=0)).invoke(ask())

    assert judge.requests >= 1


def test_a_counter_of_ones_own_counts_the_view():
    """It is given what the model would be shown, system prompt included; one that raises changes nothing."""
    counted = []

    def count(messages):
        counted.append(messages)
        return 3_000 * len(messages)

    model = PlannedModel(plan=steps(12))
    jev = JevMiddleware(engine(), token_counter=count, min_batch_tokens=0)
    agent(model, jev, system_prompt="Be brief.").invoke(ask())

    assert prefix_breaks(model.seen) >= 1
    assert all(isinstance(messages[0], SystemMessage) for messages in counted)
    assert "intact as jx-" in str(counted[-1])

    def fails(_):
        raise ZeroDivisionError

    quiet = PlannedModel(plan=steps(12))
    agent(quiet, JevMiddleware(engine(), token_counter=fails)).invoke(ask())
    assert prefix_breaks(quiet.seen) == 0
    with pytest.raises(ZeroDivisionError):
        agent(PlannedModel(plan=steps(12)), JevMiddleware(engine(), token_counter=fails, on_error="raise")).invoke(
            ask()
        )


async def _within_a_loop(call):
    return call()


def test_a_sync_agent_runs_within_a_running_loop():
    """As in a notebook, or a web handler that is async but calls `invoke`."""
    model = PlannedModel(plan=steps(20))
    built = agent(model, JevMiddleware(engine()), checkpointer=InMemorySaver())

    done = anyio.run(_within_a_loop, lambda: built.invoke(ask(), thread()))

    assert done["messages"][-1].content == "All done."
    assert prefix_breaks(model.seen) >= 1


def test_many_threads_at_once_keep_apart():
    """One middleware, twenty conversations in as many threads: each decides for itself, with one answer."""
    judge = CountingJudge()
    model = PlannedModel(plan=steps(16))
    built = agent(model, JevMiddleware(engine(judge)), checkpointer=InMemorySaver())

    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(lambda n: built.invoke(ask(), thread(f"t{n}")), range(20)))
    views = [
        json.dumps(plain(compacted_view(values["messages"], values["jev_ledger"])))
        for values in (built.get_state(thread(f"t{n}")).values for n in range(20))
    ]
    references = {view: set(re.findall("jx-[0-9a-f]{16}", view)) for view in views}

    assert len(views) == len(set(views)) == 20
    assert len({len(found) for found in references.values()}) == 1
    assert len(set.union(*references.values())) == sum(len(found) for found in references.values())


def test_removing_calls_is_possible_where_it_is_asked_for(tmp_path):
    """Threshold profile and `on_drop="delete"`: calls and results go together, in the state too."""
    judge = CountingJudge(lambda _: (0.0, 0.0))
    eng = ContextEngine(config=config(keep_call=0.5, guards=False), judge=judge, store=SqliteStore(tmp_path / "o.db"))
    model = PlannedModel(plan=lambda _, messages: steps(20)(next(numbers), messages))
    numbers = iter(range(100))
    built = agent(model, JevMiddleware(eng, mode="persist", on_drop="delete"), checkpointer=InMemorySaver())

    built.invoke(ask(), thread())
    messages = built.get_state(thread()).values["messages"]

    assert len(messages) < 42
    assert all(pairs_are_whole(shown) for shown in [*model.seen, messages])
    assert messages[0].content == "Do the steps."


@pytest.mark.parametrize("mode", ["view", "persist"])
def test_calls_that_could_not_be_parsed_are_units_like_others(tmp_path, mode):
    """LangChain answers them with errors, and may rewrite all messages for that: ours holds beside it."""

    def plan(number, messages):
        reply = steps(30)(number, messages)
        if number not in (9, 15) or not reply.tool_calls:
            return reply
        bad = {"name": "fetch", "args": '{"step": ', "id": f"bad{number}", "error": "cut", "type": "invalid_tool_call"}
        return AIMessage("", tool_calls=reply.tool_calls if number == 15 else [], invalid_tool_calls=[bad])

    model = PlannedModel(plan=plan)
    jev = JevMiddleware(engine(store=SqliteStore(tmp_path / "o.db")), mode=mode, on_error="raise")
    built = agent(model, jev, checkpointer=InMemorySaver())
    for text in ("Go.", "Go on.", "And on."):
        done = built.invoke(ask(text), thread())

    assert done["messages"][-1].content == "All done."
    assert len({message.id for message in done["messages"]}) == len(done["messages"])
    assert "intact as jx-" in str(model.seen[-1])


def test_a_judge_that_fails_changes_nothing_but_a_warning():
    """Units are then decided by the local judge or kept; the run goes on."""
    model = PlannedModel(plan=steps(20))
    eng = engine(ScriptedJudge({}, fails=True), undecided="keep")

    done = agent(model, JevMiddleware(eng), checkpointer=InMemorySaver()).invoke(ask(), thread())

    assert done["messages"][-1].content == "All done."
    assert prefix_breaks(model.seen) == 0
