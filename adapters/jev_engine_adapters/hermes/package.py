"""The plugin folder that the host loads: a few lines of our own, and copies of everything they need.

It stands on its own, so that an update of the host, which rebuilds its environment, does not take the engine away.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import jev_engine
import jev_engine_adapters
from jev_engine import __version__
from jev_engine.errors import HostError

__all__ = ["FOLDER", "files"]

FOLDER = "jev-engine"
# What a host need not have, all of it pure Python; compiled packages have to be the host's own.
VENDORED = ("pluggy", "platformdirs", "tenacity")
# Not needed in the host: commands, local servers, evaluation with its data, the test kit.
LEFT_OUT = ("cli", "evaluate", "serve", "testing", "__pycache__")
ADAPTERS = ("openai", "hermes")
NOTICE = "jev-engine and what it needs, copied by `jev-engine setup hermes`. Changes here are lost; do not edit.\n"
SHIM = '''"""jev-engine for Hermes, written by `jev-engine setup hermes`; `jev-engine remove hermes` takes it out."""

import sys
from pathlib import Path

# Behind everything else: packages the host brings along come first.
_lib = str(Path(__file__).resolve().parent / "lib")
if _lib not in sys.path:
    sys.path.append(_lib)

from jev_engine_adapters.hermes import register  # noqa: E402

__all__ = ["register"]
'''


def manifest(version: str = __version__) -> str:
    """The plugin's `plugin.yaml`; its kind is named, because hosts guess it from words in the code otherwise."""
    return (
        f"name: {FOLDER}\n"
        f"version: {version}\n"
        "description: Shortens old tool output word for word reversibly, with a reason for every decision.\n"
        "author: jev-engine contributors\n"
        "kind: standalone\n"
        "manifest_version: 1\n"
        "provides_tools: [jev_expand, jev_search]\n"
    )


def files() -> dict[str, bytes]:
    """Every file of the folder by its path in it. Raises HostError where a package to copy is not there."""
    made = {"plugin.yaml": manifest().encode(), "__init__.py": SHIM.encode(), "lib/README.txt": NOTICE.encode()}
    for path, name in _sources():
        made[f"lib/{name}"] = path.read_bytes()
    return made


def _sources() -> Iterator[tuple[Path, str]]:
    yield from _tree(Path(str(jev_engine.__file__)).parent, "jev_engine")
    adapters = Path(str(jev_engine_adapters.__file__)).parent
    yield adapters / "__init__.py", "jev_engine_adapters/__init__.py"
    for name in ADAPTERS:
        yield from _tree(adapters / name, f"jev_engine_adapters/{name}")
    for name in VENDORED:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise HostError(f"the package {name!r} is missing here: pip install {name}")
        yield from _tree(Path(spec.origin).parent, name)
        yield from _licence(name)


def _tree(folder: Path, name: str) -> Iterator[tuple[Path, str]]:
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.is_file() and path.suffix not in (".pyc", ".so", ".pyd") and not set(parts) & set(LEFT_OUT):
            yield path, f"{name}/{'/'.join(parts)}"


def _licence(name: str) -> Iterator[tuple[Path, str]]:
    """A copy without its licence would break it."""
    for file in metadata.files(name) or []:
        if "licen" in file.name.lower() and ".dist-info" in str(file):
            yield Path(str(file.locate())), f"{name}/{file.name}"
