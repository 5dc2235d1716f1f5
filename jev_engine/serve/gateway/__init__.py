"""The gateway: providers behind one address of this machine, for agents that take a base URL and nothing else.

`handler` is the HTTP, `brain` decides what is sent, `conversations` knows whose request it is, `view` is what is sent
of a history. `messages_form` and `chat_form` are the two wire forms, each with a `…_reply` that puts an answer together
in which calls were answered here. Needs nothing of the extra `serve` but for `routes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jev_engine.serve.gateway.handler import DEFAULT_UPSTREAMS, PREFIX, Gateway
from jev_engine.serve.gateway.records import Records

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

__all__ = ["DEFAULT_UPSTREAMS", "PREFIX", "Gateway", "Records", "routes"]


def routes(gateway: Gateway) -> list[BaseRoute]:
    """The routes of a gateway, for a Starlette application."""
    from starlette.routing import Route  # noqa: PLC0415  # in the extra `serve`

    return [Route(PREFIX + "/{rest:path}", gateway)]
