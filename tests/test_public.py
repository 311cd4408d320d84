"""What is public is listed, documented and typed; what is not says so."""

import inspect
from importlib import import_module
from pathlib import Path

import pytest

import ringfence

SOURCE = Path(ringfence.__file__).parent
NAMESPACES = ringfence._NAMESPACES
ROOMS = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))


def test_dir_lists_every_public_name_and_nothing_else() -> None:
    assert dir(ringfence) == sorted([*ringfence.__all__, *NAMESPACES])
    for name in dir(ringfence):
        assert getattr(ringfence, name) is not None


@pytest.mark.parametrize("name", [name for name in NAMESPACES if name not in ("errors", "simulation")])
def test_a_public_module_lists_its_names_and_has_them_all(name: str) -> None:
    module = import_module(f"ringfence.{name}")
    assert set(module.__all__) <= set(dir(module))
    for public in module.__all__:
        assert getattr(module, public) is not None


def test_every_room_is_public_or_says_that_it_is_not() -> None:
    public = {*NAMESPACES, "estimators"}  # its classes are public names of the package
    for room in ROOMS:
        says_so = "may change without notice" in (import_module(f"ringfence.{room}").__doc__ or "")
        assert says_so != (room in public), room


def test_public_functions_and_classes_are_fully_typed() -> None:
    """mypy checks what they say; this checks that they say it."""
    for name in ringfence.__all__:
        thing = getattr(ringfence, name)
        if not callable(thing) or (inspect.isclass(thing) and issubclass(thing, Exception)):
            continue
        signature = inspect.signature(thing)
        for parameter in signature.parameters.values():
            assert parameter.annotation is not inspect.Parameter.empty, f"{name}({parameter.name})"


def test_documentation_lists_every_public_module() -> None:
    page = (SOURCE.parents[1] / "docs" / "api.md").read_text()
    assert all(f"`ringfence.{name}`" in page for name in NAMESPACES if name != "errors")
