"""What `ringfence train` does by default on the paper's three data sets, beside the choice by loss bounds.

    python -m benchmarks.defaults [TRIALS]

Simulated, three runs for each trial, in the panels in which every silo is asked in every round; RINGFENCE_DATA names
the folder of the data sets. Epsilon is that of one run, for each record, against anyone who sees what its silo sends.
"""

import sys

import numpy as np

from ringfence.planning.propose import BY_BOUND, propose
from ringfence.planning.request import Member, PlanRequest
from ringfence.research.experiments.abstract import schema_of
from ringfence.research.experiments.curves import TrialData, losses_and_errors
from ringfence.research.experiments.reproduce import EXPERIMENTS
from ringfence.simulation import trials

PANELS = {"mnist": "M = 25", "insurance": "N = M = 5", "obesity": "M = 7"}
RUNS = 3


def error(problem: TrialData, epsilon: float, algorithm: str | None, seed: int) -> float:
    """Return the mean test error of some runs of what is planned."""
    members = [Member(f"silo {i}", n, epsilon, problem.delta) for i, n in enumerate(problem.sizes)]
    request = PlanRequest(algorithm=algorithm, loss=problem.loss, held_out=0.0, curves=0)
    plan = propose(schema_of(problem.geometry, problem.loss), members, request).plan
    weights = trials.simulated_weights(plan, problem.silos, [seed + 1000 * run for run in range(RUNS)])
    return float(losses_and_errors(problem, weights)[1].mean())


def main() -> None:
    """Print a row for each data set and epsilon."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print("| experiment | ε | default | by loss bounds |\n|---|---:|---:|---:|")
    for name, panel in PANELS.items():
        experiment = EXPERIMENTS[name]
        problems = [experiment.build(panel, number, None).ours for number in range(count)]
        for epsilon in experiment.epsilons:
            found = [
                [error(problem, epsilon, algorithm, seed) for seed, problem in enumerate(problems)]
                for algorithm in (None, BY_BOUND)
            ]
            told = (f"{np.mean(own):.4f} ± {np.std(own, ddof=1) / count**0.5:.4f}" for own in found)
            print(f"| {name} | {epsilon:g} | {' | '.join(told)} |", flush=True)


if __name__ == "__main__":
    main()
