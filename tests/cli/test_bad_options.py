"""Bad input to `train`, `plan` and `statistics`: one clear sentence, status 1, and ledgers that nobody touched."""

from collections.abc import Iterator

import pytest

from ringfence.federation.requests import TrainRequest
from ringfence.federation.workflow import train_files
from ringfence.planning.request import PlanRequest
from tests.cli.conftest import Federation, refuses, ringfence


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


NO_PLAN = [
    (["--epsilon", "0"], "epsilon must be a finite number above 0"),
    (["--delta", "1"], "delta must lie strictly between 0 and 1"),
    (["--budget", "north=1"], "not of the form NAME=EPS,DELTA"),
    (["--budget", "1,1e-6"], "not of the form NAME=EPS,DELTA"),
    (["--algorithm", "guesswork"], "no algorithm 'guesswork'; choose one of minibatch-sgd, accelerated, regularised"),
    (["--rounds", "-3"], "A plan needs at least one round, but -3 were asked for"),
    (["--sampling", "one-pass", "--correlation", "-0.5"], "correlation: Input should be greater than or equal to 0"),
    (["--step", "nan"], "step: Input should be a finite number"),
    (["--loss", "pinball"], "does not fit the target 'ill': logistic and hinge need two categories"),
    (["--target", "cost", "--loss", "hinge"], "does not fit the target 'cost'"),
    (["--target", "cost", "--loss", "epsilon-insensitive", "--margin", "-1"], "margin: Input should be greater than"),
    (["--target", "nope"], "'nope' is not among the columns, which are "),
    (["--target", "costs"], "'costs' is not among the columns; the most similar is 'cost'."),
]
"""A few of `planning.test_refusals`: the command line adds parsing, one line on standard error, and the status."""


MISTAKES = {
    "train": [
        *NO_PLAN,
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
    "plan": [
        *NO_PLAN,
        (["--silo", "north=9"], "'north' is given twice"),
        (["--silo", "west"], "not of the form NAME=RECORDS"),
        (["--silo", "west=-5"], "not of the form NAME=RECORDS"),
        (["--silo", "west=0"], "Silo 'west' has 0 records, too few"),
        (["--silo", "west=1", "--held-out", "0", "--algorithm", "localized"], "every silo needs at least 2"),
        (["--schema", "/nowhere.toml"], "could not be read"),
        (["--out", "/nowhere/plan.json"], "cannot be written"),
    ],
    "statistics": [
        (["--epsilon", "0"], "epsilon must be a finite number above 0"),
        (["--epsilon", "1e9"], "less than a millionth"),
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
}


@pytest.mark.parametrize(
    ("command", "changes", "says"), [(command, *mistake) for command, own in MISTAKES.items() for mistake in own]
)
def test_a_mistake_is_refused_in_a_sentence_and_no_ledger_is_touched(
    untouched: Federation, command: str, changes: list[str], says: str
) -> None:
    refuses(says, *getattr(untouched, command)(*changes))


def test_a_refusal_leaves_no_ledger_where_there_was_none(federation: Federation) -> None:
    for arguments in (federation.train("--correlation", "0.5"), federation.statistics("--epsilon", "0")):
        ringfence(*arguments, status=1)
    assert not federation.ledgers()


def test_an_option_that_does_not_exist_is_a_usage_error(federation: Federation) -> None:
    done = ringfence(*federation.train("--momentum", "0.9"), status=2)
    assert "No such option" in done.stderr
    assert not federation.ledgers()
