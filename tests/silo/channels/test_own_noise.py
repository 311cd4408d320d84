"""A silo's own noise: exact on its grid; correlated, it cancels over the rounds as promised, costs what is charged, and
leaves no exact mean behind.

The statistical tests state what they notice; both of their rates are 10⁻⁶ at most (`tests.rates`). The discrete
Gaussian's variance differs from the continuous one's by less than 10⁻¹⁵ of it.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ringfence.accounting import correlation
from ringfence.accounting.charges import plan_events
from ringfence.errors import ApprovalError, PlanError
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import FloatArray, Plan, Schema, Task, pack, parse_schema
from ringfence.protocol.plan.plan import task
from ringfence.research.theory.correlation import prefix_sum_noise
from ringfence.silo.channels.own_noise import CorrelatedRounds, grid_exponent
from ringfence.silo.gate import mechanism
from ringfence.silo.gate.gate import Gate
from ringfence.silo.gate.mechanism import Draws
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.records.records import Records
from tests.rates import check_deviation
from tests.support import MakePlan, ask, ask_all, own_terms, renoised, shift_in, spent, vector, watch_draws

ROUNDS = 20
THETA = 0.5

NOTICES = 1.3
"""What is noticed of a deviation that is off by this factor; without cancellation it would be off by 1.6 or more."""


# -- the grid --


def test_released_numbers_lie_on_the_grid_exactly(plan_of: MakePlan, records: Records) -> None:
    plan = plan_of()
    work = task(plan, plan.silos[0], 0, 0)
    grid = 2.0 ** grid_exponent(work.sigma)
    noise = grid * np.array([3.0, -(2.0**31), 0.0, 2.0**34])
    answer = mechanism.release(plan, work, np.full(4, 0.3), records, Draws(np.ones(40), noise))
    assert np.all(answer / grid == np.round(answer / grid))
    without = mechanism.release(plan, work, np.full(4, 0.3), records, Draws(np.ones(40), np.zeros(4)))
    assert np.all(answer - without == noise)


def test_a_plan_with_noise_too_small_to_add_exactly_is_refused() -> None:
    number = {"type": "numeric", "lower": 0, "upper": 1}
    schema = parse_schema({"columns": {"x": number, "y": number}}, target="y")
    with pytest.raises(PlanError, match="protects nobody"):
        make_plan(schema, [Member("s", 10**9, 1e6, 1e-6)], PlanRequest(rounds=1))


# -- correlated noise --


@pytest.fixture(scope="module")
def wide() -> Schema:
    """A thousand features: as many independent noises in every answer."""
    columns: dict[str, object] = {f"x{i:03d}": {"type": "numeric", "lower": -1.0, "upper": 1.0} for i in range(1000)}
    return parse_schema({"columns": {**columns, "y": {"type": "categorical", "categories": ["a", "b"]}}}, target="y")


@pytest.fixture(scope="module")
def wide_records(wide: Schema) -> Records:
    random = np.random.default_rng(11)
    return Records(wide, random.uniform(-1, 1, (60, 1001)), random.choice([-1.0, 1.0], size=60))


@pytest.fixture
def wide_gate(wide_records: Records, tmp_path: Path) -> Iterator[Gate]:
    with Ledger.create(tmp_path / "wide.ledger", silo="clinic", budget=Budget(10.0, 1e-6)) as ledger:
        yield Gate(wide_records, ledger)


def correlated(schema: Schema, theta: float = THETA, records: int = 60, rounds: int = ROUNDS) -> Plan:
    return make_plan(
        schema,
        [Member("clinic", records, 1.0, 1e-6)],
        PlanRequest(rounds=rounds, algorithm="accelerated", sampling="one-pass", correlation=theta, survey=False),
    )


def exact_means(plan: Plan, records: Records, drawn: list[tuple[Task, Draws]]) -> FloatArray:
    """Return the clipped mean of every draw's records at weights 0."""
    return np.array(
        [
            mechanism.release(
                plan, work, np.zeros(plan.dimension), records, Draws(draws.participation, 0 * draws.noise)
            )
            for work, draws in drawn
        ]
    )


def of_part(work: Task, records: int) -> FloatArray:
    """Return 1 for as many records as the task takes, from the place where its part begins, and 0 for others."""
    assert work.part is not None
    chosen = np.zeros(records)
    chosen[work.part.first : work.part.first + work.batch] = 1.0
    return chosen


def parts(drawn: list[tuple[Task, Draws]]) -> list[int]:
    return [work.part.number for work, _ in drawn if work.part is not None]


def test_without_noise_every_answer_is_the_round_s_own_mean(schema: Schema, records: Records) -> None:
    plan = correlated(schema, records=40, rounds=10)
    terms, block = plan.silos[0], CorrelatedRounds()
    random = np.random.default_rng(4)
    for round in range(10):
        work = task(plan, terms, round, round)
        silent, weights = Draws(of_part(work, 40), np.zeros(4)), random.normal(size=4)
        alone = mechanism.release(plan, work, weights, records, silent)
        together = mechanism.release(plan, work, weights, records, silent, block)
        # Ten rows of the grid's rounding, which is 2⁻³⁰ of the noise.
        np.testing.assert_allclose(together, alone, atol=20 * work.sigma * 2.0**-30)


def test_a_survey_takes_no_part_in_the_block(
    gate: Gate, schema: Schema, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = PlanRequest(rounds=5, algorithm="accelerated", sampling="one-pass", correlation=THETA, survey=True)
    plan = make_plan(schema, [Member("clinic", 40, 1.0, 1e-6)], request)
    gate.approve(plan)
    drawn = watch_draws(monkeypatch)
    answers, block = ask_all(gate, plan), CorrelatedRounds()
    for round, (answer, (work, draws)) in enumerate(zip(answers, drawn, strict=True)):
        memory = block if round else None
        assert answer.tobytes() == mechanism.release(plan, work, np.zeros(4), records, draws, memory).tobytes()
    assert len(block.rows) == 5


@pytest.mark.parametrize("theta", [0.3, 0.5, 0.8])
def test_the_sum_of_all_answers_has_the_small_noise_that_is_promised(
    wide_gate: Gate, wide: Schema, wide_records: Records, theta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = correlated(wide, theta)
    independent = own_terms(correlated(wide, 0.0)).sigma
    promised = prefix_sum_noise(theta, ROUNDS).last * independent
    assert NOTICES * promised < math.sqrt(ROUNDS) * independent  # of independent noise at the same privacy
    drawn = watch_draws(monkeypatch)
    wide_gate.approve(plan)
    noise = np.array(ask_all(wide_gate, plan)) - exact_means(plan, wide_records, drawn)
    check_deviation(noise.sum(axis=0), promised, notices=NOTICES)
    # A single answer is a little noisier than an independent one would be.
    inverse = correlation.inverse_coefficients(theta, ROUNDS)
    check_deviation(noise[-1], own_terms(plan).sigma * float(np.linalg.norm(inverse)), notices=NOTICES)


def test_missed_rounds_do_not_spoil_the_cancellation(
    wide_gate: Gate, wide: Schema, wide_records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = correlated(wide)
    drawn = watch_draws(monkeypatch)
    wide_gate.approve(plan)
    asked = [0, 1, 5, 6, 7, 12, 13, 15, 18, 19]
    noise = np.array(ask_all(wide_gate, plan, asked)) - exact_means(plan, wide_records, drawn)
    assert parts(drawn) == list(range(10))
    # As in a run of ten rounds, but with the noise of one of twenty.
    one_of_ten = prefix_sum_noise(THETA, 10).last / correlation.column_norm(THETA, 10)
    check_deviation(noise.sum(axis=0), one_of_ten * own_terms(plan).sigma, notices=NOTICES)


def test_a_restarted_silo_begins_a_new_block_and_goes_on(
    wide_gate: Gate, wide: Schema, wide_records: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = correlated(wide)
    drawn = watch_draws(monkeypatch)
    wide_gate.approve(plan)
    before = ask_all(wide_gate, plan, range(8))
    with Ledger.open(tmp_path / "wide.ledger") as reopened:
        restarted = Gate(wide_records, reopened)
        assert [answer.tobytes() for answer in ask_all(restarted, plan, range(8))] == [a.tobytes() for a in before]
        after = ask_all(restarted, plan, range(8, 20))
        assert 0.999 < spent(reopened) * (1 - 1e-9) <= 1.0
    blocks = [CorrelatedRounds(), CorrelatedRounds()]
    answers = [
        mechanism.release(plan, work, np.zeros(1001), wide_records, draws, blocks[place >= 8])
        for place, (work, draws) in enumerate(drawn)
    ]
    assert [a.tobytes() for a in answers] == [a.tobytes() for a in [*before, *after]]
    assert np.sum([draws.participation for _, draws in drawn], axis=0).max() == 1.0
    # The noise of two blocks is independent: their sums' variances add up.
    noise = np.array(answers) - exact_means(plan, wide_records, drawn)
    rows = [prefix_sum_noise(THETA, n).last / correlation.column_norm(THETA, n) for n in (8, 12)]
    check_deviation(noise.sum(axis=0), math.hypot(*rows) * own_terms(plan).sigma, notices=NOTICES)


def test_nothing_of_the_block_is_written_to_the_disk(
    gate: Gate, ledger: Ledger, schema: Schema, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By chance one of the noises is 0, which is written somewhere: with probability less than 40 · 2⁻³⁰ < 4e-8."""
    plan = correlated(schema, records=40, rounds=10)
    gate.approve(plan)
    drawn = watch_draws(monkeypatch)
    random, block, answers = np.random.default_rng(2), CorrelatedRounds(), []
    for round in range(10):
        weights = random.normal(size=4)  # at 0 an exact mean may be as round a number as 0.5
        answers.append(vector(ask(gate, plan, round, weights)))
        work, draws = drawn[-1]
        mechanism.release(plan, work, weights, records, draws, block)
    content = b"".join(path.read_bytes() for path in ledger.path.parent.iterdir())
    assert pack(answers[3]).encode() in content  # what was sent is there, in just this form
    secret = [*block.means, *block.rows[1:], *(draws.noise for _, draws in drawn)]
    for numbers in secret:
        assert pack(numbers).encode() not in content
        for number in numbers:
            assert np.float64(number).tobytes() not in content
            assert repr(float(number)).encode() not in content


def test_a_plan_with_the_noise_of_independent_rounds_is_not_approved_for_correlated_ones(
    gate: Gate, schema: Schema
) -> None:
    plan = correlated(schema, records=40, rounds=10)
    quiet = own_terms(correlated(schema, 0.0, records=40, rounds=10)).sigma
    with pytest.raises(ApprovalError, match="noise gives epsilon"):
        gate.approve(renoised(plan, sigma=quiet))


def test_replacing_a_record_moves_all_rows_together_by_no_more_than_is_charged(
    schema: Schema, records: Records
) -> None:
    """The rows M that noise is added to, for either of two neighbours, whatever the weights."""
    plan = correlated(schema, 0.7, records=40, rounds=10)
    terms = plan.silos[0]
    ((event, _),) = plan_events(plan, terms)
    random = np.random.default_rng(8)
    farthest = 0.0
    for row in (0, 4, 17, 39):
        features, targets = records.features.copy(), records.targets.copy()
        features[row], targets[row] = -50 * features[row], targets[row]
        for scale in (0.0, 1.0, 5.0):
            blocks = [CorrelatedRounds(), CorrelatedRounds()]
            for round in range(10):
                work = task(plan, terms, round, round)
                draws, weights = Draws(of_part(work, 40), np.zeros(4)), scale * random.normal(size=4)
                for block, own in zip(blocks, (records, Records(schema, features, targets)), strict=True):
                    mechanism.release(plan, work, weights, own, draws, block)
            moved = float(np.linalg.norm(np.array(blocks[0].rows) - np.array(blocks[1].rows)))
            assert moved <= shift_in(event) * own_terms(plan).sigma
            farthest = max(farthest, moved)
    # Records of the first batch move every row; two opposite gradients at the clip would reach the bound.
    assert farthest > 0.3 * shift_in(event) * own_terms(plan).sigma
