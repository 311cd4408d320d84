"""The unit is a person: whatever all of somebody's rows are, an answer moves no further than is charged for."""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.accounting import accountant
from ringfence.accounting.account import answer_question
from ringfence.accounting.charges import costs, person_events, plan_events, task_event
from ringfence.accounting.events import BinomialRelease, GaussianRelease
from ringfence.errors import ApprovalError, PlanError, RecordsError
from ringfence.local_shuffler import local_shuffler
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.messages import pack
from ringfence.protocol.plan import Plan, protected_by
from ringfence.protocol.questions import (
    Curvature,
    FeatureMeans,
    FeatureMoments,
    Gradient,
    Moments,
    PreconditionedGradient,
    Question,
    SecondMoments,
)
from ringfence.protocol.questions.feature_means import Window
from ringfence.protocol.questions.feature_moments import Viewed
from ringfence.protocol.questions.second_moments import Asked
from ringfence.protocol.schedule import task
from ringfence.protocol.schema import Schema, TableColumns, parse_schema
from ringfence.silo import exact_sums, randomness
from ringfence.silo.budget import Budget
from ringfence.silo.certificate import certify
from ringfence.silo.channels import sending
from ringfence.silo.channels.own_noise import Block
from ringfence.silo.channels.shuffler import Coins
from ringfence.silo.dataset import load_data_set
from ringfence.silo.decisions import approve_plan, update_data
from ringfence.silo.folder import SiloFolder, make_settings
from ringfence.silo.gate import Gate
from ringfence.silo.ledger import Ledger
from ringfence.silo.mechanism import Draws, release
from ringfence.silo.questions import compute
from ringfence.silo.questions.gradient import clipped_total, summed_total
from ringfence.silo.records import Records, load_records
from ringfence.silo.review import reveals
from ringfence.statement import SiloGuarantee, Statement
from ringfence.verification import verify
from ringfence.workflow import TrainRequest, train_files
from tests.generated import examples
from tests.support import ask_all, clip_of, own_terms, rebuilt, shift_in, watch_draws

NUMBER = {"type": "numeric", "lower": -1.0, "upper": 1.0}
SCHEMA = parse_schema({"columns": {"a": NUMBER, "b": NUMBER, "y": NUMBER}, "person": "patient"}, target="y")
SCHEMA_FILE = 'person = "patient"\n' + "".join(
    f'[columns.{name}]\ntype = "numeric"\nlower = -1.0\nupper = 1.0\n' for name in "aby"
)
RULES: dict[str, PlanRequest] = {
    "mean": PlanRequest(rounds=2, loss="squared", survey=False, person_rule="mean"),
    "rows": PlanRequest(rounds=2, loss="squared", survey=False, person_rule="rows", rows_per_person=3),
    "sum": PlanRequest(rounds=2, loss="squared", survey=False, person_rule="sum"),
}
PLANS = {rule: make_plan(SCHEMA, [Member("clinic", 4, 1.0, 1e-6)], request) for rule, request in RULES.items()}
SECOND_MOMENTS = SecondMoments(start=pack(np.zeros(3)))
QUESTIONS: list[Question] = [
    Gradient(clip=0.3),
    Moments(bound="joint"),
    Curvature(),
    SECOND_MOMENTS,
    FeatureMeans(),
    FeatureMoments(),
    PreconditionedGradient(),
]
AXES = np.array([[3.0, 1.0, 0.5], [-0.2, 2.0, 0.0], [0.0, 0.7, 4.0]])
every_rule = pytest.mark.parametrize("rule", RULES)
every_question = pytest.mark.parametrize("question", QUESTIONS, ids=[question.name for question in QUESTIONS])

CELLS = st.floats(-1, 1) | st.sampled_from([-1.0, 1.0, 0.0, 1e-9, -1e300, 1e300, math.sin(math.pi / 12)])
ROWS = st.lists(st.tuples(CELLS, CELLS, CELLS, CELLS), min_size=1, max_size=7)
"""All rows of one person: two features, the constant's place, and the target."""


def records_of(people: list[list[Any]], schema: Schema = SCHEMA) -> Records:
    rows = np.array([row for person in people for row in person], dtype=np.float64)
    of_row = np.repeat(np.arange(len(people)), [len(person) for person in people])
    return Records(schema, rows[:, :3], rows[:, 3], of_row=of_row)


def argument(question: Question, weights: FloatArray) -> FloatArray:
    of_question = {
        "second-moments": Asked(weights, 0.5, 1.0, np.eye(3)).packed(),
        "feature-means": Window(-0.4, 0.9).packed(),
        "feature-moments": Viewed(AXES, -0.4, 0.9).packed(),
        "preconditioned-gradient": np.concatenate([weights, AXES.reshape(-1)]),
    }
    return of_question.get(question.name, weights)


def answer(question: Question, plan: Plan, people: list[list[Any]], chosen: FloatArray | None = None) -> FloatArray:
    taking_part = np.ones(len(people)) if chosen is None else chosen
    at = argument(question, np.array([0.7, -2.0, 0.1]))
    return compute(question, plan, at, records_of(people), taking_part, len(people))


@every_rule
@every_question
@given(others=st.lists(ROWS, min_size=1, max_size=3), one=ROWS, other=ROWS)
@examples(25)
def test_replacing_all_rows_of_a_person_moves_no_answer_further_than_claimed(
    rule: str, question: Question, others: list[list[Any]], one: list[Any], other: list[Any]
) -> None:
    plan = PLANS[rule]
    moved = np.linalg.norm(answer(question, plan, [one, *others]) - answer(question, plan, [other, *others]))
    n = 1 + len(others)
    assert moved <= question.sensitivity(plan, n) * exact_sums_rounding(question, plan, n)


def exact_sums_rounding(question: Question, plan: Plan, n: int) -> float:
    return 1 + (question.roundings(plan) * n + 8) * 2.0**-53


@every_rule
@given(person=ROWS)
@examples(50)
def test_a_person_s_term_is_no_longer_than_the_clip_in_exact_arithmetic(rule: str, person: list[Any]) -> None:
    plan, weights, records = PLANS[rule], np.array([[0.7], [-2.0], [0.1]]), records_of([person])
    if rule == "sum":
        assert records.persons is not None
        total = summed_total(plan.loss, 0.3, weights, records, records.persons, np.ones(1))
    else:
        total = clipped_total(plan.loss, 0.3, weights, records, records.shares(plan, np.ones(1)))
    assert sum(Fraction(int(count), 2**exact_sums.UNIT) ** 2 for count in total.reshape(-1)) <= 1


@every_rule
@every_question
def test_a_silo_that_took_rows_for_persons_would_break_the_claim(rule: str, question: Question) -> None:
    plan, near, far = PLANS[rule], math.sin(math.pi / 12), math.cos(math.pi / 12)
    ends = [[(far, near, 0.0, 1.0)] * 6, [(-near, -far, 0.0, 0.0)] * 6]
    if question.name == "curvature":
        ends[1] = [(0.0, 0.0, 0.0, 0.0)] * 6
    silent = [[(0.0, 0.0, 0.0, 0.0)]] * 2

    def ignoring(person: list[Any]) -> FloatArray:
        rows = np.array([*person, *(row for one in silent for row in one)], dtype=np.float64)
        rows[:, :3] *= SCHEMA.feature_norm
        records = Records(SCHEMA, rows[:, :3], rows[:, 3])
        return compute(question, plan, argument(question, np.zeros(3)), records, np.ones(len(rows)), 3)

    assert np.linalg.norm(ignoring(ends[0]) - ignoring(ends[1])) > 1.5 * question.sensitivity(plan, 3)


@every_rule
def test_who_takes_no_part_moves_nothing_and_the_others_places_do_not_matter(rule: str) -> None:
    random = np.random.default_rng(1)
    people = [[tuple(random.uniform(-1, 1, 4)) for _ in range(rows)] for rows in (1, 5, 2, 3)]
    question, plan, out = QUESTIONS[0], PLANS[rule], np.array([1.0, 0.0, 1.0, 1.0])
    expected = answer(question, plan, people, out)
    changed = [people[0], [(1.0, 1.0, 1.0, -1.0)] * 7, *people[2:]]
    assert np.array_equal(answer(question, plan, changed, out), expected)
    turned = [people[place] for place in (3, 1, 0, 2)]
    assert np.array_equal(answer(question, plan, turned, out), expected)


def test_the_rules_make_of_a_person_s_rows_what_they_say() -> None:
    people = [[(0.1, 0.0, 0.0, 0.1)] * 5, [(0.0, 0.2, 0.0, 0.2)]]
    question = Gradient(clip=1.0)
    row = {place: answer(question, PLANS["mean"], [people[place][:1]]) for place in (0, 1)}
    expected = {
        "mean": row[0] + row[1],
        "rows": row[0] + row[1] / 3,
        "sum": 5 * row[0] + row[1],
    }
    for rule, sum_of_both in expected.items():
        assert answer(question, PLANS[rule], people) == pytest.approx(sum_of_both / 2, abs=1e-8)


def test_a_person_with_one_row_counts_as_a_record_does() -> None:
    random = np.random.default_rng(2)
    people = [[tuple(random.uniform(-1, 1, 4))] for _ in range(9)]
    rows = np.array([person[0] for person in people])
    record = Records(SCHEMA, rows[:, :3], rows[:, 3])
    for question in QUESTIONS:
        weights = argument(question, np.array([0.7, -2.0, 0.1]))
        plain = compute(question, PLANS["mean"], weights, record, np.ones(9), 9)
        for rule, plan in PLANS.items():
            if rule != "rows":
                assert answer(question, plan, people) == pytest.approx(plain, abs=1e-8)


def written(path: Any, rows: list[str]) -> Any:
    path.write_text("patient,a,b,y\n" + "\n".join(rows) + "\n")
    return path


def test_rows_of_one_person_are_found_wherever_they_stand_in_the_file(tmp_path: Any) -> None:
    path = written(tmp_path / "clinic.csv", ["eve,0.1,0,0", "bob,0.2,0,0", "eve,0.3,0,0", "ann,0.4,0,0"])
    records = load_records(path, SCHEMA)
    assert records.persons is not None
    assert len(records) == 3
    assert records.persons.rows.tolist() == [2, 1, 1]
    assert records.features[:, 0] == pytest.approx([0.1, 0.3, 0.2, 0.4], abs=1e-8)
    part = records.take(np.array([2, 0]))
    assert part.persons is not None
    assert part.persons.rows.tolist() == [1, 2]
    assert part.features[:, 0] == pytest.approx([0.4, 0.1, 0.3], abs=1e-8)


def test_a_row_that_is_nobody_s_is_refused_by_its_number(tmp_path: Any) -> None:
    path = written(tmp_path / "clinic.csv", ["eve,0.1,0,0", ",0.2,0,0"])
    with pytest.raises(RecordsError, match="row 3 names no person") as refused:
        load_records(path, SCHEMA)
    assert "eve" not in str(refused.value)


def test_a_gate_counts_persons_and_refuses_rows_that_do_not_say_whose_they_are(tmp_path: Any) -> None:
    plan = PLANS["mean"]
    with Ledger.create(tmp_path / "l", silo="clinic", budget=Budget(5.0, 1e-6)) as ledger:
        people = [[(0.1, 0.2, 0.3, 0.1)] * rows for rows in (3, 1, 1)]
        with pytest.raises(ApprovalError, match="names 4 persons, but there are 3"):
            Gate(records_of(people), ledger).check(plan)
        rows = np.full((4, 4), 0.1)
        with pytest.raises(ApprovalError, match="do not identify them"):
            Gate(Records(SCHEMA, rows[:, :3], rows[:, 3]), ledger).check(plan)
        Gate(records_of([*people, people[0]]), ledger).check(plan)


def test_a_schema_that_tells_persons_apart_gets_no_plan_about_records_and_only_such_a_one_one_about_persons() -> None:
    members = [Member("clinic", 4, 1.0, 1e-6)]
    assert make_plan(SCHEMA, members).unit == "person"
    assert make_plan(SCHEMA, members).person_rule == "mean"
    nameless = parse_schema({"columns": {"a": NUMBER, "y": NUMBER}}, target="y")
    assert make_plan(nameless, members).unit == "record"
    for schema, request in (
        (SCHEMA, PlanRequest(unit="record")),
        (nameless, PlanRequest(unit="person")),
        (nameless, PlanRequest(person_rule="sum")),
        (SCHEMA, PlanRequest(person_rule="rows")),
        (SCHEMA, PlanRequest(rows_per_person=3)),
    ):
        with pytest.raises(PlanError, match="a plan"):
            make_plan(schema, members, request)


def test_the_person_s_column_is_no_feature(tmp_path: Any) -> None:
    assert "patient" not in " ".join(SCHEMA.feature_names)
    with pytest.raises(Exception, match="no model may read it"):
        parse_schema({"columns": {"a": NUMBER, "b": NUMBER, "y": NUMBER}, "person": "a"}, target="y")


def test_a_ledger_adds_up_no_costs_of_records_and_of_persons(tmp_path: Any) -> None:
    nameless = parse_schema({"columns": {"a": NUMBER, "b": NUMBER, "y": NUMBER}}, target="y")
    of_records = make_plan(nameless, [Member("clinic", 4, 1.0, 1e-6)], PlanRequest(rounds=2))
    people = [[(0.1, 0.2, 0.3, 0.1)]] * 4
    rows = np.array([person[0] for person in people])
    with Ledger.create(tmp_path / "l", silo="clinic", budget=Budget(5.0, 1e-6)) as ledger:
        Gate(Records(nameless, rows[:, :3], rows[:, 3]), ledger).approve(of_records)
        with pytest.raises(ApprovalError, match="its ledger counts what earlier plans cost each record"):
            Gate(records_of(people), ledger).approve(PLANS["mean"])


def test_no_verifier_takes_costs_of_records_for_costs_of_persons() -> None:
    nameless = parse_schema({"columns": {"a": NUMBER, "y": NUMBER}}, target="y")
    of_records = make_plan(nameless, [Member("clinic", 4, 1.0, 1e-6)], PlanRequest(rounds=2))
    assert protected_by([PLANS["mean"], PLANS["sum"]]) == "person"
    assert protected_by([PLANS["mean"], of_records]) == protected_by([of_records]) == protected_by([]) == "record"


@every_rule
def test_an_operator_reads_of_persons_and_of_what_their_rows_come_to(rule: str) -> None:
    plan = PLANS[rule]
    said = " ".join(reveals(plan, plan.silos[0]))
    assert "All 4 persons take part" in said
    assert "The number of persons and the schema are public" in said
    counted = {"mean": "the mean over all rows", "rows": "the first 3 rows, 1/3 each", "sum": "The sum of the"}
    assert counted[rule] in said
    assert "record" not in said


@every_rule
def test_nothing_that_is_written_or_said_names_a_person(rule: str, tmp_path: Any) -> None:
    random, names = np.random.default_rng(3), [f"zebra{number}quagga" for number in range(12)]
    files = [
        written(
            tmp_path / f"{silo}.csv",
            [f"{random.choice(names)},{a:.3f},{b:.3f},{y:.3f}" for a, b, y in random.uniform(-1, 1, (40, 3))],
        )
        for silo in ("north", "south")
    ]
    (tmp_path / "schema.toml").write_text(SCHEMA_FILE)
    asked = replace(RULES[rule], epsilon=5.0, delta=1e-6)
    done = train_files(TrainRequest(files, tmp_path / "schema.toml", "y", asked))
    done.result.model.save(tmp_path / "model.json")
    assert done.result.model.plan.unit == "person"
    counted = {name: silo.records for name, silo in done.result.statement.silos.items()}
    assert max(counted.values()) <= len(names), "persons are counted, not their rows"
    said = str(done.result.statement)
    assert f"north: each of {counted['north']} persons" in said
    assert (
        "the unit is one person of one silo, with all their rows there, as identified by the column 'patient'" in said
    )
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and path not in files]
    assert len(kept) >= 4, "a schema, a model and two ledgers at least"
    for content in [said.encode(), repr(done).encode(), *(path.read_bytes() for path in kept)]:
        assert b"zebra" not in content


def test_a_silo_whose_schema_tells_persons_apart_counts_them_and_answers_no_plan_about_records(tmp_path: Any) -> None:
    path = written(tmp_path / "clinic.csv", ["eve,0.1,0,0", "bob,0.2,0,0", "eve,0.3,0,0", "ann,0.4,0,0", "joe,0,0,0"])
    content: dict[str, Any] = {"columns": {"a": NUMBER, "b": NUMBER, "y": NUMBER}}
    data = load_data_set(path, TableColumns.model_validate({**content, "person": "patient"}))
    assert (len(data), data.rows, len(data.encoded(SCHEMA))) == (4, 5, 4)
    assert data.difference(SCHEMA) == ""
    assert "a different `person`" in data.difference(parse_schema(content, target="y"))
    assert "a different `person`" in load_data_set(path, TableColumns.model_validate(content)).difference(SCHEMA)


@pytest.mark.parametrize("sampling", ["fixed", "poisson", "one-pass"])
def test_whoever_takes_part_does_so_with_all_rows(
    sampling: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = replace(RULES["mean"], sampling=sampling, batch=2)
    plan = make_plan(SCHEMA, [Member("clinic", 4, 1.0, 1e-6)], request)
    drawn = watch_draws(monkeypatch)
    people = [[(0.1, 0.2, 0.3, 0.1)] * rows for rows in (3, 1, 5, 2)]
    with Ledger.create(tmp_path / "l", silo="clinic", budget=Budget(5.0, 1e-6)) as ledger:
        gate = Gate(records_of(people), ledger)
        gate.approve(plan)
        ask_all(gate, plan)
    for _, draws in drawn:
        shares = records_of(people).shares(plan, draws.participation)
        assert len(draws.participation) == 4
        assert np.add.reduceat(shares, [0, 3, 4, 9]) == pytest.approx(draws.participation)
    assert len(drawn) == 2


def silo_of(tmp_path: Any, rows: list[str], schema: str = SCHEMA_FILE) -> SiloFolder:
    (tmp_path / "schema.toml").write_text(schema)
    data_file, schema_file = str(written(tmp_path / "clinic.csv", rows)), str(tmp_path / "schema.toml")
    settings = make_settings(name="clinic", data_file=data_file, schema_file=schema_file)
    return SiloFolder.create(tmp_path / "clinic", settings, Budget(2.0, 1e-6))


def test_a_certificate_proves_what_holds_for_each_person_and_names_none(tmp_path: Any) -> None:
    folder = silo_of(tmp_path, [f"zebra{number % 4},0.{number},0,0" for number in range(1, 9)])
    plan = PLANS["sum"]
    approve_plan(folder, plan)
    with folder.ledger() as ledger:
        ask_all(Gate(folder.records(), ledger), plan)
    certificate = certify(folder).to_file()
    assert "for each person (replace-one adjacency)" in verify(certificate).text()
    kept = [path.read_bytes() for path in (tmp_path / "clinic").rglob("*") if path.is_file()]
    assert not any(b"zebra" in content for content in [certificate, *kept])


@pytest.mark.parametrize("told_apart_before", [True, False])
def test_changed_data_is_counted_in_persons_and_no_ledger_tells_how_many_rows_they_have(
    told_apart_before: bool, tmp_path: Any
) -> None:
    rows = [f"eve{number % 4},0.{number},0,0" for number in range(10, 47)]
    folder = silo_of(tmp_path, rows, SCHEMA_FILE if told_apart_before else SCHEMA_FILE.partition("\n")[2])
    (tmp_path / "schema.toml").write_text(SCHEMA_FILE)
    written(tmp_path / "clinic.csv", [*rows, "bob,0.1,0,0", "bob,0.2,0,0"])
    change = update_data(folder, "bob was admitted")
    assert (change.before, change.after, change.unit) == (4 if told_apart_before else None, 5, "person")
    with folder.ledger() as ledger:
        (entry,) = [entry.body for entry in ledger.entries() if entry.kind == "data"]
    assert entry == change.model_dump()
    assert "from 4 persons to 5" in change.words() or not told_apart_before
    said = verify(certify(folder).to_file()).text()
    assert change.words() in said
    assert not any(count in f"{change.words()}{entry}" for count in ("37", "39", "record"))


WAYS: dict[str, dict[str, Any]] = {
    "correlated": {"sampling": "one-pass", "correlation": 0.5},
    "some silos": {"available": 2},
    "shuffled": {"trust": "shuffler"},
}


@pytest.mark.parametrize("way", WAYS)
def test_whichever_way_a_plan_asks_it_costs_a_person_what_it_costs_a_record(way: str, tmp_path: Any) -> None:
    random = np.random.default_rng(3)
    files = [
        written(
            tmp_path / f"{silo}.csv",
            [f"{row % 40},{a:.3f},{b:.3f},{y:.3f}" for row, (a, b, y) in enumerate(random.uniform(-1, 1, (90, 3)))],
        )
        for silo in ("north", "south", "west")
    ]
    (tmp_path / "schema.toml").write_text(SCHEMA_FILE)
    asked = replace(RULES["sum"], epsilon=1.0, delta=1e-6, **WAYS[way])
    result = train_files(TrainRequest(files, tmp_path / "schema.toml", "y", replace(asked, held_out=0.0))).result
    plan = result.model.plan
    of_records = rebuilt(plan, data=plan.data.model_copy(update={"person": None}), unit="record", person_rule=None)
    for terms in plan.silos:
        assert terms.records == 40
        costing = [costs(plan_events(either, terms), plan.observers, 1e-6) for either in (plan, of_records)]
        assert costing[0] == costing[1]
        spent, claimed = result.statement.silos[terms.name].used, terms.guarantees
        assert all(cost.epsilon <= claim.epsilon for cost, claim in zip(spent, claimed, strict=True))
    assert "each of 40 persons" in str(result.statement)


EXTREMES = [[(1.0, 1.0, 0.0, -1.0)] * 6, [(-1.0, -1.0, 0.0, -1.0)] * 2]


def released(plan: Plan, person: list[Any]) -> tuple[Any, Any]:
    """Return what leaves in all rounds without noise, of one person and three silent ones, and what the last costs."""
    (stage,), terms = plan.stages, plan.silos[0]
    memory, rows = sending(stage.channel).memory(stage.channel), []
    for round in range(plan.rounds):
        work = task(plan, terms, round, round)
        drawn = randomness.draw(plan, terms, work)
        silent = Coins(np.zeros(3, dtype=np.int64), np.zeros(3)) if stage.channel.is_collected else np.zeros(3)
        records = records_of([person, *[[(0.0, 0.0, 0.0, 0.0)]] * 3])
        numbers = release(plan, work, np.zeros(3), records, Draws(drawn.participation, silent), memory)
        rows.append(memory.rows[-1] if isinstance(memory, Block) else numbers[:3])
    return np.array(rows, dtype=np.float64), (task_event(plan, terms, work), work)


@every_rule
def test_neither_correlated_noise_nor_a_shuffler_lets_a_person_move_more_than_is_charged(rule: str) -> None:
    members = [Member(name, 4, 1.0, 1e-6) for name in ("clinic", "north", "west")]
    with local_shuffler([member.name for member in members]) as shuffler:
        shuffled = replace(RULES[rule], rounds=1, trust="shuffler", keys=shuffler.keys)
        plan = make_plan(SCHEMA, members, shuffled)
    (one, (cost, _)), (other, _) = (released(plan, person) for person in EXTREMES)
    assert isinstance(cost, BinomialRelease)
    moved = float(np.linalg.norm(one - other))
    assert 0.4 * cost.reach < moved <= cost.reach + np.sqrt(3), "each number is rounded to a count"
    plan = make_plan(SCHEMA, members[:1], replace(RULES[rule], sampling="one-pass", correlation=0.5))
    (one, (event, work)), (other, _) = (released(plan, person) for person in EXTREMES)
    assert 0.4 < np.linalg.norm(one - other) / work.sigma / shift_in(event) <= 1


@every_rule
def test_a_person_of_several_silos_pays_the_root_of_their_number_as_statement_and_account_say(rule: str) -> None:
    plan = make_plan(SCHEMA, [Member(name, 50, 1.0, 1e-6) for name in ("clinic", "north", "west")], RULES[rule])
    ((event, rounds),) = plan_events(plan, plan.silos[0])
    said = {
        terms.name: SiloGuarantee(
            records=50, rounds=2, this_run=terms.guarantees, all_runs=terms.guarantees, used=terms.guarantees
        )
        for terms in plan.silos
    }
    question: dict[str, Any] = {"records": 50, "rounds": 2, "sampling": "full", "batch": None, "delta": 1e-6}
    noise: dict[str, Any] = {"clip": clip_of(plan), "sigma": own_terms(plan).sigma, "epsilon": None}
    for silos, word in ((2, "two"), (3, "three")):
        shift = math.sqrt(silos * rounds) * shift_in(event)
        paid = accountant.epsilon([(GaussianRelease(shift), 1)], 1e-6)
        together = person_events(plan, [terms.name for terms in plan.silos[:silos]])
        assert accountant.epsilon(together, 1e-6) == pytest.approx(paid, rel=1e-9)
        answer = answer_question(**question, **noise, silos_per_person=silos)["person_epsilon"]
        assert answer == pytest.approx(paid, rel=1e-6), "which does not know how many weights are rounded"
        assert f"{word} silos pays epsilon = {paid:.4g}" in " ".join(str(Statement(plan, said)).split())
