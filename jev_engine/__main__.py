"""`python -m jev_engine`: the same as the command `jev-engine`."""

from __future__ import annotations

from jev_engine.cli import main

main(prog_name="jev-engine")
