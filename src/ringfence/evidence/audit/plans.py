"""The plans that are audited: the planner's, each of one kind of release, for the asked guarantee."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from ringfence.accounting import calibrate
from ringfence.accounting.charges import plan_events
from ringfence.accounting.events import require_count, require_positive, require_probability
from ringfence.planning.propose import make_plan
from ringfence.planning.query_plans import make_single_stage_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.planning.search import CandidateRequest, propose_search
from ringfence.protocol import (
    Box,
    Full,
    Localized,
    MinibatchSGD,
    MultiStage,
    Participation,
    Phase,
    Plan,
    PublicKeys,
    Query,
    Restart,
    Schema,
    Section,
    SiloTerms,
    Squared,
    Stage,
    Training,
    parse_schema,
)
from ringfence.protocol.plan import sections
from ringfence.shuffler import sealing

SILO = "audited silo"
CANARIES = 64
CLIP = 0.25
"""A quarter of the canaries' gradients, so that a silo that does not clip is found out."""

CORRELATION = 0.5
"""θ of the correlated noise that is audited."""

SGD = MinibatchSGD(step=1.0)
DOMAIN = Box(lower=-1.0, upper=1.0)

OTHER, PEER = "other silo", "peer"
"""A silo whose coins also hide the audited one's records, and one that colludes with the server. Both have zeros."""

PEER_SIZE = 14
"""How many times as large as the audited silo one is that colludes with the server."""

PERSON_ROWS = {1.0: 2, -1.0: 4}
"""How many rows a canary that is a person has, by its coin: by the rule `rows`, the first two count."""

FIRST_SHARE = 0.5
"""How much of the epsilon the first of several plans gets."""

CANDIDATES, CHOICE_CANARIES = 3, 32
"""Candidates of an audited choice, and canaries at most among the records that train them."""

HELD_OUT = 0.5
"""The share of the records that compares candidates: half, so that a small silo has some of either kind."""


@dataclass(frozen=True)
class AuditQuery:
    """What is asked of a mechanism: a guarantee for all rounds together, and the size of the silo."""

    epsilon: float
    delta: float
    records: int
    rounds: int

    def __post_init__(self) -> None:
        """Check the numbers of an audit's query."""
        require_positive("epsilon", self.epsilon)
        require_probability("delta", self.delta)
        require_count("records", self.records)
        require_count("rounds", self.rounds)


_NUMBER = {"type": "numeric", "lower": -1.0, "upper": 1.0}
THREE_NUMBERS = parse_schema(
    {"columns": dict.fromkeys(("x1", "x2", "y"), _NUMBER), "intercept": 0.0, "radius": 1.0}, target="y"
)
"""The columns that most queries which one canary moves are about."""

OF_RECORDS = PlanRequest(loss=Squared(), clip=CLIP, domain=DOMAIN, algorithm=SGD)
BY_MEAN, BY_SUM = replace(OF_RECORDS, person_rule="mean"), replace(OF_RECORDS, person_rule="sum")
BY_ROWS = replace(OF_RECORDS, person_rule="rows", rows_per_person=min(PERSON_ROWS.values()))


def canary_schema(canaries: int, unit: PlanRequest) -> Schema:
    """Return a schema with a column for the canary's number, one for its coin, and one for persons if they play."""
    which = {"type": "categorical", "categories": [f"canary {number}" for number in range(max(2, canaries))]}
    person = {} if unit.person_rule is None else {"person": "who"}
    return parse_schema({"columns": {"which": which, "coin": _NUMBER}, "intercept": 0.0, **person}, target="coin")


def gradient_plans(query: AuditQuery, unit: PlanRequest = OF_RECORDS, **request: Any) -> list[Plan]:
    """Make one plan of gradients by the request's other fields, one training stage after the other.

    Random batches are of three quarters of the records: large ones show best whether a record was drawn twice into one.
    """
    batch = max(1, 3 * query.records // 4) if request.get("sampling") in ("fixed", "poisson") else None
    member = Member(SILO, query.records, query.epsilon, query.delta, batch)
    asked = replace(unit, **{"run": "audit", "rounds": query.rounds, "sampling": "full", "survey": False, **request})
    return [make_plan(canary_schema(min(query.records, CANARIES), unit), [member], asked)]


@dataclass(frozen=True, repr=False)
class PrivateKeys:
    """The private keys of all parties of the audited plans."""

    server: bytes
    shuffler: bytes
    silos: Mapping[str, bytes]

    def public(self) -> PublicKeys:
        """Return the public keys for an audited plan through a shuffler."""
        return PublicKeys(
            server=sealing.public_key(self.server),
            shuffler=sealing.public_key(self.shuffler),
            silos={name: sealing.verifying_key(key) for name, key in self.silos.items()},
        )


@cache
def private_keys() -> PrivateKeys:
    """Return keys of all parties, the same for all audits of this process."""
    return PrivateKeys(sealing.new_key(), sealing.new_key(), {name: sealing.new_key() for name in (SILO, OTHER, PEER)})


def shuffled_plans(query: AuditQuery, canaries: int, peers: int = 0, unit: PlanRequest = OF_RECORDS) -> list[Plan]:
    """Make the plan with the least coins that keep the guarantee, with another silo as large as the audited one.

    A peer, which colludes with the server, has `PEER_SIZE` times as many records: a claim that relies on it is refuted.
    """
    sizes = {SILO: 1, OTHER: 1, PEER: PEER_SIZE}
    members = [
        Member(name, size * query.records, query.epsilon, query.delta)
        for name, size in list(sizes.items())[: 2 + peers]
    ]
    request = replace(
        unit,
        run="audit",
        rounds=query.rounds,
        trust="shuffler",
        colluders=peers,
        keys=private_keys().public(),
    )
    return [make_plan(canary_schema(min(query.records, canaries), unit), members, request)]


def query_plans(query: AuditQuery, asked: Query, schema: Schema, *, repeated: bool) -> list[Plan]:
    """Make the plan of one query, asked once or in every round."""
    stage = Stage(query=asked, rounds=query.rounds if repeated else 1, sampling=Full())
    member = Member(SILO, query.records, query.epsilon, query.delta)
    training = Training(loss=Squared(), domain=DOMAIN, algorithm=SGD)
    return [make_single_stage_plan(stage, [member], run="audit", data=schema, training=training)]


def multi_stage_plans(query: AuditQuery) -> list[Plan]:
    """Make the plan of full batches, accelerated in stages."""
    stages = tuple(Restart(rounds=half, upsilon=0.0) for half in _halves(query.rounds))
    return gradient_plans(query, algorithm=MultiStage(smoothness=1.0, stages=stages, penalty=0.1))


def localized_plans(query: AuditQuery) -> list[Plan]:
    """Make the plan of phases on ever fewer records."""
    phases = tuple(Phase(rounds=half, penalty=0.1) for half in _halves(query.rounds))
    return gradient_plans(query, sampling="phased", algorithm=Localized(smoothness=1.0, phases=phases))


def _halves(rounds: int) -> list[int]:
    """Return two halves of an audited plan's rounds, of which the first may be longer; a single round is one."""
    return [half for half in (rounds - rounds // 2, rounds // 2) if half]


def turns_plans(query: AuditQuery) -> list[Plan]:
    """Make the plan of full batches that lets the silo answer the query's rounds among twice as many."""
    among = replace(query, rounds=2 * query.rounds)
    return gradient_plans(among, participation=Participation(silos=1, answers=query.rounds))


def two_kinds_of_plans(query: AuditQuery) -> list[Plan]:
    """Return two plans of different kinds that only together come to the query's epsilon, and to its rounds."""
    share = replace(query, rounds=max(1, query.rounds // 2))
    [first] = gradient_plans(replace(share, epsilon=FIRST_SHARE * query.epsilon))
    [second] = gradient_plans(share, sampling="poisson")
    terms = second.silos[0]

    def with_noise(sigma: float) -> SiloTerms:
        """Return the audited silo's terms in the second plan with that noise."""
        return terms.model_copy(update={"stages": (terms.stages[0].model_copy(update={"sigma": sigma}),)})

    sigma = calibrate.least_noise(
        lambda sigma: plan_events(second, with_noise(sigma)),
        epsilon=query.epsilon,
        delta=query.delta,
        start=terms.stages[0].sigma,
        already=plan_events(first, first.silos[0]),
    )
    return [first, second.model_copy(update={"silos": (with_noise(sigma),)})]


def choice_plans(query: AuditQuery, *, section: Section) -> list[Plan]:
    """Return the plans of a choice among ridges, for a single silo, that together come to the query's epsilon.

    Canaries are of that section, and the schema is for them; the comparison is the last plan.
    """
    held_out = sections.size("held-out", query.records, HELD_OUT)
    canaries = min(sections.size(section, query.records, HELD_OUT), CHOICE_CANARIES)
    schema = canary_schema(canaries, OF_RECORDS) if section == "training" else THREE_NUMBERS
    member = Member(SILO, query.records - held_out, query.epsilon, query.delta, held_out=held_out)
    asked = replace(OF_RECORDS, rounds=max(1, query.rounds // CANDIDATES), held_out=HELD_OUT)
    ridges = [replace(asked, ridge=0.1 * number) for number in range(CANDIDATES)]
    return list(propose_search(schema, [CandidateRequest({"ridge": own.ridge}, own, [member]) for own in ridges]).plans)
