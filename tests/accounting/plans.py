"""Plans of every kind, and what their rounds cost one by one."""

from typing import Any

from ringfence.accounting.charges import task_event
from ringfence.accounting.events import Event
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Localized, Phase, Plan, PublicKeys, Schema, SiloTerms
from ringfence.protocol.plan.plan import task
from tests.shuffler.shuffled_federation import make_shuffled_plan, schema_of

PHASES = Localized(smoothness=1.0, phases=tuple(Phase(rounds=r, penalty=0.1) for r in (4, 1, 7)))
KINDS: dict[str, dict[str, Any]] = {
    "full": {"sampling": "full"},
    "fixed": {"sampling": "fixed"},
    "poisson": {"sampling": "poisson"},
    "one-pass": {"sampling": "one-pass"},
    "correlated": {"sampling": "one-pass", "correlation": 0.4},
    "phased": {"algorithm": PHASES},
}


def plan_for(schema: Schema, kind: str, survey: bool = False, **changes: Any) -> Plan:
    """Return a plan of that kind, of 12 rounds, for two silos of different sizes and budgets."""
    members = [Member("north", 100, 1.0, 1e-6), Member("south", 37, 0.5, 1e-7)]
    given = {"algorithm": "accelerated", "rounds": 12, "survey": survey, **KINDS[kind], **changes}
    return make_plan(schema, members, PlanRequest(**given))


def mixed_plan(sampling: str) -> Plan:
    """Return a plan of three silos of different sizes, two of which are enough for the shuffler."""
    keys = PublicKeys(server="5e" * 32, shuffler="5f" * 32, silos=dict.fromkeys(("big", "mid", "small"), "a0" * 32))
    sizes = {"big": 300, "mid": 200, "small": 120}
    return make_shuffled_plan(schema_of(3), keys, sizes, quorum=2, colluders=0, sampling=sampling, epsilon=2.0)


def all_rounds(plan: Plan, terms: SiloTerms) -> list[tuple[Event, int]]:
    """Charge round by round, as a gate does that answers them all."""
    places = [plan.place(round) for round in range(plan.rounds)]
    return [(task_event(plan, terms, task(plan, terms, round, place.round)), 1) for round, place in enumerate(places)]
