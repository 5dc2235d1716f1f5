"""How the documentation is built: `sphinx-build -W docs docs/_build/html`, without a network."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "jev-engine"
author = "jev-engine contributors"
copyright = "2026, jev-engine contributors"  # noqa: A001 - Sphinx asks for this name
release = version = installed_version("jev-engine")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "from_code",
]
exclude_patterns = ["_build"]
default_role = "code"  # docstrings write `name` as Markdown does
myst_heading_anchors = 3
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"jev-engine {release}"
html_show_sourcelink = False
