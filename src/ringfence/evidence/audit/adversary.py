"""The hostile server: it knows everything but the canaries' coins, and chooses its requests by earlier answers.

It uses public knowledge only: the plan, its partition and the answers. `ask_all_rounds` asks, the `read_` functions
turn answers into numbers about canaries.

*Three observers of a shuffled plan.* Behind an honest shuffler a server can read the total over the silos of a batch,
and nothing else: the others' coins hide the canaries too. If another silo colludes with it, it takes that one's shares,
and so its coins, off the pile. A server that colludes with the shuffler reads each silo's own counts. The audit opens
every seal with the keys of all parties, and then uses what the observer could. Should the first messages of a pile add
up to what the audited silo may have sent, they were not mixed, and it takes these; that mixed ones hide whose counts
are whose is proved (docs/proofs.md), and not the audit's to show.

*Exactly coins.* A canary's clipped gradient is ±L in a coordinate of its own and all else is 0, so a silo of K records
rounds the height g(K ± 1)/2 where a canary plays and gK/2 elsewhere (`shuffler.vector_sum`). Such a height is whole,
or half-way between two whole numbers: then rounding is one more fair coin. What the server sees in a coordinate is thus
∓g/2 plus the heads among a known number of fair coins, less their mean: exactly, up to the 2⁻⁵³ of a rounding's draw.
"""

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import toeplitz

from ringfence.accounting.correlation import coefficients
from ringfence.errors import MessageError, PlanError, TrainingError
from ringfence.evidence.audit.noise_tests import SumOfSquares, sum_of_squares
from ringfence.evidence.audit.plans import CLIP, private_keys
from ringfence.protocol import (
    Answer,
    ColumnDistributions,
    Comparison,
    Evaluation,
    FeatureMeans,
    FeatureMoments,
    FloatArray,
    Observer,
    Plan,
    PreconditionedGradient,
    Refusal,
    RefusalReason,
    RoundRequest,
    SealedUpdate,
    SecondMoments,
    ShufflerChannel,
    SiloTerms,
    Task,
)
from ringfence.protocol.channels.shuffler import SEALED_EXTRA
from ringfence.protocol.plan import sections
from ringfence.protocol.plan.plan import task
from ringfence.protocol.queries.feature_moments import FeatureMomentsArgument
from ringfence.protocol.queries.second_moments import MomentsArgument
from ringfence.server.channels import RECEIVERS, Collect, Totals
from ringfence.shuffler import sealing, shares
from ringfence.silo.gate.gate import Gate
from ringfence.silo.queries import compute
from ringfence.silo.records.records import Records

CanaryRecords = Callable[[Plan, FloatArray], Records]
"""The silo's records for given coins."""

Look = Callable[[RoundRequest], FloatArray]
"""Ask for a round, and return what the server learns from the answers: one vector; an empty one if turns are over."""

REPEATS = 2
"""How often every round is asked: an honest gate repeats its bytes, one with fresh noise lets it be averaged away."""

STEADY = 0.5
"""Weights up to this size leave every canary's gradient at the clip (`mechanisms`): the server may ask any of them."""


@dataclass(frozen=True)
class Observation:
    """Some releases about some canaries, as numbers that the coins move: x = coin·strength·B + noise of deviation 1.

    `numbers` and `strength` have one row per release and one column per canary; B ~ Bernoulli(rate) says whether a
    canary takes part in a release. The noise is Gaussian; or, where all records take part, the heads among so many fair
    `coins`, less their mean and in units of their deviation.
    """

    numbers: FloatArray
    strength: FloatArray
    rate: float = 1.0
    coins: int | None = None

    def evidence(self) -> FloatArray:
        """Return, per canary, the log-likelihood ratio of coin +1 against −1, given the plan's distribution of x.

        Of coins it is the ratio of the Gaussian that they resemble: any guess is fair, and by symmetry, and since
        larger numbers speak for +1, this is the best one for a single release.
        """
        x, s = self.numbers, self.strength
        if self.rate >= 1:
            ratio: FloatArray = 2 * s * x
        else:  # log-likelihoods, but for a constant
            present = (np.log(self.rate) + sign * s * x - s**2 / 2 for sign in (1.0, -1.0))
            plus, minus = (np.logaddexp(np.log1p(-self.rate), each) for each in present)
            ratio = plus - minus
        total: FloatArray = np.sum(ratio, axis=0)
        return total

    def power(self) -> FloatArray:
        """Return the squared signal-to-noise ratio of each canary over all releases that the adversary observed."""
        result: FloatArray = np.sum((self.strength * self.rate) ** 2, axis=0)
        return result

    def squares(self) -> SumOfSquares:
        """Return the sum of squares of the adversary's observed numbers, to test the size of the audited noise."""
        return sum_of_squares(self.numbers, self.strength, 1, self.rate, self.coins)

    def squares_of_sums(self) -> SumOfSquares:
        """Return the sum of squares of sums over the releases, to test that their noises are independent.

        Where canaries are sampled, each takes part with the same strength in every release.
        """
        releases = len(self.numbers)
        sums = self.numbers.sum(axis=0) / np.sqrt(releases)
        if self.rate >= 1:
            coins = None if self.coins is None else releases * self.coins
            return sum_of_squares(sums, self.strength.sum(axis=0) / np.sqrt(releases), 1, 1.0, coins)
        return sum_of_squares(sums, self.strength[0] / np.sqrt(releases), releases, self.rate)


def ask_all_rounds(look: Look, plan: Plan) -> list[FloatArray]:
    """Ask every round of the plan, `REPEATS` times each: as the stage starts, and, in training, at weights that depend
    on earlier answers.

    A stage starts at `server_argument`. Returns the mean of each round's answers, of as many rounds as were answered.
    """
    rows: list[FloatArray] = []
    weights = server_argument(plan, 0)
    for round in range(plan.rounds):
        stage, number, _ = plan.place(round)
        if not stage.query.trains:
            weights = server_argument(plan, number)
        request = RoundRequest.at(plan.digest(), round, weights)
        answers = [answer for _ in range(REPEATS) if (answer := look(request)).size]
        if not answers:
            continue
        rows.append(np.mean(answers, axis=0))
        if stage.query.trains:
            # Any rule would do: it shows that answers may decide what is asked next.
            moved = plan.domain.project(np.clip(rows[-1], -STEADY, STEADY))
            beyond = server_argument(plan, number)[plan.dimension :]  # what comes behind the weights stays
            weights = np.concatenate([moved, beyond])
    return rows


def server_argument(plan: Plan, stage: int) -> FloatArray:
    """Return the argument with which a server sees the canary best in a stage; weights of 0 if any will do.

    At weights of 0 the residual is the target; axes are so long that every record or gradient is clipped.
    """
    query, weights, axes = plan.stages[stage].query, np.zeros(plan.dimension), np.eye(plan.data.width)
    match query:
        case ColumnDistributions():
            return np.array([end for column in plan.data.open_columns.values() for end in (column.low, column.high)])
        case Evaluation():
            return _evaluation_argument(plan, query)
        case Comparison():
            return _comparison_argument(plan, query)
        case SecondMoments():  # in units of half of the target's bound
            return MomentsArgument(weights, 0.5, 1.0, axes).packed()
        case FeatureMoments():
            return FeatureMomentsArgument(4.0 * axes, -1.0, 1.0).packed()
        case FeatureMeans():
            return np.array([-1.0, 1.0])
        case PreconditionedGradient():
            return np.concatenate([weights, 4.0 * axes.reshape(-1)])
    return weights


def _evaluation_argument(plan: Plan, query: Evaluation) -> FloatArray:
    """Ask all blocks alike, with bin edges by which one pair of records moves each as far as any pair can."""
    blocks = query.blocks(plan)
    bin_edges = {"squared": [2.0], "absolute": [2.0], "loss": [2.0], "target": [0.0, 1.0]}
    numbers = [
        bin_edges.get(block.name, np.linspace(-0.9, 0.9, block.bin_edges) + (block.name == "residuals"))
        for block in blocks
    ]
    shares = np.full(len(blocks), 1.0 / len(blocks) - 2.0**-50)
    return np.concatenate([np.eye(plan.dimension)[0], *numbers, shares])


def _comparison_argument(plan: Plan, query: Comparison) -> FloatArray:
    """Return models that differ by much for one target and by little for the other, for sizes.

    For losses, the last model is the opposite of the others.
    """
    along, models = np.eye(plan.dimension)[0], np.zeros((query.models, plan.dimension))
    if query.part == "sizes":
        models[0] = along
        return np.concatenate([models.reshape(-1), np.full(query.bin_edges, 0.7)])
    models[:-1], models[-1] = along, -along
    return np.concatenate([models.reshape(-1), [1e-3]])


def silos_in_mean(plan: Plan, against: Observer) -> tuple[SiloTerms, ...]:
    """Return the silos, the audited one first, of whose answers the observer sees only the mean.

    An observer that colludes with all others can subtract their part, and is left with the silo's own answer. The
    server can subtract what its accomplices tell it: they are the last silos of the plan, as many as it names.
    """
    return plan.silos[:1] if against == "anyone" else plan.silos[: len(plan.silos) - (plan.most_colluders or 0)]


def mean_answer_reader(plan: Plan, gates: Sequence[Gate], collect: Collect = lambda round, updates: None) -> Look:
    """Return a function from a request to the mean answer of the silos behind `gates`, all that the server learns.

    `collect` stands in for the third party where the plan's channel has one.
    """
    known: dict[tuple[bytes, ...], FloatArray] = {}

    def look(request: RoundRequest) -> FloatArray:
        """Ask the audited gates, and return the mean answer that the adversary sees."""
        answers = {gate.silo: gate.answer(request) for gate in gates}
        content = tuple(answer.to_bytes() for answer in answers.values())
        if content not in known:  # a repeated answer adds nothing, and opening sealed ones takes as long again
            known[content] = _mean_answer(plan, request, answers, collect)
        return known[content]

    return look


def _mean_answer(plan: Plan, request: RoundRequest, answers: Mapping[str, Answer], collect: Collect) -> FloatArray:
    """Return the mean of the audited gates' answers, as the adversary receives it; empty if turns are taken."""
    if any(isinstance(answer, Refusal) and answer.reason is RefusalReason.TURNS_TAKEN for answer in answers.values()):
        return np.zeros(0)
    stage, number, _ = plan.place(request.round)
    channel, way = stage.channel, RECEIVERS[type(stage.channel)]
    for answer in answers.values():
        if not way.is_usable(plan, number, answer):
            # That an audited gate does not answer what the plan asks is a mistake of the audit's.
            form = "Its answer is not in the form that the plan asks for."
            reason = answer.reason.explanation if isinstance(answer, Refusal) else form
            raise TrainingError(f"The gate refused a round of the audit: {reason}")
    sealed = [answer for answer in answers.values() if isinstance(answer, SealedUpdate)]
    totals = collect(request.round, sealed) if channel.is_collected else None
    averaged = way.average(channel, plan, number, answers, totals)
    if averaged is None:
        raise TrainingError("A round of the audit gave no result, although every silo answered.")
    return averaged[0]


def partition(plan: Plan, silo: str, records: int) -> list[int]:
    """Return the public order in which one-pass and phased plans use a silo's rows; the adversary can compute it."""
    return sorted(range(records), key=lambda row: hashlib.sha256(f"{plan.digest()}/{silo}/{row}".encode()).digest())


def canary_rows(plan: Plan) -> list[int]:
    """Return the rows in which a gradient plan's canaries stand: those that take part first, where that is known."""
    terms = plan.silos[0]
    if task(plan, terms, 0, 0).part is not None:
        return partition(plan, terms.name, terms.records)[: plan.data.width]
    return [int(row) for row in sections.members("training", terms.records, plan.held_out)[: plan.data.width]]


def read_gradients(plan: Plan, answers: Sequence[FloatArray], *, correlation: float = 0.0) -> Observation:
    """Turn a plan's answers into numbers about canaries, of which the j-th stands in the j-th of `canary_rows`.

    A canary's gradient is −coin·clip in direction j (`mechanisms`), in every round that it takes part in.
    """
    terms, rows = plan.silos[0], canary_rows(plan)
    tasks = [task(plan, terms, round, plan.place(round).round) for round in range(len(answers))]
    place = np.argsort(partition(plan, terms.name, terms.records))[rows]

    def may_take_part(work: Task) -> NDArray[np.bool_]:
        """Tell which canaries may take part in a round, as the adversary knows it."""
        first, last = (0, terms.records) if work.part is None else (work.part.first, work.part.first + work.batch)
        return (first <= place) & (place < last)

    means = np.array([CLIP / work.batch * may_take_part(work) for work in tasks])
    rate = 1.0 if tasks[0].part else tasks[0].batch / sections.size("training", terms.records, plan.held_out)
    # Undo the cancellation, if any: the rows beneath have independent noise (`accounting.correlation`).
    mix = np.tril(toeplitz(coefficients(correlation, len(answers))))
    sigma = np.array([[work.sigma] for work in tasks])
    return Observation(mix @ -np.array(answers)[:, : len(rows)] / sigma, mix @ means / sigma, rate=rate)


def read_pair(plan: Plan, answers: Sequence[FloatArray], *, records: CanaryRecords) -> Observation:
    """Tell the two records of a worst case apart: each answer becomes its coordinate between those without noise.

    A server that knows all other records computes what the silo would answer without noise with either record.
    """
    worlds = [records(plan, np.array([coin])) for coin in (1.0, -1.0)]
    seen: list[tuple[float, float]] = []
    for round, answer in enumerate(answers):
        plus, minus = (_exact_answer(plan, plan.place(round).number, own) for own in worlds)
        way, sigma = (plus - minus) / 2, task(plan, plan.silos[0], round, 0).sigma
        length = float(np.linalg.norm(way))
        seen.append((float((answer - (plus + minus) / 2) @ way) / length / sigma, length / sigma))
    numbers, strength = np.array(seen).T[:, :, None]
    return Observation(numbers, strength)


def _exact_answer(plan: Plan, number: int, records: Records) -> FloatArray:
    """Return the answer of a silo with a worst case's records in a stage, without noise."""
    stage, terms = plan.stages[number], plan.silos[0]
    chosen = np.zeros(terms.records)
    chosen[sections.members(stage.section, terms.records, plan.held_out)] = 1.0
    return compute(stage.query, plan, server_argument(plan, number), records, chosen, terms.stages[number].batch)


def open_all_seals(plan: Plan) -> Collect:
    """Return how a server with accomplices reads a shuffled batch, once all seals are opened."""
    accomplices = {terms.name for terms in plan.silos} - {terms.name for terms in silos_in_mean(plan, "server")}

    def collect(round: int, updates: Sequence[SealedUpdate]) -> Totals:
        """Open all seals of a shuffled round as the adversary with accomplices can, and read its totals."""
        stage, channel = plan.place(round).stage, _shuffler_channel(plan, round)
        keys, digest = private_keys(), plan.digest()
        numbers = channel.numbers(plan, stage)
        pile: list[bytes] = []
        known: Counter[bytes] = Counter()
        for update in updates:
            envelope = base64.b64decode(update.envelope)
            joined = sealing.open_envelope(keys.shuffler, digest, round, update.silo, envelope)
            sealed = sealing.split_messages(joined, channel.message_bytes + SEALED_EXTRA)
            messages = sealing.open_messages(keys.server, digest, round, sealed)
            pile += messages
            known.update(messages if update.silo in accomplices else ())
        shares.shuffle_messages(pile)
        unknown = list((Counter(pile) - known).elements())  # in the pile's order: equal shares of two silos never occur
        silos = len(unknown) // channel.messages(numbers)
        with suppress(MessageError):
            first = shares.add_shares(channel, unknown[: channel.messages(numbers)], silos=1, numbers=numbers)
            batch = plan.silos[0].stages[plan.place(round).number].batch
            if first[-1] == batch and np.all(first <= batch * (channel.levels + channel.coins)):
                return Totals(1, first)
        return Totals(silos, shares.add_shares(channel, unknown, silos=silos, numbers=numbers))

    return collect


def read_counts(plan: Plan, answers: Sequence[FloatArray], *, against: Observer) -> Observation:
    """Turn mean gradients over the silos that the observer sees together into numbers about the canaries."""
    channel, canaries = _shuffler_channel(plan, 0), len(canary_rows(plan))
    batches = [terms.stages[0].batch for terms in silos_in_mean(plan, against)]
    vectors = sum(batches)
    # The fair coins in a canary's coordinate, roundings included: heights are doubled, in units of the levels.
    heights = [batch + (number == 0) for number, batch in enumerate(batches)]
    coins = vectors * channel.coins + sum(channel.levels * height % 2 for height in heights)
    sigma = 2 * CLIP / channel.levels * np.sqrt(coins) / 2 / vectors
    strength = np.full((len(answers), canaries), CLIP / vectors / sigma)
    return Observation(-np.array(answers)[:, :canaries] / sigma, strength, coins=coins)


def _shuffler_channel(plan: Plan, round: int) -> ShufflerChannel:
    """Return the shuffler channel of an audited plan's round; PlanError if it has none."""
    channel = plan.place(round).stage.channel
    if not isinstance(channel, ShufflerChannel):
        raise PlanError(f"Round {round} of the audited plan does not go through a shuffler.")
    return channel
