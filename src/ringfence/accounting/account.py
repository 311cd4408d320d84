"""The `account` command's answers: from noise to privacy, and from privacy to noise."""

from typing import get_args

from ringfence.accounting import accountant, calibrate
from ringfence.accounting.events import of_group, require_count
from ringfence.accounting.runs import run_events
from ringfence.errors import AccountingError
from ringfence.protocol import Unit, sampling_named
from ringfence.protocol.plan.sampling import SAMPLING_NAMES

AccountAnswer = dict[str, float | int | str | None]


def answer_query(
    *,
    records: int,
    rounds: int,
    sampling: str,
    batch: int | None,
    clip: float,
    delta: float,
    sigma: float | None,
    epsilon: float | None,
    unit: str = "record",
    rows_per_person: int = 1,
    silos_per_person: int = 1,
) -> AccountAnswer:
    """Return epsilon for the given sigma, or sigma for the given epsilon, together with the query.

    Exactly one of `sigma` and `epsilon` is given. `unit` is what `records` and `batch` count and epsilon protects: if
    it is a person, then with any number of rows. Where a person has several rows in a silo whose unit is a record, or
    rows in several such silos, `person_epsilon` is what all of these rows cost together, at the same delta: the silos
    draw their noise, and who takes part, independently of each other, so their releases compose.
    """
    if unit not in get_args(Unit):
        raise AccountingError("--unit must be 'record' or 'person'.")
    if unit == "person" and rows_per_person != 1:
        raise AccountingError(
            "With --unit person, epsilon already covers all of a person's rows in a silo: leave out "
            "--rows-per-person. To see what several rows cost when each row is its own record, use --unit record."
        )
    batch = batch_of(sampling, records, batch)
    if sigma is None:
        assert epsilon is not None  # noqa: S101 (exactly one is given)
        sigma = calibrate.noise(
            sampling, records=records, batch=batch, rounds=rounds, clip=clip, epsilon=epsilon, delta=delta
        )
    events = run_events(sampling, rounds, records=records, batch=batch, clip=clip, sigma=sigma, partition="run")
    answer: AccountAnswer = {
        "epsilon": accountant.epsilon(events, delta),
        "sigma": sigma,
        "noise": "exact",
        "sampling": sampling,
        f"{unit}s": records,
        "batch": batch,
        "rounds": rounds,
        "delta": delta,
        "clip": clip,
        "adjacency": "replace-one",
        "unit": unit,
        "advice": calibrate.fixed_size_words(events, delta) or None,
    }
    if (rows_per_person, silos_per_person) != (1, 1):
        silos = require_count("silos_per_person", silos_per_person)
        person = [(event, count * silos) for event, count in of_group(rows_per_person, events)]
        if unit != "person":
            answer["rows_per_person"] = rows_per_person
        answer |= {"silos_per_person": silos_per_person, "person_epsilon": accountant.epsilon(person, delta)}
    return answer


def batch_of(sampling: str, records: int, batch: int | None) -> int:
    """Return how many records take part in a round, for the account: all, or the number asked for."""
    if sampling in SAMPLING_NAMES and sampling_named(sampling).takes_all:
        if batch not in (None, records):
            raise AccountingError(
                "Full sampling uses every record in every round: leave out the batch, or choose another sampling rule."
            )
        return records
    if batch is None:
        raise AccountingError(f"Sampling '{sampling}' needs --batch, the number of records or persons in a round.")
    return batch
