"""The privacy statement: who is protected from whom, per what unit, at what (epsilon, delta), and what is not."""

import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from pydantic import Field, model_validator

from ringfence.accounting import accountant
from ringfence.accounting.charges import all_events, person_events
from ringfence.accounting.events import Event, Events, seen_by
from ringfence.errors import visible
from ringfence.protocol import Guarantee, Observer, Plan, Public, Remark, against_words, claimed_against, observers_of
from ringfence.protocol.plan.guarantee import against
from ringfence.protocol.plan.prospects import weighting


class SiloGuarantee(Public):
    """What one silo's records are guaranteed: by this run's plan, and by its ledger for everything ever released.

    Both hold however plans were chosen and whenever you stop. Each is stated against every kind of observer, the one
    that counts first. `used` is what this run's rounds came to: a running tally, not a guarantee. It is empty where no
    ledger of all runs was read; `all_runs` is then the plan's guarantee, or, of an estimator, what its fits have used
    so far, which is not a guarantee.
    """

    records: int
    rounds: int
    this_run: tuple[Guarantee, ...] = Field(min_length=1)
    all_runs: tuple[Guarantee, ...] = Field(min_length=1)
    used: tuple[Guarantee, ...] = ()
    remarks: tuple[Remark, ...] = ()
    """What the ledger says of its beginning and of changes of its data."""

    @model_validator(mode="after")
    def _covers_every_observer(self) -> Self:
        """Require a silo's costs in the statement once against each kind of observer, 'anyone' last."""
        for costs in (self.this_run, self.all_runs):
            named = tuple(guarantee.against for guarantee in costs)
            if "anyone" not in named or named != observers_of(named):
                raise ValueError("a cost must be stated once against each kind of observer, with 'anyone' last")
        return self

    @property
    def run(self) -> Guarantee:
        """What this run's plan guarantees a silo, against the observer that counts, for the statement."""
        return self.this_run[0]

    @property
    def total(self) -> Guarantee:
        """What is guaranteed a silo of all runs together, against the same observer, for the statement."""
        return against(self.all_runs, self.run.against)

    @property
    def has_more_runs(self) -> bool:
        """Whether all runs on a silo's data together cost more than the statement's one."""
        return self.total.epsilon > self.run.epsilon * (1 + 1e-9)


_EARLIER = ("  Earlier runs on the same data count as their plans state. Some may rely on more than this one does.",)

WEAK = 0.9
"""A guarantee under which somebody may guess right more often than this is called weak."""


@dataclass(frozen=True)
class Statement:
    """The guarantee of a finished run, in numbers and in words.

    `others` are further plans of the run, such as those of other candidates: the guarantee covers all of them together.
    """

    plan: Plan
    silos: Mapping[str, SiloGuarantee]
    others: tuple[Plan, ...] = ()

    @classmethod
    def claimed(cls, plan: Plan, rounds: Mapping[str, int]) -> Self:
        """Return what a plan claims for the silos in `rounds`, of which each answered so many; no ledger is read."""
        silos = {
            terms.name: SiloGuarantee(
                records=terms.records, rounds=rounds[terms.name], this_run=terms.guarantees, all_runs=terms.guarantees
            )
            for terms in plan.silos
            if terms.name in rounds
        }
        return cls(plan, silos)

    @property
    def plans(self) -> tuple[Plan, ...]:
        """All plans that the privacy statement is about."""
        return (self.plan, *self.others)

    def __str__(self) -> str:
        """Return the privacy statement as a person reads it."""
        return self.text()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show the privacy statement in IPython and notebooks as `print` does."""
        del cycle
        printer.text(str(self))

    def text(self) -> str:
        """Return the privacy statement as a person reads it."""
        return "\n".join(
            [
                "What is protected",
                "",
                *(f"  {self._silo_line(name, silo)}" for name, silo in self.silos.items()),
                "",
                *self._notes(),
                self.words(),
            ]
        )

    def words(self) -> str:
        """Return what the statement's numbers mean for a record or person, and what they do not cover."""
        return "\n".join(
            [
                *self._best_guess(),
                "",
                "What is not protected",
                "",
                *self._unprotected(),
                *self._person_cost(),
                "  - Anything done with the data outside this ledger: numbers measured without noise, for example.",
            ]
        )

    def _unprotected(self) -> list[str]:
        """Return what is public, what may be learned, and who is not covered."""
        facts = (
            f"  - Facts about the population that hold with or without any one {self.plan.unit}: learning them is the "
            "purpose."
        )
        if self.plan.unit == "record":
            return [
                "  - How many records a silo has, and the schema: both are public.",
                facts,
                "  - A person with several records, in one silo or in many: the unit is one record of one silo.",
            ]
        return [
            "  - How many persons a silo has, and the schema: both are public. How many rows they have is not.",
            facts,
            "  - A person with rows in several silos: the unit is one person of one silo, with all their rows there, "
            f"as identified by the column '{visible(self.plan.data.person or '')}'.",
        ]

    def _notes(self) -> list[str]:
        """Return paragraphs of the statement about candidates, unusual weights of silos, and the ledgers' remarks."""
        candidates = (
            f"This run trained {len(self.others)} candidates and compared them. Its epsilon and delta cover all their "
            "messages together, including those of the losing candidates."
        )
        weights = visible(weighting(self.plan))
        remarks = [_wrapped(f"{name}: {remark}") for name, silo in self.silos.items() for remark in silo.remarks]
        return [
            *([*_wrapped(candidates), ""] if self.others else []),
            *([*_wrapped(f"{weights[0].upper()}{weights[1:]}."), ""] if weights else []),
            *([*itertools.chain(*remarks), ""] if remarks else []),
        ]

    def _best_guess(self) -> list[str]:
        """Return how often an observer's best guess is right, and what the stronger guarantees rely on."""
        first, *others = self.plan.observers
        channel, guess = self.plan.leading_channel, best_guess(self._weakest_guarantee(first))
        exact = max(exact_guess(events) for events in set(self._events(first).values()))
        return [
            *_wrapped(
                f"In words: {channel.observer_words()} and tries to tell whether one of a silo's {self.plan.unit}s or "
                f"another in its place was used, is right with probability at most {guess:.1%}; a coin toss is right "
                f"with 50%. Epsilon and delta guarantee this {self._scope()}. Computed exactly from the noise of this "
                f"run alone, the probability is at most {exact:.1%}."
            ),
            *(f"  {line}".rstrip() for line in channel.reliance_words()),
            *(
                _EARLIER
                if others and any(silo.total.epsilon > silo.run.epsilon for silo in self.silos.values())
                else ()
            ),
            *(line for observer in others for line in ["", *self._own_noise_words(observer)]),
        ]

    def _scope(self) -> str:
        """Return which runs the statement's best guess is about, and how they may have been chosen."""
        if any(silo.used for silo in self.silos.values()):
            return "over all runs in the ledger, however they were chosen and whenever you stop"
        if any(silo.has_more_runs for silo in self.silos.values()):
            return "over all runs on this data so far, if none was chosen by the results of another"
        return "for this run alone"

    def _own_noise_words(self, observer: Observer) -> list[str]:
        """Return a paragraph of the statement about an observer against whom only a silo's own noise protects."""
        worst = self._weakest_guarantee(observer)
        guess = best_guess(worst)
        return _wrapped(
            f"{against_words(observer).capitalize()}, only the silo's own noise protects its {self.plan.unit}s: "
            f"epsilon = {worst.epsilon:.4g}, delta = {worst.delta:.2g}. Their guess is then right with probability "
            f"at most {guess:.1%}{', which is weak protection' if guess > WEAK else ''}."
        )

    def _events(self, observer: Observer) -> dict[str, tuple[tuple[Event, int], ...]]:
        """Return the releases of each silo in this run, as the observer sees them."""
        return {
            terms.name: tuple(seen_by(observer, all_events(self.plans, terms.name)))
            for terms in self.plan.silos
            if terms.name in self.silos
        }

    def _person_cost(self) -> list[str]:
        """Return the statement's cost to a person with a record in each of the two or three least protective silos."""
        delta = max(terms.guarantee.delta for terms in self.plan.silos)
        events = self._events("anyone")
        alone = {each: accountant.epsilon(each, delta) for each in set(events.values())}
        order = sorted(events, key=lambda name: -alone[events[name]])
        costs = []
        for number, several in ((2, "two"), (3, "three")):
            if number <= len(order):
                together = [event for plan in self.plans for event in person_events(plan, order[:number])]
                costs.append(f"{several} silos pays epsilon = {accountant.epsilon(together, delta):.4g}")
        rows = "a record" if self.plan.unit == "record" else "rows"
        text = (
            f"In this run, at delta = {delta:.2g} and with the silos that protect least, a person with {rows} in "
            f"each of {', in each of '.join(costs)}."
        )
        return textwrap.wrap(text, 104, initial_indent="    ", subsequent_indent="    ") if costs else []

    def _weakest_guarantee(self, observer: Observer) -> Guarantee:
        """Return the weakest of all silos' guarantees against the observer, over all runs."""
        return max((against(silo.all_runs, observer) for silo in self.silos.values()), key=lambda g: g.epsilon)

    def _silo_line(self, name: str, silo: SiloGuarantee) -> str:
        """Return a silo's line in the statement: records, rounds, and epsilon and delta."""
        line = (
            f"{visible(name)}: each of {silo.records} {self.plan.unit}s, over {silo.rounds} "
            f"round{'' if silo.rounds == 1 else 's'}, by epsilon = {silo.run.epsilon:.4g}, delta = {silo.run.delta:.2g}"
        )
        if silo.this_run[1:]:
            line += f" {against_words(silo.run.against, self.plan.most_colluders)}"
        if silo.has_more_runs:
            known = "whenever you stop" if silo.used else "used so far, not a guarantee"
            total = f"epsilon = {silo.total.epsilon:.4g}, delta = {silo.total.delta:.2g}"
            line += f" (all runs on this data, {known}: {total})"
        for other in silo.this_run[1:]:
            if other.epsilon > silo.run.epsilon * (1 + 1e-9):
                line += f"; {against_words(other.against)} epsilon = {other.epsilon:.4g}"
        return line


def _wrapped(text: str) -> list[str]:
    """Return a paragraph of the statement as indented lines."""
    return textwrap.wrap(text, 104, initial_indent="  ", subsequent_indent="  ")


def observer_words(observer: Observer, observers: Sequence[Observer], colluders: int | None) -> str:
    """Return the observer of one of a statement's guarantees, as a phrase; a single one is against anyone."""
    words = against_words(observer, colluders) if len(observers) > 1 else claimed_against(observers, colluders)
    return words.removeprefix("against ")


def best_guess(guarantee: Guarantee) -> float:
    """Return the largest success probability of telling two equally likely worlds apart under (ε, δ)-DP."""
    epsilon, delta = guarantee.epsilon, guarantee.delta
    return min(1.0, (1.0 + delta * math.exp(-epsilon)) / (1.0 + math.exp(-epsilon))) if epsilon < 700 else 1.0


def exact_guess(events: Events) -> float:
    """Return how often telling two equally likely worlds apart is right after these events: (1 + TV)/2, TV = δ(0)."""
    return (1 + accountant.delta(events, 0.0)) / 2
