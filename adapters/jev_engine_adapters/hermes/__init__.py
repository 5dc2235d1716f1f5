"""Hermes Agent: a drop-in context engine, through the host's public contract alone.

`register` is what the host calls, by the entry point `jev-engine` or from the plugin folder that `jev-engine setup
hermes` writes.

>>> from jev_engine_adapters.hermes import adapter
>>> adapter.read([{"role": "user", "content": "Fix the parser.", "_db_persisted": True}]).entries
[<Entry row 0 user, 15 chars, 0 calls>]
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

from jev_engine_adapters.hermes.messages import HermesAdapter, adapter

__all__ = ["HermesAdapter", "adapter", "register"]

logger = logging.getLogger("jev_engine.hermes")


def register(ctx: Any) -> None:
    """Give the host the engine, the command and the hooks it takes. Raises nothing."""
    # The engine is loaded here and not above: reading messages needs none of it.
    from jev_engine_adapters.hermes import status  # noqa: PLC0415
    from jev_engine_adapters.hermes.engine import engine_class  # noqa: PLC0415
    from jev_engine_adapters.hermes.hooks import register_hooks  # noqa: PLC0415
    from jev_engine_adapters.hermes.state import shared  # noqa: PLC0415

    try:
        from agent.context_engine import ContextEngine  # noqa: PLC0415  # the host's own package
    except ImportError as error:
        logger.warning("this host has no context engines: %s", error)
        return
    state = shared()
    with suppress(Exception):  # a second registration is refused by the host; whatever it raises, the first stands
        ctx.register_context_engine(engine_class(ContextEngine)())
    with suppress(Exception):  # not every host has commands
        ctx.register_command(status.COMMAND, status.command(state), description=status.DESCRIPTION)
    register_hooks(ctx, state)
