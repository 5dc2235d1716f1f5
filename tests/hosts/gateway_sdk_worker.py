"""Runs where the official SDKs are: `worker.py anthropic|openai URL stream|whole`. Prints what they made of it.

Prompts come in as JSON lines, one answer goes out for each: the texts, the tools called, and the usage.
"""

import json
import sys

FILLED = "a line of what came of it, long enough to fill something\n" * 105


def anthropic(url, stream):
    """One conversation with the Messages API."""
    from anthropic import Anthropic  # noqa: PLC0415  # each form needs its own SDK only

    client = Anthropic(base_url=url, api_key="sk-test", max_retries=0)
    tools = [{"name": "Bash", "description": "A shell.", "input_schema": {"type": "object", "properties": {}}}]
    messages = []

    def ask():
        given = {"model": "claude-fable-5-2", "max_tokens": 1_000, "messages": messages, "tools": tools}
        given["thinking"] = {"type": "adaptive"}
        if not stream:
            return client.messages.create(**given)
        with client.messages.stream(**given) as answer:
            return answer.get_final_message()

    def say(prompt, chars):
        messages.append({"role": "user", "content": prompt})
        texts, names = [], []
        while True:
            said = ask()
            messages.append({"role": "assistant", "content": said.content})
            texts += [block.text for block in said.content if block.type == "text"]
            calls = [block for block in said.content if block.type == "tool_use"]
            names += [call.name for call in calls]
            if not calls:
                return {"texts": texts, "tools": names, "output": said.usage.output_tokens}
            results = [{"type": "tool_result", "tool_use_id": c.id, "content": FILLED[:chars]} for c in calls]
            messages.append({"role": "user", "content": results})

    return say


def openai(url, stream):
    """One conversation with Chat Completions."""
    from openai import OpenAI  # noqa: PLC0415  # as above

    client = OpenAI(base_url=url, api_key="sk-test", max_retries=0)
    tools = [{"type": "function", "function": {"name": "Bash", "parameters": {"type": "object", "properties": {}}}}]
    messages = [{"role": "system", "content": "Be brief."}]

    def ask():
        given = {"model": "gpt-6", "messages": messages, "tools": tools}
        if not stream:
            done = client.chat.completions.create(**given)
            return done.choices[0].message, done.usage
        with client.chat.completions.stream(**given, stream_options={"include_usage": True}) as answer:
            done = answer.get_final_completion()
            return done.choices[0].message, done.usage

    def say(prompt, chars):
        messages.append({"role": "user", "content": prompt})
        texts, names = [], []
        while True:
            said, usage = ask()
            messages.append(said.model_dump(exclude_none=True, exclude={"parsed"}))
            texts += [said.content] if said.content else []
            calls = said.tool_calls or []
            names += [call.function.name for call in calls]
            if not calls:
                return {"texts": texts, "tools": names, "output": usage.completion_tokens}
            messages.extend({"role": "tool", "tool_call_id": c.id, "content": FILLED[:chars]} for c in calls)

    return say


if __name__ == "__main__":
    talk = {"anthropic": anthropic, "openai": openai}[sys.argv[1]](sys.argv[2], sys.argv[3] == "stream")
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(talk(asked["prompt"], asked["chars"])), flush=True)  # noqa: T201  # what it is for
