"""What each version made of its documents, as its `expected.json` says, and how that is compared."""

import json
import math
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
EXPECTED: dict[str, Any] = {path.parent.name: json.loads(path.read_text()) for path in HERE.glob("v*/expected.json")}
VERSIONS = sorted(EXPECTED)

Seen = Callable[[str], Path]
Copied = Callable[..., Path]


def each(
    kind: str, among: Collection[str] = (), wanted: Callable[[Any], bool] = lambda _: True
) -> pytest.MarkDecorator:
    """Give a test every version's documents of a kind: all, or those of the given names, or those that are wanted."""
    found = [
        pytest.param(version, name, id=f"{version}-{name}")
        for version in VERSIONS
        for name, expected in EXPECTED[version][kind].items()
        if (not among or name in among) and wanted(expected)
    ]
    assert {case.values[1] for case in found} >= set(among), "no version has a document of that name"
    return pytest.mark.parametrize(("version", "name"), found)


def having(kind: str) -> pytest.MarkDecorator:
    """Give a test every version that has documents of a kind."""
    return pytest.mark.parametrize("version", [version for version in VERSIONS if EXPECTED[version].get(kind)])


EXACT, SAMPLED = 1e-12, 1e-9
"""How far, relatively, numbers may be from those of the version that wrote them.

Sampled releases are composed by Fourier transforms, whose last digits depend on the processor: what they round off,
about 1e-16, is more in proportion to a small delta.
"""


def agree(found: Any, expected: Any, place: str = "", tolerance: float | None = None) -> None:
    """Compare plain data: numbers up to rounding, all else exactly."""
    text = json.dumps(expected)
    rounding = SAMPLED if '"fixed-size"' in text or '"poisson"' in text else EXACT
    _agree(json.loads(json.dumps(found)), expected, rounding if tolerance is None else tolerance, place)


def _agree(found: Any, expected: Any, tolerance: float, place: str) -> None:
    if isinstance(expected, dict):
        assert isinstance(found, dict), place
        assert found.keys() == expected.keys(), place
        for name, value in expected.items():
            _agree(found[name], value, tolerance, f"{place}/{name}")
    elif isinstance(expected, list):
        assert isinstance(found, list), place
        assert len(found) == len(expected), place
        for number, value in enumerate(expected):
            _agree(found[number], value, tolerance, f"{place}/{number}")
    elif isinstance(expected, float):
        assert isinstance(found, float | int), place
        assert math.isclose(found, expected, rel_tol=tolerance), f"{place}: {found!r} is not {expected!r}"
    else:
        assert found == expected, place
