"""What the mechanisms of other tools cost a record that is replaced, by Ringfence's accountant."""

from ringfence.accounting.account import answer_query

DELTA = 1e-5


def epsilon_of_updates(sigma: float, clip: float, rounds: int, delta: float = DELTA) -> float:
    """Return the epsilon of releasing a clipped vector so often, which one record can move anywhere."""
    return _epsilon(1, None, rounds, "full", clip, sigma, delta)


def epsilon_of_batches(multiplier: float, batches: int, steps: int, delta: float = DELTA) -> float:
    """Return the epsilon of DP-SGD: so many steps on Poisson batches, each a share 1/`batches` of the records.

    The noise of a batch's sum is `multiplier` clips.
    """
    return _epsilon(batches, 1, steps, "poisson", 1.0, multiplier, delta)


def _epsilon(
    records: int, batch: int | None, rounds: int, sampling: str, clip: float, sigma: float, delta: float
) -> float:
    answer = answer_query(
        records=records,
        rounds=rounds,
        sampling=sampling,
        batch=batch,
        clip=clip,
        delta=delta,
        sigma=sigma,
        epsilon=None,
    )
    epsilon = answer["epsilon"]
    if not isinstance(epsilon, float):
        raise TypeError("the accountant gave no number")
    return epsilon
