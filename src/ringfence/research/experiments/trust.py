"""Plans for the same algorithm and budget at three levels of trust; nothing here is tuned.

Nobody is trusted: every silo's own noise protects its records (ISRL-DP). A shuffler is: the silos make one noise
together (shuffle-DP, by vector summation). The server is: all records are in one place (central DP), which is a plan
with a single silo. The planner chooses the rounds and steps of each by the same rule, the least loss bound.

Beside them stands the paper's Shuffled Noisy MB-SGD: every record sends a message with Gaussian noise of its own, of
the size that amplification by shuffling allows.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from ringfence.accounting import calibrate
from ringfence.errors import AccountingError
from ringfence.planning.propose import BY_BOUND, Proposal, propose
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import (
    Ball,
    Logistic,
    MinibatchSGD,
    Plan,
    PublicKeys,
    SamplingName,
    ShufflerChannel,
    Training,
)
from ringfence.research.experiments import mnist
from ringfence.research.experiments.abstract import Geometry, schema_of
from ringfence.research.experiments.methods import CLIP
from ringfence.research.experiments.synthetic import DISTANCE, PROBLEMS, Size
from ringfence.research.theory import amplification
from ringfence.simulation.gradient import clip_of

DIGITS = "MNIST"
NOBODY, SHUFFLER, SERVER, MESSAGES = "nobody", "shuffler", "server", "shuffler, a message per record"
FULL_BATCH, ONE_PASS, MINIBATCH = "accelerated", "one-pass accelerated", "minibatch SGD"
MINIBATCH_ROUNDS = 100


@dataclass(frozen=True)
class Method:
    """An algorithm, and whom it trusts."""

    algorithm: str
    trust: str

    @property
    def sampling(self) -> SamplingName:
        """Which records take part in a round."""
        return "one-pass" if self.algorithm == ONE_PASS else "full"

    @property
    def has_all_records_in_one_place(self) -> bool:
        """Whether the simulator needs to know nothing of silos: one noise for all records."""
        return self.trust in (SERVER, MESSAGES)


METHODS = {
    f"{method.algorithm}; trusted: {method.trust}": method
    for method in (
        *(Method(algorithm, trust) for algorithm in (FULL_BATCH, ONE_PASS) for trust in (NOBODY, SHUFFLER, SERVER)),
        Method(MINIBATCH, NOBODY),
        Method(MINIBATCH, MESSAGES),
    )
}


@dataclass(frozen=True)
class PlannedProblem:
    """A problem as the planner sees it, and the sizes of its silos."""

    silos: int
    records: int
    geometry: Geometry
    most_rounds: int
    request: PlanRequest

    @property
    def delta(self) -> float:
        """1/n², for all levels of trust."""
        return 1 / self.records**2

    @property
    def minibatch_rounds(self) -> int:
        """Rounds of minibatch SGD, whose bound asks for as many as there may be."""
        return min(MINIBATCH_ROUNDS, self.most_rounds)


def problem_of(name: str, size: Size) -> PlannedProblem:
    """Return what is public of the problem."""
    if name == DIGITS:
        geometry = Geometry(mnist.COMPONENTS + 1, float(np.hypot(1.0, mnist.INTERCEPT)), 1.0)
        return PlannedProblem(25, mnist.RECORDS, geometry, mnist.ROUNDS, PlanRequest(algorithm=BY_BOUND))
    request = PlanRequest(clip=CLIP, distance=DISTANCE, domain=Ball(radius=DISTANCE))
    return PlannedProblem(size.silos, size.records, Geometry(size.dimension, 1.0, 1.0), size.rounds, request)


@cache
def plan_for(name: str, method: Method, size: Size, epsilon: float) -> Plan:
    """Plan a method for a problem; of Shuffled Noisy MB-SGD the plan has the steps, and `message_noise` the noise."""
    problem = problem_of(name, size)
    if method.trust == MESSAGES:
        return _with_messages(problem, epsilon)
    if method.algorithm == MINIBATCH:
        return propose_for(problem, method, epsilon, rounds=problem.minibatch_rounds).plan
    return propose_for(problem, method, epsilon, most_rounds=problem.most_rounds).plan


def propose_for(
    problem: PlannedProblem,
    method: Method,
    epsilon: float,
    *,
    rounds: int | None = None,
    most_rounds: int | None = None,
    keys: PublicKeys | None = None,
) -> Proposal:
    """Let the planner choose, for silos apart, with or without a shuffler, or for one that holds all records."""
    one = method.has_all_records_in_one_place
    count, records = (1, problem.silos * problem.records) if one else (problem.silos, problem.records)
    names = [f"silo {i}" for i in range(count)]
    members = [Member(name, records, epsilon, problem.delta) for name in names]
    request = replace(
        problem.request,
        loss=Logistic(),
        algorithm="minibatch-sgd" if method.algorithm == MINIBATCH else "accelerated",
        rounds=rounds,
        most_rounds=most_rounds,
        sampling=method.sampling,
        survey=False,
        run="trust",
    )
    if method.trust == SHUFFLER:
        request = replace(request, trust="shuffler", keys=keys or stand_in_keys(names))
    return propose(schema_of(problem.geometry, Logistic()), members, request)


def stand_in_keys(silos: Sequence[str]) -> PublicKeys:
    """Return texts of the right length for keys: a simulation seals nothing."""
    server, shuffler, *others = (hashlib.sha256(bytes([number])).hexdigest() for number in range(len(silos) + 2))
    return PublicKeys(server=server, shuffler=shuffler, silos=dict(zip(silos, others, strict=True)))


@cache
def message_noise(records: int, rounds: int, epsilon: float, delta: float, clip: float) -> float:
    """Return the noise of the mean of shuffled messages, one per record, per round; NaN where nothing is amplified."""
    try:
        each = amplification.shuffled_gaussian_noise(
            messages=records, rounds=rounds, epsilon=epsilon, delta=delta, clip=clip
        )
    except AccountingError:
        return math.nan
    return each / math.sqrt(records)


def refusal(size: Size, epsilon: float) -> str:
    """Return what is said to silos that would each send a single message."""
    problem = problem_of(PROBLEMS[0], size)
    try:
        amplification.shuffled_gaussian_noise(
            messages=problem.silos,
            rounds=problem.minibatch_rounds,
            epsilon=epsilon,
            delta=problem.delta,
            clip=CLIP,
        )
    except AccountingError as refused:
        return str(refused)
    return f"{problem.silos} messages are enough at ε = {epsilon:g}."


def _with_messages(problem: PlannedProblem, epsilon: float) -> Plan:
    """Take minibatch SGD's step for the noise of the messages: min{1/β, D₀/√(R(L² + dσ²))}."""
    method, rounds = Method(MINIBATCH, MESSAGES), problem.minibatch_rounds
    proposal = propose_for(problem, method, epsilon, rounds=rounds)
    plan, clip = proposal.plan, clip_of(proposal.plan.training_stages[0])
    sigma = message_noise(problem.silos * problem.records, rounds, epsilon, problem.delta, clip)
    if math.isnan(sigma):
        return plan
    moment = clip**2 + plan.dimension * sigma**2
    step = min(1 / plan.constants.smoothness, proposal.distance / math.sqrt(rounds * moment))
    training = Training(loss=plan.loss, domain=plan.domain, algorithm=MinibatchSGD(step=step), ridge=plan.ridge)
    return plan.model_copy(update={"training": training})


@dataclass(frozen=True)
class NoiseComparison:
    """How a shuffled plan is encoded, and the noise of a round's mean in units of central DP's at as many rounds.

    `apart` without a shuffler, `mixed` by vector summation, `messages` by amplification (NaN if refused). `alone` is
    the ε that is left of a silo's guarantee if shuffler and server work together, `records` how many a round has.
    """

    epsilon: float
    rounds: int
    records: int
    levels: int
    coins: int
    bits: int
    alone: float
    apart: float
    mixed: float
    messages: float


def noise(size: Size, algorithm: str, epsilon: float) -> NoiseComparison:
    """Compare the noises of an algorithm on the synthetic problems."""
    problem = problem_of(PROBLEMS[0], size)
    plan = plan_for(PROBLEMS[0], Method(algorithm, SHUFFLER), size, epsilon)
    (stage,) = plan.stages
    channel, clip, charged = stage.channel, clip_of(stage), stage.sampling.times(stage.rounds)
    assert isinstance(channel, ShufflerChannel)  # noqa: S101 (as asked for)
    records = sum(terms.stages[0].batch for terms in plan.silos)
    central = 2 * clip * math.sqrt(charged) / (records * calibrate.gaussian_shift(epsilon, problem.delta))
    mixed = clip / channel.levels * math.sqrt(records * channel.coins + problem.silos) / records
    return NoiseComparison(
        epsilon=epsilon,
        rounds=stage.rounds,
        records=records,
        levels=channel.levels,
        coins=channel.coins,
        bits=plan.dimension * (channel.levels + channel.coins),
        alone=plan.silos[0].against("anyone").epsilon,
        apart=math.sqrt(problem.silos),
        mixed=mixed / central,
        messages=message_noise(records, charged, epsilon, problem.delta, clip) / central,
    )
