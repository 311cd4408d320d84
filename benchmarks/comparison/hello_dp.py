"""NVFlare's example hello-dp: the noise that its client chooses, its epsilon, and the epsilon for a replaced record.

The numbers of records, batches and passes are its defaults (examples/hello-world/hello-dp, job.py and client.py): two
clients share 284,807 records and train on four fifths of them. Opacus finds the noise, as it does there, from the
number of rounds that the server announces.
"""

import math
import warnings

from benchmarks.comparison.accounts import DELTA, epsilon_of_batches
from ringfence.research.markdown import table

RECORDS = 284_807 // 2 - math.ceil(0.2 * (284_807 // 2))
BATCH, PASSES, TARGET = 128, 5, 1.0
BATCHES = math.ceil(RECORDS / BATCH)
"""Batches in a pass: Opacus takes each with the probability of one over them."""
CASES = ((10, 10), (1, 10))
"""Rounds that the server announces, and rounds that it then asks for."""
HEAD = [
    "rounds announced",
    "rounds asked for",
    "noise multiplier",
    "ε that the client reports",
    "ε, one record replaced",
]


def costs() -> str:
    """Return what the run costs if it goes as announced, and if the server goes on."""
    return table(HEAD, [line(*case) for case in CASES], texts=0)


def line(announced: int, asked: int) -> tuple[str, ...]:
    """Return a line of the table; Opacus finds noise and epsilon."""
    from opacus.accountants import PRVAccountant
    from opacus.accountants.utils import get_noise_multiplier

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Opacus's first guess, by another accountant, is coarse
        multiplier = round(
            get_noise_multiplier(
                target_epsilon=TARGET,
                target_delta=DELTA,
                sample_rate=1 / BATCHES,
                epochs=PASSES * announced,
                accountant="prv",
            ),
            4,
        )
        theirs = PRVAccountant()
        theirs.history = [(multiplier, 1 / BATCHES, steps(asked))]
        reported = theirs.get_epsilon(DELTA)
    return str(announced), str(asked), f"{multiplier:.4f}", f"{reported:.2f}", replaced(multiplier, asked)


def steps(rounds: int) -> int:
    """Return how many batches a client's optimiser takes in so many rounds."""
    return rounds * PASSES * BATCHES


def replaced(multiplier: float, rounds: int) -> str:
    """Return the epsilon for a record that is replaced, as the table shows it."""
    return f"{epsilon_of_batches(multiplier, BATCHES, steps(rounds)):.2f}"
