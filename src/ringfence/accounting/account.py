"""The accountant's questions in one place: noise to privacy, and privacy to noise."""

from ringfence.accounting import accountant, calibrate
from ringfence.accounting.events import of_group, require_count
from ringfence.accounting.sampling import run_events
from ringfence.errors import AccountingError
from ringfence.protocol.sampling import SAMPLING_NAMES, sampling_named

Answer = dict[str, float | int | str | None]


def answer_question(
    *,
    records: int,
    rounds: int,
    sampling: str,
    batch: int | None,
    clip: float,
    delta: float,
    sigma: float | None,
    epsilon: float | None,
    rows_per_person: int = 1,
    silos_per_person: int = 1,
) -> Answer:
    """Return epsilon for the given sigma, or sigma for the given epsilon, with the question beside it.

    Exactly one of `sigma` and `epsilon` is given. Where a person has several rows in a silo, or rows in several such
    silos, `person_epsilon` is what all of these rows cost together, at the same delta: the silos draw their noise, and
    who takes part, independently of each other, so their releases compose.
    """
    batch = batch_of(sampling, records, batch)
    if sigma is None:
        assert epsilon is not None  # noqa: S101 (exactly one is given)
        sigma = calibrate.noise(
            sampling, records=records, batch=batch, rounds=rounds, clip=clip, epsilon=epsilon, delta=delta
        )
    events = run_events(sampling, rounds, records=records, batch=batch, clip=clip, sigma=sigma, partition="run")
    answer: Answer = {
        "epsilon": accountant.epsilon(events, delta),
        "sigma": sigma,
        "noise": "exact",
        "sampling": sampling,
        "records": records,
        "batch": batch,
        "rounds": rounds,
        "delta": delta,
        "clip": clip,
        "adjacency": "replace-one",
        "advice": calibrate.fixed_size_words(events, delta) or None,
    }
    if (rows_per_person, silos_per_person) != (1, 1):
        silos = require_count("silos_per_person", silos_per_person)
        person = [(event, count * silos) for event, count in of_group(rows_per_person, events)]
        answer |= {
            "rows_per_person": rows_per_person,
            "silos_per_person": silos_per_person,
            "person_epsilon": accountant.epsilon(person, delta),
        }
    return answer


def batch_of(sampling: str, records: int, batch: int | None) -> int:
    """Return how many records take part in a round: all of them where sampling takes all, else as many as asked."""
    takes_all = sampling in SAMPLING_NAMES and sampling_named(sampling).takes_all
    if takes_all:
        if batch not in (None, records):
            raise AccountingError("Full sampling uses all records: leave the batch out, or choose another sampling.")
        return records
    if batch is None:
        raise AccountingError(f"Sampling '{sampling}' needs --batch, the number of records in a round.")
    return batch
