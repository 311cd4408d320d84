"""What somebody may ask of a plan: who takes part, and every option there is, declared once.

The command line reads its options off these fields, estimators, experiments and `make_plan` fill them in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from ringfence.errors import PlanError

# Nothing heavier is imported before it is needed: the command line reads its options here even to print its help.
if TYPE_CHECKING:
    from ringfence.protocol.algorithms import AlgorithmSpec, Average
    from ringfence.protocol.domain import Domain
    from ringfence.protocol.keys import PublicKeys
    from ringfence.protocol.losses import Loss
    from ringfence.protocol.plan import Participation, Plan
    from ringfence.protocol.questions import PersonRule, Unit
    from ringfence.protocol.sampling import Sampling, SamplingName
    from ringfence.protocol.schema import Schema

Risk: TypeAlias = Literal["empirical", "population"]
Trust: TypeAlias = Literal["nobody", "shuffler"]
Weights: TypeAlias = Literal["records", "equal", "noise"]

HELD_OUT = 0.2
"""The share of a silo's records that do not train, unless somebody says another."""


@dataclass(frozen=True)
class Member:
    """A silo that takes part: how many records train, the guarantee it asks for, and optionally its batch and weight.

    `held_out` is how many more records it has, which do not train and are for evaluation.
    """

    name: str
    records: int
    epsilon: float
    delta: float | None = None
    batch: int | None = None
    weight: float | None = None
    held_out: int = 0

    @property
    def all_records(self) -> int:
        """How many records it has."""
        return self.records + self.held_out

    @property
    def allowed_delta(self) -> float:
        """Its delta, or the default for its size."""
        from ringfence.planning import defaults

        return defaults.delta(self.all_records) if self.delta is None else self.delta

    def batch_under(self, rule: Sampling, rounds: int) -> int:
        """Return its batch under a sampling rule; PlanError if there can be none."""
        try:
            return rule.batch(self.name, records=self.records, rounds=rounds, asked=self.batch)
        except ValueError as problem:
            raise PlanError(str(problem)) from None


@dataclass(frozen=True)
class Option:
    """How the command line offers a field: its help, and its name where that is not the field's."""

    help: str
    flag: str = ""
    metavar: str | None = None


def offered(help: str, *, flag: str = "", metavar: str | None = None) -> dict[str, Option]:
    """Say that the command line offers a field, and how."""
    return {"option": Option(help, flag, metavar)}


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """What is asked of a plan. None, and whatever is left out, means: choose for me.

    Who takes part, and for what guarantee, is said either by members, or by `epsilon`, `delta`, `budgets`, `batch` and
    `weights` together with the silos' sizes (`members`).
    """

    epsilon: float | None = field(default=None, metadata=offered("Every silo's epsilon."))
    delta: float | None = field(default=None, metadata=offered("Every silo's delta; by default 1/n², at most 1e-5."))
    budgets: Mapping[str, tuple[float, float]] = field(
        default_factory=dict, metadata=offered("One silo's own budget.", flag="budget", metavar="NAME=EPS,DELTA")
    )
    algorithm: AlgorithmSpec | str | None = field(
        default=None,
        metadata=offered(
            "minibatch-sgd, accelerated, regularised, multi-stage, localized, preconditioned, or 'bounded' for the one "
            "with the least loss bound; chosen for you."
        ),
    )
    risk: Risk = field(
        default="empirical", metadata=offered("Choose by bounds on the 'empirical' or of the 'population' loss.")
    )
    rounds: int | None = field(default=None, metadata=offered("Rounds, exactly; chosen for you."))
    most_rounds: int | None = field(
        default=None, metadata=offered("The most rounds that may be chosen; by default 100.", flag="max-rounds")
    )
    loss: Loss | str | None = field(
        default=None,
        metadata=offered(
            "logistic, hinge, softmax, squared, huber, absolute, pinball, epsilon-insensitive, poisson, gamma, "
            "negative-binomial, survival, ordinal or multi-squared; by the target's type."
        ),
    )
    quantile: float = field(default=0.5, metadata=offered("Which quantile the pinball loss aims at."))
    margin: float | None = field(
        default=None,
        metadata=offered(
            "Where huber turns linear, or what epsilon-insensitive ignores, in scaled units; by "
            "default a tenth of the target's bound."
        ),
    )
    dispersion: float = field(
        default=1.0, metadata=offered("Of negative-binomial: counts of mean m have the variance m + dispersion·m².")
    )
    cuts: tuple[float, ...] | None = field(
        default=None,
        metadata=offered("Of survival: where the hazard may change, as 'T1,T2,...'; by default five equal parts."),
    )
    sampling: SamplingName | None = field(
        default=None, metadata=offered("full, fixed, poisson, one-pass or phased; chosen for you.")
    )
    batch: int | None = field(
        default=None, metadata=offered("Records, or persons, per round, where sampling leaves it open.")
    )
    clip: float | None = field(
        default=None, metadata=offered("Largest norm of a record's, or person's, gradient; chosen for you.")
    )
    distance: float | None = field(
        default=None, metadata=offered("How large the best weights are expected to be; chosen for you.")
    )
    domain: Domain | None = None
    step: float | None = field(default=None, metadata=offered("Step of minibatch-sgd; chosen for you."))
    average: Average | None = field(
        default=None,
        metadata=offered(
            "The model: 'weighted' as in the theorems, 'last' point, or 'tail' average; by "
            "default weighted, with a step of yours tail."
        ),
    )
    correlation: float = field(
        default=0.0, metadata=offered("Let one-pass noise cancel over the rounds: 0 is independent, 0.5 a good value.")
    )
    survey: bool | None = field(
        default=None,
        metadata=offered(
            "Spend a little on a private estimate that the steps of accelerated need; by default where it pays.",
            flag="survey/--no-survey",
        ),
    )
    ridge: float = field(default=0.0, metadata=offered("Strength of the L2 penalty, added at the server."))
    lasso: float = field(
        default=0.0,
        metadata=offered(
            "Strength of the L1 penalty, taken at the server, the intercept left out; with --ridge: elastic net."
        ),
    )
    unit: Unit | None = field(
        default=None, metadata=offered("What is protected: a 'record' or a 'person'; by the schema's `person`.")
    )
    person_rule: PersonRule | None = field(
        default=None,
        metadata=offered("What a person's rows come to: their 'mean', a number of 'rows', or their 'sum'; mean."),
    )
    rows_per_person: int | None = field(
        default=None, metadata=offered("How many rows of a person count at most, by the rule 'rows'.")
    )
    held_out: float | None = field(
        default=None,
        metadata=offered(
            "Share of each silo's records that do not train and are for evaluation; by default 0.2. 0: all train.",
        ),
    )
    weights: Weights | None = field(
        default=None,
        metadata=offered(
            "How silos count: by 'records' (or persons), 'equal', or by the inverse variance of their 'noise'; by "
            "default records, or between these and noise where budgets differ much."
        ),
    )
    available: int | None = field(
        default=None, metadata=offered("How many silos are asked in a round; all if not given.")
    )
    participation: Participation | None = None
    trust: Trust = field(
        default="nobody",
        metadata=offered(
            "Whom the guarantee relies on: 'nobody', or a 'shuffler' that does not work together with the server."
        ),
    )
    keys: PublicKeys | None = field(
        default=None, metadata=offered("Public keys of server, shuffler and silos (TOML), for a plan with a shuffler.")
    )
    quorum: int | None = field(
        default=None, metadata=offered("The fewest silos that a shuffler lets out together; all that are asked.")
    )
    colluders: int | None = field(
        default=None,
        metadata=offered(
            "How many other silos may work together with the server without hurting a shuffled guarantee; by default 1."
        ),
    )
    bits: int | None = field(
        default=None,
        metadata=offered("The most bits per record, or person, of the shuffled sum; by default 140 per weight."),
    )
    purpose: str | None = field(
        default=None, metadata=offered("What the plan is for, in one line that every silo's operator reads.")
    )
    controller: str | None = field(
        default=None, metadata=offered("Who answers for the processing in law, in one line.")
    )
    contact: str | None = field(default=None, metadata=offered("Whom to ask about it, in one line."))
    run: str | None = None

    def __post_init__(self) -> None:
        for name, (what, allowed) in _choices().items():
            value = getattr(self, name)
            if value is not None and value not in allowed:
                raise PlanError(f"{what} one of {', '.join(allowed)}, not '{value}'.")
        for count in (self.rounds, self.most_rounds):
            if count is not None and count < 1:
                raise PlanError(f"A plan needs at least one round, but {count} were asked for.")
        if self.batch is not None and self.batch < 1:
            raise PlanError(f"The batch must be a whole number of at least 1, but is {self.batch}.")
        if self.rounds is not None and self.most_rounds is not None:
            raise PlanError("Give either the rounds, exactly how many, or the most rounds, a limit to choose within.")
        for name in ("clip", "distance"):
            number = getattr(self, name)
            if number is not None and not 1e-50 <= number <= 1e50:
                raise PlanError(f"The {name} must be a positive number that can be computed with, but is {number!r}.")
        if not 0 <= self.held_out_share <= 0.99 or round(self.held_out_share, 2) != self.held_out_share:
            raise PlanError(
                f"The held-out share must be between 0 and 0.99, in whole percent, but is {self.held_out!r}."
            )
        for name in ("ridge", "lasso"):
            strength = getattr(self, name)
            if not 0 <= strength <= 1e50:
                raise PlanError(
                    f"The {name} must be 0 or a positive number that can be computed with, but is {strength!r}."
                )

    @property
    def held_out_share(self) -> float:
        """The share of records that do not train."""
        return HELD_OUT if self.held_out is None else self.held_out

    def members(self, sizes: Mapping[str, int]) -> list[Member]:
        """Return the silos of the given sizes, divided into sections, with the budgets that were asked for."""
        if self.epsilon is None:
            raise PlanError("Say how much each silo allows: give the request an epsilon.")
        for name in self.budgets:
            if name not in sizes:
                raise PlanError(f"There is a budget for silo '{name}', but the silos are {', '.join(sizes)}.")
        members = []
        for name, records in sizes.items():
            epsilon, delta = self.budgets.get(name, (self.epsilon, self.delta))
            weight = 1.0 / len(sizes) if self.weights == "equal" else None
            training, held_out = self.divided(name, records)
            members.append(Member(name, training, epsilon, delta, self.batch, weight, held_out))
        return members

    def divided(self, silo: str, records: int) -> tuple[int, int]:
        """Return how many of a silo's records train, and how many are held out; PlanError if these are too few."""
        from ringfence.protocol import sections

        held_out = sections.size("held-out", records, self.held_out_share) if self.held_out_share else 0
        if self.held_out_share and not 0 < held_out < records:
            raise PlanError(
                f"Silo '{silo}' has {records} record{'s' * (records != 1)}, too few to hold some out and train on the "
                "others: leave it out, or let all records train, with a held-out share of 0."
            )
        return records - held_out, held_out

    def units(self, data: Schema) -> dict[str, Any]:
        """Return a plan's fields about what it protects: persons where the schema tells them apart."""
        unit = self.unit or ("record" if data.person is None else "person")
        rule = self.person_rule or ("mean" if unit == "person" else None)
        return {"unit": unit, "person_rule": rule, "rows_per_person": self.rows_per_person}

    def asked(self) -> Participation:
        """Return how many silos are asked in a round."""
        from ringfence.protocol.plan import EVERYBODY, Participation

        if self.available is None:
            return self.participation or EVERYBODY
        with clear_refusals():
            return Participation(silos=self.available)


def _choices() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return the fields with a few allowed values: how a sentence about them begins, and the values."""
    from ringfence.protocol.algorithms import Average
    from ringfence.protocol.questions import PersonRule, Unit
    from ringfence.protocol.sampling import SAMPLING_NAMES

    return {
        "unit": ("A plan protects a", get_args(Unit)),
        "person_rule": ("What a person's rows come to is", get_args(PersonRule)),
        "risk": ("A bound's risk is", get_args(Risk)),
        "sampling": ("Sampling is", SAMPLING_NAMES),
        "average": ("The model is", get_args(Average)),
        "weights": ("Silos count by", get_args(Weights)),
        "trust": ("A plan trusts", get_args(Trust)),
    }


def require_fit(plan: Plan) -> Plan:
    """Return the plan, if it could be approved as far as anybody can tell from the plan alone."""
    from ringfence.protocol import demands

    if unmet := demands.unmet(plan):
        raise PlanError(f"No plan can be made of this: {unmet}.")
    return plan


@contextmanager
def clear_refusals() -> Iterator[None]:
    """Turn a plan's own refusal into a sentence for whoever asked for it."""
    from pydantic import ValidationError

    from ringfence.protocol.public import explain

    try:
        yield
    except ValidationError as refused:
        raise PlanError(f"No plan can be made of this: {explain(refused)}.") from None
