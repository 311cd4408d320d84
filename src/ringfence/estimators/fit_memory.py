"""What the fits of this process have cost every record, and every person, that they saw.

A ledger file counts what was released from *a data set*. Estimators get any selection of rows: the same
table twice, the folds of a cross-validation, a bootstrap sample that holds a row several times. So this memory counts
per record, copies included. Guarantee: if replacing one record of a silo changes its copies in every fit and
nothing else, all that these fits released is (ε, δ)-DP in that record, with ε the exact composition of the events of
the fits, each for a group of as many rows as the fit had copies of it (`events.of_group`); `charge` returns the largest
such ε over the silo's rows. It rests on which rows a fit sees, and how often, not depending on their values. Where a
fit holds rows out, a row pays for what its section released, and copies in each section for that section's (Lemma G7
of docs/proofs.md). Which section that is goes by the row's place, as who is in which fold does.
What was used so far is bookkeeping; a cap, which admits fits by a filter (`accounting.filters`), holds whenever one
stops. Worker processes have memories of their own, so a cap is refused there.

Where a fit knows whose rows are whose, the same holds of persons: if replacing one person changes the rows under that
person's label in every fit and nothing else, ε composes what each of these fits cost the person, in every silo that has
such rows (Lemma G6 there). A person has no copies: whatever stands under one label is one person's. Costs of persons
bound those of their records, so a record's total counts them, for as many persons as have that row; costs of records
bound no person's (Lemma P7), so a fit of persons on rows that were fitted as records is refused.

A record is recognised by its silo's name and the bytes of its row of X, the target left out (the same people, another
query). Rows that are equal by chance are counted as copies of one record that was in all their fits: too much, never
too little. With equal_rows="records" they are different records, and each counts once in every fit. A row that
was changed in between (rescaled, another column added) is a new record to this memory, and so is every row in another
process: a ledger file, which goes by the silo's name alone, misses neither. A person is recognised by the label alone,
in every silo.

What it returns depends on which rows are equal, so only the holder of the records may see it, and no model carries it.
"""

import hashlib
import multiprocessing
import secrets
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from ringfence.accounting import accountant
from ringfence.accounting.charges import all_events
from ringfence.accounting.events import Event, Events, in_version, of_copies
from ringfence.accounting.filters import Commitment, used
from ringfence.errors import ApprovalError
from ringfence.protocol import Plan, Unit
from ringfence.silo.ledger.budget import Budget

Copies = tuple[tuple[str | None, int], ...]
"""How often a fit has a record (of a fit of persons: how many of them have it), by section; None: by one of several."""


@dataclass(frozen=True)
class _Charge:
    """What one fit costs every record, or every person, of one silo."""

    fit: str
    unit: Unit
    settings: str
    events: tuple[tuple[Event, int], ...]
    delta: float

    def of(self, copies: Copies) -> list[tuple[Event, int]]:
        """Return what a remembered fit costs so many copies of a record together."""
        return of_copies(dict(copies), self.events)


History = tuple[tuple[int, Copies], ...]
"""The charges of a record or person: the number of each, and the copies."""


class Memory:
    """Every fit of this process, and which records and persons it saw."""

    def __init__(self) -> None:
        """Start a process's memory of its fits, with a new key for the hashes."""
        self._secret = secrets.token_bytes(32)  # what is remembered of a row means nothing without it
        self._charges: list[_Charge] = []
        self._seen: dict[bytes, History] = {}
        self._lock = threading.Lock()

    def charge(
        self,
        plan: Plan,
        rows: Mapping[str, Sequence[bytes]],
        persons: Mapping[str, Sequence[str]] | None = None,
        sections: Mapping[str, Sequence[str | None]] | None = None,
        *,
        settings: str,
        others: Sequence[Plan] = (),
        cap: Budget | None = None,
        tuning: bool = False,
        copies: bool = True,
    ) -> dict[str, Budget]:
        """Count a fit on every silo's rows before anything is released; return each silo's total, this fit included.

        `others` are plans that the fit asks the same silos for beside the first, approved together with it. `persons`
        says whose each row is, if the plan protects persons, and `sections` in which section it is, if the plan has
        sections. Equal rows of a fit are copies of one record, unless `copies` is false: then they are different
        records.

        Raises ApprovalError, and counts nothing, if a total would exceed the cap, if most of a silo's records or
        persons were in a fit with other settings and `tuning` is not allowed (a few may be equal to others' by chance),
        or if rows of persons were fitted as records; and with a cap in a worker process, whose memory is its own.
        """
        if cap is not None and multiprocessing.parent_process() is not None:
            raise ApprovalError(
                "`cap` counts the fits of one process, and this is a worker process, as with n_jobs=2: all workers "
                "together could exceed it. Nothing was released. Fit in one process (n_jobs=1), or set `ledgers`, in "
                "which all processes count."
            )
        with self._lock:
            known = list(self._charges)
            added: dict[bytes, History] = {}
            own: dict[str, set[bytes]] = {}
            for terms in plan.silos:
                silo = terms.name
                events = _of_silo(silo, rows[silo], all_events((plan, *others), silo))
                known.append(_Charge(plan.digest(), plan.unit, settings, events, terms.guarantee.delta))
                places = [None] * len(rows[silo]) if sections is None else sections[silo]
                marks = self._marks(silo, rows[silo], None if persons is None else persons[silo], places, copies)
                if persons is None:
                    own[silo] = set(marks)
                else:
                    self._refuse_records(silo, marks)
                    people = {
                        self._mark(b"person", label.encode()): place
                        for label, place in zip(persons[silo], places, strict=True)
                    }
                    own[silo] = set(people)
                    marks |= {mark: ((place, 1),) for mark, place in people.items()}
                for mark, times in marks.items():
                    added[mark] = (*added.get(mark, ()), (len(known) - 1, times))
            totals: dict[str, Budget] = {}
            for silo, marks_of_silo in own.items():
                pasts = Counter((self._seen.get(mark, ()), added[mark]) for mark in marks_of_silo)
                histories = {
                    (past, now): [(known[number], times) for number, times in (*past, *now)] for past, now in pasts
                }
                if not tuning:
                    otherwise = sum(
                        pasts[past]
                        for past, history in histories.items()
                        if any(charge.settings != settings for charge, _ in history)
                    )
                    _refuse_tuning(silo, otherwise / len(marks_of_silo), plan.unit)
                totals[silo] = _worst(histories.values(), cap)
                if cap is not None:
                    _refuse_beyond(cap, _needed(histories.values(), cap), silo, plan.unit)
            self._charges = known
            longer: dict[tuple[History, History], History] = {}  # rows of one history share one tuple
            for mark, now in added.items():
                past = self._seen.get(mark, ())
                self._seen[mark] = longer.setdefault((past, now), (*past, *now))
            return totals

    def _mark(self, *parts: bytes) -> bytes:
        """Return the keyed hash by which a record, or person, is remembered."""
        heads = b"".join(hashlib.sha256(part).digest() for part in parts[:-1])
        return hashlib.blake2b(heads + parts[-1], digest_size=16, key=self._secret).digest()

    def _marks(
        self,
        silo: str,
        rows: Sequence[bytes],
        persons: Sequence[str] | None,
        places: Sequence[str | None],
        copies: bool,
    ) -> dict[bytes, Copies]:
        """Count every record's copies in each section; where a fit is of persons, the persons that have it."""
        seen: Iterable[tuple[bytes, str | None]] = zip(rows, places, strict=True)
        if persons is not None:
            seen = [(row, place) for row, _, place in set(zip(rows, persons, places, strict=True))]
        counted = Counter((self._mark(b"record", silo.encode(), row), place) for row, place in seen)
        found: dict[bytes, Copies] = {}
        alike: dict[Copies, Copies] = {}  # rows with as many copies share one tuple
        for (mark, place), times in counted.items():
            own = (*found.get(mark, ()), (place, times if copies else 1))
            if len(own) > 1:  # one of several records that are equal is in one section, and nobody knows in which
                own = tuple(sorted(own, key=str)) if copies else ((None, 1),)
            found[mark] = alike.setdefault(own, own)
        return found

    def _refuse_records(self, silo: str, marks: Iterable[bytes]) -> None:
        """Refuse a fit of persons if an earlier fit of this process charged one of its rows as a record."""
        earlier = (self._charges[number] for mark in marks for number, _ in self._seen.get(mark, ()))
        if any(charge.unit == "record" for charge in earlier):
            raise ApprovalError(
                f"Rows of silo '{silo}' were fitted earlier in this process without `persons`. The cost of that fit to "
                "each record does not bound its cost to a person with several records, so no total for persons can be "
                "stated. Nothing was released. Continue without `persons`, which counts the cost to each record. If "
                "these are other rows that happen to be equal, give their silo another name."
            )


def _of_silo(silo: str, rows: Sequence[bytes], events: Events) -> tuple[tuple[Event, int], ...]:
    """Label the events' sections by the silo and the order of its rows, since another order has other sections."""
    order = hashlib.sha256(b"".join(hashlib.sha256(row).digest() for row in rows)).hexdigest()
    return tuple((event.of_silo(silo), count) for event, count in in_version(order, events))


def _refuse_tuning(silo: str, share: float, unit: Unit) -> None:
    """Refuse a fit if earlier fits of this process, with other settings, had more than half of its records."""
    if share > 0.5:
        raise ApprovalError(
            f"{unit.capitalize()}s of silo '{silo}' were fitted earlier in this process, with other settings. Every "
            "fit on private records spends privacy budget, so trying settings is refused by default. Nothing was "
            "released. Use ringfence.estimators.FederatedSearch, which tries all settings for one epsilon; choose "
            f"settings on public or simulated data; or, to let these {unit}s pay for every fit, limit what all fits "
            "may cost together: cap=(epsilon, delta)."
        )


def _refuse_beyond(cap: Budget, needed: float, silo: str, unit: Unit) -> None:
    """Refuse a fit after which all fits of this process would cost a record or person more than the cap."""
    if needed > cap.epsilon:
        why = {
            "record": "A row that occurs several times in a fit pays for every copy; if equal rows are different "
            "records, set equal_rows='records'.",
            "person": "A person with rows in several silos pays in each.",
        }[unit]
        raise ApprovalError(
            f"With this fit, all fits of this process on {unit}s of silo '{silo}' would cost epsilon {needed:.6g} at "
            f"delta {cap.delta:.3g}, more than the cap of {cap.epsilon:.6g}. Nothing was released. Use a smaller "
            "epsilon, fit less often (every candidate and every fold of a search is a fit), or raise the cap. "
            f"{why}"
        )


def _worst(histories: Iterable[Sequence[tuple[_Charge, Copies]]], cap: Budget | None) -> Budget:
    """Return the largest total that all fits cost any record, or person."""
    delta = max(charge.delta for history in histories for charge, _ in history) if cap is None else cap.delta
    composed = {
        frozenset(Counter(event for charge, times in history for event in charge.of(times)).items())
        for history in histories
    }  # few differ: order does not matter, and a search or a forest of fits asks the same again
    return Budget(max(accountant.epsilon([(e, n * k) for (e, n), k in events], delta) for events in composed), delta)


def _needed(histories: Iterable[Sequence[tuple[_Charge, Copies]]], cap: Budget) -> float:
    """Return the part of the cap that the fits need if each may depend on the results of those before it."""
    committed = {
        tuple(
            Commitment.of([event for charge, times in silos for event in charge.of(times)], founding=number == 0)
            for number, (_, silos) in enumerate(groupby(history, key=lambda charged: charged[0].fit))
        )
        for history in histories
    }
    return max(used(each, cap.limit("anyone")) for each in committed)


MEMORY = Memory()
"""The one that estimators use: it lives as long as the process."""
