"""The silos' answers without noise, on which rehearsals rest."""

import numpy as np

from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import parse_schema
from ringfence.rehearsal.answers import NoiselessAnswers
from ringfence.server.queries import handler_of
from ringfence.server.state import ServerState

NUMBER = {"type": "numeric", "lower": -1.0, "upper": 1.0}
LABEL = {"type": "categorical", "categories": ["no", "yes"]}


def test_silos_that_share_records_answer_as_if_each_had_a_copy() -> None:
    schema = parse_schema({"columns": {"x": NUMBER, "z": NUMBER, "y": LABEL}}, target="y")
    plan = make_plan(schema, [Member(f"s{n}", 100 + 50 * n, 1.0) for n in range(5)], PlanRequest())
    random = np.random.default_rng(0)
    one, other = ((random.uniform(-0.5, 0.5, (20, 3)), random.choice([-1.0, 1.0], 20)) for _ in range(2))
    turns = [one, other, one, one, other]
    shared = NoiselessAnswers(plan, turns)
    copied = NoiselessAnswers(plan, [(features.copy(), targets.copy()) for features, targets in turns])
    assert len(shared.silos) == 2
    state = ServerState.initial(plan)
    for number, stage in enumerate(plan.stages[:2]):
        round = next(round for round in range(plan.rounds) if plan.place(round)[1] == number)
        argument = handler_of(stage.query).argument(stage.query, state, round)
        for own in ("means", "each"):
            (answer,), (expected,) = (getattr(each, own)(stage.query, [argument]) for each in (shared, copied))
            np.testing.assert_allclose(answer, expected, rtol=1e-12, atol=1e-15)
