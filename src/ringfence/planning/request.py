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
    """How the command line offers a field: its help, its section there, and its name where that is not the field's."""

    help: str
    section: str
    flag: str = ""
    metavar: str | None = None


def offered(help: str, section: str = "Algorithm", *, flag: str = "", metavar: str | None = None) -> dict[str, Option]:
    """Say that the command line offers a field, and how."""
    return {"option": Option(help, section, flag, metavar)}


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """What is asked of a plan. None, and whatever is left out, means: choose for me.

    Who takes part, and for what guarantee, is said either by members, or by `epsilon`, `delta`, `budgets`, `batch` and
    `weights` together with the silos' sizes (`members`).
    """

    epsilon: float | None = field(
        default=None, metadata=offered("Epsilon of every silo's guarantee for this plan.", "Basic")
    )
    delta: float | None = field(
        default=None, metadata=offered("Delta of every silo's guarantee. Default: 1/n², at most 1e-5.", "Privacy")
    )
    budgets: Mapping[str, tuple[float, float]] = field(
        default_factory=dict,
        metadata=offered(
            "Epsilon and delta of one silo, if it has its own.", "Privacy", flag="budget", metavar="NAME=EPS,DELTA"
        ),
    )
    algorithm: AlgorithmSpec | str | None = field(
        default=None,
        metadata=offered(
            "minibatch-sgd, accelerated, regularised, multi-stage, localized, preconditioned, or 'bounded' for the one "
            "with the smallest loss bound. Default: automatic."
        ),
    )
    risk: Risk = field(
        default="empirical",
        metadata=offered("Choose the algorithm by bounds on the 'empirical' or the 'population' loss."),
    )
    rounds: int | None = field(default=None, metadata=offered("Exact number of rounds. Default: automatic."))
    most_rounds: int | None = field(
        default=None, metadata=offered("Most rounds that may be chosen. Default: 100.", flag="max-rounds")
    )
    loss: Loss | str | None = field(
        default=None,
        metadata=offered(
            "logistic, hinge, softmax, squared, huber, absolute, pinball, epsilon-insensitive, poisson, gamma, "
            "negative-binomial, survival, ordinal or multi-squared. Default: by the target's type.",
            "Model",
        ),
    )
    quantile: float = field(default=0.5, metadata=offered("Quantile that the pinball loss estimates.", "Model"))
    margin: float | None = field(
        default=None,
        metadata=offered(
            "Where huber turns linear, or the error that epsilon-insensitive ignores, in scaled units. Default: a "
            "tenth of the target's bound.",
            "Model",
        ),
    )
    dispersion: float = field(
        default=1.0,
        metadata=offered("For negative-binomial: counts with mean m have variance m + dispersion·m².", "Model"),
    )
    cuts: tuple[float, ...] | None = field(
        default=None,
        metadata=offered(
            "For survival: the times at which the hazard may change. Default: five equal parts.",
            "Model",
            metavar="T1,T2,...",
        ),
    )
    sampling: SamplingName | None = field(
        default=None, metadata=offered("full, fixed, poisson, one-pass or phased. Default: automatic.")
    )
    batch: int | None = field(
        default=None, metadata=offered("Records (or persons) per round, for sampling rules that need a number.")
    )
    clip: float | None = field(
        default=None,
        metadata=offered("Clipping norm: the largest norm of a record's (or person's) gradient. Default: automatic."),
    )
    distance: float | None = field(
        default=None, metadata=offered("Expected norm of the best weights. Default: automatic.")
    )
    domain: Domain | None = None
    step: float | None = field(default=None, metadata=offered("Step size of minibatch-sgd. Default: automatic."))
    average: Average | None = field(
        default=None,
        metadata=offered(
            "Which point becomes the model: the 'weighted' average of the theorems, the 'last' point, or the 'tail' "
            "average. Default: weighted, or tail if you set the step."
        ),
    )
    correlation: float = field(
        default=0.0,
        metadata=offered("Let the noise of one-pass rounds partly cancel: 0 is independent noise, 0.5 works well."),
    )
    survey: bool | None = field(
        default=None,
        metadata=offered(
            "Spend a little of epsilon on a private estimate that sets the steps of accelerated. Default: where it "
            "pays off.",
            flag="survey/--no-survey",
        ),
    )
    ridge: float = field(default=0.0, metadata=offered("Strength of the L2 penalty, applied by the server.", "Model"))
    lasso: float = field(
        default=0.0,
        metadata=offered(
            "Strength of the L1 penalty, applied by the server to all weights but the intercept. With --ridge: elastic "
            "net.",
            "Model",
        ),
    )
    unit: Unit | None = field(
        default=None,
        metadata=offered(
            "What is protected: a 'record' or a 'person'. Default: person if the schema names a person column.",
            "Privacy",
        ),
    )
    person_rule: PersonRule | None = field(
        default=None,
        metadata=offered(
            "How a person's rows are combined: by 'mean', by 'sum', or as a limited number of 'rows'. Default: mean.",
            "Privacy",
        ),
    )
    rows_per_person: int | None = field(
        default=None, metadata=offered("Most rows per person, under the rule 'rows'.", "Privacy")
    )
    held_out: float | None = field(
        default=None,
        metadata=offered(
            "Share of each silo's records that is kept for evaluation and does not train. Default: 0.2. With 0, all "
            "records train.",
            "Evaluation",
        ),
    )
    weights: Weights | None = field(
        default=None,
        metadata=offered(
            "Weight silos by 'records' (or persons), 'equal', or by the inverse variance of their 'noise'. Default: "
            "records, or between records and noise where budgets differ widely."
        ),
    )
    available: int | None = field(default=None, metadata=offered("Silos asked in each round. Default: all."))
    participation: Participation | None = None
    trust: Trust = field(
        default="nobody",
        metadata=offered(
            "Whom the guarantee relies on: 'nobody', or a 'shuffler' that does not collude with the server.", "Shuffler"
        ),
    )
    keys: PublicKeys | None = field(
        default=None, metadata=offered("Public keys of the server, the shuffler and the silos (TOML).", "Shuffler")
    )
    quorum: int | None = field(
        default=None,
        metadata=offered(
            "Fewest silos whose messages the shuffler releases together. Default: all that are asked.", "Shuffler"
        ),
    )
    colluders: int | None = field(
        default=None,
        metadata=offered(
            "How many other silos may collude with the server without weakening a shuffled guarantee. Default: 1.",
            "Shuffler",
        ),
    )
    bits: int | None = field(
        default=None,
        metadata=offered("Most bits per record (or person) in the shuffled sum. Default: 140 per weight.", "Shuffler"),
    )
    purpose: str | None = field(
        default=None,
        metadata=offered("What the plan is for, in one line that every silo's operator reads.", "Documentation"),
    )
    controller: str | None = field(
        default=None, metadata=offered("Who is legally responsible for the processing, in one line.", "Documentation")
    )
    contact: str | None = field(default=None, metadata=offered("Whom to ask about it, in one line.", "Documentation"))
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
            raise PlanError("Give either the exact number of rounds or the most rounds allowed, not both.")
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
        "unit": ("The unit of a plan must be", get_args(Unit)),
        "person_rule": ("The rule for a person's rows must be", get_args(PersonRule)),
        "risk": ("The risk must be", get_args(Risk)),
        "sampling": ("Sampling must be", SAMPLING_NAMES),
        "average": ("The average must be", get_args(Average)),
        "weights": ("Silos are weighted by", get_args(Weights)),
        "trust": ("The trust of a plan must be", get_args(Trust)),
    }


def require_fit(plan: Plan) -> Plan:
    """Return the plan, if it could be approved as far as anybody can tell from the plan alone."""
    from ringfence.protocol import demands

    if unmet := demands.unmet(plan):
        raise PlanError(f"No plan can be made from this: {unmet}.")
    return plan


@contextmanager
def clear_refusals() -> Iterator[None]:
    """Turn a plan's own refusal into a sentence for whoever asked for it."""
    from pydantic import ValidationError

    from ringfence.protocol.public import explain

    try:
        yield
    except ValidationError as refused:
        raise PlanError(f"No plan can be made from this: {explain(refused)}.") from None
