"""A quote says before anything is charged what a plan will yield, for every kind of plan."""

from typing import Any

import numpy as np
import pytest

from ringfence.errors import PlanError
from ringfence.planning.propose import propose_for
from ringfence.planning.query_plans import make_evaluation_plan, make_query_plan, make_summary_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.planning.search import CandidateRequest, propose_search
from ringfence.protocol import Plan, Schema, Statistics, SurvivalCurve, pack, parse_schema
from ringfence.protocol.schema.schema import without_target
from ringfence.rehearsal.population import Population
from ringfence.rehearsal.quote import rehearse, simulated_silos
from ringfence.rehearsal.rounds import simulated_state
from ringfence.research.experiments.trust import stand_in_keys
from ringfence.server.queries.evaluation import evaluation_of_run
from tests.every_loss import CASES, Case

NUMBER = {"type": "numeric", "lower": -1.0, "upper": 1.0}
LABEL = {"type": "categorical", "categories": ["no", "yes"]}


def schema_of(count: int, target: Any = LABEL, **more: Any) -> Schema:
    return parse_schema({"columns": {**{f"x{i}": NUMBER for i in range(count)}, "y": target, **more}}, target="y")


def members(epsilon: float = 1.0, records: int = 500, silos: int = 3) -> list[Member]:
    return [Member(f"s{number}", records, epsilon) for number in range(silos)]


def planned(schema: Schema, *, epsilon: float = 1.0, records: int = 500, silos: int = 3, **asked: Any) -> Plan:
    sizes = {f"s{number}": records for number in range(silos)}
    return propose_for(PlanRequest(epsilon=epsilon, **asked), schema, sizes).plan


def plan_of(count: int = 4, *, target: Any = LABEL, **asked: Any) -> Plan:
    return planned(schema_of(count, target), **asked)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_loss_is_rehearsed(case: Case) -> None:
    """There is next to no noise, so that none may be refused."""
    quote = rehearse(case.plan())
    assert quote.is_worth_it
    assert quote.gain is None or quote.gain > 0


@pytest.mark.parametrize(
    "asked",
    [
        {"algorithm": "minibatch-sgd", "sampling": "poisson", "rounds": 20},
        {"algorithm": "accelerated", "survey": True},
        {"algorithm": "localized"},
        {"algorithm": "minibatch-sgd", "sampling": "one-pass", "correlation": 0.5, "rounds": 10},
        {"available": 2},
        {"trust": "shuffler", "keys": stand_in_keys(["s0", "s1", "s2"])},
        {"held_out": 0.0},
        {"figures": ("all",)},
    ],
    ids=str,
)
def test_every_way_to_train_is_rehearsed(asked: dict[str, Any]) -> None:
    quote = rehearse(plan_of(epsilon=3.0, records=2000, **asked))
    assert quote.gain is not None
    assert bool(quote.half_widths) == (asked.get("held_out") != 0.0)


def test_several_targets_persons_and_many_features_are_rehearsed() -> None:
    several = parse_schema({"columns": {"x": NUMBER, "y": NUMBER, "z": NUMBER}, "more_targets": ["z"]}, target="y")
    assert rehearse(planned(several, epsilon=3.0, records=2000)).gain is not None
    persons = parse_schema({"columns": {"x": NUMBER, "y": LABEL}, "person": "patient"}, target="y")
    assert rehearse(planned(persons, epsilon=3.0, records=2000)).gain is not None
    wide = rehearse(plan_of(1200, epsilon=0.1, records=1000))
    assert wide.rehearsals == 2
    assert not wide.is_worth_it


def test_a_model_that_noise_drowns_is_refused_with_what_would_help_and_one_that_learns_is_not() -> None:
    small, large = rehearse(plan_of(epsilon=0.02)), rehearse(plan_of(epsilon=3.0))
    assert small.gain is not None
    assert large.gain is not None
    assert small.gain < 0 < large.gain
    large.require_worth()
    with pytest.raises(PlanError, match=r"not expected to beat guessing.*larger epsilon.*--anyway"):
        small.require_worth()
    assert "not expected to beat guessing" in small.lines()[1]
    assert "fewer errors than guessing. It beat guessing in 16 of 16 rehearsals." in large.lines()[1]
    assert small.wins < large.rehearsals / 2
    assert "RMSE" in rehearse(plan_of(epsilon=3.0, target=NUMBER)).lines()[1]


def test_a_text_column_that_makes_most_features_is_named() -> None:
    schema = schema_of(3, note={"type": "text", "words": 256})
    quote = rehearse(planned(schema, records=300))
    with pytest.raises(PlanError, match=r"260 features, most of them for 256 features of column 'note'"):
        quote.require_worth()


def test_the_expected_half_widths_are_those_of_runs_on_other_records() -> None:
    """Half-widths depend on noise and sample size, hardly on records: within a factor of 1.5 of the median of five
    runs, each on another population. The seeds are fixed."""
    for target in (LABEL, NUMBER):
        plan = plan_of(epsilon=2.0, records=4000, target=target)
        expected, actual = rehearse(plan).half_widths, dict[str, list[float]]()
        for seed in range(100, 105):
            population = Population(plan, np.random.default_rng(seed))
            silos = [population.records(terms.records) for terms in plan.silos]
            state = simulated_state(plan, silos, seed)
            report = evaluation_of_run(plan, state.findings)
            assert report is not None
            for metric in report.together.metrics:
                if metric.value is not None and metric.low is not None and metric.high is not None:
                    actual.setdefault(metric.name, []).append((metric.high - metric.low) / 2)
        known = {name: width for name, width in expected.items() if width is not None}
        assert known
        for name, width in known.items():
            assert 1 / 1.5 < width / float(np.median(actual[name])) < 1.5, name


def test_half_widths_shrink_with_the_budget_and_a_figure_that_is_too_noisy_is_named() -> None:
    widths = [rehearse(plan_of(epsilon=epsilon, records=4000)).half_widths["accuracy"] for epsilon in (0.5, 1.0, 3.0)]
    assert widths[0] is not None
    assert widths[1] is not None
    assert widths[2] is not None
    assert widths[0] > widths[1] > widths[2]
    noisy = rehearse(plan_of(epsilon=0.05, records=200))
    assert noisy.half_widths["accuracy"] is None
    assert noisy.lines()[0].endswith("not at all.")


def test_statistics_a_survival_curve_an_evaluation_and_a_summary_are_quoted_by_figure() -> None:
    data = without_target(
        schema_of(2, ward={"type": "categorical", "categories": ["a", "b"], "synonyms": {"a": ["A"]}})
    )
    counts = rehearse(make_query_plan(data, members(), Statistics(columns=("x0", "ward"), cross=(("ward", "x0"),))))
    assert set(counts.half_widths) == {"the median of x0", "shares of ward"}
    assert counts.gain is None
    assert counts.is_worth_it
    none = rehearse(make_query_plan(data, members(0.01), Statistics(columns=("x0", "ward"))))
    with pytest.raises(PlanError, match="no figure would be precise enough"):
        none.require_worth()
    times = without_target(parse_schema({"columns": {"t": {**NUMBER, "lower": 0}, "e": LABEL}}, target="t"))
    curve = rehearse(make_query_plan(times, members(), SurvivalCurve(time="t", event="e", cuts=(0.3, 0.6))))
    assert curve.half_widths["the survival curve"] is not None
    trained = plan_of()
    weights = pack(np.linspace(-1, 1, trained.dimension))
    evaluated = rehearse(make_evaluation_plan(trained, weights, members(records=5000)))
    assert evaluated.half_widths["accuracy"] is not None
    few = rehearse(make_summary_plan(trained, weights, members(1.0, 300)))
    many = rehearse(make_summary_plan(trained, weights, members(5.0, 50_000)))
    assert not few.is_worth_it
    assert all(width is not None for width in many.half_widths.values())


def test_a_search_is_rehearsed_with_its_comparison() -> None:
    asked = [PlanRequest(epsilon=3.0, ridge=ridge) for ridge in (0.0, 0.1)]
    sizes = dict.fromkeys(["s0", "s1", "s2"], 3000)
    found = propose_search(
        schema_of(3), [CandidateRequest({"ridge": own.ridge}, own, own.members(sizes)) for own in asked]
    )
    quote = rehearse(found.comparison, *(each.plan for each in found.candidates))
    assert quote.gain is not None
    assert quote.gain > 0
    assert "accuracy" in quote.half_widths


def test_four_silos_of_120_records_at_half_an_epsilon_are_refused_for_a_table_like_a_census() -> None:
    """The census table of docs/results/looking.md, trained so all the same, ends below guessing."""
    lists = {f"c{n}": {"type": "categorical", "categories": list(map(str, range(n)))} for n in (9, 7, 15, 6)}
    assert not rehearse(planned(schema_of(6, **lists), epsilon=0.5, records=120, silos=4)).is_worth_it


def test_a_coefficient_less_precise_than_scores_vary_is_quoted_as_unknown() -> None:
    """Scores of two classes have a standard deviation of 2: a weight's effect over half of its feature's range."""
    trained, name = plan_of(), "the coefficient of x0"
    weights = pack(np.array([2.0, -1.0, 0.5, 0.0, 0.0]))
    plans = [make_summary_plan(trained, weights, members(epsilon, 1000)) for epsilon in (0.5, 1.0, 2.0, 5.0)]
    rough, *known = (rehearse(plan).half_widths[name] for plan in plans)
    assert rough is None
    widths = [width for width in known if width is not None]
    assert len(widths) == 3
    assert widths == sorted(widths, reverse=True)
    assert widths[0] < 2.0


def test_a_few_silos_have_simulated_records_of_their_own_and_many_take_turns_with_the_same() -> None:
    for count, different, rows in ((3, 3, 500), (80, 80, 50), (1000, 80, 50)):
        plan = planned(schema_of(4), silos=count)
        silos = simulated_silos(plan, Population(plan, np.random.default_rng(0)))
        assert [len(own) for own in silos] == [rows] * count
        assert len(set(map(id, silos))) == different


def test_silos_of_every_size_take_turns_only_among_themselves() -> None:
    sizes = {f"s{number}": 10 if number < 5 else 30 + number % 2 for number in range(1000)}
    plan = propose_for(PlanRequest(epsilon=1.0), schema_of(4), sizes).plan
    silos = simulated_silos(plan, Population(plan, np.random.default_rng(0)))
    assert [len(own) for own in silos] == list(sizes.values())
    assert len({id(own) for own in silos}) == 1 + 40 + 40
