"""Whoever is not in the room of a query, a sampling rule or a channel works through its interface."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from ringfence.protocol import channels, losses, queries
from ringfence.protocol.plan import algorithms, sampling
from ringfence.protocol.schema import columns, maps

SOURCE = Path(__file__).parent.parent / "src" / "ringfence"

ROOMS = {
    "queries": (
        "protocol/queries/",
        "silo/queries/",
        "server/queries/",
        "simulation/gradient.py",
        "simulation/queries.py",
    ),
    "channels": (
        "protocol/channels/",
        "accounting/channels/",
        "planning/channels/",
        "silo/channels/",
        "server/channels/",
        "simulation/channels/",
    ),
    "sampling": (
        "protocol/plan/sampling.py",
        "accounting/sampling.py",
        "silo/gate/sampling.py",
        "simulation/sampling.py",
    ),
    "losses": ("protocol/losses/",),
    "columns": ("protocol/schema/columns/",),
    "maps": ("protocol/schema/maps/",),
    "algorithms": (
        "protocol/plan/algorithms.py",
        "server/algorithms/",
        "planning/algorithm_choice.py",
        "planning/defaults.py",
        "planning/propose.py",
    ),
}
"""Where it may be asked which one it is."""

OF_ONE_KIND = (
    "evidence/audit/",  # plays games about a mechanism that each names
    "research/",  # experiments about a mechanism that each names
    "shuffler/",  # the party that one channel leads to
    "deployment/batch_collector.py",  # and the way there
)
"""What is about one of them by its very purpose."""


def _classes(union: object) -> set[str]:
    return {kind.__name__ for kind in get_args(get_args(union)[0])}


KINDS = {
    "queries": _classes(queries.Query),
    "channels": _classes(channels.Channel),
    "sampling": _classes(sampling.Sampling),
    "losses": _classes(losses.Loss) | {"NonSmooth"},
    "columns": _classes(columns.Column),
    "maps": _classes(maps.FeatureMap),
    "algorithms": _classes(algorithms.AlgorithmSpec),
}


def _names(union: object) -> set[str]:
    return {kind.model_fields["name"].default for kind in get_args(get_args(union)[0])}


NAMES: dict[str, set[str]] = {
    "queries": _names(queries.Query),
    "channels": _names(channels.Channel),
    "sampling": set(sampling.SAMPLING_NAMES),
    "losses": _names(losses.Loss),
    "columns": {"numeric", "categorical", "identifier"},  # other types have names that are words of other things too
    "maps": {kind.model_fields["type"].default for kind in get_args(get_args(maps.FeatureMap)[0])},
    "algorithms": _names(algorithms.AlgorithmSpec),
}


def _files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


@functools.cache
def _tests(source: str) -> list[ast.AST]:
    """Return the parts of a source by which it may ask what something is."""
    kinds = (ast.Call, ast.Compare, ast.MatchClass, ast.MatchValue)
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]


def _asks_for_a_class(source: str, kinds: set[str]) -> Iterator[int]:
    """Yield the lines that test for a class, by isinstance, by type or by a pattern."""
    for node in _tests(source):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("isinstance", "issubclass")
        ):
            if any(isinstance(inner, ast.Name) and inner.id in kinds for inner in ast.walk(node.args[1])):
                yield node.lineno
        elif isinstance(node, ast.MatchClass) and isinstance(node.cls, ast.Name) and node.cls.id in kinds:
            yield node.cls.lineno
        elif isinstance(node, ast.Compare) and any(
            isinstance(side, ast.Name) and side.id in kinds for side in (node.left, *node.comparators)
        ):
            yield node.lineno


def _compares_a_name(source: str, names: set[str], kinds: set[str]) -> Iterator[int]:
    """Yield the lines that compare something with the name of one of them, written out or asked of its class."""
    for node in _tests(source):
        if isinstance(node, ast.Compare):
            parts = [inner for side in (node.left, *node.comparators) for inner in ast.walk(side)]
            if any(
                (isinstance(inner, ast.Constant) and inner.value in names)
                or (isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id in kinds)
                for inner in parts
            ):
                yield node.lineno
        elif isinstance(node, ast.MatchValue) and isinstance(node.value, ast.Constant) and node.value.value in names:
            yield node.value.lineno


@pytest.mark.parametrize("room", ROOMS)
def test_nobody_outside_of_its_rooms_asks_which_one_it_is(room: str) -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in _files()
        if not str(path.relative_to(SOURCE)).startswith((*ROOMS[room], *OF_ONE_KIND))
        for line in _asks_for_a_class(path.read_text(), KINDS[room])
    ]
    assert not found, f"use the interface of {room}, or mend it: {', '.join(found)}"


@pytest.mark.parametrize("room", ROOMS)
def test_nobody_outside_of_its_rooms_compares_its_name(room: str) -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in _files()
        if not str(path.relative_to(SOURCE)).startswith((*ROOMS[room], *OF_ONE_KIND))
        for line in _compares_a_name(path.read_text(), NAMES[room], KINDS[room])
    ]
    assert not found, f"use traits and methods of {room}, or mend them: {', '.join(found)}"


def test_a_gate_that_asked_for_a_query_would_be_found() -> None:
    asks = "if isinstance(work.stage.query, Gradient | Curvature): pass"
    assert list(_asks_for_a_class(asks, KINDS["queries"])) == [1]

    def compares(room: str, source: str) -> list[int]:
        return list(_compares_a_name(source, NAMES[room], KINDS[room]))

    assert compares("sampling", 'if plan.sampling in ("fixed", "poisson"): pass') == [1]
    assert compares("sampling", 'match name:\n    case "full": pass') == [2]
    assert compares("losses", 'share = 0.0 if loss.name == "squared" else 0.1') == [1]
    assert compares("queries", "kept = [name for name in findings if name != Evaluation().name]") == [1]
