"""LangGraph and LangChain: what their callbacks tell. Reducer and middleware come with a later version."""

from __future__ import annotations
