"""The privacy statement: who is protected from whom, per what unit, at what (epsilon, delta), and what is not."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ringfence.protocol.plan import Plan


@dataclass(frozen=True)
class SiloGuarantee:
    """What one silo's ledger shows: this run's cost, and that of everything ever released from its data."""

    records: int
    rounds: int
    epsilon: float
    delta: float
    total_epsilon: float
    total_delta: float
    alone_epsilon: float
    total_alone_epsilon: float
    """The same against a server that works together with the shuffler; equal where there is no shuffler."""


WEAK = 0.9
"""A guarantee under which somebody may guess right more often than this is called weak."""


@dataclass(frozen=True)
class Statement:
    """The guarantee of a finished run, in numbers and in words."""

    plan: Plan
    silos: Mapping[str, SiloGuarantee]

    def __str__(self) -> str:
        return self.text()

    def text(self) -> str:
        """Return the statement as a person reads it."""
        lines = ["What is protected", ""]
        lines += [f"  {self._silo(name, silo)}" for name, silo in self.silos.items()]
        worst = max(self.silos.values(), key=lambda silo: silo.total_epsilon)
        guess = _best_guess(worst.total_epsilon, worst.total_delta)
        lines += ["", *(self._alone_words(guess) if self.plan.shuffle is None else self._shuffled_words(guess))]
        lines += [
            "",
            "What is not protected",
            "",
            "  - How many records a silo has, and the schema: both are public.",
            "  - Facts about the population that hold with or without any one record: learning them is the purpose.",
            "  - A person with several records, in one silo or in many: the unit is one record of one silo.",
            "  - Anything done with the data outside this ledger, and accuracy measured on held-out records.",
        ]
        return "\n".join(lines)

    @staticmethod
    def _alone_words(guess: float) -> list[str]:
        return [
            "  In words: whoever sees every message a silo ever sent (the server, all other silos together, anyone",
            "  listening) and tries to tell whether one of its records was there or another in its place, is right",
            f"  with probability at most {guess:.1%}; a coin is right with 50%.",
            "  This holds whatever they know and do: each silo adds its own noise before anything leaves it.",
        ]

    def _shuffled_words(self, guess: float) -> list[str]:
        worst = max(self.silos.values(), key=lambda silo: silo.total_alone_epsilon)
        weak = _best_guess(worst.total_alone_epsilon, worst.total_delta)
        quorum = 0 if self.plan.shuffle is None else self.plan.shuffle.quorum
        return [
            "  In words: a server that sees everything that the shuffler lets out, and tries to tell whether one of",
            f"  a silo's records was there or another in its place, is right with probability at most {guess:.1%}; a",
            "  coin is right with 50%.",
            "",
            "  This relies on two things beside the silo itself:",
            "  - The shuffler does not work together with the server. It cannot read a message, but it knows which",
            "    came from whom.",
            f"  - At least {quorum} silos of every round, this one included, add the noise that they promised.",
            "",
            "  If the server and the shuffler work together, or the server and all other silos, then only the silo's",
            f"  own noise protects its records: epsilon = {worst.total_alone_epsilon:.4g}, delta = "
            f"{worst.total_delta:.2g}. Their guess is then",
            f"  right with probability at most {weak:.1%}{': that is weak' if weak > WEAK else ''}.",
        ]

    def _silo(self, name: str, silo: SiloGuarantee) -> str:
        line = (
            f"{name}: each of {silo.records} records, over {silo.rounds} round{'' if silo.rounds == 1 else 's'}, by "
            f"epsilon = {silo.epsilon:.4g}, delta = {silo.delta:.2g}"
        )
        if silo.total_epsilon > silo.epsilon * (1 + 1e-9):
            line += (
                f" (all runs on this data so far: epsilon = {silo.total_epsilon:.4g}, delta = {silo.total_delta:.2g})"
            )
        if silo.alone_epsilon > silo.epsilon * (1 + 1e-9):
            line += f"; without the shuffler epsilon = {silo.alone_epsilon:.4g}"
        return line


def _best_guess(epsilon: float, delta: float) -> float:
    """Return the largest success probability of telling two equally likely worlds apart under (ε, δ)-DP."""
    return min(1.0, (1.0 + delta * math.exp(-epsilon)) / (1.0 + math.exp(-epsilon))) if epsilon < 700 else 1.0
