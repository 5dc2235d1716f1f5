"""Other installations of this project: the same source under another version, in a folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jev_engine

__all__ = ["Installation"]


class Installation:
    """A copy of the package that goes by another version."""

    def __init__(self, folder: Path, version: str) -> None:
        source = Path(jev_engine.__file__).parent
        copy = shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__"))
        front = copy / "__init__.py"
        text = front.read_text(encoding="utf-8")
        mine = f'__version__ = "{jev_engine.__version__}"'
        assert text.count(mine) == 1
        front.write_text(text.replace(mine, f'__version__ = "{version}"'), encoding="utf-8")
        self._folder = folder
        self._path = os.pathsep.join([str(folder), *sys.path])

    def serve(self, *words: str) -> subprocess.Popen[bytes]:
        """`jev-engine serve` of this installation, as it runs."""
        argv = [sys.executable, "-m", "jev_engine", "serve", *words]
        # Python looks in the working folder before anywhere else, and this source may lie there.
        where = {"cwd": self._folder, "env": {**os.environ, "PYTHONPATH": self._path}}
        return subprocess.Popen(argv, stdout=subprocess.PIPE, **where)

    def ensure(self, *words: str) -> Any:
        """What `jev-engine serve --ensure` of this installation says."""
        with self.serve("--ensure", *words) as asked:
            said, _ = asked.communicate(timeout=60)
        assert asked.returncode == 0
        return json.loads(said)
