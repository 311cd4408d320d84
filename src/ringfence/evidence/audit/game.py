"""The game between a hostile server and a silo's real gate, and its report.

A run is what a silo's operator would see: a new ledger on the disk, plans approved by the gate's own accountant, every
release charged, drawn from the operating system's randomness, stored and answered. Only the records are made up, and
the server is the adversary. `bound` says what a score proves, `fidelity` what sums of squares do.
"""

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from ringfence.accounting.events import require_count, seen_by
from ringfence.audit.adversary import Observation, interrogate, look_at
from ringfence.audit.bound import Claim, assumption_free, epsilon_of_score, lower_mean
from ringfence.audit.fidelity import Squares, improbability
from ringfence.audit.mechanisms import MECHANISMS, Mechanism, no_canaries
from ringfence.audit.plans import CANARIES, SILO, AuditQuestion
from ringfence.audit.sabotage import NONE, SABOTAGES, sabotaged
from ringfence.audit.shuffled_plans import collect_openly, private_keys
from ringfence.errors import PlanError
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import Plan, SiloTerms
from ringfence.silo.budget import Budget
from ringfence.silo.gate import Gate
from ringfence.silo.ledger import Ledger

FALSE_ALARM = 1e-6
"""Probability, at most, with which the game refutes a true claim by default; so may the squares."""

RUNS = 1200
"""Runs of a game with 64 canaries: enough to reach about nine tenths of a claimed epsilon of 3."""

ROUNDS = 2
"""Rounds of a run of local-sgd; other mechanisms say it themselves."""

LOCAL_SGD = "local-sgd"

_PLENTY = 1e9
"""The audited ledgers' budget, in epsilon: the audit is about what rounds cost, not about running out."""


@dataclass(frozen=True)
class GameRun:
    """One run: the coins, what the server saw of them, and what the ledger charged."""

    coins: FloatArray
    observations: tuple[Observation, ...]
    claim: Claim

    def score(self) -> float:
        """Return the share of coins that the server guesses right, among the canaries that show most."""
        power = np.sum([seen.power() for seen in self.observations], axis=0)
        evidence = np.sum([seen.evidence() for seen in self.observations], axis=0)
        exposed = power >= power.max() * (1 - 1e-3)
        guesses = np.where(evidence > 0, 1.0, -1.0)
        return float(np.mean(guesses[exposed] == self.coins[exposed]))

    def squares(self) -> tuple[Squares, Squares]:
        """Return the two sums of squares of `fidelity`."""
        size, *sizes = (seen.squares() for seen in self.observations)
        together, *sums = (seen.squares_of_sums() for seen in self.observations)
        return sum(sizes, start=size), sum(sums, start=together)


@dataclass(frozen=True)
class AuditReport:
    """What an audit found.

    `epsilon_claimed` is what the ledger says a run cost at `delta`. With confidence `confidence` the truth is at least
    `epsilon_lower`, in the sense of `bound.epsilon_of_score`, and `epsilon_lower_any_mechanism` without any
    assumption. `refuted` is true if the lower bound exceeds the claim or the noise is not the plan's; each of the two
    happens to a silo that keeps its claim with probability `false_alarm` at most.
    """

    mechanism: str
    sabotage: str
    question: AuditQuestion
    runs: int
    canaries: int
    epsilon_claimed: float
    epsilon_lower: float
    epsilon_lower_any_mechanism: float
    score: float
    score_allowed: float
    score_lower: float
    noise: float
    noise_of_sums: float
    improbability: float
    false_alarm: float

    @property
    def confidence(self) -> float:
        """The probability, at least, with which a lower bound is one."""
        return 1 - self.false_alarm

    @property
    def game_refutes(self) -> bool:
        """Whether the adversary guesses more than the claim allows."""
        return self.score_lower > self.score_allowed

    @property
    def noise_refutes(self) -> bool:
        """Whether the transcripts are not what the plan's noise and sampling would give."""
        return self.improbability < self.false_alarm

    @property
    def refuted(self) -> bool:
        """Whether the audit contradicts the claim."""
        return self.game_refutes or self.noise_refutes

    def data(self) -> dict[str, Any]:
        """Return the report for machines."""
        return {
            "epsilon_claimed": self.epsilon_claimed,
            "epsilon_lower": self.epsilon_lower,
            "confidence": self.confidence,
            "refuted": self.refuted,
            "epsilon_lower_any_mechanism": self.epsilon_lower_any_mechanism,
            "delta": self.question.delta,
            "mechanism": self.mechanism,
            "sabotage": self.sabotage,
            "records": self.question.records,
            "rounds": self.question.rounds,
            "runs": self.runs,
            "canaries": self.canaries,
            "score": self.score,
            "score_allowed": self.score_allowed,
            "score_lower": self.score_lower,
            "noise": self.noise,
            "noise_of_sums": self.noise_of_sums,
            "noise_improbability": self.improbability,
            "findings": list(self.findings()),
        }

    def rows(self) -> list[list[object]]:
        """Return the report as a table for people."""
        question = self.question
        return [
            ["mechanism", self.mechanism + ("" if self.sabotage == NONE else f", sabotaged: {self.sabotage}")],
            ["records, rounds, runs", f"{question.records}, {question.rounds}, {self.runs}"],
            ["epsilon claimed", f"{self.epsilon_claimed:.4g} at delta {question.delta:.2g} for each record"],
            ["epsilon, lower bound", f"{self.epsilon_lower:.4g} with confidence {self.confidence}"],
            ["  for any mechanism", f"{self.epsilon_lower_any_mechanism:.4g}"],
            ["coins guessed", f"{self.score:.2%}; the claim allows {self.score_allowed:.2%}"],
            [
                "noise, relative to the plan",
                f"{self.noise:.4f}; of sums over rounds {self.noise_of_sums:.4f} (squared norms)",
            ],
        ]

    def text(self) -> list[str]:
        """Return the verdict in sentences."""
        if self.refuted:
            return ["REFUTED: this silo does not keep its claim.", *self.findings()]
        return [
            "Not refuted: the attack did no better than the claim allows, and the noise is the plan's.",
            "An audit can refute a claim, never prove it; the proof is the accountant's.",
        ]

    def findings(self) -> Iterator[str]:
        """Yield, one sentence each, why the claim is refuted; nothing if it is not."""
        if self.game_refutes:
            yield (
                f"The server guessed {self.score:.2%} of the coins, and at least {self.score_lower:.2%} with "
                f"confidence; the claim allows {self.score_allowed:.2%}."
            )
        if self.noise_refutes:
            yield (
                f"The squared norms of the transcripts are {self.noise:.3f} times, and those of their sums over rounds "
                f"{self.noise_of_sums:.3f} times, what the plan's noise and sampling give. By chance this happens with "
                f"probability at most {self.improbability:.1g}."
            )


def default_rounds(mechanism: str) -> int:
    """Return how many rounds a run has by default."""
    return MECHANISMS[mechanism].rounds if mechanism in MECHANISMS else ROUNDS


def default_runs(mechanism: str, question: AuditQuestion) -> int:
    """Return how many runs are played by default: more where fewer canaries play, up to four times as many."""
    if mechanism not in MECHANISMS:
        return min(4 * RUNS, RUNS * CANARIES // question.canaries)
    chosen = MECHANISMS[mechanism]
    return chosen.runs or min(4 * RUNS, RUNS * CANARIES // chosen.canaries(question))


def audit(
    mechanism: str,
    question: AuditQuestion,
    *,
    runs: int | None = None,
    sabotage: str = NONE,
    false_alarm: float = FALSE_ALARM,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> AuditReport:
    """Play `runs` runs against the named mechanism, in a silo broken in the named way, and say what it shows.

    The probability that a silo that keeps its claim is refuted is at most 2·false_alarm.
    """
    if mechanism != LOCAL_SGD and mechanism not in MECHANISMS:
        raise PlanError(f"There is no mechanism '{mechanism}'; choose one of {', '.join([*MECHANISMS, LOCAL_SGD])}.")
    if sabotage not in SABOTAGES:
        raise PlanError(f"There is no sabotage '{sabotage}'; choose one of {', '.join(SABOTAGES)}.")
    total = default_runs(mechanism, question) if runs is None else require_count("runs", runs)
    if mechanism == LOCAL_SGD:
        from ringfence.audit.local import play_local

        played = play_local(question, total, sabotage)
    elif sabotage in MECHANISMS[mechanism].not_played:
        raise PlanError(
            f"Sabotage '{sabotage}' is not run against '{mechanism}': it changes nothing there, or too little to "
            "detect in a few runs. Choose another mechanism for it, or another sabotage."
        )
    else:
        played = play(MECHANISMS[mechanism], question, total, sabotage)
    return _report(mechanism, question, sabotage, played, false_alarm, lambda done: watch(done, total))


def play(mechanism: Mechanism, question: AuditQuestion, runs: int, sabotage: str = NONE) -> Iterator[GameRun]:
    """Play against the gate, each run with a ledger, plans, coins and noise of its own."""
    with sabotaged(sabotage) as gate_type, tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        plans = mechanism.plans(question)
        for number in range(runs):
            yield _run(mechanism, question, plans, gate_type, Path(folder) / f"{number}")


def _run(
    mechanism: Mechanism, question: AuditQuestion, plans: Sequence[Plan], gate_type: type[Gate], folder: Path
) -> GameRun:
    coins = np.array([secrets.choice((-1.0, 1.0)) for _ in range(mechanism.canaries(question))])
    budget = Budget(_PLENTY, question.delta)
    folder.mkdir()
    with ExitStack() as ledgers:

        @cache
        def ledger_of(silo: str) -> Ledger:
            return ledgers.enter_context(Ledger.create(folder / silo, silo=silo, budget=budget, marked=False))

        def approved(plan: Plan, terms: SiloTerms) -> Gate:
            records = mechanism.records(plan, coins) if terms.name == SILO else no_canaries(plan, terms)
            key = None if terms.key is None else private_keys(SILO).silos[terms.name]
            gate = gate_type(records, ledger_of(terms.name), key)
            gate.approve(plan)
            return gate

        observations = []
        for plan in plans:
            own = plan.model_copy(update={"run": secrets.token_hex(8)})
            answering = own.silos[:1] if mechanism.against == "anyone" else own.silos
            gates = [approved(own, terms) for terms in answering]
            look = look_at(own, gates, collect_openly(own))
            answers = interrogate(look, own, partial(mechanism.argument, own))
            if mechanism.reads(own):
                observations.append(mechanism.read(own, answers))
        claim = Claim(tuple(seen_by(mechanism.against, ledger_of(SILO).account().charged())), question.delta)
    shutil.rmtree(folder)
    return GameRun(coins, tuple(observations), claim)


def memory_folder() -> str | None:
    """Return a folder in memory if there is one: a thousand ledgers are synced much faster there."""
    shared = Path(os.sep, "dev", "shm")
    return str(shared) if shared.is_dir() and os.access(shared, os.W_OK) else None


def _report(
    mechanism: str,
    question: AuditQuestion,
    sabotage: str,
    played: Iterator[GameRun],
    false_alarm: float,
    watch: Callable[[int], None],
) -> AuditReport:
    first = next(played)  # there is one at least
    scores, (size, sums) = [first.score()], first.squares()
    for run in played:
        watch(len(scores))
        more_size, more_sums = run.squares()
        size, sums = size + more_size, sums + more_sums
        scores.append(run.score())
    watch(len(scores))
    claim = first.claim  # runs differ in what their partitions are called, and in nothing that costs
    lower = lower_mean(np.array(scores), 1 - false_alarm)
    return AuditReport(
        mechanism=mechanism,
        sabotage=sabotage,
        question=question,
        runs=len(scores),
        canaries=len(first.coins),
        epsilon_claimed=claim.epsilon,
        epsilon_lower=epsilon_of_score(claim, lower),
        epsilon_lower_any_mechanism=assumption_free(lower, question.delta),
        score=float(np.mean(scores)),
        score_allowed=claim.score,
        score_lower=lower,
        noise=size.ratio(),
        noise_of_sums=sums.ratio(),
        improbability=improbability([size, sums]),
        false_alarm=false_alarm,
    )
