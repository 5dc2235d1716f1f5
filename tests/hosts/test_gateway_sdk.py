"""The official Python SDKs of both providers behind the gateway."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from hosts.environments import environment
from hosts.messages_api import MessagesApi
from serve.chat_api import ChatApi
from serve.gateway_lab import Running, SigningApi, breaks, gateway_for, markers

pytestmark = pytest.mark.slow

WORKER = Path(__file__).with_name("gateway_sdk_worker.py")
LONG = "SCRIPT: " + " ;; ".join([*(f"bash cat {n}" for n in range(13)), "text Done."])
EXPAND = 'tool jev_expand {"id": "$REFERENCE"}'
SDKS = ["anthropic==2.14.0", "openai==3.57.0"]
PROMPTS = [
    (LONG, 5_900),
    (f"SCRIPT: text Look. &&& {EXPAND} ;; text Read it.", 300),
    (f"SCRIPT: text Both. &&& {EXPAND} &&& bash x ;; text Read it.", 300),
    ("SCRIPT: text Fine.", 300),
]


def talk(form, url, mode):
    """The whole conversation; what the SDK made of each answer."""
    python = environment("provider-sdks", SDKS, with_ours=False)
    lines = "".join(json.dumps({"prompt": prompt, "chars": chars}) + "\n" for prompt, chars in PROMPTS)
    done = subprocess.run(
        [python, WORKER, form, url, mode], input=lines, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("mode", ["stream", "whole"])
def test_the_anthropic_sdk(mode):
    """Texts, calls and usage as without us; hidden calls never reach it, and its history fits every signature."""
    with SigningApi() as api, Running(gateway_for(api.url)) as running:
        answers = talk("anthropic", running.anthropic, mode)

    assert [answer["texts"] for answer in answers] == [
        ["Done."],
        ["Look.", "Read it."],
        ["Both.", "Read it."],
        ["Fine."],
    ]
    assert [answer["tools"] for answer in answers] == [["Bash"] * 13, [], ["Bash"], []]
    assert [answer["output"] for answer in answers] == [10, 20, 10, 10]
    assert api.refusals == []
    assert markers(api.turns[-1].json()["messages"]) >= 4
    assert running.counts["calls answered here"] == 2
    assert breaks(api) == running.counts["passes committed"]


@pytest.mark.parametrize("mode", ["stream", "whole"])
def test_the_openai_sdk(mode):
    """The same over Chat Completions."""
    with ChatApi() as api, Running(gateway_for(api.url)) as running:
        answers = talk("openai", running.openai, mode)

    assert [answer["texts"] for answer in answers] == [["Done."], ["Look.Read it."], ["Both.", "Read it."], ["Fine."]]
    assert [answer["tools"] for answer in answers] == [["Bash"] * 13, [], ["Bash"], []]
    assert [answer["output"] for answer in answers] == [10, 20, 10, 10]
    assert markers(api.requests[-1]["messages"]) >= 4
    assert running.counts["calls answered here"] == 2


def test_errors_of_the_gateway_are_errors_of_the_provider():
    """The SDK raises what it raises for the provider's own."""
    python = environment("provider-sdks", SDKS, with_ours=False)
    code = (
        "import anthropic, openai, sys\n"
        "for call in (lambda: anthropic.Anthropic(base_url=sys.argv[1], api_key='k', max_retries=0).messages.create(\n"
        "    model='m', max_tokens=1, messages=[{'role': 'user', 'content': 'a'}]),\n"
        "    lambda: openai.OpenAI(base_url=sys.argv[2], api_key='k', max_retries=0).chat.completions.create(\n"
        "    model='m', messages=[{'role': 'user', 'content': 'a'}])):\n"
        "    try:\n        call()\n"
        "    except (anthropic.InternalServerError, openai.InternalServerError) as error:\n"
        "        print(error.status_code, 'provider cannot be reached' in str(error))\n"
    )
    with Running(gateway_for("http://127.0.0.1:9")) as running:
        done = subprocess.run(
            [python, "-c", code, running.anthropic, running.openai],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )

    assert done.stdout.split() == ["502", "True", "502", "True"]


def test_a_count_of_tokens_is_of_what_would_be_sent():
    """The SDK's own call for it."""
    python = environment("provider-sdks", SDKS, with_ours=False)
    code = (
        "import anthropic, sys\n"
        "client = anthropic.Anthropic(base_url=sys.argv[1], api_key='k', max_retries=0)\n"
        "print(client.messages.count_tokens(model='m', messages=[{'role': 'user', 'content': 'a'}]).input_tokens)\n"
    )
    with MessagesApi(input_tokens=77) as api, Running(gateway_for(api.url)) as running:
        done = subprocess.run(
            [python, "-c", code, running.anthropic], capture_output=True, text=True, timeout=60, check=True
        )

    assert done.stdout.strip() == "77"
