"""Requests for a plan: the members, and every option, declared once.

    request = PlanRequest(epsilon=1.0, rounds=20)
    members = request.members({"north": 500, "south": 800})

The command line generates its options from these fields; estimators, experiments and `make_plan` fill them in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from ringfence.errors import PlanError
from ringfence.planning.options import offered, parse_budgets, parse_curves, parse_cuts, parse_figures

# Nothing heavier is imported before it is needed: the command line reads its options here even to print its help.
if TYPE_CHECKING:
    from ringfence.protocol import (
        AlgorithmSpec,
        Average,
        Domain,
        Loss,
        Participation,
        PersonRule,
        Plan,
        PublicKeys,
        Sampling,
        SamplingName,
        Schema,
        Unit,
    )

Risk: TypeAlias = Literal["empirical", "population"]
Trust: TypeAlias = Literal["nobody", "shuffler"]
Weights: TypeAlias = Literal["records", "equal", "noise"]

FIGURES = (
    "What the evaluation measures: names as printed, like accuracy,recall, or 'default' or 'all'. The fewer, the more "
    "precise. Default: accuracy and AUC (log loss for several classes), or RMSE and MAE.",
    "Evaluation",
)
"""Help and section of the option for an evaluation's figures."""

HELD_OUT = 0.2
"""Default share of a silo's records that is held out for evaluation."""


@dataclass(frozen=True)
class Member:
    """A silo that takes part: its training records, its guarantee, and optionally its batch and weight.

    `held_out` is the number of further records, which are for evaluation.
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
        """Training and held-out records of a silo in a request, together."""
        return self.records + self.held_out

    @property
    def allowed_delta(self) -> float:
        """The delta that a member of the request allows, or the default for its size."""
        from ringfence.planning import defaults

        return defaults.default_delta(self.all_records) if self.delta is None else self.delta

    def batch_under(self, rule: Sampling, rounds: int) -> int:
        """Return a member's batch under a sampling rule; PlanError if there can be none."""
        try:
            return rule.batch(self.name, records=self.records, rounds=rounds, asked=self.batch)
        except ValueError as problem:
            raise PlanError(str(problem)) from None


def _read_keys(path: Path | None) -> PublicKeys | None:
    """Read the file of public keys that a plan request names, if any."""
    from ringfence.protocol import load_keys

    return None if path is None else load_keys(path)


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """Options of a plan. None, or a field left out, means that the planner chooses.

    Guarantees come from the members, or from `epsilon`, `delta`, `budgets`, `batch` and `weights` together with the
    silos' sizes (`members`).
    """

    epsilon: float | None = offered(
        None,
        "Epsilon of every silo's guarantee for this plan: the smaller, the more private. 1 is a common choice.",
        "Basic",
        required=True,
    )
    delta: float | None = offered(
        None, "Delta of every silo's guarantee. Default: 1/n² for n records, at most 1e-5.", "Privacy"
    )
    budgets: Mapping[str, tuple[float, float]] = offered(
        {},
        "Epsilon and delta of one silo, if it has its own.",
        "Privacy",
        flag="budget",
        metavar="NAME=EPS,DELTA",
        reads=list[str],
        parser=parse_budgets,
    )
    algorithm: AlgorithmSpec | str | None = offered(
        None,
        "minibatch-sgd, accelerated, regularised, multi-stage, localized, preconditioned, or 'bounded' for the one "
        "with the smallest loss bound. Default: automatic.",
        "Algorithm",
    )
    risk: Risk = offered(
        "empirical",
        "Choose the algorithm by bounds on the loss of the silos' own records ('empirical') or of fresh ones "
        "('population').",
        "Algorithm",
    )
    rounds: int | None = offered(None, "Exact number of training rounds. Default: automatic.", "Algorithm")
    most_rounds: int | None = offered(
        None, "Most training rounds that may be chosen. Default: 100.", "Algorithm", flag="max-rounds"
    )
    loss: Loss | str | None = offered(
        None,
        "logistic, hinge, softmax, squared, huber, absolute, pinball, epsilon-insensitive, poisson, gamma, "
        "negative-binomial, survival, ordinal or multi-squared. Default: by the target's type.",
        "Model",
    )
    quantile: float = offered(0.5, "Quantile that the pinball loss estimates.", "Model")
    margin: float | None = offered(
        None,
        "Where huber turns linear, or the error that epsilon-insensitive ignores, in scaled units. Default: a "
        "tenth of the target's bound.",
        "Model",
    )
    dispersion: float = offered(
        1.0, "For negative-binomial: counts with mean m have variance m + dispersion·m².", "Model"
    )
    cuts: tuple[float, ...] | None = offered(
        None,
        "For survival: the times at which the hazard may change. Default: five equal parts.",
        "Model",
        metavar="T1,T2,...",
        reads=str | None,
        parser=parse_cuts,
    )
    sampling: SamplingName | None = offered(
        None,
        "Which records answer a round: full (all), fixed, poisson, one-pass or phased. Default: automatic.",
        "Algorithm",
    )
    batch: int | None = offered(
        None, "Records (or persons) per round, for sampling rules that need a number.", "Algorithm"
    )
    clip: float | None = offered(
        None, "Clipping norm: the largest norm of a record's (or person's) gradient. Default: automatic.", "Algorithm"
    )
    distance: float | None = offered(None, "Expected norm of the best weights. Default: automatic.", "Algorithm")
    domain: Domain | None = None
    step: float | None = offered(None, "Step size of minibatch-sgd. Default: automatic.", "Algorithm")
    average: Average | None = offered(
        None,
        "Which iterate becomes the model: the 'weighted' average of the theorems, the 'last' iterate, or the 'tail' "
        "average. Default: weighted, or tail if you set the step.",
        "Algorithm",
    )
    correlation: float = offered(
        0.0, "Let the noise of one-pass rounds partly cancel: 0 is independent noise, 0.5 works well.", "Algorithm"
    )
    survey: bool | None = offered(
        None,
        "Spend a little of epsilon on a private estimate that sets the steps of accelerated. Default: where it "
        "pays off.",
        "Algorithm",
        flag="survey/--no-survey",
    )
    curves: int | None = offered(
        None,
        "Most straight pieces of the curve that the model gives every numeric column, between knots that a survey "
        "places; or 'none' for straight lines between the schema's bounds. Default: automatic.",
        "Model",
        metavar="PIECES",
        reads=str | None,
        parser=parse_curves,
    )
    ridge: float = offered(0.0, "Strength of the L2 penalty, applied by the server.", "Model")
    lasso: float = offered(
        0.0,
        "Strength of the L1 penalty, applied by the server to all weights but the intercept. With --ridge: elastic "
        "net.",
        "Model",
    )
    unit: Unit | None = offered(
        None,
        "What is protected: a 'record' or a 'person'. Default: person if the schema names a person column.",
        "Privacy",
    )
    person_rule: PersonRule | None = offered(
        None,
        "How a person's rows are combined: by 'mean', by 'sum', or as a limited number of 'rows'. Default: mean.",
        "Privacy",
    )
    rows_per_person: int | None = offered(None, "Most rows per person, under the rule 'rows'.", "Privacy")
    held_out: float | None = offered(
        None,
        "Share of each silo's records that is kept for evaluation and does not train. Default: 0.2. With 0, all "
        "records train.",
        "Evaluation",
    )
    figures: Sequence[str] | None = offered(
        None, *FIGURES, metavar="NAME,NAME...", reads=str | None, parser=parse_figures
    )
    weights: Weights | None = offered(
        None,
        "Weight silos by 'records' (or persons), 'equal', or by the inverse variance of their 'noise'. Default: "
        "records, or between records and noise where budgets differ widely.",
        "Algorithm",
    )
    available: int | None = offered(None, "Silos asked in each round. Default: all.", "Algorithm")
    participation: Participation | None = None
    trust: Trust = offered(
        "nobody",
        "Whom the guarantee relies on: 'nobody', or a 'shuffler' that does not collude with the server.",
        "Shuffler",
    )
    keys: PublicKeys | None = offered(
        None,
        "Public keys of the server, the shuffler and the silos (TOML).",
        "Shuffler",
        reads=Path | None,
        parser=_read_keys,
    )
    quorum: int | None = offered(
        None, "Fewest silos whose messages the shuffler releases together. Default: all that are asked.", "Shuffler"
    )
    colluders: int | None = offered(
        None,
        "How many other silos may collude with the server without weakening a shuffled guarantee. Default: 1.",
        "Shuffler",
    )
    bits: int | None = offered(
        None, "Most bits per record (or person) in the shuffled sum. Default: 140 per weight.", "Shuffler"
    )
    purpose: str | None = offered(
        None, "What the plan is for, in one line that every silo's operator reads.", "Documentation"
    )
    controller: str | None = offered(
        None, "Who is legally responsible for the processing, in one line.", "Documentation"
    )
    contact: str | None = offered(None, "Whom to ask about it, in one line.", "Documentation")
    run: str | None = None

    def __post_init__(self) -> None:
        """Refuse options of a plan request that are out of range or contradict each other."""
        from ringfence.protocol import Average, PersonRule, Unit
        from ringfence.protocol.plan.sampling import SAMPLING_NAMES

        few_values: dict[str, tuple[str, tuple[str, ...]]] = {
            "unit": ("The unit of a plan must be", get_args(Unit)),
            "person_rule": ("The rule for a person's rows must be", get_args(PersonRule)),
            "risk": ("The risk must be", get_args(Risk)),
            "sampling": ("Sampling must be", SAMPLING_NAMES),
            "average": ("The average must be", get_args(Average)),
            "weights": ("Silos are weighted by", get_args(Weights)),
            "trust": ("The trust of a plan must be", get_args(Trust)),
        }
        for name, (what, allowed) in few_values.items():
            value = getattr(self, name)
            if value is not None and value not in allowed:
                raise PlanError(f"{what} one of {', '.join(allowed)}, not '{value}'.")
        if self.curves is not None and not 0 <= self.curves <= 100:
            raise PlanError(f"A curve has at most 100 straight pieces, but {self.curves} were asked for.")
        for count in (self.rounds, self.most_rounds):
            if count is not None and count < 1:
                raise PlanError(f"A plan needs at least one round, but {count} were asked for.")
        if self.batch is not None and self.batch < 1:
            raise PlanError(f"The batch must be a whole number of at least 1, but is {self.batch}.")
        if self.rounds is not None and self.most_rounds is not None:
            raise PlanError("Give either the exact number of rounds or the most rounds allowed, not both.")
        for name, least in {"clip": 1e-50, "distance": 1e-50, "ridge": 0.0, "lasso": 0.0}.items():
            number, kind = getattr(self, name), "a positive" if least else "0 or a positive"
            if number is not None and not least <= number <= 1e50:
                raise PlanError(f"The {name} must be {kind} number that can be computed with, but is {number!r}.")
        if not 0 <= self.held_out_share <= 0.99 or round(self.held_out_share, 2) != self.held_out_share:
            raise PlanError(
                f"The held-out share must be between 0 and 0.99, in whole percent, but is {self.held_out!r}."
            )

    @property
    def held_out_share(self) -> float:
        """The share of records that a plan request holds out."""
        return HELD_OUT if self.held_out is None else self.held_out

    def members(self, sizes: Mapping[str, int]) -> list[Member]:
        """Return members of the given sizes, with the request's budgets and held-out share."""
        if self.epsilon is None:
            raise PlanError("Say how much each silo allows: give the request an epsilon.")
        for name in self.budgets:
            if name not in sizes:
                raise PlanError(f"There is a budget for silo '{name}', but the silos are {', '.join(sizes)}.")
        members = []
        for name, records in sizes.items():
            epsilon, delta = self.budgets.get(name, (self.epsilon, self.delta))
            weight = 1.0 / len(sizes) if self.weights == "equal" else None
            training, held_out = self.training_and_held_out(name, records)
            members.append(Member(name, training, epsilon, delta, self.batch, weight, held_out))
        return members

    def training_and_held_out(self, silo: str, records: int) -> tuple[int, int]:
        """Return a silo's numbers of training and held-out records; PlanError if there are too few."""
        from ringfence.protocol.plan import sections

        held_out = sections.size("held-out", records, self.held_out_share) if self.held_out_share else 0
        if self.held_out_share and not 0 < held_out < records:
            raise PlanError(
                f"Silo '{silo}' has {records} record{'s' * (records != 1)}, too few to hold some out and train on the "
                "others: leave it out, or let all records train, with a held-out share of 0."
            )
        return records - held_out, held_out

    def privacy_unit(self, data: Schema) -> dict[str, Any]:
        """Return the plan's fields about the privacy unit: persons if the schema names a person column."""
        unit = self.unit or ("record" if data.person is None else "person")
        rule = self.person_rule or ("mean" if unit == "person" else None)
        return {"unit": unit, "person_rule": rule, "rows_per_person": self.rows_per_person}

    def silos_per_round(self) -> Participation:
        """Return how many silos a round of the requested plan asks."""
        from ringfence.protocol import Participation
        from ringfence.protocol.plan.plan import EVERYBODY

        if self.available is None:
            return self.participation or EVERYBODY
        with clear_refusals():
            return Participation(silos=self.available)


def require_fit(plan: Plan) -> Plan:
    """Return the plan if a silo could approve it, as far as the plan itself shows; else raise PlanError."""
    from ringfence.protocol.plan import checks

    if unmet := checks.unmet(plan):
        raise PlanError(f"No plan can be made from this: {unmet}.")
    return plan


@contextmanager
def clear_refusals() -> Iterator[None]:
    """Turn a document's validation error into a PlanError of one sentence."""
    from pydantic import ValidationError

    from ringfence.protocol import explain

    try:
        yield
    except ValidationError as refused:
        raise PlanError(f"No plan can be made from this: {explain(refused)}.") from None
