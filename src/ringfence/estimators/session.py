"""What the fits of this process have cost every record that they saw.

A ledger file counts what was released from *a data set*. Estimators are handed whatever rows somebody sliced: the
same table twice, the folds of a cross-validation, a bootstrap sample. So this memory counts per record. Guarantee:
if replacing one record of a silo changes one row in some fits and nothing in the others, all that these fits released
is (ε, δ)-DP in that record, with ε the exact composition of the events of the fits whose rows contained it; `charge`
returns the largest such ε over the silo's rows. It rests on which rows a fit sees not depending on their values.

A record is recognised by its silo's name and the bytes of its row of X, the target left out (the same people, another
question). Rows that are equal by chance are counted as one record that was in all their fits: too much, never too
little. A row that was changed in between (rescaled, another column added) is a new record to this memory, and so is
every row in another process: a ledger file, which goes by the silo's name alone, misses neither.

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
from ringfence.accounting.events import Event
from ringfence.errors import ApprovalError
from ringfence.protocol.plan import Plan
from ringfence.silo.budget import Budget


@dataclass(frozen=True)
class _Charge:
    """What one fit costs every record of one silo."""

    settings: str
    events: tuple[tuple[Event, int], ...]
    delta: float


class Memory:
    """Every fit of this process, and which records it saw."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)  # what is remembered of a row means nothing without it
        self._charges: list[_Charge] = []
        self._seen: dict[bytes, tuple[int, ...]] = {}
        self._lock = threading.Lock()

    def charge(
        self,
        plan: Plan,
        rows: Mapping[str, Iterable[bytes]],
        *,
        settings: str,
        cap: Budget | None = None,
        tuning: bool = False,
    ) -> dict[str, Budget]:
        """Count a fit on every silo's rows before anything is released; return each silo's total, this fit included.

        Raises ApprovalError, and counts nothing, if a record's total would exceed the cap, or if most of a silo's rows
        were in a fit with other settings and `tuning` is not allowed (a few may be equal to others' by chance).
        """
        with self._lock:
            charges: list[tuple[set[bytes], _Charge]] = []
            totals: dict[str, Budget] = {}
            for terms in plan.silos:
                silo, own = terms.name, self._marks(terms.name, rows[terms.name])
                charge = _Charge(settings, tuple(plan_events(plan, terms)), terms.guarantee.delta)
                charges.append((own, charge))
                pasts = Counter(self._seen.get(mark, ()) for mark in own)
                histories = {past: [self._charges[number] for number in past] for past in pasts}
                if not tuning:
                    otherwise = sum(pasts[past] for past, history in histories.items() if _differs(history, settings))
                    _refuse_tuning(silo, otherwise / len(own))
                totals[silo] = _worst(list(histories.values()), charge, cap)
                if cap is not None and totals[silo].epsilon > cap.epsilon:
                    raise ApprovalError(
                        f"With this fit, all fits of this process on records of silo '{silo}' would come to epsilon "
                        f"{totals[silo].epsilon:.6g} at delta {cap.delta:.3g}, more than the cap of {cap.epsilon:.6g}. "
                        "Nothing was released. Fit with a smaller epsilon, fit less often (every candidate and every "
                        "fold of a search is a fit), or raise the cap."
                    )
            for own, charge in charges:
                self._remember(own, charge)
            return totals

    def _marks(self, silo: str, rows: Iterable[bytes]) -> set[bytes]:
        name = hashlib.sha256(silo.encode()).digest()
        return {hashlib.blake2b(name + row, digest_size=16, key=self._secret).digest() for row in rows}

    def _remember(self, marks: set[bytes], charge: _Charge) -> None:
        number = len(self._charges)
        self._charges.append(charge)
        longer: dict[tuple[int, ...], tuple[int, ...]] = {}  # rows of one history share one tuple
        for mark in marks:
            past = self._seen.get(mark, ())
            self._seen[mark] = longer.setdefault(past, (*past, number))


def _differs(history: Sequence[_Charge], settings: str) -> bool:
    return any(charge.settings != settings for charge in history)


def _refuse_tuning(silo: str, share: float) -> None:
    if share > 0.5:
        raise ApprovalError(
            f"Records of silo '{silo}' were fitted before in this process, with other settings. Trying settings on "
            "private records spends budget on every try, and nothing was released now. Choose settings on public or "
            "simulated data; or, if these records are to pay for it, say what all fits together may cost them: "
            "cap=(epsilon, delta)."
        )


def _worst(histories: Sequence[Sequence[_Charge]], now: _Charge, cap: Budget | None) -> Budget:
    delta = max([now.delta, *(charge.delta for history in histories for charge in history)])
    if cap is not None:
        delta = cap.delta
    composed = [[event for charge in (*history, now) for event in charge.events] for history in histories]
    return Budget(max(accountant.epsilon(events, delta) for events in composed), delta)


MEMORY = Memory()
"""The one that estimators use: it lives as long as the process."""
