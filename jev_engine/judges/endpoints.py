"""Where decision models answer, as plain data: address, form, budgets, model names, prices.

>>> endpoint_for("typesafe").model, endpoint_for("typesafe").budget.request_tokens
('jev-1.13.0', 64000)
>>> endpoint_for("http://127.0.0.1:9/v1/systemone").key_variable
'JEV_ENGINE_API_KEY'
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from jev_engine.errors import ConfigError

__all__ = ["PRESETS", "Budget", "Endpoint", "endpoint_for", "is_loopback"]

Form = Literal["systemone", "openai-decisions"]


class Budget(NamedTuple):
    """What fits one request."""

    state_tokens: int
    """State and the longest question."""
    request_tokens: int
    """State and all questions."""
    questions: int
    """Questions, two for each unit."""

    def halved(self) -> Budget:
        """A budget for requests half as large."""
        return Budget(self.state_tokens // 2, self.request_tokens // 2, max(2, self.questions // 2))


class Endpoint(NamedTuple):
    """One place that answers."""

    name: str
    url: str
    form: Form
    model: str
    """Asked for unless another is named; pinned, because thresholds and priors belong to a version."""
    budget: Budget
    key_variable: str
    """Environment variable that holds the key; read when an asker is built, and only for this host."""
    price: float | None
    """Dollars for a million input tokens, questions included; answers are free. None where it is not known."""
    tokens_per_second: int | None
    """Rate limit on tokens sent; None where none is known."""

    @property
    def host(self) -> str:
        """The host a key is bound to."""
        return urlsplit(self.url).hostname or ""


# Fits any server met so far: the reference implementation sends requests of 30k tokens at most.
_CAUTIOUS = Budget(state_tokens=25_500, request_tokens=30_000, questions=400)

# Figures from the vendors' documents, and measurements published by users of the endpoints.
PRESETS: dict[str, Endpoint] = {
    "typesafe": Endpoint(
        name="typesafe",
        url="https://api.typesafe.ai/v1/systemone",
        form="systemone",
        model="jev-1.13.0",
        # 32k and 64k are documented; of questions 800 in one request were measured to work, no limit is documented.
        budget=Budget(state_tokens=32_000, request_tokens=64_000, questions=800),
        key_variable="TYPESAFE_API_KEY",
        price=0.042,
        tokens_per_second=250_000,
    ),
    "openrouter": Endpoint(
        name="openrouter",
        url="https://openrouter.ai/api/alpha/decisions",
        form="systemone",
        model="typesafe/jev-1.13",
        budget=Budget(state_tokens=32_000, request_tokens=32_000, questions=400),
        key_variable="OPENROUTER_API_KEY",
        price=0.042,
        tokens_per_second=None,
    ),
    "openai-decisions": Endpoint(
        name="openai-decisions",
        url="https://api.openai.com/v1/decisions",
        form="openai-decisions",
        model="gpt-6-luna",
        # 400 questions are documented; no token limit is, so the cautious one holds.
        budget=_CAUTIOUS,
        key_variable="OPENAI_API_KEY",
        price=0.10,
        tokens_per_second=None,
    ),
}

# Any other address that speaks the form of `/v1/systemone`.
_OTHER = Endpoint(
    name="",
    url="",
    form="systemone",
    model="jev-1.13.0",
    budget=_CAUTIOUS,
    key_variable="JEV_ENGINE_API_KEY",
    price=None,
    tokens_per_second=None,
)


def endpoint_for(name_or_url: str, *, url: str | None = None) -> Endpoint:
    """A preset by name, or a plain endpoint at an address; `url` moves a preset to another address.

    A preset that was moved to another host takes its key from `JEV_ENGINE_API_KEY`, as any address does.
    Raises ConfigError for an unknown name, and for an address that is not safe to send a history to.
    """
    if "://" in name_or_url:
        name_or_url, url = "", name_or_url
    preset = PRESETS.get(name_or_url) if name_or_url else _OTHER
    if preset is None:
        known = ", ".join(PRESETS)
        raise ConfigError(f"no endpoint goes by {name_or_url!r}; known are {known}, or give a URL", setting="endpoint")
    if url is None:
        return preset
    host = _checked_host(url)
    moved = preset._replace(url=url, name=preset.name or host)
    return moved if host == preset.host else moved._replace(key_variable=_OTHER.key_variable)


def is_loopback(host: str) -> bool:
    """Whether a host name is this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _checked_host(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise ConfigError(f"the endpoint is not a URL: {error}", setting="endpoint") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError("the endpoint must be an https:// address with a host", setting="endpoint")
    if parts.username is not None or parts.password is not None:
        raise ConfigError("the endpoint's address must not hold a user or password", setting="endpoint")
    if parts.scheme == "http" and not is_loopback(host):
        raise ConfigError(f"http is for this machine only; use https for {host}", setting="endpoint")
    return host
