"""Targets, times, offsets and weights that a loss is not of: one sentence with the remedy, and no ledger is begun."""

from pathlib import Path

import pytest

from tests.cli.conftest import refuses, ringfence

SCHEMA = """
{roles}
columns.age = {{type = "numeric", lower = 0, upper = 100}}
columns.days = {{type = "numeric", lower = 0, upper = 10}}
columns.visits = {{type = "numeric", lower = 0, upper = 20}}
columns.paid = {{type = "numeric", lower = 0.5, upper = 20}}
columns.died = {{type = "categorical", categories = ["no", "yes"]}}
"""
GOOD = "50,5,3,2.5,yes"


def training(folder: Path, first: str, target: str, loss: str, roles: str = "", others: str = GOOD) -> list[str]:
    """Return the command that trains on two files, of which one begins with a row of its own."""
    (folder / "schema.toml").write_text(SCHEMA.format(roles=roles))
    for name, rows in (("north", [first, *[others] * 40]), ("south", [others] * 40)):
        (folder / f"{name}.csv").write_text("\n".join(["age,days,visits,paid,died", *rows, ""]))
    files = [str(folder / f"{name}.csv") for name in ("north", "south")]
    settings = ["--schema", str(folder / "schema.toml"), "--target", target, "--loss", loss, "--epsilon", "2"]
    return ["train", *files, *settings, "--rounds", "2", "--no-report"]


@pytest.mark.parametrize(
    ("first", "target", "loss", "roles", "says"),
    [
        ("50,5,-1,2,yes", "visits", "poisson", "", "row 2, column 'visits': the value is not 0 or more"),
        ("50,5,-1,2,yes", "visits", "negative-binomial", "", "row 2, column 'visits': the value is not 0 or more"),
        ("50,5,1,0,yes", "paid", "gamma", "", "row 2, column 'paid': the value is not above 0"),
        ("50,-5,1,2,yes", "days", "survival", 'event = "died"', "Row 2, column 'days': this time is outside"),
        ("50,50,1,2,yes", "visits", "poisson", 'offset = "days"', "Row 2, column 'days': this offset is outside"),
        ("50,5,1,0.1,yes", "visits", "poisson", 'exposure = "paid"', "Row 2, column 'paid': this exposure is outside"),
        ("50,5,1,99,yes", "visits", "poisson", 'weight = "paid"', "Row 2, column 'paid': this weight is outside"),
        (GOOD, "visits", "poisson", 'weight = "wieght"', "the weight column 'wieght' is missing from the columns"),
        (GOOD, "days", "survival", 'event = "ended"', "the event column 'ended' is missing from the columns"),
        (GOOD, "visits", "poisson", 'exposure = "days"', "must be above 0: give it a `lower` above 0"),
        (GOOD, "days", "survival", "", "name the time as target, and the `event` column beside it"),
    ],
)
def test_what_the_loss_is_not_of_is_refused_before_anything_is_spent(
    tmp_path: Path, first: str, target: str, loss: str, roles: str, says: str
) -> None:
    refuses(says, *training(tmp_path, first, target, loss, roles))
    assert not list(tmp_path.glob("*.ledger"))


def test_times_that_are_all_censored_are_refused_before_anything_is_spent(tmp_path: Path) -> None:
    censored = "50,5,3,2.5,no"
    command = training(tmp_path, censored, "days", "survival", 'event = "died"', censored)
    refuses("All times in 'days' are censored", *command)
    assert not list(tmp_path.glob("*.ledger"))


@pytest.mark.parametrize(
    ("first", "target", "loss", "roles"),
    [
        ("50,5,0,2,yes", "visits", "poisson", ""),  # a count of 0 is one
        ("50,5,99,2,yes", "visits", "poisson", ""),  # a target above its bound is clamped, as any is
        ("50,5,1,0.2,yes", "paid", "gamma", ""),
        ("50,99,1,2,yes", "days", "survival", 'event = "died"'),  # watched until the bound
    ],
)
def test_targets_at_the_edge_of_what_a_loss_is_of_are_taken(
    tmp_path: Path, first: str, target: str, loss: str, roles: str
) -> None:
    ringfence(*training(tmp_path, first, target, loss, roles), "--anyway")
    assert {path.stem for path in tmp_path.glob("*.ledger")} == {"north", "south"}
