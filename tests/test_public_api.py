"""What `jev_engine` and `jev_engine.testing` export is what they promise."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
from types import ModuleType

import pytest


@pytest.fixture(params=["jev_engine", "jev_engine.testing"])
def module(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(request.param)


def test_all_is_sorted_and_names_nothing_twice(module: ModuleType) -> None:
    assert list(module.__all__) == sorted(set(module.__all__))


def test_every_promised_name_is_there(module: ModuleType) -> None:
    missing = [name for name in module.__all__ if not hasattr(module, name)]

    assert missing == []


def test_nothing_public_is_left_out(module: ModuleType) -> None:
    left_out = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and str(getattr(value, "__module__", "")).startswith("jev_engine")
    } - set(module.__all__)

    assert left_out == set()


def test_dir_shows_the_lazy_names_too(module: ModuleType) -> None:
    assert set(module.__all__) <= set(dir(module))


def test_every_class_and_function_says_what_it_is(module: ModuleType) -> None:
    silent = [
        name
        for name in module.__all__
        if (inspect.isclass(value := getattr(module, name)) or inspect.isroutine(value)) and not inspect.getdoc(value)
    ]

    assert silent == []


def test_an_unknown_name_is_an_attribute_error(module: ModuleType) -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        module.no_such_name  # noqa: B018 - the access is the test


def test_the_version_is_that_of_the_installed_package() -> None:
    assert importlib.import_module("jev_engine").__version__ == importlib.metadata.version("jev-engine")
