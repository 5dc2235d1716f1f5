"""Settings from which no engine can be made: agents reach their providers all the same, and the user is told."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from hosts.messages_api import MessagesApi
from serve.gateway_lab import TOKEN, markers
from starlette.applications import Starlette

from jev_engine.serve import mounting
from jev_engine.serve.gateway import DEFAULT_UPSTREAMS
from jev_engine.serve.mounting import gateway_routes

LONG = "a line of what the tool gave, long enough to fill something\n" * 100
HEADERS = {"content-type": "application/json", "x-api-key": "sk-test"}


@pytest.fixture
def config(tmp_path, monkeypatch):
    """The user's settings file, and a place for the store."""
    monkeypatch.setenv("JEV_ENGINE_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "config.toml"


def body_of(calls=12):
    """A request with a history; blanks and an odd number in it, which no JSON writer of ours would write so."""
    messages = [{"role": "user", "content": "SCRIPT: text Done."}]
    for number in range(calls):
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": "Bash", "input": {"command": f"cat {number}"}}
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": f"{number} {LONG}"}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    tools = json.dumps([{"name": "Bash", "input_schema": {"type": "object"}}])
    text = json.dumps(messages, separators=(", ", ":  "))
    return f'{{ "model":"claude-sonnet-4-5","max_tokens":1e2, "tools":{tools}, "messages": {text} }}'.encode()


def asked(config, *bodies, name="anthropic", between=lambda: None):
    """The answers to requests, one after another, and what the gateway says of itself then."""

    async def work():
        app = Starlette(routes=gateway_routes(TOKEN, config.parent))
        root = f"http://127.0.0.1/gateway/{TOKEN}"
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), timeout=30) as client:
            answers = []
            for place, body in enumerate(bodies):
                if place:
                    between()
                answers.append(await client.post(f"{root}/{name}/v1/messages", content=body, headers=HEADERS))
            health = (await client.get(f"{root}/health")).json()
        made = app.routes[0].endpoint._made
        if made is not None:
            await made.aclose()
        return answers, health

    return asyncio.run(work())


FAULTS = {
    "a value": 'miss_cost = "many"',
    "an unknown setting": "colour = 1",
    "a judge that is none": 'judge = "oracle"',
    "a judge at an address that is none": 'judge = "http://somewhere.example"',
    "another provider's address": '[upstreams]\nbad = "http://somewhere.example"',
    "a trail's key that cannot be read": 'privacy = "nonsense"',
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_requests_go_on_byte_for_byte_to_the_provider_the_user_has_named(config, fault):
    """Counted, with the reason."""
    with MessagesApi() as api:
        named = f'anthropic = "{api.url}"\n'
        text = f"{fault}\n{named}" if "[upstreams]" in fault else f"{fault}\n[upstreams]\n{named}"
        config.write_text(text, encoding="utf-8")
        body = body_of()
        answers, health = asked(config, body, body)

    assert [answer.status_code for answer in answers] == [200, 200]
    assert [turn.body for turn in api.turns] == [body, body]
    assert api.turns[0].headers["x-api-key"] == "sk-test"
    assert health["status"] == "untouched"
    assert "Error" in health["why"]
    assert health["counts"]["requests without an engine"] == 2


@pytest.mark.parametrize("text", ["miss_cost = [", 'miss_cost = "many"', ""])
def test_without_providers_of_the_user_the_known_ones_are_asked(config, monkeypatch, text):
    """However unreadable the file is; an engine is made where there is nothing wrong."""
    with MessagesApi() as api:
        monkeypatch.setitem(DEFAULT_UPSTREAMS, "anthropic", api.url)
        config.write_text(text, encoding="utf-8")
        body = body_of(calls=1)
        [answer], health = asked(config, body)

    assert answer.status_code == 200
    assert [turn.body for turn in api.turns] == [body]
    assert (health["status"] == "ok") is (text == "")


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"miss_cost = [\n[upstreams]\nanthropic = 'https://ours.example'", 503),
        (b"\xff\xfe", 503),
        (b"upstreams = 3", 503),
        (b'miss_cost = "many"\n[upstreams]\nanthropic = "http://ours.example"', 404),
        (b'miss_cost = "many"\n[upstreams]\nanthropic = 3', 404),
        (b'miss_cost = "many"\n[upstreams]\nanthropic = "https://[::1"', 404),
    ],
)
def test_no_key_goes_to_another_provider_than_the_user_may_have_named(config, monkeypatch, content, status):
    """Where that cannot be told, the client is told why."""
    with MessagesApi() as api:
        monkeypatch.setitem(DEFAULT_UPSTREAMS, "anthropic", api.url)
        config.write_bytes(content)
        [answer], _ = asked(config, body_of(1))

    assert answer.status_code == status
    assert answer.json()["type"] == "error"
    assert api.requests == []


def test_settings_that_are_mended_count_without_a_restart(config, monkeypatch):
    """What was counted until then stays."""
    monkeypatch.setattr(mounting, "RETRY_SECONDS", 0.0)
    good = 'window_tokens = 20000\npolicy = "threshold"\nkeep_result = 1.0\nkeep_call = 0.0\n'

    with MessagesApi() as api:
        upstreams = f'[upstreams]\nanthropic = "{api.url}"\n'
        config.write_text(f'miss_cost = "many"\n{upstreams}', encoding="utf-8")
        body = body_of()
        answers, health = asked(
            config, body, body, between=lambda: config.write_text(good + upstreams, encoding="utf-8")
        )

    assert [answer.status_code for answer in answers] == [200, 200]
    assert api.turns[0].body == body
    assert markers(api.turns[1].json()["messages"]) >= 4
    assert health["status"] == "ok"
    assert health["counts"]["requests without an engine"] == 1


def test_a_fault_is_not_looked_for_again_at_every_request(config, caplog):
    """Nor said again: what is mended at once counts a few seconds later."""
    with MessagesApi() as api:
        upstreams = f'[upstreams]\nanthropic = "{api.url}"\n'
        config.write_text(f'miss_cost = "many"\n{upstreams}', encoding="utf-8")
        _, health = asked(config, *[body_of(1)] * 5, between=lambda: config.write_text(upstreams, encoding="utf-8"))

    assert health["status"] == "untouched"
    assert health["counts"]["requests without an engine"] == len(api.turns) == 5
    assert caplog.text.count("no engine can be made") == 1
