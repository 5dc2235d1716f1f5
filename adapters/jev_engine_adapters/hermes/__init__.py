"""Hermes: what its hooks tell. The context engine itself comes with a later version."""

from __future__ import annotations
