"""The README's numbers are those that `ringfence reproduce league` measured, and its facts are the package's."""

import csv
import re
import statistics
import tomllib

import pytest

from tests.docs.blocks import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
LEAGUE = ROOT / "docs" / "results" / "league"
PAGE = (LEAGUE / "index.md").read_text(encoding="utf-8")


def rows(text: str, first_column: str) -> list[dict[str, str]]:
    """Return the rows of the Markdown table whose first column has this name, without emphasis."""
    header, *lines = re.search(rf"^\| {first_column} \|.*\n(?:\|.*\n)+", text, re.MULTILINE)[0].splitlines()  # type: ignore[index]

    def cells(line: str) -> list[str]:
        return [cell.strip().strip("*") for cell in line.strip("|").split("|")]

    return [dict(zip(cells(header), cells(line), strict=True)) for line in lines[1:]]


def mean_error(method: str, table: str) -> float:
    with (LEAGUE / "cells.csv").open(encoding="utf-8", newline="") as file:
        found = [
            float(cell["error"])
            for cell in csv.DictReader(file)
            if (cell["method"], cell["table"], float(cell["epsilon"])) == (method, table, 1.0)
        ]
    assert len(found) == 10, "the README says that each is a mean over 10 runs"
    return statistics.mean(found)


def test_the_table_has_every_table_of_the_league_with_the_errors_of_its_cells() -> None:
    *tables, regret = rows(README, "table")
    measured = {row["table"]: row for row in rows(PAGE, "table")}
    assert [row["table"] for row in tables] == list(measured), "none is left out"
    for row in tables:
        assert row["Ringfence"] == f"{mean_error('ringfence', row['table']):.3f}"
        assert row["pooled central DP"] == f"{mean_error('central', row['table']):.3f}"
        for column in ("records", "silos", "no privacy", "guessing"):
            assert row[column] == measured[row["table"]][column]
    assert regret["table"] == "mean regret"


def test_mean_regrets_are_those_that_the_league_states_at_epsilon_1() -> None:
    stated = {(row["method"], row["trusts"]): row["ε = 1"].split()[0] for row in rows(PAGE, "method")}
    regret = rows(README, "table")[-1]
    assert regret["Ringfence"] == stated["Ringfence, untuned", "nobody"]
    assert regret["pooled central DP"] == stated["AdaSSP; objective perturbation for labels", "a curator"]
    assert f"would come to a mean regret of {stated['Ringfence, untuned, as one silo', 'a curator']}" in " ".join(
        README.split()
    )


def test_licence_python_and_extras_are_the_package_s() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert not [name for name in extras if f"`{name}`" not in README and f"[{name}]" not in README]
    assert project["license"] == "Apache-2.0"
    assert "Licence: [Apache 2.0](LICENSE)" in README
    assert project["requires-python"] == ">=3.11"
    assert "Python 3.11 or newer" in README


@pytest.mark.parametrize("command", ["make demo", "make test"])
def test_the_first_screen_shows_how_to_try_and_to_check_it_and_how_long_that_takes(command: str) -> None:
    (line,) = [line for line in README.splitlines()[:40] if line.startswith(command)]
    assert re.search(r"# .+: about \d+ (s|min)\b", line)


def test_nothing_in_the_readme_is_loaded_from_another_machine() -> None:
    assert not re.findall(r"!\[[^]]*\]\(https?:", README)
