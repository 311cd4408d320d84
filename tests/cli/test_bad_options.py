"""Bad input to `train`, `plan` and `statistics`: one clear sentence, status 1, and ledgers that nobody touched."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.planning.request import PlanRequest
from ringfence.workflow import TrainRequest, train_files
from tests.cli.conftest import Federation, Ringfence, check_one_sentence


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    """Silos whose ledgers show one earlier run."""
    federation = Federation(tmp_path_factory.mktemp("used"))
    train_files(
        TrainRequest(federation.files, federation.schema, "ill", PlanRequest(epsilon=1.0, rounds=2, survey=False))
    )
    return federation


@pytest.fixture
def untouched(used: Federation) -> Iterator[Federation]:
    """The same silos; their ledgers must be the same afterwards."""
    before = used.ledgers()
    assert set(before) >= {"north.ledger", "south.ledger", "west.ledger"}
    yield used
    assert used.ledgers() == before


WISHES = [
    # the guarantee
    (["--epsilon", "0"], "epsilon must be a finite number above 0"),
    (["--epsilon", "nan"], "epsilon must be a finite number above 0"),
    (["--delta", "1"], "delta must lie strictly between 0 and 1"),
    (["--delta", "0"], "delta must lie strictly between 0 and 1"),
    (["--budget", "north=1"], "not of the form NAME=EPS,DELTA"),
    (["--budget", "1,1e-6"], "not of the form NAME=EPS,DELTA"),
    # which algorithm, by which bound
    (["--algorithm", "guesswork"], "no algorithm 'guesswork'; choose one of minibatch-sgd, accelerated, regularised"),
    (["--risk", "all"], "one of empirical, population, not 'all'"),
    (["--average", "mean"], "one of weighted, last, tail, not 'mean'"),
    (["--algorithm", "multi-stage"], "give a ridge"),
    (["--algorithm", "multi-stage", "--ridge", "0.01", "--rounds", "2"], "but there are 2: ask for more rounds"),
    (["--algorithm", "multi-stage", "--ridge", "1e-9"], "but there are 100: ask for more rounds"),
    (["--algorithm", "localized", "--batch", "20"], "leave the batch out"),
    (["--algorithm", "localized", "--sampling", "full"], "localized algorithm and phased sampling go together"),
    (["--algorithm", "accelerated", "--sampling", "phased"], "localized algorithm and phased sampling go together"),
    (
        ["--algorithm", "minibatch-sgd", "--survey"],
        "Only the accelerated and the",
    ),
    (["--algorithm", "accelerated", "--step", "1"], "accelerated has its own schedule: leave the step out"),
    # rounds, batches, noise
    (["--rounds", "0"], "A plan needs at least one round, but 0 were asked for"),
    (["--rounds", "-3"], "A plan needs at least one round, but -3 were asked for"),
    (["--step", "1", "--rounds", "0"], "A plan needs at least one round, but 0 were asked for"),
    (["--max-rounds", "0"], "A plan needs at least one round, but 0 were asked for"),
    (["--max-rounds", "-3"], "A plan needs at least one round, but -3 were asked for"),
    (["--max-rounds", "5", "--rounds", "9"], "either the exact number of rounds or the most rounds allowed"),
    (["--sampling", "sometimes"], "one of full, fixed, poisson, one-pass"),
    (["--sampling", "fixed", "--batch", "10000"], "batch of 10000 is larger than the"),
    (["--sampling", "fixed", "--batch", "0"], "batch must be a whole number of at least 1"),
    (["--sampling", "one-pass", "--batch", "0"], "batch must be a whole number of at least 1"),
    (["--batch", "50"], "Full sampling uses every record in every round"),
    (["--sampling", "one-pass", "--rounds", "5000"], "One pass of 5000 rounds needs a record, or person, for each"),
    (["--sampling", "one-pass", "--rounds", "10", "--batch", "200"], "needs more than the"),
    (["--correlation", "0.5"], "correlated noise needs one-pass sampling"),
    (["--sampling", "one-pass", "--correlation", "1"], "correlation: Input should be less than 1"),
    (["--sampling", "one-pass", "--correlation", "-0.5"], "correlation: Input should be greater than or equal to 0"),
    (["--available", "9"], "more silos than the plan has"),
    (["--available", "0"], "silos: Input should be greater than or equal to 1"),
    # numbers of the objective
    (["--step", "0"], "step: Input should be greater than 0"),
    (["--step", "-1"], "step: Input should be greater than 0"),
    (["--step", "nan"], "step: Input should be a finite number"),
    (["--clip", "-1"], "clip must be a positive number that can be computed with, but is -1.0"),
    (["--clip", "1e300"], "clip must be a positive number that can be computed with, but is 1e+300"),
    (["--distance", "0"], "distance must be a positive number that can be computed with, but is 0.0"),
    (["--distance", "-1"], "distance must be a positive number"),
    (["--distance", "nan"], "distance must be a positive number"),
    (["--distance", "1e300"], "distance must be a positive number that can be computed with"),
    (["--ridge", "-1"], "ridge must be 0 or a positive number that can be computed with, but is -1.0"),
    (["--ridge", "nan"], "ridge must be 0 or a positive number"),
    (["--ridge", "inf"], "ridge must be 0 or a positive number"),
    (["--weights", "loud"], "one of records, equal, noise, not 'loud'"),
    # what is learned
    (["--loss", "cubed"], "no loss 'cubed'; choose one of logistic, softmax, squared"),
    (["--loss", "squared"], "does not fit the target"),
    (["--loss", "pinball"], "does not fit the target 'ill': logistic and hinge need two categories"),
    (["--loss", "softmax"], "softmax three or more"),
    (["--target", "cost", "--loss", "hinge"], "does not fit the target 'cost'"),
    (["--target", "cost", "--loss", "pinball", "--quantile", "0"], "quantile: Input should be greater than 0"),
    (["--target", "cost", "--loss", "pinball", "--quantile", "1"], "quantile: Input should be less than 1"),
    (["--target", "cost", "--loss", "epsilon-insensitive", "--margin", "-1"], "margin: Input should be greater than"),
    (["--target", "cost", "--loss", "huber", "--margin", "0"], "threshold: Input should be greater than 0"),
    (["--target", "nope"], "'nope' is not among the columns, which are "),
    (["--target", "costs"], "'costs' is not among the columns; the most similar is 'cost'."),
]


@pytest.mark.parametrize(("changes", "says"), WISHES)
def test_train_refuses_what_cannot_be_planned(
    untouched: Federation, ringfence: Ringfence, changes: list[str], says: str
) -> None:
    check_one_sentence(ringfence(*untouched.train(*changes)), says)


@pytest.mark.parametrize(("changes", "says"), WISHES)
def test_plan_refuses_it_in_the_same_words(
    untouched: Federation, ringfence: Ringfence, changes: list[str], says: str
) -> None:
    check_one_sentence(ringfence(*untouched.plan(*changes)), says)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["--budget", "east=1,1e-6"], "budget for silo 'east', but the silos are"),
        (["--held-out", "1.5"], "held-out share"),
        (["--held-out", "0", "--exact"], "none is held out"),
        (["--test", "north"], "not of the form NAME=FILE"),
        (["--cap", "1"], "The cap '1' is not of the form EPS,DELTA"),
        (["--cap", "-1,1e-6"], "the cap's epsilon must be a finite number above 0"),
        (["--cap", "1,1"], "the cap's delta must lie strictly between 0 and 1"),
        (["--ledgers", "/proc/nowhere", "--no-report"], "already have a ledger"),
        (["--ledgers", "/proc/nowhere", "--no-report", "--new-beginning", "a test"], "No ledger can be made"),
        (["--ledgers", "/proc", "--no-report", "--new-beginning", "a\nb"], "write one line of plain text"),
        (["--same-data-as", "nowhere.ledger", "--no-report"], "There is no ledger at nowhere.ledger"),
    ],
)
def test_train_refuses_what_it_cannot_do(
    untouched: Federation, ringfence: Ringfence, changes: list[str], says: str
) -> None:
    check_one_sentence(ringfence(*untouched.train(*changes)), says)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["--silo", "north=9"], "'north' is given twice"),
        (["--silo", "west"], "not of the form NAME=RECORDS"),
        (["--silo", "west=-5"], "not of the form NAME=RECORDS"),
        (["--silo", "west=0"], "Silo 'west' has 0 records, too few"),
        (["--silo", "west=1", "--held-out", "0", "--algorithm", "localized"], "every silo needs at least 2"),
        (["--schema", "/nowhere.toml"], "could not be read"),
        (["--out", "/nowhere/plan.json"], "cannot be written"),
    ],
)
def test_plan_refuses_sizes_and_files_it_cannot_use(
    untouched: Federation, ringfence: Ringfence, changes: list[str], says: str
) -> None:
    check_one_sentence(ringfence(*untouched.plan(*changes)), says)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["--epsilon", "0"], "epsilon must be a finite number above 0"),
        (["--epsilon", "nan"], "epsilon must be a finite number above 0"),
        (["--epsilon", "1e9"], "less than a millionth"),
        (["--delta", "0"], "delta: Input should be greater than 0"),
        (["--delta", "1"], "delta: Input should be less than 1"),
        (["--columns", "nope"], "the column 'nope', which the schema does not read"),
        (["--columns", "age,age"], "a column is named twice"),
        (["--bins", "48"], "a power of two, such as 64, not 48"),
        (["--cross", "age"], "'age' is not of the form A,B"),
        (["--cross", "age,age"], "'age' is one"),
        (["--silo", "north=3"], "Give exactly one of these"),
        (["--run", "nowhere"], "Give exactly one of these"),
        (["--page", "/nowhere/page.html"], "cannot be written"),
        (["--ledgers", "/proc/nowhere"], "already have a ledger"),
        (["--ledgers", "/proc/nowhere", "--new-beginning", "a test"], "No ledger can be made"),
    ],
)
def test_statistics_refuse_what_cannot_be_asked(
    untouched: Federation, ringfence: Ringfence, changes: list[str], says: str
) -> None:
    check_one_sentence(ringfence(*untouched.statistics(*changes)), says)


def test_a_refusal_leaves_no_ledger_where_there_was_none(
    federation: Federation, ringfence: Ringfence, tmp_path: Path
) -> None:
    for arguments in (
        federation.train("--algorithm", "guesswork"),
        federation.train("--max-rounds", "0"),
        federation.train("--correlation", "0.5"),
        federation.statistics("--epsilon", "0"),
    ):
        assert ringfence(*arguments).returncode == 1
    assert not list(tmp_path.rglob("*.ledger*"))


def test_an_option_that_does_not_exist_is_a_usage_error(federation: Federation, ringfence: Ringfence) -> None:
    done = ringfence(*federation.train("--momentum", "0.9"))
    assert done.returncode == 2
    assert "No such option" in done.stderr
    assert not federation.ledgers()
