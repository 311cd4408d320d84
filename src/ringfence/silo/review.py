"""What a plan would reveal of a silo, to whom and at what cost, in the words of somebody who must decide on it."""

from dataclasses import dataclass, replace
from typing import Any

from ringfence.errors import AccountingError
from ringfence.planning import accountant
from ringfence.planning.charges import plan_events
from ringfence.planning.events import as_seen_alone
from ringfence.protocol.algorithms import Localized
from ringfence.protocol.plan import Plan, SiloTerms
from ringfence.protocol.schedule import survey_length
from ringfence.silo.ledger import Account, Budget


@dataclass(frozen=True)
class Review:
    """A plan before a silo's operator.

    `epsilon` is what the plan's own noise gives, at the delta it claims for this silo; `total` is what everything
    released, everything running and this plan come to together, at the budget's delta; `left` is the rest. They are
    None where the silo has no part in the plan, or its cost cannot be told. `objection` says why the gate would not
    approve it, if it would not. `alone` and `total_alone` are the same against a server that works together with the
    shuffler, if there is one.
    """

    plan: Plan
    silo: str
    epsilon: float | None
    total: float | None
    spent: float
    budget: Budget
    objection: str
    alone: float | None = None
    total_alone: float | None = None

    @property
    def left(self) -> float | None:
        """What is left of the budget's epsilon once the plan is approved."""
        return None if self.total is None else max(0.0, self.budget.epsilon - self.total)

    def data(self) -> dict[str, Any]:
        """Return the review for machines."""
        terms = self.plan.terms(self.silo)
        return {
            "plan": self.plan.digest(),
            "silo": self.silo,
            "reveals": [] if terms is None else reveals(self.plan, terms),
            "epsilon": self.epsilon,
            "claimed_epsilon": terms and terms.epsilon,
            "trust": self.plan.trust,
            "alone_epsilon": self.alone,
            "total_alone": self.total_alone,
            "delta": terms and terms.delta,
            "spent": self.spent,
            "total": self.total,
            "left": self.left,
            "budget": self.budget.as_data(),
            "approvable": not self.objection,
            "objection": self.objection,
        }

    def text(self) -> str:
        """Return the review as its operator reads it."""
        plan, terms = self.plan, self.plan.terms(self.silo)
        lines = [f"Plan {plan.digest()}", f"run {plan.run}, before silo '{self.silo}'", ""]
        if terms is not None:
            lines += ["What it would reveal", "", *(f"  - {line}" for line in reveals(plan, terms)), ""]
            lines += ["To whom", "", *(f"  {line}" for line in _to_whom(plan, self.silo)), ""]
            if self.epsilon is not None:
                lines += ["At what cost", "", *(f"  {line}" for line in self._cost(terms)), ""]
        if self.objection:
            return "\n".join([*lines, f"The gate would NOT approve it. {self.objection}"])
        return "\n".join([*lines, "The gate would approve it; nothing is answered before you do."])

    def _cost(self, terms: SiloTerms) -> list[str]:
        budget = self.budget
        return [
            f"This plan: epsilon {self.epsilon:.4g} at delta {terms.delta:.2g}, for each of {terms.records} records; "
            f"it claims {terms.epsilon:.4g}.",
            f"Spent so far: epsilon {self.spent:.4g} at delta {budget.delta:.2g}.",
            f"All that was released, all running plans and this one: epsilon {self.total:.4g} at delta "
            f"{budget.delta:.2g}.",
            f"The budget is epsilon {budget.epsilon:.4g} at delta {budget.delta:.2g}; {self.left:.4g} would be left.",
            *self._cost_alone(),
        ]

    def _cost_alone(self) -> list[str]:
        if self.alone is None:
            return []
        return [
            f"Against a server that works together with the shuffler, or with all other silos: epsilon "
            f"{self.alone:.4g} for this plan, {self.total_alone:.4g} for everything; the budget allows "
            f"{self.budget.most_alone:.4g}.",
        ]


def review(plan: Plan, account: Account, objection: str) -> Review:
    """Put together what an operator should know of a plan."""
    terms = plan.terms(account.silo)
    if terms is None:
        return Review(plan, account.silo, None, None, account.spent(), account.budget, objection)
    try:
        events = plan_events(plan, terms)
    except AccountingError:  # the objection says what is wrong
        return Review(plan, account.silo, None, None, account.spent(), account.budget, objection)
    together, delta = [*account.reserved(without=plan.digest()), *events], account.budget.delta
    own, total = accountant.epsilon(events, terms.delta), accountant.epsilon(together, delta)
    made = Review(plan, account.silo, own, total, account.spent(), account.budget, objection)
    if plan.shuffle is None:
        return made
    return replace(
        made,
        alone=accountant.epsilon(as_seen_alone(events), terms.delta),
        total_alone=accountant.epsilon(as_seen_alone(together), delta),
    )


def reveals(plan: Plan, terms: SiloTerms) -> list[str]:
    """Return, one sentence each, what leaves the silo if it answers every round."""
    lines = [_survey(plan, terms)] if plan.survey else []
    if plan.rounds:
        columns = ", ".join(plan.data.features)
        lines += [
            f"In each of {plan.rounds} rounds, {plan.dimension} numbers: the average gradient of the {plan.loss.name} "
            f"loss, for predicting '{plan.data.target}' from {columns}, at weights that the server chooses.",
            _sampling(plan, terms),
            f"Each record's gradient is cut to length {plan.clip:.4g}, and {_noise(plan, terms)}.",
        ]
        if plan.correlation:
            lines.append(
                f"The noise of later rounds takes back part of the earlier rounds' (correlation {plan.correlation:g}): "
                "the sum over rounds gets more accurate, and the cost stated here counts that in."
            )
    lines.append("Nothing else: no loss, no accuracy, no count. The number of records and the schema are public.")
    return lines


def _survey(plan: Plan, terms: SiloTerms) -> str:
    what = {
        "curvature": "one number: the largest eigenvalue of the features' second-moment matrix",
        "moments": f"{survey_length(plan)} numbers: mean and mean square of every feature"
        + (" and of the target" if survey_length(plan) > 2 * plan.data.width else ""),
    }
    statistic = plan.survey.statistic if plan.survey else "curvature"
    return f"Before the rounds, once, {what[statistic]}, with noise of standard deviation {terms.survey_sigma:.4g}."


def _sampling(plan: Plan, terms: SiloTerms) -> str:
    if isinstance(plan.algorithm, Localized):
        parts = ", ".join(
            f"{terms.records >> (number + 1)} records in {phase.rounds} rounds"
            for number, phase in enumerate(plan.algorithm.phases)
        )
        return (
            f"The records are divided into parts, one per phase, and each record takes part in one phase only: {parts}."
        )
    return {
        "full": f"All {terms.records} records take part in every round.",
        "fixed": f"In each round {terms.batch} of {terms.records} records take part, drawn afresh and in secret.",
        "poisson": f"In each round every record takes part by chance, in secret: {terms.batch} of {terms.records} on "
        "average.",
        "one-pass": f"Each round takes the next {terms.batch} of {terms.records} records, so that a record takes part "
        "in one round at most.",
    }[plan.sampling]


def _noise(plan: Plan, terms: SiloTerms) -> str:
    if isinstance(plan.algorithm, Localized):
        levels = ", ".join(
            f"{terms.sigma * plan.algorithm.noise(terms.records, phase):.4g}"
            for phase in range(len(plan.algorithm.phases))
        )
        return f"each number of the average gets noise of standard deviation {levels}, phase by phase"
    if plan.shuffle is not None:
        return (
            f"the sum is turned into whole numbers with {plan.shuffle.coins} coins tossed for each record and number, "
            f"which is noise of standard deviation {terms.sigma:.4g} on the silo's own average and less on that of all"
        )
    return f"each number of the average gets noise of standard deviation {terms.sigma:.4g}"


def _to_whom(plan: Plan, silo: str) -> list[str]:
    others = [terms.name for terms in plan.silos if terms.name != silo]
    shown = ", ".join(others[:10]) + (f" and {len(others) - 10} more" if len(others) > 10 else "")
    if plan.shuffle is not None:
        return [
            "The server, and everybody it passes messages to (count on everybody): the total over all silos that "
            "answer.",
            "The shuffler: sealed messages, which it cannot read. It passes them on in random order once at least "
            f"{plan.shuffle.quorum} silos have sent theirs.",
            f"Other silos in the plan: {shown or 'none'}. The stated epsilon needs a shuffler that does not work "
            f"together with the server, and {plan.shuffle.quorum} silos, this one included, that add their noise.",
        ]
    return [
        "The server, and everybody it passes messages to: count on everybody.",
        f"Other silos in the plan: {shown or 'none'}. The guarantee holds even if all of them work with the server.",
    ]
