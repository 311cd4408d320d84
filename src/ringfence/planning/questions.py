"""The accountant's questions in one place: noise to privacy, privacy to noise, and the paper's formulas."""

import math

from ringfence.errors import AccountingError
from ringfence.planning import accountant, calibrate, paper
from ringfence.planning.amplification import shuffled_gaussian_noise
from ringfence.planning.events import run_events


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
    noise: str = "exact",
) -> dict[str, float | int | str | None]:
    """Return epsilon for the given sigma, or sigma for the given epsilon, with the question beside it.

    Exactly one of `sigma` and `epsilon` is given. `noise` may name a closed form of the paper instead of the
    exact calibration; the answer's epsilon is then the true one. Or it is "shuffled": each of `records`, of all silos
    together, sends its own Gaussian message through a shuffler.
    """
    if noise == "shuffled":
        return _shuffled(records, rounds, sampling, clip, delta, epsilon)
    if sampling == "full":
        if batch not in (None, records):
            raise AccountingError("Full sampling uses all records: leave the batch out, or choose another sampling.")
        batch = records
    if batch is None:
        raise AccountingError(f"Sampling '{sampling}' needs --batch, the number of records in a round.")
    answer: dict[str, float | int | str | None] = {"delta": delta, "clip": clip, "adjacency": "replace-one"}
    if noise == "exact":
        if sigma is None:
            assert epsilon is not None  # noqa: S101 (exactly one is given)
            sigma = calibrate.noise(
                sampling, records=records, batch=batch, rounds=rounds, clip=clip, epsilon=epsilon, delta=delta
            )
        events = run_events(sampling, rounds, records=records, batch=batch, clip=clip, sigma=sigma, partition="run")
        return {
            "epsilon": accountant.epsilon(events, delta),
            "sigma": sigma,
            "noise": noise,
            "sampling": sampling,
            "records": records,
            "batch": batch,
            "rounds": rounds,
            **answer,
        }
    if epsilon is None:
        raise AccountingError("A closed form of the paper turns --epsilon into noise; with --sigma leave --noise out.")
    formula = paper.closed_form(
        noise, sampling, records=records, batch=batch, rounds=rounds, clip=clip, epsilon=epsilon, delta=delta
    )
    return {
        "epsilon": formula.true_epsilon,
        "nominal_epsilon": formula.nominal_epsilon,
        "sigma": formula.sigma,
        "noise": noise,
        "sampling": formula.sampling,
        "records": records,
        "batch": formula.batch,
        "rounds": formula.rounds,
        **answer,
    }


def _shuffled(
    messages: int, rounds: int, sampling: str, clip: float, delta: float, epsilon: float | None
) -> dict[str, float | int | str | None]:
    if epsilon is None or sampling != "full":
        raise AccountingError("Shuffled messages turn --epsilon into noise, with every record in every round.")
    sigma = shuffled_gaussian_noise(messages=messages, rounds=rounds, epsilon=epsilon, delta=delta, clip=clip)
    return {
        "epsilon": epsilon,
        "sigma": sigma,
        "sigma_of_mean": sigma / math.sqrt(messages),
        "noise": "shuffled",
        "messages": messages,
        "rounds": rounds,
        "delta": delta,
        "clip": clip,
        "adjacency": "replace-one",
    }
