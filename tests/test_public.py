"""Public names are listed, documented and typed."""

import ast
import doctest
import inspect
from importlib import import_module
from pkgutil import iter_modules
from typing import get_args

import pytest

import ringfence
from ringfence import protocol

NAMESPACES = ringfence._NAMESPACES


def test_dir_lists_every_public_name_and_nothing_else() -> None:
    assert dir(ringfence) == sorted([*ringfence.__all__, *NAMESPACES])
    assert all(getattr(ringfence, name) is not None for name in dir(ringfence))


@pytest.mark.parametrize("name", [name for name in NAMESPACES if name not in ("errors", "simulation")])
def test_a_public_module_lists_its_names_and_has_them_all(name: str) -> None:
    module = import_module(f"ringfence.{name}")
    assert set(module.__all__) <= set(dir(module))
    assert all(getattr(module, public) is not None for public in module.__all__)


@pytest.mark.parametrize(
    "union", ["AlgorithmSpec", "Channel", "Column", "Domain", "FeatureMap", "Loss", "Query", "Sampling"]
)
def test_every_member_of_a_union_is_a_name_of_the_protocol(union: str) -> None:
    members = get_args(get_args(getattr(protocol, union))[0])
    assert len(members) > 1
    for member in members:
        assert member.__name__ in protocol.__all__
        assert getattr(protocol, member.__name__) is member


@pytest.mark.parametrize("name", ["ringfence", *(f"ringfence.{name}" for name in NAMESPACES)])
def test_a_public_module_s_docstring_shows_its_use_and_the_example_runs(name: str) -> None:
    module = import_module(name)
    (example,) = doctest.DocTestFinder(recurse=False).find(module, name, globs={})
    assert example.examples[-1].want, "it ends by showing something"
    assert doctest.DocTestRunner().run(example).failed == 0


def test_type_checkers_see_every_public_name() -> None:
    tree = ast.parse(inspect.getsource(ringfence))
    imported = {alias.asname for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert imported - {None} == set(ringfence.__all__) - {"__version__"}


def test_every_package_is_public_or_says_that_it_is_internal() -> None:
    assert all(f"`{name}`" in (ringfence.__doc__ or "") for name in NAMESPACES)
    for package in iter_modules(ringfence.__path__):
        if package.ispkg:
            text = import_module(f"ringfence.{package.name}").__doc__ or ""
            says_so = "may change without notice. `ringfence` lists what is public." in text
            assert says_so == (package.name not in NAMESPACES), package.name
