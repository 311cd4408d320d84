"""Requests to train on files, and to ask them one query. The command line generates its options from their fields.

request = TrainRequest([Path("north.csv")], Path("schema.toml"), "ill", PlanRequest(epsilon=1.0))
result = train_files(request)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ringfence.planning.options import REQUIRED, offered, parse_cap, parse_files
from ringfence.planning.request import Member, PlanRequest

# Nothing heavy is imported here: the command line reads its options even to print its help.

SCHEMA = (
    "The public schema (TOML). `ringfence schema draft` writes a first one, `ringfence example` one to try.",
    "Basic",
)
TARGET = ("The column to predict. Repeat it to predict several numeric columns together.", "Basic")
FILES = "One table per silo, named after it: north.csv is silo 'north'."
DELTA = ("Delta of every silo's guarantee. Default: 1/n² for n records, at most 1e-5.", "Privacy")
NEW_BEGINNING = (
    "Start a new ledger for records that already have one, without counting what the old one shows. The reason is kept "
    "in the new ledger and in every certificate.",
    "Ledger",
)
UNUSUAL_BUDGET = ("Accept an epsilon above 20 or a delta above 1/n, which protect nobody.", "Privacy")
ANYWAY = ("Spend the budget even if the rehearsal expects nothing useful for it.", "Privacy")
PLAN_OUT = ("Instead of asking the silos now, write a plan for `ringfence server run` here (JSON).", "Deployment")
"""Help and section of options that several commands have."""


def _parse_tries(options: Sequence[str]) -> dict[str, list[Any]]:
    """Read the `--try` options of a training request."""
    from ringfence.planning.search import parse_tries

    return parse_tries(options)


@dataclass(frozen=True, kw_only=True)
class ChargeOptions:
    """Whether to charge anything at all, and whether to do so where nothing useful is expected."""

    dry_run: bool = offered(
        False,
        "Print what to expect for this budget, from a rehearsal on simulated records, and stop: nothing is charged.",
        "Privacy",
    )
    anyway: bool = offered(False, *ANYWAY)


@dataclass(frozen=True, kw_only=True)
class LedgerOptions(ChargeOptions):
    """Where the ledgers of silos' files are, and what may be entered into them."""

    ledgers: Path | None = offered(None, "Folder of the ledgers. Default: beside each table.", "Ledger")
    same_data_as: Sequence[Path] = offered(
        (), "A ledger that a silo's records already have. Repeat it for each such silo.", "Ledger", metavar="LEDGER"
    )
    new_beginning: str = offered("", *NEW_BEGINNING, metavar="REASON")
    unusual_budget: bool = offered(False, *UNUSUAL_BUDGET)


@dataclass(frozen=True)
class TrainRequest(LedgerOptions):
    """Which files to train on, what to predict, the request for a plan, and how to test.

    `tries` are values of options that candidates differ in. `exact` measures the model without noise on the held-out
    records, and `tests` on files of their own: for those who may see them. `cap` is the most that all runs on a silo's
    data may cost together.
    """

    files: Sequence[Path] = offered(
        REQUIRED, f"{FILES} `ringfence example` writes three to try.", argument=True, metavar="SILO.csv..."
    )
    schema: Path = offered(REQUIRED, *SCHEMA)
    target: str | Sequence[str] = offered(REQUIRED, *TARGET, reads=list[str])
    plan: PlanRequest = field(default=REQUIRED)
    tries: Mapping[str, Sequence[Any]] = offered(
        {},
        "Train one candidate per value, compare them privately on held-out records and keep the best, all within "
        "--epsilon. Repeat it to try every combination.",
        "Evaluation",
        flag="try",
        metavar="OPTION=VALUE,VALUE...",
        reads=list[str],
        parser=_parse_tries,
    )
    exact: bool = offered(False, "Also measure on the held-out records without noise: NOT PRIVATE.", "Evaluation")
    tests: Mapping[str, Path] = offered(
        {},
        "Also measure on a silo's test file without noise: NOT PRIVATE.",
        "Evaluation",
        flag="test",
        metavar="NAME=FILE",
        reads=list[str],
        parser=parse_files,
    )
    cap: tuple[float, ...] | None = offered(
        None,
        "Refuse to run if all runs on the data together would exceed this. ALONE is the epsilon allowed against a "
        "server that colludes with the shuffler.",
        "Privacy",
        metavar="EPS,DELTA[,ALONE]",
        reads=str | None,
        parser=parse_cap,
    )
    peer_to_peer: bool = offered(
        False, "Train without a server: every silo broadcasts its answers and computes every step.", "Algorithm"
    )


@dataclass(frozen=True)
class AskRequest(LedgerOptions):
    """Which files to ask one query of, what it may cost every silo, and the most that all runs may cost together."""

    files: Sequence[Path]
    epsilon: float
    delta: float | None = None
    cap: tuple[float, ...] | None = None

    def members(self, sizes: Mapping[str, int]) -> list[Member]:
        """Return the silos of these sizes, each with what the query may cost it."""
        return [Member(name, size, self.epsilon, self.delta) for name, size in sizes.items()]
