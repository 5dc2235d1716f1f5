"""Three directives that write a page from the code, so that it cannot drift.

`settings-table`: every field of EngineConfig. `error-tree`: the drawing in errors.py. `cli-help`: what `--help` says.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import click
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo
    from sphinx.application import Sphinx

HELP_WIDTH = 100  # columns; fits the text column of the theme


class SettingsTable(SphinxDirective):
    """Name, default, what each profile sets instead, what is allowed, and the meaning."""

    def run(self) -> list[nodes.Node]:
        """Write one row per field, in the order of the class."""
        from jev_engine.config import PROFILES, EngineConfig  # noqa: PLC0415 - read at build time

        others = [profile for profile, settings in PROFILES.items() if settings]
        meanings = dict(docstrings_below(EngineConfig))
        head = ["Setting", "Default", *[f"`{profile}`" for profile in others], "Allowed", "Meaning"]
        rows = [head, ["---"] * len(head)]
        for name, field in EngineConfig.model_fields.items():
            set_by = [code(PROFILES[other][name]) if name in PROFILES[other] else "" for other in others]
            rows.append([f"`{name}`", code(field.default), *set_by, allowed(field), meanings.get(name, "")])
        text = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
        return self.parse_text_to_nodes(text)


def docstrings_below(model: type) -> Iterator[tuple[str, str]]:
    """Yield each field of a class with the docstring below it."""
    [tree] = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    body = tree.body if isinstance(tree, ast.ClassDef) else []
    for field, below in pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            yield field.target.id, " ".join(str(below.value.value).split())


def allowed(field: FieldInfo) -> str:
    """Say in words what a field takes."""
    if get_origin(field.annotation) is Literal:
        return ", ".join(code(choice) for choice in get_args(field.annotation))
    if field.annotation is bool:
        return "yes or no"
    low = next((rule.ge for rule in field.metadata if hasattr(rule, "ge")), None)
    high = next((rule.le for rule in field.metadata if hasattr(rule, "le")), None)
    if low is not None:
        kind = "whole number" if field.annotation is int else "number"
        return f"{kind}, {low:,} to {high:,}" if high is not None else f"{kind} from {low:,}"
    return "patterns" if get_origin(field.annotation) is tuple else "text"


def code(value: Any) -> str:
    """Show a value the way one writes it."""
    shown = f"{value:_}" if type(value) is int else repr(value).replace("'", '"')
    return f"`{shown}`"


class ErrorTree(SphinxDirective):
    """The hierarchy as drawn at the top of errors.py, then each error with its docstring."""

    def run(self) -> list[nodes.Node]:
        """Write the drawing as it is, and one entry per error."""
        from jev_engine import errors  # noqa: PLC0415 - read at build time

        lines = (errors.__doc__ or "").splitlines()
        drawing = textwrap.dedent("\n".join(line for line in lines if line.startswith("    ")))
        names = [
            name
            for name, value in vars(errors).items()
            if inspect.isclass(value) and issubclass(value, BaseException) and value.__module__ == errors.__name__
        ]
        entries = "\n".join(f".. autoexception:: jev_engine.errors.{name}\n   :members:\n" for name in names)
        tree = nodes.literal_block(drawing, drawing, language="text")
        return [tree, *self.parse_text_to_nodes(f"```{{eval-rst}}\n{entries}\n```")]


class CliHelp(SphinxDirective):
    """The help text of the command and of each of its subcommands."""

    def run(self) -> list[nodes.Node]:
        """Write one section per command."""
        from jev_engine.cli import main  # noqa: PLC0415 - read at build time

        sections: list[str] = []
        for name, command in walk("jev-engine", main):
            context = click.Context(command, info_name=name, terminal_width=HELP_WIDTH, max_content_width=HELP_WIDTH)
            sections += [f"## {name}", "", "```text", command.get_help(context), "```", ""]
        return self.parse_text_to_nodes(StringList("\n".join(sections).splitlines()), allow_section_headings=True)


def walk(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yield a command and, below it, its subcommands in the order help lists them."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=name)
        for sub in command.list_commands(context):
            found = command.get_command(context, sub)
            if found is not None and not found.hidden:
                yield from walk(f"{name} {sub}", found)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("settings-table", SettingsTable)
    app.add_directive("error-tree", ErrorTree)
    app.add_directive("cli-help", CliHelp)
    return {"parallel_read_safe": True}
