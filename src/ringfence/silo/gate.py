"""The gate: the only door between a silo's records and anybody else.

`Gate.answer` takes a request as hostile and gives back the plan's noisy update or a refusal. Guarantee: for
every sequence of requests, by any number of callers, with crashes and restarts at any point, all that ever
left is differentially private, under replacing one record, at the cost that the ledger shows, and that cost
stays within the operator's budget.

It rests on three rules. A round is charged, and the charge synced, before anything is computed. An answer
is stored before it is sent, and a repeated request gets the stored bytes. A charged round without a stored
answer is never drawn again.
"""

import hashlib
import threading
from collections.abc import Iterator

from ringfence.errors import AccountingError, ApprovalError, LedgerError, PlanError
from ringfence.planning import accountant
from ringfence.planning.charges import plan_events, task_event
from ringfence.planning.events import Event, as_seen_alone
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.messages import (
    Answer,
    NoisyUpdate,
    Reason,
    Refusal,
    RoundRequest,
    SealedUpdate,
    pack,
    parse_answer,
    unpack,
)
from ringfence.protocol.plan import Plan, SiloTerms
from ringfence.protocol.schedule import Task, task
from ringfence.silo import mechanism, randomness
from ringfence.silo.chain import Draft
from ringfence.silo.ledger import LOGGED_REFUSALS, Account, Ledger
from ringfence.silo.records import Records


class Gate:
    """Answers rounds of approved plans from one data set, and keeps its ledger.

    `key` signs what goes through a shuffler: the 32 bytes of an Ed25519 private key.
    """

    def __init__(self, records: Records, ledger: Ledger, key: bytes | None = None) -> None:
        self._records = records
        self._ledger = ledger
        self._key = key
        self._one_at_a_time = threading.Lock()
        self._blocks: dict[str, mechanism.Block] = {}
        self.silo = ledger.account().silo

    def approve(self, plan: Plan) -> None:
        """Let the plan's rounds be answered, and reserve their cost. The operator's decision, not the server's.

        Raises ApprovalError if the plan is not about these records, if its noise does not deliver the
        guarantee that it claims for this silo, or if the budget does not cover it.
        """
        events = self._claimed_events(plan)

        def decide(account: Account) -> tuple[None, list[Draft]]:
            self._check_budget(plan, events, account)
            body = {"events": [[event.to_dict(), count] for event, count in events]}
            return None, [Draft("approved", body, plan.canonical())]

        self._ledger.update(decide)

    def check(self, plan: Plan) -> None:
        """Raise ApprovalError if the plan would not be approved now; change nothing."""
        self._check_budget(plan, self._claimed_events(plan), self._ledger.account())

    def _claimed_events(self, plan: Plan) -> list[tuple[Event, int]]:
        terms = self._own_terms(plan)
        self._check_key(plan, terms)
        try:
            events = plan_events(plan, terms)
        except AccountingError as problem:
            raise ApprovalError(f"Silo '{self.silo}' cannot answer this plan. {problem}") from None
        self._check_claim(terms, events)
        return events

    def _check_key(self, plan: Plan, terms: SiloTerms) -> None:
        if plan.shuffle is None:
            return
        from ringfence.silo.sealed import public_key, require_sealable

        own = None if self._key is None else public_key(self._key)
        if own != terms.key:
            raise ApprovalError(
                f"The plan expects messages that silo '{self.silo}' signs with another key than it has, so the "
                "shuffler would not take them. Send the plan's author the key that `ringfence silo status` shows."
            )
        try:
            require_sealable(plan.shuffle)
        except PlanError as problem:
            raise ApprovalError(f"Silo '{self.silo}' cannot answer this plan. {problem}") from None

    def end(self, plan: Plan, *, revoke: bool = False) -> None:
        """Answer no further round of the plan, and give back what it reserved and did not use."""
        self._ledger.end(plan.digest(), revoke=revoke)
        self._blocks.pop(plan.digest(), None)

    def answer(self, request: RoundRequest) -> Answer:
        """Return the stored answer if the round was answered, else charge, release and store; or refuse."""
        with self._one_at_a_time:
            try:
                return self._answer(request)
            except LedgerError:
                return self._refusal(request, Reason.UNAVAILABLE)

    def _answer(self, request: RoundRequest) -> Answer:
        weights = unpack(request.weights)
        fingerprint = hashlib.sha256(weights.tobytes()).hexdigest()

        def decide(account: Account) -> tuple[Reason | bytes | Task, list[Draft]]:
            verdict = self._judge(account, request, weights, fingerprint)
            if isinstance(verdict, Reason):
                return verdict, self._log(account, request, verdict)
            if isinstance(verdict, bytes):
                return verdict, []
            plan = account.plans[request.plan].plan
            event = task_event(plan, self._own_terms(plan), verdict).to_dict()
            charge = {"plan": request.plan, "round": request.round, "weights": fingerprint, "event": event}
            return verdict, [Draft("charged", charge)]

        verdict = self._ledger.update(decide)
        if isinstance(verdict, Reason):
            return self._refusal(request, verdict)
        if isinstance(verdict, bytes):
            return parse_answer(verdict)
        return self._release(request, weights, verdict)

    def _judge(
        self, account: Account, request: RoundRequest, weights: FloatArray, fingerprint: str
    ) -> Reason | bytes | Task:
        """Say no, repeat the stored answer, or return what the round asks for."""
        approved = account.plans.get(request.plan)
        if approved is None:
            return Reason.NOT_APPROVED
        plan = approved.plan
        if self._mismatch(plan):  # the data file was changed after the approval
            return Reason.NOT_APPROVED
        if approved.ended == "revoked":
            return Reason.REVOKED
        if request.round in approved.rounds:
            earlier = approved.rounds[request.round]
            if earlier.weights != fingerprint:
                return Reason.ROUND_ANSWERED
            return Reason.ROUND_LOST if earlier.answer is None else earlier.answer
        if approved.ended:
            return Reason.REVOKED
        if not approved.covered:
            return Reason.BUDGET
        if request.round >= plan.exchanges:
            return Reason.ROUND_OUT_OF_RANGE
        if approved.rounds and request.round < max(approved.rounds):
            return Reason.ROUND_PASSED
        if weights.shape != (plan.dimension,):
            return Reason.MALFORMED
        if not plan.domain.contains(weights):
            return Reason.OUTSIDE_DOMAIN
        answered = sum(charged >= plan.preliminaries for charged in approved.rounds)
        return task(plan, self._own_terms(plan), request.round, answered)

    def _release(self, request: RoundRequest, weights: FloatArray, work: Task) -> Answer:
        plan = self._ledger.account().plans[request.plan].plan
        draws = randomness.draw(plan, self._own_terms(plan), work)
        update = self._update(plan, request, work, weights, draws)
        stored = Draft("released", {"plan": request.plan, "round": request.round}, update.to_bytes())
        self._ledger.update(lambda _: (None, [stored]))
        return update

    def _update(
        self, plan: Plan, request: RoundRequest, work: Task, weights: FloatArray, draws: mechanism.Draws
    ) -> NoisyUpdate | SealedUpdate:
        if plan.shuffle is not None:
            from ringfence.silo.sealed import seal

            assert self._key is not None  # noqa: S101 (the plan was approved with it)
            numbers = mechanism.counts(plan, plan.shuffle, work, weights, self._records, draws)
            return seal(plan, plan.shuffle, request.round, self.silo, self._key, numbers)
        block = self._blocks.setdefault(request.plan, mechanism.Block()) if plan.correlation else None
        vector = mechanism.release(plan, work, weights, self._records, draws, block)
        return NoisyUpdate(plan=request.plan, round=request.round, silo=self.silo, vector=pack(vector))

    def _refusal(self, request: RoundRequest, reason: Reason) -> Refusal:
        return Refusal(plan=request.plan, round=request.round, silo=self.silo, reason=reason)

    def _log(self, account: Account, request: RoundRequest, reason: Reason) -> list[Draft]:
        if account.refusals >= LOGGED_REFUSALS:
            return []
        return [Draft("refused", {"plan": request.plan, "round": request.round, "reason": reason.value})]

    def _own_terms(self, plan: Plan) -> SiloTerms:
        terms = plan.terms(self.silo)
        mismatch = self._mismatch(plan)
        if terms is None or mismatch:
            raise ApprovalError(f"Silo '{self.silo}' cannot answer this plan: {mismatch}.")
        return terms

    def _mismatch(self, plan: Plan) -> str:
        """Say why the plan is not about these records, or nothing if it is."""
        terms = plan.terms(self.silo)
        if terms is None:
            return "it has no part in it"
        if terms.records != len(self._records):
            return f"the plan counts {terms.records} records where there are {len(self._records)}"
        if plan.data != self._records.schema:
            return "its records were read with another schema"
        return ""

    def _check_claim(self, terms: SiloTerms, events: list[tuple[Event, int]]) -> None:
        """Refuse a plan that claims more than its noise gives, to any observer."""
        for seen, claimed, against in _views(events, terms.epsilon, terms.alone_epsilon or terms.epsilon):
            true_epsilon = accountant.epsilon(seen, terms.delta)
            if true_epsilon > claimed:
                raise ApprovalError(
                    f"The plan claims epsilon {claimed:.6g} at delta {terms.delta:.3g} for silo '{self.silo}'{against}"
                    f", but its noise gives epsilon {true_epsilon:.6g}. Ask for a plan with more noise or fewer rounds."
                )

    def _check_budget(self, plan: Plan, events: list[tuple[Event, int]], account: Account) -> None:
        budget = account.budget
        together = [*account.reserved(without=plan.digest()), *events]
        for seen, allowed, against in _views(together, budget.epsilon, budget.most_alone):
            total = accountant.epsilon(seen, budget.delta)
            if total > allowed:
                raise ApprovalError(
                    f"With this plan, all releases from the data of silo '{self.silo}' would come to epsilon "
                    f"{total:.6g} at delta {budget.delta:.3g}{against}, more than its budget of {allowed:.6g}. Ask for "
                    "a plan with more noise or fewer rounds, end plans that are no longer needed, or grant more."
                )


def _views(
    events: list[tuple[Event, int]], shuffled: float, alone: float
) -> Iterator[tuple[list[tuple[Event, int]], float, str]]:
    """Yield the events as each kind of observer sees them, what they may cost, and a phrase for the observer."""
    yield events, shuffled, ""
    if (seen := as_seen_alone(events)) != events:
        yield seen, alone, " against a server that works together with the shuffler"
