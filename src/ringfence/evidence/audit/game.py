"""The game between a hostile server and a silo's real gate, and its report.

A run is what a silo's operator would see: a new ledger on the disk, plans approved by the gate's own accountant, every
release charged, drawn from the operating system's randomness, stored and answered. Only the records are made up, and
the server is the adversary. `lower_bound` turns scores into epsilons, `noise_tests` tests sums of squares.
"""

import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ringfence.accounting.events import require_count, seen_by
from ringfence.errors import PlanError
from ringfence.evidence.audit.adversary import Observation, ask_all_rounds, mean_answer_reader, open_all_seals
from ringfence.evidence.audit.lower_bound import (
    Claim,
    epsilon_of_score,
    epsilon_without_assumptions,
    lower_bound_of_mean,
)
from ringfence.evidence.audit.mechanisms import MECHANISMS, Mechanism, records_without_canaries
from ringfence.evidence.audit.noise_tests import SumOfSquares, p_value
from ringfence.evidence.audit.plans import CANARIES, SILO, AuditQuery, private_keys
from ringfence.evidence.audit.sabotage import NONE, SABOTAGES
from ringfence.protocol import FloatArray, Plan, SiloTerms
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from ringfence.storage.memory import memory_folder

FALSE_ALARM = 1e-6
"""Probability, at most, with which the game refutes a true claim by default; so may the squares."""

RUNS = 1200
"""Runs of a game with 64 canaries: enough to reach about nine tenths of a claimed epsilon of 3."""

_PLENTY = 1e9
"""The audited ledgers' budget, in epsilon: the audit is about what rounds cost, not about running out."""


@dataclass(frozen=True)
class GameRun:
    """One run: the coins, what the server saw of them, and what the ledger charged."""

    coins: FloatArray
    observations: tuple[Observation, ...]
    claim: Claim

    def score(self) -> float:
        """Return the share of coins that the server guesses right in this run, among the most exposed canaries."""
        power = np.sum([seen.power() for seen in self.observations], axis=0)
        evidence = np.sum([seen.evidence() for seen in self.observations], axis=0)
        exposed = power >= power.max() * (1 - 1e-3)
        guesses = np.where(evidence > 0, 1.0, -1.0)
        return float(np.mean(guesses[exposed] == self.coins[exposed]))

    def squares(self) -> tuple[SumOfSquares, SumOfSquares]:
        """Return the two sums of squares of `noise_tests` over a run of the game."""
        return (
            sum((seen.squares() for seen in self.observations), start=SumOfSquares()),
            sum((seen.squares_of_sums() for seen in self.observations), start=SumOfSquares()),
        )


@dataclass(frozen=True)
class AuditReport:
    """What an audit found.

    `epsilon_claimed` is what the ledger says a run cost at `delta`. With confidence `confidence` the truth is at least
    `epsilon_lower`, in the sense of `lower_bound.epsilon_of_score`, and `epsilon_lower_any_mechanism` without any
    assumption. `refuted` is true if the lower bound exceeds the claim or the noise is not the plan's; each of the two
    happens to a silo that keeps its claim with probability `false_alarm` at most.
    """

    epsilon_claimed: float
    epsilon_lower: float
    epsilon_lower_any_mechanism: float
    delta: float
    mechanism: str
    sabotage: str
    records: int
    rounds: int
    runs: int
    canaries: int
    score: float
    score_allowed: float
    score_lower: float
    noise: float
    noise_of_sums: float
    noise_improbability: float
    false_alarm: float

    @property
    def confidence(self) -> float:
        """The confidence level of the audit's lower bounds."""
        return 1 - self.false_alarm

    @property
    def game_refutes(self) -> bool:
        """Whether the adversary guesses more than the claim allows."""
        return self.score_lower > self.score_allowed

    @property
    def noise_refutes(self) -> bool:
        """Whether the transcripts are not what the plan's noise and sampling would give."""
        return self.noise_improbability < self.false_alarm

    @property
    def refuted(self) -> bool:
        """Whether the audit's game contradicts the claim."""
        return self.game_refutes or self.noise_refutes

    def data(self) -> dict[str, Any]:
        """Return the result of the audit's game as plain data."""
        first = {"epsilon_claimed": self.epsilon_claimed, "epsilon_lower": self.epsilon_lower}
        fields = {name: value for name, value in vars(self).items() if name != "false_alarm"}
        verdict = {"confidence": self.confidence, "refuted": self.refuted}
        return {**first, **verdict, **fields, "findings": list(self.findings())}

    def rows(self) -> list[list[object]]:
        """Return the numbers of the audit's game as rows of a printed table."""
        return [
            ["mechanism", self.mechanism + ("" if self.sabotage == NONE else f", sabotaged: {self.sabotage}")],
            ["records, rounds, runs", f"{self.records}, {self.rounds}, {self.runs}"],
            ["epsilon claimed", f"{self.epsilon_claimed:.4g} at delta {self.delta:.2g} for each record"],
            ["epsilon, lower bound", f"{self.epsilon_lower:.4g} with confidence {self.confidence}"],
            ["  for any mechanism", f"{self.epsilon_lower_any_mechanism:.4g}"],
            ["coins guessed", f"{self.score:.2%}; the claim allows {self.score_allowed:.2%}"],
            [
                "noise, relative to the plan",
                f"{self.noise:.4f}; of sums over rounds {self.noise_of_sums:.4f} (squared norms)",
            ],
        ]

    def text(self) -> list[str]:
        """Return the verdict of the audit's game in sentences."""
        if self.refuted:
            return ["REFUTED: this silo does not keep its claim.", *self.findings()]
        return [
            "Not refuted: the attack did no better than the claim allows, and the noise is the plan's.",
            "An audit can refute a claim, never prove it; the proof is the accountant's.",
        ]

    def findings(self) -> Iterator[str]:
        """Yield, one sentence each, why the audit's game refutes the claim; nothing if it does not."""
        if self.game_refutes:
            yield (
                f"The server guessed {self.score:.2%} of the coins, and at least {self.score_lower:.2%} with "
                f"confidence; the claim allows {self.score_allowed:.2%}."
            )
        if self.noise_refutes:
            yield (
                f"The squared norms of the transcripts are {self.noise:.3f} times, and those of their sums over rounds "
                f"{self.noise_of_sums:.3f} times, what the plan's noise and sampling give. By chance this happens with "
                f"probability at most {self.noise_improbability:.1g}."
            )


def mechanism_named(name: str) -> Mechanism:
    """Return an audited mechanism by its name; PlanError if there is none."""
    if name not in MECHANISMS:
        raise PlanError(f"There is no mechanism '{name}'; choose one of {', '.join(MECHANISMS)}.")
    return MECHANISMS[name]


def default_runs(mechanism: str, query: AuditQuery) -> int:
    """Return the default number of runs: more for mechanisms with fewer canaries, up to four times as many."""
    chosen = mechanism_named(mechanism)
    return chosen.runs or min(4 * RUNS, RUNS * CANARIES // chosen.canaries(query))


def audit(
    mechanism: str,
    query: AuditQuery,
    *,
    runs: int | None = None,
    sabotage: str = NONE,
    false_alarm: float = FALSE_ALARM,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> AuditReport:
    """Play `runs` runs of the game against the named mechanism, in a silo broken in the named way, and report.

    The probability that a silo that keeps its claim is refuted is at most 2·false_alarm.
    """
    chosen = mechanism_named(mechanism)
    if sabotage not in SABOTAGES:
        raise PlanError(f"There is no sabotage '{sabotage}'; choose one of {', '.join(SABOTAGES)}.")
    if sabotage in chosen.not_played:
        raise PlanError(
            f"Sabotage '{sabotage}' is not run against '{mechanism}': it changes nothing there, or too little to "
            "detect in a few runs. Choose another mechanism for it, or another sabotage."
        )
    total = default_runs(mechanism, query) if runs is None else require_count("runs", runs)
    scores: list[float] = []
    size = sums = SumOfSquares()
    for run in play(chosen, query, total, sabotage):
        size, sums = (before + more for before, more in zip((size, sums), run.squares(), strict=True))
        scores.append(run.score())
        watch(len(scores), total)
    claim = run.claim  # runs differ in what their partitions are called, and in nothing that costs
    lower = lower_bound_of_mean(np.array(scores), 1 - false_alarm)
    return AuditReport(
        epsilon_claimed=claim.epsilon,
        epsilon_lower=epsilon_of_score(claim, lower),
        epsilon_lower_any_mechanism=epsilon_without_assumptions(lower, query.delta),
        delta=query.delta,
        mechanism=mechanism,
        sabotage=sabotage,
        records=query.records,
        rounds=query.rounds,
        runs=total,
        canaries=len(run.coins),
        score=float(np.mean(scores)),
        score_allowed=claim.score,
        score_lower=lower,
        noise=size.ratio(),
        noise_of_sums=sums.ratio(),
        noise_improbability=p_value([size, sums]),
        false_alarm=false_alarm,
    )


def play(mechanism: Mechanism, query: AuditQuery, runs: int, sabotage: str = NONE) -> Iterator[GameRun]:
    """Play the audit's game against the gate, each run with a ledger, plans, coins and noise of its own."""
    with SABOTAGES[sabotage](), tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        plans = mechanism.plans(query)
        for number in range(runs):
            yield _play_run(mechanism, query, plans, Path(folder) / f"{number}")


def _play_run(mechanism: Mechanism, query: AuditQuery, plans: Sequence[Plan], folder: Path) -> GameRun:
    """Play one run of the audit's game: toss coins, have the gates approve the plans, and attack."""
    coins = np.array([secrets.choice((-1.0, 1.0)) for _ in range(mechanism.canaries(query))])
    budget = Budget(_PLENTY, query.delta)
    folder.mkdir()
    with ExitStack() as ledgers:

        @cache
        def ledger_of(silo: str) -> Ledger:
            """Return the ledger of a silo in this run of the game; all its plans share it."""
            return ledgers.enter_context(Ledger.create(folder / silo, silo=silo, budget=budget, marked=False))

        def approved(plan: Plan, terms: SiloTerms) -> Gate:
            """Return a silo's gate in this run of the game, after it has approved the plan."""
            records = mechanism.records(plan, coins) if terms.name == SILO else records_without_canaries(plan, terms)
            key = None if terms.key is None else private_keys().silos[terms.name]
            gate = Gate(records, ledger_of(terms.name), key)
            gate.approve(plan)
            return gate

        observations = []
        for plan in plans:
            own = plan.model_copy(update={"run": secrets.token_hex(8)})
            answering = own.silos[:1] if mechanism.against == "anyone" else own.silos
            gates = [approved(own, terms) for terms in answering]
            look = mean_answer_reader(own, gates, open_all_seals(own))
            answers = ask_all_rounds(look, own)
            if mechanism.reads(own):
                observations.append(mechanism.read(own, answers))
        claim = Claim(tuple(seen_by(mechanism.against, ledger_of(SILO).account().charged())), query.delta)
    shutil.rmtree(folder)
    return GameRun(coins, tuple(observations), claim)
