"""A proposal is explained in three lines that claim what was proved, and say what was not."""

from typing import Any

import pytest

from ringfence.planning.algorithm_choice import BOUNDED
from ringfence.planning.explain import PAPER_NAMES, alternatives_table, as_data, explain_proposal
from ringfence.planning.propose import propose
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Hinge, MinibatchSGD, Preconditioned, Schema, parse_schema

MEMBERS = [Member("north", 900, 4.0, 1e-6), Member("south", 900, 4.0, 1e-6)]


def explained(schema: Schema, members: list[Member] = MEMBERS, **wishes: Any) -> list[str]:
    return explain_proposal(propose(schema, members, PlanRequest(**wishes)))


@pytest.mark.parametrize("method", [None, *BOUNDED])
@pytest.mark.parametrize("risk", ["empirical", "population"])
def test_an_explanation_has_three_lines_and_names_method_and_bound(
    schema: Schema, method: str | None, risk: Any
) -> None:
    wishes: dict[str, Any] = {"ridge": 1.0, "most_rounds": 300, "survey": False} if method == "multi-stage" else {}
    members = [Member("north", 10**5, 4.0, 1e-6)]
    proposal = propose(schema, members, PlanRequest(algorithm=method, risk=risk, **wishes))
    lines = explain_proposal(proposal)
    assert len(lines) == 3
    assert all(line and "\n" not in line for line in lines)
    assert proposal.choice is not None
    assert lines[0].startswith(PAPER_NAMES[proposal.choice.method])
    if proposal.choice.method not in BOUNDED:
        assert "no loss bound covers axes that the server chooses" in lines[1]
        return
    assert lines[1].startswith("bound: ")
    assert f"the clipped {proposal.choice.risk} loss" in lines[1]
    assert f"{proposal.choice.bound:.3g}" in lines[1]


def test_what_a_person_chose_is_explained_without_a_bound(schema: Schema) -> None:
    lines = explained(schema, algorithm=MinibatchSGD(step=0.1))
    assert len(lines) == 3
    assert "no alternatives were compared" in lines[1]
    assert "bound" not in " ".join(lines)


def test_the_smoothing_of_a_kink_is_mentioned_with_its_error(schema: Schema) -> None:
    proposal = propose(schema, MEMBERS, PlanRequest(loss=Hinge()))
    assert f"adds up to {proposal.plan.loss.smoothing_error:.2g}" in explain_proposal(proposal)[1]
    assert "kink" not in explained(schema)[1]


def test_a_survey_is_part_of_the_budget_and_its_expected_bound_stands_beside_its_bound(
    schema: Schema,
) -> None:
    proposal = propose(schema, MEMBERS, PlanRequest(algorithm="accelerated", survey=True))
    lines = explain_proposal(proposal)
    assert proposal.choice is not None
    assert f"(about {proposal.choice.expected:.3g} if the survey turns out as expected)" in lines[1]
    assert "counts towards the silos' epsilon" in lines[2]
    silent = explained(schema, survey=False)
    assert "no record was used" in silent[2]
    assert "survey" not in " ".join(silent)


NUMBER = {"type": "numeric", "lower": -1.0, "upper": 1.0}
THREE = {"type": "categorical", "categories": ["a", "b", "c"]}


@pytest.mark.parametrize(
    ("wishes", "uncovered"),
    [
        ({"sampling": "one-pass", "correlation": 0.5}, "correlated noise"),
        ({"average": "last"}, "an average other than"),
        ({"average": "tail", "algorithm": "minibatch-sgd"}, "an average other than"),
        ({"sampling": "fixed"}, "sampled batches"),
        ({"sampling": "poisson"}, "sampled batches"),
    ],
)
def test_what_no_bound_covers_is_said_and_not_claimed(schema: Schema, wishes: dict[str, Any], uncovered: str) -> None:
    line = explained(schema, **wishes)[1]
    assert line.startswith(f"no bound covers {uncovered}")


def test_a_batch_of_one_s_own_in_one_pass_and_phases_of_silos_that_differ_are_not_covered(schema: Schema) -> None:
    small = [Member("north", 900, 4.0, 1e-6, batch=3)]
    assert "leave some out" in explained(schema, small, sampling="one-pass", rounds=20)[1]
    uneven = [*MEMBERS, Member("west", 60, 4.0, 1e-6)]
    assert "phases of silos that differ" in explained(schema, uneven, algorithm="localized")[1]


def test_clipped_gradients_of_several_outputs_are_covered_only_if_a_convex_loss_has_them() -> None:
    several = parse_schema({"columns": {"a": NUMBER, "b": NUMBER, "y": THREE}}, target="y")
    assert "clipped gradients of several outputs" in explained(several, survey=False)[1]
    assert explained(several, clip=10.0)[1].startswith("bound:")
    targets = parse_schema({"columns": {"a": NUMBER, "y": NUMBER, "z": NUMBER}}, target=["y", "z"])
    assert explained(targets, survey=False)[1].startswith("bound:")


def test_alternatives_are_listed_best_first_and_one_of_them_is_chosen(schema: Schema) -> None:
    for wishes in ({}, {"risk": "population"}, {"ridge": 0.1}, {"survey": False}, {"algorithm": "accelerated"}):
        proposal = propose(schema, MEMBERS, PlanRequest(**wishes))
        expected = [choice.expected for choice in proposal.alternatives if choice.method in BOUNDED]
        assert expected == sorted(expected)
        header, rows = alternatives_table(proposal)
        assert [row[header.index("algorithm")] for row in rows] == [c.method for c in proposal.alternatives]
        data = as_data(proposal)
        assert data["explanation"] == explain_proposal(proposal)
        assert [entry["chosen"] for entry in data["alternatives"]] == [True] + [False] * (len(rows) - 1)


def test_the_next_best_is_named_where_there_is_one(schema: Schema) -> None:
    default = propose(schema, MEMBERS)
    assert f"by loss bounds: {default.alternatives[1].method}" in explain_proposal(default)[1]
    proposal = propose(schema, MEMBERS, PlanRequest(survey=False))
    assert f"next best: {proposal.alternatives[1].method}" in explain_proposal(proposal)[1]
    assert "next best" not in explained(schema, algorithm="accelerated", sampling="full")[1]


def test_it_is_said_what_a_survey_can_tell_from_its_noise_and_what_it_costs(schema: Schema) -> None:
    proposal = propose(schema, MEMBERS)
    lines = explain_proposal(proposal)
    assert proposal.survey_resolution is not None
    assert f"{schema.width} features" in lines[1]
    assert f"resolves directions down to {proposal.survey_resolution:.2g} of the largest second moment" in lines[1]
    assert "for 26% of the budget in squared shift" in lines[2]


def test_it_is_said_why_no_survey_is_made_where_it_could_not_tell_two_directions_apart(schema: Schema) -> None:
    proposal = propose(schema, [Member("north", 20, 0.5, 1e-6)])
    assert proposal.survey_resolution is not None
    assert proposal.survey_resolution >= 1 / 2
    what, why, basis = explain_proposal(proposal)
    assert what.startswith("preconditioned descent, along axes that the schema suggests: 12 rounds; full batches")
    assert "axes, clip and step by the schema" in what
    assert (
        f"its noise would reach {proposal.survey_resolution:.2g} of the largest second moment and hide all but one"
        in why
    )
    assert "nothing is spent on them" in basis
    assert "no survey is made" not in explained(schema, algorithm="accelerated")[1]


def test_for_counts_loss_bounds_choose_if_a_survey_would_be_too_noisy() -> None:
    number = {"type": "numeric", "lower": 0.0, "upper": 1.0}
    schema = parse_schema({"columns": {"a": number, "y": {**number, "upper": 100.0}}}, target="y")
    proposal = propose(schema, [Member("north", 20, 0.5, 1e-6)], PlanRequest(loss="poisson"))
    assert proposal.plan.algorithm.name in BOUNDED
    assert proposal.survey_resolution is not None
    assert f"the noise of its survey reaches {proposal.survey_resolution:.2g}" in explain_proposal(proposal)[1]


def test_with_many_features_means_are_surveyed_unless_noise_would_hide_them() -> None:
    number = {"type": "numeric", "lower": 0.0, "upper": 1.0}
    schema = parse_schema({"columns": {**{f"x{i}": number for i in range(1100)}, "y": number}}, target="y")
    for records, surveyed in ((20_000, True), (200, False)):
        proposal = propose(schema, [Member("north", records, 1.0, 1e-6)])
        assert proposal.survey_resolution is not None
        assert (proposal.survey_resolution < 1 / 2) == surveyed
        assert proposal.plan.algorithm == Preconditioned(axes="rank-one")
        assert (proposal.plan.stages[0].query.name == "feature-means") == surveyed
        why = explain_proposal(proposal)[1]
        assert (
            f"resolves the direction of the features' mean down to {proposal.survey_resolution:.2g}" in why
        ) == surveyed


def test_the_edge_falls_with_records_and_budget_and_at_one_half_a_survey_is_made(schema: Schema) -> None:
    taken = []
    for records in (20, 40, 80, 160, 320, 640):
        for epsilon in (0.5, 2.0):
            proposal = propose(schema, [Member("north", records, epsilon, 1e-6)])
            assert proposal.plan.algorithm.name == "preconditioned"
            assert proposal.survey_resolution is not None
            taken.append((proposal.survey_resolution, proposal.plan.training_numbers[0] > 0))
    assert {edge < 1 / 2 for edge, _ in taken} == {True, False}
    assert all(surveyed == (edge < 1 / 2) for edge, surveyed in taken)


def test_a_request_for_preconditioned_descent_decides_on_its_survey(schema: Schema) -> None:
    for members in ([Member("north", 20, 0.5, 1e-6)], MEMBERS):
        for survey, stages in ((None, 1), (True, 1), (False, 0)):
            asked = PlanRequest(algorithm="preconditioned", survey=survey, curves=0)
            assert propose(schema, members, asked).plan.training_numbers == (stages,)


def test_a_lasso_gets_an_algorithm_that_takes_one_and_is_covered_by_its_bound(schema: Schema) -> None:
    members = [Member(name, 2000, 2.0, 1e-6) for name in ("a", "b")]
    assert propose(schema, members).plan.algorithm.name == "preconditioned"
    assert propose(schema, members, PlanRequest(lasso=0.01)).plan.algorithm.name == "accelerated"
    for method in ("accelerated", "regularised", "minibatch-sgd", "localized", "multi-stage"):
        ridge = 0.2 if method in ("multi-stage", "minibatch-sgd") else 0.0
        plain, pulled = (
            propose(schema, members, PlanRequest(algorithm=method, lasso=lasso, ridge=ridge, survey=False))
            for lasso in (0.0, 0.01)
        )
        assert pulled.plan.lasso == 0.01
        _, proved, _ = explain_proposal(pulled)
        assert "loss with the lasso is on average at most" in proved
        assert ("no bound covers" in proved) == ("no bound covers" in explain_proposal(plain)[1])
        assert plain.choice is not None
        assert pulled.choice is not None
        # Only what is proved otherwise is another number: weights that grow, and slopes of the whole objective.
        same = method not in ("localized", "minibatch-sgd")
        assert (pulled.choice.bound == plain.choice.bound) == same
        assert getattr(pulled.plan.algorithm, "growth", 1.0) == 1.0
