"""What the fits of this process have cost every record that they saw.

A ledger file counts what was released from *a data set*. Estimators are handed whatever rows somebody sliced: the
same table twice, the folds of a cross-validation, a bootstrap sample that holds a row several times. So this memory
counts per record, copies included. Guarantee: if replacing one record of a silo changes its copies in every fit and
nothing else, all that these fits released is (ε, δ)-DP in that record, with ε the exact composition of the events of
the fits, each for a group of as many rows as the fit had copies of it (`events.of_group`); `charge` returns the largest
such ε over the silo's rows. It rests on which rows a fit sees, and how often, not depending on their values. What was
used so far is bookkeeping; a cap, which admits fits by a filter (`accounting.filters`), holds whenever one stops.

A record is recognised by its silo's name and the bytes of its row of X, the target left out (the same people, another
question). Rows that are equal by chance are counted as copies of one record that was in all their fits: too much, never
too little; whoever knows that they are different records says so, and each then counts once in every fit. A row that
was changed in between (rescaled, another column added) is a new record to this memory, and so is every row in another
process: a ledger file, which goes by the silo's name alone, misses neither.

What it returns depends on which rows are equal, so it is for whoever holds the records, and no model carries it.
"""

import hashlib
import secrets
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ringfence.accounting import accountant
from ringfence.accounting.charges import plan_events
from ringfence.accounting.events import Event, of_group
from ringfence.accounting.filters import Commitment, used
from ringfence.errors import ApprovalError
from ringfence.protocol.plan import Plan
from ringfence.silo.budget import Budget


@dataclass(frozen=True)
class _Charge:
    """What one fit costs every record of one silo."""

    settings: str
    events: tuple[tuple[Event, int], ...]
    delta: float


History = tuple[tuple[int, int], ...]
"""The fits that a record was in: the number of each, and the record's copies."""


class Memory:
    """Every fit of this process, and which records it saw."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)  # what is remembered of a row means nothing without it
        self._charges: list[_Charge] = []
        self._seen: dict[bytes, History] = {}
        self._lock = threading.Lock()

    def charge(
        self,
        plan: Plan,
        rows: Mapping[str, Iterable[bytes]],
        *,
        settings: str,
        cap: Budget | None = None,
        tuning: bool = False,
        copies: bool = True,
    ) -> dict[str, Budget]:
        """Count a fit on every silo's rows before anything is released; return each silo's total, this fit included.

        Equal rows of a fit are copies of one record, unless `copies` is false: then they are different records.

        Raises ApprovalError, and counts nothing, if a record's total would exceed the cap, or if most of a silo's rows
        were in a fit with other settings and `tuning` is not allowed (a few may be equal to others' by chance).
        """
        with self._lock:
            charges: list[tuple[Counter[bytes], _Charge]] = []
            totals: dict[str, Budget] = {}
            for terms in plan.silos:
                silo, own = terms.name, self._marks(terms.name, rows[terms.name])
                if not copies:
                    own = Counter(set(own))
                charge = _Charge(settings, tuple(plan_events(plan, terms)), terms.guarantee.delta)
                charges.append((own, charge))
                pasts = Counter((self._seen.get(mark, ()), times) for mark, times in own.items())
                histories = {
                    (past, times): [*((self._charges[number], count) for number, count in past), (charge, times)]
                    for past, times in pasts
                }
                if not tuning:
                    otherwise = sum(pasts[past] for past, history in histories.items() if _differs(history, settings))
                    _refuse_tuning(silo, otherwise / len(own))
                totals[silo] = _worst(histories.values(), cap)
                needed = _needed(histories.values(), cap) if cap is not None else 0.0
                if cap is not None and needed > cap.epsilon:
                    raise ApprovalError(
                        f"With this fit, all fits of this process on records of silo '{silo}' would come to epsilon "
                        f"{needed:.6g} at delta {cap.delta:.3g}, more than the cap of {cap.epsilon:.6g}. "
                        "Nothing was released. Fit with a smaller epsilon, fit less often (every candidate and every "
                        "fold of a search is a fit), or raise the cap. A row that a fit has several times pays for "
                        "every copy; if equal rows are different records, say equal_rows='records'."
                    )
            for own, charge in charges:
                self._remember(own, charge)
            return totals

    def _marks(self, silo: str, rows: Iterable[bytes]) -> Counter[bytes]:
        name = hashlib.sha256(silo.encode()).digest()
        return Counter(hashlib.blake2b(name + row, digest_size=16, key=self._secret).digest() for row in rows)

    def _remember(self, marks: Counter[bytes], charge: _Charge) -> None:
        number = len(self._charges)
        self._charges.append(charge)
        longer: dict[tuple[History, int], History] = {}  # rows of one history share one tuple
        for mark, times in marks.items():
            past = self._seen.get(mark, ())
            self._seen[mark] = longer.setdefault((past, times), (*past, (number, times)))


def _differs(history: Sequence[tuple[_Charge, int]], settings: str) -> bool:
    return any(charge.settings != settings for charge, _ in history)


def _refuse_tuning(silo: str, share: float) -> None:
    if share > 0.5:
        raise ApprovalError(
            f"Records of silo '{silo}' were fitted before in this process, with other settings. Trying settings on "
            "private records spends budget on every try, and nothing was released now. Choose settings on public or "
            "simulated data; or, if these records are to pay for it, say what all fits together may cost them: "
            "cap=(epsilon, delta)."
        )


def _worst(histories: Iterable[Sequence[tuple[_Charge, int]]], cap: Budget | None) -> Budget:
    delta = max(charge.delta for history in histories for charge, _ in history) if cap is None else cap.delta
    composed = {
        frozenset(Counter(event for charge, times in history for event in of_group(times, charge.events)).items())
        for history in histories
    }  # few differ: order does not matter, and a search or a forest of fits asks the same again
    return Budget(max(accountant.epsilon([(e, n * k) for (e, n), k in events], delta) for events in composed), delta)


def _needed(histories: Iterable[Sequence[tuple[_Charge, int]]], cap: Budget) -> float:
    """Return how much of the cap the fits take up where each may be chosen by what came out of those before it."""
    committed = {
        tuple(
            Commitment.of(of_group(times, charge.events), founding=number == 0)
            for number, (charge, times) in enumerate(history)
        )
        for history in histories
    }
    return max(used(each, cap.limit("anyone")) for each in committed)


MEMORY = Memory()
"""The one that estimators use: it lives as long as the process."""
