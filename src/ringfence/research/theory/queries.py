"""The accountant's queries about noise that the paper prescribes: how much it is, and what it truly costs."""

import math

from ringfence.accounting.account import AccountAnswer, batch_of
from ringfence.errors import AccountingError
from ringfence.research.theory import paper
from ringfence.research.theory.amplification import shuffled_gaussian_noise


def answer_query(
    *,
    records: int,
    rounds: int,
    sampling: str,
    batch: int | None,
    clip: float,
    delta: float,
    epsilon: float | None,
    noise: str,
) -> AccountAnswer:
    """Return the noise that a closed form of the paper has for `epsilon`, and the epsilon that it truly gives.

    Or `noise` is "shuffled": each of `records`, of all silos that do not collude with the server, sends its own
    Gaussian message through a shuffler, and the noise is what that needs.
    """
    if noise == "shuffled":
        return _shuffled(records, rounds, sampling, clip, delta, epsilon)
    batch = batch_of(sampling, records, batch)
    if epsilon is None:
        raise AccountingError("A closed form of the paper turns --epsilon into noise. With --sigma, leave out --noise.")
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
        "delta": delta,
        "clip": clip,
        "adjacency": "replace-one",
    }


def _shuffled(
    messages: int, rounds: int, sampling: str, clip: float, delta: float, epsilon: float | None
) -> AccountAnswer:
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
