"""What an agent tells those who watch over it: a line in its log for each decision, and numbers for Prometheus.

All of it is public: what was decided and why, and what the ledger says of budget, charges and entries. None of it is
computed from a record, nor from how long anything took.
"""

import threading
import time
from collections import Counter
from collections.abc import Sequence

from ringfence.protocol.guarantee import Guarantee, against
from ringfence.protocol.messages import RefusalReason
from ringfence.silo.account import Account
from ringfence.silo.ledger import Ledger
from ringfence.storage.decision_log import DecisionLog

_DECISIONS = (("answered", ""), ("repeated", ""), *(("refused", reason.value) for reason in RefusalReason))


class Monitor:
    """Watches the decisions about one ledger."""

    def __init__(self, ledger: Ledger, log: DecisionLog) -> None:
        self._ledger = ledger
        self._log = log
        self._started = time.time()
        self._counts = Counter(dict.fromkeys(_DECISIONS, 0))
        self._lock = threading.Lock()
        self._told = -1, ""

    def note(self, decision: str, *, plan: str = "", round: int | None = None, reason: str = "") -> None:
        """Count a decision, and write it into the log."""
        with self._lock:
            self._counts[decision, reason] += 1
        self._log(decision, plan=plan, round=round, reason=reason, head=self._ledger.number)

    def metrics(self) -> str:
        """Return all numbers in Prometheus' text format; LedgerError if the ledger cannot be read.

        Costs are composed again only when the ledger has a new entry.
        """
        account = self._ledger.look(Account.snapshot)
        with self._lock:
            if self._told[0] != account.number:
                self._told = account.number, _ledger_metrics(account)
            decisions = [
                ({"decision": decision, "reason": reason} if reason else {"decision": decision}, count)
                for (decision, reason), count in self._counts.items()
            ]
            told = self._told[1]
        return (
            _metric("ringfence_decisions_total", "counter", "Requests decided since the agent was started.", decisions)
            + told
            + _metric(
                "process_start_time_seconds", "gauge", "When the agent was started.", [({}, round(self._started))]
            )
        )


def _ledger_metrics(account: Account) -> str:
    delta, limits, spent = account.budget.delta, account.budget.limits, account.spent()
    rounds = [charge for approved in account.plans.values() for charge in approved.rounds.values()]
    stored = sum(charge.answer is not None for charge in rounds)
    granted = [against(limits, guarantee.against).epsilon for guarantee in spent]
    left = [account.left(guarantee.against) for guarantee in spent]
    return "".join(
        [
            _metric("ringfence_ledger_head", "gauge", "Number of the ledger's last entry.", [({}, account.number)]),
            _metric("ringfence_rounds_charged_total", "counter", "Rounds ever charged.", [({}, len(rounds))]),
            _metric("ringfence_rounds_released_total", "counter", "Rounds ever answered.", [({}, stored)]),
            _metric("ringfence_budget_delta", "gauge", "The delta at which epsilons are stated.", [({}, delta)]),
            _epsilons("granted", "The most that all releases may cost together.", spent, granted),
            _epsilons(
                "used",
                "What all charged rounds add up to: bookkeeping, not a guarantee.",
                spent,
                [guarantee.epsilon for guarantee in spent],
            ),
            _epsilons("left", "What may still be approved beyond all running plans.", spent, left),
        ]
    )


def _epsilons(what: str, meaning: str, observers: Sequence[Guarantee], values: Sequence[float]) -> str:
    samples = [({"against": str(to.against)}, value) for to, value in zip(observers, values, strict=True)]
    return _metric(f"ringfence_epsilon_{what}", "gauge", meaning, samples)


def _metric(name: str, kind: str, meaning: str, samples: Sequence[tuple[dict[str, str], float]]) -> str:
    """Write a metric; labels are names of our own, which need no escaping."""
    lines = [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
    for labels, value in samples:
        listed = ",".join(f'{label}="{text}"' for label, text in labels.items())
        lines.append(f"{name}{{{listed}}} {value!r}" if listed else f"{name} {value!r}")
    return "\n".join([*lines, ""])
