"""Other packages use a query, a sampling rule or a channel through its interface, without asking which one it is."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from ringfence.protocol import channels, losses, queries
from ringfence.protocol.plan import algorithms, sampling
from ringfence.protocol.schema import columns, maps

SOURCE = Path(__file__).parent.parent / "src" / "ringfence"

PACKAGES = {
    "queries": "protocol/queries/ silo/queries/ server/queries/ simulation/gradient.py rehearsal/answers.py",
    "channels": "protocol/channels/ accounting/channels/ planning/channels/ silo/channels/ server/channels/ "
    "simulation/channels/",
    "sampling": "protocol/plan/sampling.py accounting/sampling.py accounting/runs.py silo/gate/sampling.py "
    "simulation/sampling.py",
    "losses": "protocol/losses/",
    "columns": "protocol/schema/columns/ protocol/schema/drafted_types.py",
    "maps": "protocol/schema/maps/ model/onnx_graph.py",
    "algorithms": "protocol/plan/algorithms.py server/algorithms/ planning/algorithm_choice.py planning/defaults.py "
    "planning/propose.py",
}
"""Where the source may distinguish members of each kind."""

OF_ONE_KIND = (
    "evidence/audit/",  # plays games about a mechanism that each names
    "research/",  # experiments about a mechanism that each names
    "shuffler/",  # the party that one channel leads to
    "deployment/batch_collector.py",  # and the way there
    "cli/reproduce.py",  # an experiment has the name of a loss
)
"""What is about one member by its very purpose."""

UNIONS = {
    "queries": queries.Query,
    "channels": channels.Channel,
    "sampling": sampling.Sampling,
    "losses": losses.Loss,
    "columns": columns.Column,
    "maps": maps.FeatureMap,
    "algorithms": algorithms.AlgorithmSpec,
}


def _names(members: tuple[Any, ...]) -> set[str]:
    """Return the names by which documents choose a member: the default of its field `name` or `type`."""
    fields = [member.model_fields.get("name") or member.model_fields["type"] for member in members]
    return {field.default for field in fields}


MEMBERS = {kind: get_args(get_args(union)[0]) for kind, union in UNIONS.items()}
CLASSES = {kind: {member.__name__ for member in members} for kind, members in MEMBERS.items()}
CLASSES["losses"].add("NonSmooth")
NAMES = {kind: _names(members) for kind, members in MEMBERS.items()}
NAMES["sampling"] = set(sampling.SAMPLING_NAMES)
NAMES["columns"] = {"numeric", "categorical", "identifier"}  # other types have names that mean other things too


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


@pytest.mark.parametrize("kind", PACKAGES)
def test_no_other_package_tests_for_the_class_or_name_of_a_member(kind: str) -> None:
    allowed = (*PACKAGES[kind].split(), *OF_ONE_KIND)
    paths = [path for path in sorted(SOURCE.rglob("*.py")) if not str(path.relative_to(SOURCE)).startswith(allowed)]
    found = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in paths
        for line in [
            *_asks_for_a_class(path.read_text(), CLASSES[kind]),
            *_compares_a_name(path.read_text(), NAMES[kind], CLASSES[kind]),
        ]
    ]
    assert not found, f"use traits and methods of {kind}, or mend their interface: {', '.join(found)}"


def test_a_gate_that_asked_for_a_query_would_be_found() -> None:
    asks = "if isinstance(work.stage.query, Gradient | Curvature): pass"
    assert list(_asks_for_a_class(asks, CLASSES["queries"])) == [1]

    def compares(kind: str, source: str) -> list[int]:
        return list(_compares_a_name(source, NAMES[kind], CLASSES[kind]))

    assert compares("sampling", 'if plan.sampling in ("fixed", "poisson"): pass') == [1]
    assert compares("sampling", 'match name:\n    case "full": pass') == [2]
    assert compares("losses", 'share = 0.0 if loss.name == "squared" else 0.1') == [1]
    assert compares("queries", "kept = [name for name in findings if name != Evaluation().name]") == [1]
