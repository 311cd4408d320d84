"""docs/comparison.md shows what `python -m benchmarks.comparison` makes: what takes seconds is made anew."""

import re
import tomllib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

import pytest

from benchmarks.comparison import filters, hello_dp, localdpmod, task
from benchmarks.comparison.__main__ import PACKAGES
from tests.docs.blocks import ROOT

PAGE = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")


def rows(first: str) -> list[list[str]]:
    """Return the cells of the table whose head begins so, without head and rule."""
    table = PAGE[PAGE.index(f"\n| {first} |") + 1 :].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


@pytest.mark.parametrize("make", [localdpmod.costs, filters.spent, filters.habits])
def test_a_table_that_takes_seconds_stands_on_the_page_as_it_is_made(make: Callable[[], str]) -> None:
    assert make() in PAGE


def test_the_noise_that_was_measured_is_that_of_the_formula() -> None:
    # The standard deviation of 20,000 Gaussian numbers is off by 2.6% (5.2 of its standard errors) once in 5,000,000.
    for text, formula, measured in rows("`sensitivity`"):
        assert formula == f"{float(text) * localdpmod.sigma(1.0):.3f}"
        assert float(measured) == pytest.approx(float(formula), rel=0.026)


def test_what_hello_dp_costs_a_replaced_record_follows_from_the_noise_that_the_page_shows() -> None:
    shown = rows(hello_dp.HEAD[0])
    assert [(int(announced), int(asked)) for announced, asked, *_ in shown] == list(hello_dp.CASES)
    for _, asked, multiplier, reported, replaced in shown:
        assert replaced == hello_dp.replaced(float(multiplier), int(asked))
        assert float(reported) < float(replaced)
    assert f"{hello_dp.RECORDS:,} training records" in PAGE


def test_the_same_task_is_shown_with_the_true_epsilon_of_every_run() -> None:
    shown = {name: epsilon for name, epsilon, *_ in rows("")}
    for method in task.methods(ROOT):
        assert shown[method.name] == method.epsilon


def test_numbers_in_sentences_are_those_of_the_tables() -> None:
    costs = dict(rows("settings of LocalDpMod"))
    assert f"so 1 is {costs['ε = 1, one round']}." in PAGE
    assert f"8 is {costs['ε = 8, one round']}." in PAGE
    (_, _, _, _, replaced), (_, _, _, reported, _) = rows(hello_dp.HEAD[0])
    assert f"For replacing one it is {replaced}." in PAGE
    assert f"at an ε of {reported};" in PAGE


@pytest.mark.parametrize("package", [name for name in PACKAGES if name != "ringfence"])
def test_the_page_was_made_with_versions_that_are_installed(package: str) -> None:
    found = re.search(rf"\b{package} (\d[\w.]*\w)", PAGE)
    assert found, f"the page does not say which {package} it was made with"
    try:
        assert found[1] == version(package).partition("+")[0]
    except PackageNotFoundError:  # PyTorch and Opacus are in an extra of their own; what it allows is known
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        (allowed,) = [wanted for wanted in extras["comparison"] if wanted.startswith(package)]
        least = re.search(r">=(\d+)\.(\d+)", allowed)
        assert least
        assert tuple(map(int, found[1].split(".")[:2])) >= (int(least[1]), int(least[2]))
