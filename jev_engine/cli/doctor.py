"""`jev-engine doctor`: does this installation work?"""

from __future__ import annotations

import json
import platform
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from jev_engine.cli import options
from jev_engine.cli.setup import find_host, given_options, option_option
from jev_engine.cli.show import console_for, emit, plain
from jev_engine.errors import ConfigError
from jev_engine.hosts import Finding

__all__ = ["doctor"]

# As pyproject.toml has them.
OLDEST_PYTHON = (3, 11)
DEPENDENCIES = ("anyio", "click", "httpx", "platformdirs", "pluggy", "pydantic", "rich", "tenacity")
STYLES = {"ok": "green", "note": "yellow", "bad": "bold red"}


@click.command()
@click.argument("host", required=False)
@option_option
@click.option("--store", type=click.Path(dir_okay=False), help="The store to look at, instead of your own.")
@options.json_option
@click.pass_context
def doctor(ctx: click.Context, host: str | None, pairs: tuple[str, ...], store: str | None, as_json: bool) -> None:  # noqa: FBT001
    """Check this installation: Python, packages, settings, plugins, the store, and a small pass from end to end.

    With HOST (hermes, claude-code, gateway): is jev-engine in use there, and if not, why?
    Writes nothing. Ends with 1 where something has to be repaired.

    \b
    Examples:
      jev-engine doctor
      jev-engine doctor --store /backup/originals.sqlite3
      jev-engine doctor hermes
    """  # noqa: D301  # \b keeps click from wrapping the examples
    from rich.table import Table  # noqa: PLC0415  # costs 60 ms
    from rich.text import Text  # noqa: PLC0415

    if host is None:
        checks = [*python(), *packages(), *settings(), *plugins(), *originals(store), *self_test()]
    else:
        integration = find_host(host)
        checks = list(integration.doctor(given_options(integration, pairs)))
    bad = sum(check.state == "bad" for check in checks)
    if as_json:
        click.echo(json.dumps([check._asdict() for check in checks]))
        ctx.exit(1 if bad else 0)
    console = console_for(sys.stdout)
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for check in checks:
        grid.add_row(Text(check.state, style=STYLES[check.state]), Text(check.what), Text(plain(check.text)))
    emit(console, grid, "", Text(f"{bad} to repair, see above." if bad else "All is well.", style="bold"))
    ctx.exit(1 if bad else 0)


def python() -> Iterator[Finding]:
    """The interpreter."""
    is_new = sys.version_info[:2] >= OLDEST_PYTHON
    text = f"{platform.python_version()} at {sys.executable}"
    yield Finding("python", "ok" if is_new else "bad", text if is_new else f"{text}: 3.11 or newer is needed")


def packages() -> Iterator[Finding]:
    """The packages this one needs, with their versions."""
    from importlib import metadata  # noqa: PLC0415  # costs 20 ms

    from jev_engine import __version__  # noqa: PLC0415  # the package itself, not its name

    yield Finding("jev-engine", "ok", f"{__version__} at {Path(__file__).parent.parent}")
    found, missing = [], []
    for name in DEPENDENCIES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    yield Finding("packages", "ok", ", ".join(found))
    if missing:
        yield Finding(
            "packages", "bad", f"missing: {', '.join(missing)}; install them: pip install {' '.join(missing)}"
        )


def settings() -> Iterator[Finding]:
    """The user's settings file, and whether a judge can be made of what it says."""
    from jev_engine.judges.choose import make_judge  # noqa: PLC0415  # the engine, only where something is done
    from jev_engine.settings import default_config_path  # noqa: PLC0415

    path = default_config_path()
    try:
        found = options.user_settings()
        make_judge(found.judge, found.endpoint)
    except ConfigError as error:
        is_named = error.setting not in ("judge", "endpoint") or str(path) in str(error)
        yield Finding("settings", "bad", str(error) if is_named else f"{path}: {error}")
        return
    if not path.exists():
        yield Finding("settings", "ok", f"the defaults; there is no {path}")
        return
    yield Finding("settings", "ok", f"{path} sets {', '.join(sorted(found.model_fields_set)) or 'nothing'}")


def plugins() -> Iterator[Finding]:
    """Adapters, and plugins that work or do not."""
    from importlib import metadata  # noqa: PLC0415  # costs 20 ms

    from jev_engine.errors import JevEngineError  # noqa: PLC0415  # the engine, only where something is done
    from jev_engine.plugins import GROUP  # noqa: PLC0415
    from jev_engine.settings import settings_to_read, user_plugins  # noqa: PLC0415

    loaded, left_out = user_plugins(), settings_to_read()[0].without_plugins
    for name in loaded.adapter_names():
        try:
            loaded.adapter(name)
        except (ImportError, JevEngineError) as error:
            yield Finding("adapter", "bad", f"{name} cannot be loaded: {error}; install jev-engine again")
    yield Finding("adapters", "ok", ", ".join(loaded.adapter_names()))
    idle = {each.name for each in loaded.broken} | {*left_out}
    installed = {point.name for point in metadata.entry_points(group=GROUP)}
    yield Finding("plugins", "ok", ", ".join(sorted(installed - idle)) or "none installed")
    for each in loaded.broken:
        text = f"{each.name} does not work: {each.reason}; until it does, nothing is asked outside"
        yield Finding("plugin", "bad", f"{text}. Mend or uninstall it, or name it in the setting `without_plugins`")
    for name in left_out:
        text = "left out, as your settings say" if name in installed else "not installed, and left out by your settings"
        yield Finding("plugin", "note", f"{name}: {text}")


def originals(store: str | None) -> Iterator[Finding]:
    """The store: where it is, whether it can be read, and who else may read it."""
    from jev_engine.cli.opening import wait_for  # noqa: PLC0415  # as the imports below
    from jev_engine.errors import StoreError  # noqa: PLC0415  # the engine, only where something is done
    from jev_engine.settings import settings_to_read  # noqa: PLC0415
    from jev_engine.store.sqlite import SqliteStore  # noqa: PLC0415

    path = SqliteStore(store or settings_to_read()[0].store).path
    if not path.exists():
        yield Finding("store", "ok", f"{path} (made when something is stored for the first time)")
        return
    try:
        damage = wait_for(SqliteStore(path).check())
    except StoreError as error:
        yield Finding("store", "bad", str(error))
        return
    if damage:
        remedy = "move it away, a new one is made; `jev-engine store export` saves what can still be read"
        yield Finding("store", "bad", f"{path} is damaged ({damage[0]}): {remedy}")
        return
    yield Finding("store", "ok", f"{path}, {path.stat().st_size:,} bytes")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        yield Finding("store", "bad", f"others can read it (mode {mode:04o}); run: chmod 600 {path}")


def self_test() -> Iterator[Finding]:
    """A pass over a small history, in memory, and everything back again."""
    from jev_engine.cli.opening import wait_for  # noqa: PLC0415  # as the imports below
    from jev_engine.engine import ContextEngine  # noqa: PLC0415  # the engine, only where something is done
    from jev_engine.testing import ScriptedJudge, assistant, call, history, result, user  # noqa: PLC0415

    messages = history(
        user("Fix the parser."),
        *(row for n in range(5) for row in (call("read", path=f"part_{n}.py"), result(f"line {n}\n" * 400))),
        assistant("Done."),
    )
    engine = ContextEngine(judge=ScriptedJudge(lambda _: (0.9, 0.001)))
    done = wait_for(engine.compress(messages, host="openai", force=True))
    back = wait_for(engine.restore(done.messages, host="openai"))
    if done.changed and back.messages == messages:
        yield Finding("self-test", "ok", f"{done.stats.calls} calls, {done.reason}, and all of it restored")
    else:
        yield Finding("self-test", "bad", f"{done.outcome}: {done.reason}; please report this with the lines above")
