"""The forms in which questions and answers travel: pure functions from text to text.

`systemone` is the form of Jev and of most servers that came after it; `openai-decisions` is the other one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from jev_engine.errors import BadAnswer
from jev_engine.judges.endpoints import Endpoint

__all__ = ["Answers", "body_of", "error_type_of", "read_reply"]

Questions = Mapping[str, Mapping[str, Any]]

_ERROR_NAME = re.compile(r"[A-Za-z][\w.-]{0,59}")


class Answers(dict[str, Any]):
    """Answers by question id, and what the server said about them."""

    input_tokens: int | None = None
    """Billed input tokens, where the server reports them."""
    model: str | None = None
    """The model that answered."""


def body_of(endpoint: Endpoint, model: str, state: str, questions: Questions) -> bytes:
    """The request body. `state` is the JSON text of one object; half characters are replaced, JSON has none."""
    if endpoint.form == "openai-decisions":
        asked = [{"type": "predicate", "name": n, "instructions": _in_one(q)} for n, q in questions.items()]
        text = f'{{"model":{_json(model)},"input":{_json(state)},"questions":{_json(asked)}}}'
    else:
        text = f'{{"model":{_json(model)},"state":{state},"questions":{_json(questions)}}}'
    return text.encode("utf-8", "replace")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _in_one(question: Mapping[str, Any]) -> str:
    """Instructions and criteria in one text, for a form without a place for criteria."""
    criteria = question.get("criteria") or {}
    sides = [f" {name.capitalize()}: {criteria[name]}" for name in ("true", "false") if criteria.get(name)]
    return str(question.get("instructions", "")) + "".join(sides)


def read_reply(endpoint: Endpoint, content: bytes) -> Answers:
    """The answers in a response body; raises BadAnswer where it is not what the form says.

    Values are not judged here: `asked.read_answers` does that, for every asker alike.
    """
    payload = _parse(content)
    if not isinstance(payload, Mapping):
        raise BadAnswer(f"the response is {type(payload).__name__}, not an object")
    given = payload.get("answers")
    if endpoint.form == "openai-decisions":
        answers = _from_list(given)
    elif isinstance(given, Mapping):
        answers = Answers(given)
    else:
        raise BadAnswer(f"`answers` is {type(given).__name__}, not an object")
    usage = payload.get("usage")
    tokens = usage.get("input_tokens") if isinstance(usage, Mapping) else None
    # Servers differ here: a count that is missing or odd spoils no answer.
    if isinstance(tokens, (int, float)) and not isinstance(tokens, bool) and 0 <= tokens < 1e12:
        answers.input_tokens = int(tokens)
    model = payload.get("model")
    answers.model = model[:100] if isinstance(model, str) else None
    return answers


def _parse(content: bytes) -> Any:
    try:
        return json.loads(content, object_pairs_hook=_without_doubles, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise BadAnswer(f"the response is not JSON ({type(error).__name__})") from None


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise BadAnswer("the response names a key twice")
    return made


def _refuse(name: str) -> Any:
    raise BadAnswer(f"the response holds {name}, which is not JSON")


def _from_list(given: Any) -> Answers:
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise BadAnswer(f"`answers` is {type(given).__name__}, not a list")
    answers = Answers()
    for each in given:
        if not isinstance(each, Mapping) or not isinstance(each.get("name"), str):
            raise BadAnswer("an answer has no name")
        if each["name"] in answers:
            raise BadAnswer("the response answers a question twice")
        if each.get("type") == "refusal":
            continue
        if each.get("type", "predicate") != "predicate" or "probability" not in each:
            raise BadAnswer("an answer is not a probability")
        answers[each["name"]] = each["probability"]
    return answers


def error_type_of(content: bytes) -> str:
    """The name an error response gives its error, in any of the forms seen; "" where it gives none.

    Only names are read: a message may repeat what was sent.
    """
    try:
        payload = json.loads(content)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(payload, Mapping):
        return ""
    places: list[Any] = [payload.get("detail"), payload.get("error"), payload]
    detail = payload.get("detail")
    if isinstance(detail, list):
        places = [*detail[:1], *places]
    for place in places:
        if isinstance(place, Mapping):
            for field in ("error_type", "code", "type"):
                value = place.get(field)
                if isinstance(value, str) and _ERROR_NAME.fullmatch(value):
                    return value
    return ""
