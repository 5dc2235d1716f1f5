"""The wheel and the source archive hold what they should, and work where nothing else is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from jev_engine import __version__

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
# What may lie in a working copy and is no part of the project.
LEFTOVERS = shutil.ignore_patterns(
    ".*_cache", ".git", ".hypothesis", ".venv", "__pycache__", "_build", "build", "dist", "out", "*.egg-info"
)
EXAMPLE = "examples/parser_fix.json"


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command away from this environment; show everything it said if it fails."""
    apart = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV", "VIRTUAL_"))}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=apart, capture_output=True, text=True, check=False
    )
    assert not done.returncode, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project as somebody else gets it."""
    return Path(shutil.copytree(ROOT, tmp_path_factory.mktemp("copy") / "jev-engine", ignore=LEFTOVERS))


@pytest.fixture(scope="module")
def built(copy: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Wheel and source archive; the wheel is built from the archive, so a file missing there is missed here."""
    folder = tmp_path_factory.mktemp("dist")
    # Neither a documentation build nor the like may slip into the archive.
    (copy / "docs/_build").mkdir(exist_ok=True)
    (copy / "docs/_build/index.html").write_text("not ours", encoding="utf-8")
    run(sys.executable, "-m", "build", "--outdir", folder, copy, cwd=folder)
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with nothing in it."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", folder, cwd=folder)
    return folder


def test_the_wheel_holds_both_packages_and_nothing_else(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        names = set(wheel.namelist())
        entry_points = wheel.read(f"jev_engine-{__version__}.dist-info/entry_points.txt").decode()

    assert {name.split("/")[0] for name in names} == {
        "jev_engine",
        "jev_engine_adapters",
        f"jev_engine-{__version__}.dist-info",
    }
    assert {"jev_engine/py.typed", "jev_engine_adapters/py.typed"} <= names
    assert "jev-engine = jev_engine.cli:main" in entry_points


def test_every_source_file_is_in_the_wheel(built: tuple[Path, Path], copy: Path) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        packed = set(wheel.namelist())
    roots = {"jev_engine": copy, "jev_engine_adapters": copy / "adapters"}
    sources = {
        path.relative_to(root).as_posix()
        for package, root in roots.items()
        for path in (root / package).rglob("*")
        if path.is_file()
    }

    assert sources - packed == set()


def test_the_archive_holds_tests_and_documentation_but_no_build(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[1]) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}

    assert {
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "conftest.py",
        "tests/conftest.py",
        "docs/conf.py",
        EXAMPLE,
    } <= names
    assert [name for name in names if re.search(r"_build|__pycache__|\.venv|_cache", name)] == []


def test_the_wheel_adds_two_names_and_a_command(built: tuple[Path, Path], environment: Path) -> None:
    python = environment / "bin/python"
    packages = Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=environment).strip()
    )
    before = {entry.name for entry in packages.iterdir()}
    run(python, "-m", "pip", "install", "-q", "--no-deps", built[0], cwd=environment)
    added = {entry.name for entry in packages.iterdir()} - before
    run(python, "-m", "pip", "install", "-q", built[0], cwd=environment)

    assert added == {"jev_engine", "jev_engine_adapters", f"jev_engine-{__version__}.dist-info"}
    assert __version__ in run(environment / "bin/jev-engine", "--version", cwd=environment)
    assert (packages / "jev_engine/py.typed").is_file()
    assert (packages / "jev_engine_adapters/py.typed").is_file()
    run(python, "-m", "pip", "check", cwd=environment)


def readme_commands() -> list[str]:
    """The two commands of the README, in order."""
    return re.findall(r"^(python3 -m venv .+)$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.skipif(os.name == "nt", reason="the README's commands are for a POSIX shell")
def test_the_first_command_of_the_readme_compresses_the_example(copy: Path) -> None:
    first = readme_commands()[0].replace("python3 -m venv", f"'{sys.executable}' -m venv", 1)
    original = (copy / EXAMPLE).read_bytes()

    shown = run("bash", "-euo", "pipefail", "-c", first, cwd=copy)

    assert EXAMPLE in first
    assert "\x1b" not in shown
    assert shown.strip()
    assert (copy / EXAMPLE).read_bytes() == original


def test_the_second_command_of_the_readme_is_the_one_ci_runs() -> None:
    commands = readme_commands()
    ci = (ROOT / ".ci/run").read_text(encoding="utf-8")

    assert len(commands) == 2
    assert commands[1].endswith('.venv/bin/pip install -q -e ".[test]" && .venv/bin/python -m pytest')
    assert '-m pip install -qq -e ".[test,lint]"' in ci
    assert '"$python" -m pytest' in ci
