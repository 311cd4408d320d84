"""The gate: the only way out for anything computed from a silo's records.

`Gate.answer` treats a request as hostile and returns the plan's noisy update or a refusal. Guarantee: for every
sequence of requests, by any number of callers, with crashes and restarts at any point, everything that ever left is
differentially private, under replacing one record, within the operator's budget, also if plans are chosen by the
answers of earlier ones.

It rests on three rules. A round is charged, and the charge synced, before anything is computed. An answer
is stored before it is sent, and a repeated request gets the stored bytes. A charged round without a stored
answer is never drawn again.
"""

import hashlib
import shlex
import threading
from collections.abc import Sequence

import numpy as np

from ringfence.accounting.charges import cost, plan_events, task_event
from ringfence.accounting.events import Event
from ringfence.accounting.filters import used
from ringfence.errors import AccountingError, ApprovalError, LedgerError
from ringfence.protocol import Answer, FloatArray, Plan, Refusal, RefusalReason, RoundRequest, SignedHead, SiloTerms
from ringfence.protocol.documents.messages import parse_answer, unpack
from ringfence.protocol.plan import checks
from ringfence.protocol.plan.guarantee import Guarantee, against_words, observers_of
from ringfence.protocol.plan.plan import Task, task
from ringfence.silo.channels import SENDERS
from ringfence.silo.gate import mechanism, sampling
from ringfence.silo.gate.limits import Limits, largest_round
from ringfence.silo.ledger.history import Account, ApprovedPlan, StoredAnswer
from ringfence.silo.ledger.ledger import LOGGED_REFUSALS, HeadSigner, Ledger, decided
from ringfence.silo.records.records import DataSet, Records
from ringfence.storage.chain import Draft
from ringfence.storage.decision_log import Note, unnoted


class Gate:
    """Answers rounds of approved plans from one data set, and keeps its ledger.

    `key`, the 32 bytes of an Ed25519 private key, signs answers where a channel needs that, and the heads sent with
    them. `limits` is how much time and memory a round may take; without it, there is no limit, as where all plans are
    one's own. `note` is called with the decision on every request. The records are the version of the data set that the
    ledger records now; once that changes, this gate answers nothing.
    """

    def __init__(
        self,
        records: Records | DataSet,
        ledger: Ledger,
        key: bytes | None = None,
        *,
        limits: Limits | None = None,
        note: Note = unnoted,
    ) -> None:
        """Make the gate of a silo's records and ledger; `key` signs its answers and heads."""
        self._records, self._ledger, self._key = records, ledger, key
        self._limits, self._note = limits, note
        self._one_at_a_time = threading.Lock()
        self._memories: dict[tuple[str, int], object] = {}
        account = ledger.account()
        self.silo = account.silo
        self._heads = HeadSigner(account.identity, key)
        self._has_forgotten = False
        self._version = account.version if records.version is None else records.version

    def approve(self, plan: Plan, *, note: str = "") -> None:
        """Have the gate answer the plan's rounds, and reserve their cost. The operator's decision, not the server's.

        If the plan runs already, nothing changes.

        Raises ApprovalError if the plan is not about these records, if its noise does not deliver the guarantee that it
        claims for this silo, if a round would take too much of this machine, or if the budget does not cover it. The
        ledger's entry says who decided; `note` is what they add in words.
        """
        events = self._claimed_events(plan)

        def decide(account: Account) -> tuple[None, list[Draft]]:
            """Draft the ledger's entry that approves the plan at the gate, if it fits the account."""
            self._check_account(plan, events, account)
            before = account.plans.get(plan.digest())
            if before is not None and before.covered and (before.rounds or before.version == account.version):
                return None, []  # it is approved
            body = {"events": [[event.to_dict(), count] for event, count in events], **decided(note)}
            return None, [Draft("approved", body, plan.content)]

        self._ledger.update(decide)

    def check(self, plan: Plan) -> None:
        """Raise ApprovalError if the gate would not approve the plan now; change nothing."""
        self._check_account(plan, self._claimed_events(plan), self._ledger.account())

    def _claimed_events(self, plan: Plan) -> list[tuple[Event, int]]:
        """Return the plan's privacy events; the gate's ApprovalError if it is unfit, or costs more than it claims."""
        if mismatch := self._mismatch(plan):
            raise ApprovalError(f"Silo '{self.silo}' cannot answer this plan: {mismatch}.")
        terms = terms_in(plan, self.silo)
        if unmet := checks.unmet(plan):
            raise ApprovalError(f"Silo '{self.silo}' cannot approve this plan: {unmet}.")
        if self._limits is not None and (objection := self._limits.objection(largest_round(plan, terms))):
            raise ApprovalError(objection)
        for stage in plan.stages:
            SENDERS[type(stage.channel)].require(stage.channel, terms, self._key)
        try:
            events = plan_events(plan, terms)
        except AccountingError as problem:
            raise ApprovalError(f"Silo '{self.silo}' cannot answer this plan. {problem}") from None
        self._check_claim(plan, terms, events)
        return events

    def end(self, plan: Plan, *, revoke: bool = False) -> None:
        """Have the gate answer no more rounds of the plan, and free the budget that it reserved and did not use."""
        self._ledger.end(plan.digest(), revoke=revoke)
        for stage in range(len(plan.stages)):
            self._memories.pop((plan.digest(), stage), None)

    def answer(self, request: RoundRequest) -> Answer:
        """Return the stored answer if the round was answered, else charge, release and store; or refuse.

        A head in the request that this silo signed, and whose entry is not in its ledger, proves that the ledger was
        rolled back: from then on everything is refused. Any other head (of another ledger, or with a signature that is
        not this silo's) is ignored: it proves nothing, and strangers must not be able to stop a silo.
        """
        with self._one_at_a_time:
            try:
                decision, answer = self._answer(request)
            except LedgerError:
                decision, answer = "refused", self._refusal(request, RefusalReason.UNAVAILABLE)
            reason = answer.reason.value if isinstance(answer, Refusal) else ""
            self._note("refused" if reason else decision, plan=request.plan, round=request.round, reason=reason)
            return answer

    def _is_shown_to_have_forgotten(self, heads: Sequence[SignedHead]) -> bool:
        """Return whether heads in requests to the gate have ever shown that its ledger was rolled back."""
        self._has_forgotten = self._has_forgotten or any(
            self._heads.is_own(head) and self._ledger.has_forgotten(head.number, head.hash) for head in heads
        )
        return self._has_forgotten

    def _answer(self, request: RoundRequest) -> tuple[str, Answer]:
        """Return the gate's decision on a request, in a word, and the answer or refusal."""
        if self._is_shown_to_have_forgotten(request.heads or ()):
            return "refused", self._refusal(request, RefusalReason.FORGOTTEN)
        argument = unpack(request.argument)
        fingerprint = hashlib.sha256(argument.tobytes()).hexdigest()

        def decide(account: Account) -> tuple[RefusalReason | StoredAnswer | Task, list[Draft]]:
            """Judge a request to the gate, and draft the charge of a new round or the entry of a refusal."""
            verdict = self._judge(account, request, argument, fingerprint)
            if isinstance(verdict, RefusalReason):
                return verdict, self._log(account, request, verdict)
            if isinstance(verdict, StoredAnswer):
                return verdict, []
            plan = account.plans[request.plan].plan
            event = task_event(plan, terms_in(plan, self.silo), verdict).to_dict()
            charge = {"plan": request.plan, "round": request.round, "argument": fingerprint, "event": event}
            return verdict, [Draft("charged", charge)]

        verdict = self._ledger.update(decide)
        if isinstance(verdict, RefusalReason):
            return "refused", self._refusal_with_head(request, verdict)
        if isinstance(verdict, StoredAnswer):
            return "repeated", parse_answer(self._ledger.stored(verdict))
        return "answered", self._release(request, argument, verdict)

    def _judge(
        self, account: Account, request: RoundRequest, argument: FloatArray, fingerprint: str
    ) -> RefusalReason | StoredAnswer | Task:
        """Return the gate's reason to refuse, the stored answer of a repeated request, or the task of a new round."""
        approved = account.plans.get(request.plan)
        if approved is None:
            return RefusalReason.NOT_APPROVED
        plan = approved.plan
        if account.version != self._version:  # these records are not the data set any more
            return RefusalReason.UNAVAILABLE
        if self._mismatch(plan) or _places_changed(approved, account):  # the data file was changed after the approval
            return RefusalReason.NOT_APPROVED
        if approved.ended == "revoked":
            return RefusalReason.REVOKED
        if request.round in approved.rounds:
            earlier = approved.rounds[request.round]
            if earlier.argument != fingerprint:
                return RefusalReason.ROUND_ANSWERED
            return RefusalReason.ROUND_LOST if earlier.answer is None else earlier.answer
        if (withdrawn := _withdrawn(approved)) is not None:
            return withdrawn
        if request.round >= plan.rounds:
            return RefusalReason.ROUND_OUT_OF_RANGE
        if approved.rounds and request.round < max(approved.rounds):
            return RefusalReason.ROUND_PASSED
        stage, number, _ = plan.place(request.round)
        query, first = stage.query, plan.first_rounds[number]
        placed = query.knots(plan)
        if argument.shape != (placed + query.argument_length(plan),):
            return RefusalReason.MALFORMED
        if not (plan.data.accepts(argument[:placed]) and query.accepts(plan, argument[placed:])):
            return RefusalReason.OUTSIDE_DOMAIN
        answered = sum(map(range(first, first + stage.rounds).__contains__, approved.rounds))
        if answered >= stage.most_answers:  # by the silo's own count of charges: the server may ask as it likes
            return RefusalReason.TURNS_TAKEN
        return task(plan, terms_in(plan, self.silo), request.round, answered)

    def _release(self, request: RoundRequest, argument: FloatArray, work: Task) -> Answer:
        """Compute a charged round's answer in the gate, and store it before it is sent.

        If the plan was revoked, ended or lost its budget while the round was computed, or the answer is not finite,
        nothing is stored, so that nothing can leave. The charge stays.
        """
        approved, channel = self._ledger.account().plans[request.plan], work.stage.channel
        plan, charge = approved.plan, approved.rounds[request.round]
        terms, way = terms_in(plan, self.silo), SENDERS[type(work.stage.channel)]
        draws = sampling.draw(plan, terms, work)
        memory = self._memories.setdefault((request.plan, work.number), way.memory(channel))
        numbers = mechanism.release(plan, work, argument, self._records.encoded(plan.data), draws, memory)
        message = way.message(channel, plan, terms, request.round, self._key, numbers)
        update = message.model_copy(update={"head": self._heads.sign(charge.number, charge.hash)})
        stored = Draft("released", {"plan": request.plan, "round": request.round}, update.to_bytes())

        def decide(account: Account) -> tuple[RefusalReason | None, list[Draft]]:
            """Draft the entry that stores the gate's answer, unless the plan was withdrawn meanwhile."""
            withdrawn = _withdrawn(account.plans[request.plan])
            if withdrawn is None and not np.all(np.isfinite(numbers)):
                withdrawn = RefusalReason.ROUND_LOST
            return withdrawn, [stored] if withdrawn is None else self._log(account, request, withdrawn)

        withdrawn = self._ledger.update(decide)
        if withdrawn is not None:
            self._memories.pop((request.plan, work.number), None)  # it remembers a round that was never released
            return self._refusal_with_head(request, withdrawn)
        return update

    def _refusal(self, request: RoundRequest, reason: RefusalReason, head: SignedHead | None = None) -> Refusal:
        """Return the gate's refusal of a request."""
        return Refusal(plan=request.plan, round=request.round, silo=self.silo, reason=reason, head=head)

    def _refusal_with_head(self, request: RoundRequest, reason: RefusalReason) -> Refusal:
        """Return the gate's refusal of a request, with the signed head of its ledger."""
        number, hash = self._ledger.look(lambda account: (account.number, account.head))
        return self._refusal(request, reason, self._heads.sign(number, hash))

    def _log(self, account: Account, request: RoundRequest, reason: RefusalReason) -> list[Draft]:
        """Draft the ledger's entry of a refusal by the gate, up to the limit on such entries."""
        if account.refusals >= LOGGED_REFUSALS:
            return []
        return [Draft("refused", {"plan": request.plan, "round": request.round, "reason": reason.value})]

    def _mismatch(self, plan: Plan) -> str:
        """Return why the plan is not about the gate's records; empty if it is."""
        terms = plan.terms(self.silo)
        if terms is None:
            return "it takes no part in it"
        if terms.records != len(self._records):
            return f"the plan names {terms.records} {plan.unit}s, but there are {len(self._records)}"
        if plan.dimension and plan.loss.missing:
            return plan.loss.missing
        if not checks.is_computable(plan.data):
            return "its schema scales values to numbers too small or too large to compute with"
        if self._records.were_moved and plan.depends_on_positions:
            return (
                "its rows are not in the order in which they were registered, and the plan divides them by position. "
                "Restore their order, or record what happened with `ringfence silo update`"
            )
        return self._records.difference(plan.data)

    def _check_account(self, plan: Plan, events: list[tuple[Event, int]], account: Account) -> None:
        """Raise the gate's ApprovalError if the plan has ended or does not fit the ledger: unit, split, budget."""
        before = account.plans.get(plan.digest())
        if before is not None and before.ended:
            raise ApprovalError(
                f"This plan was {before.ended} and stays so: silo '{self.silo}' answers no further round of it. Ask "
                "for a new plan."
            )
        if any(other.unit != plan.unit for other in account.approved_plans):
            raise ApprovalError(
                f"This plan protects each {plan.unit} of silo '{self.silo}', but its ledger counts what earlier plans "
                f"cost each {'record' if plan.unit == 'person' else 'person'}, and the two cannot be added up. Use "
                "the schema of those plans."
            )
        shares = {other.held_out for other in account.approved_plans} - {None, plan.held_out}
        if plan.held_out is not None and shares:
            raise ApprovalError(
                f"This plan holds out {plan.held_out:.0%} of the {plan.unit}s of silo '{self.silo}', but earlier "
                f"plans held out {min(filter(None, shares)):.0%}: some that trained one model would evaluate another. "
                "Ask for a plan with the same held-out share."
            )
        if account.version != self._version:
            raise ApprovalError(f"The data of silo '{self.silo}' was just updated: try again.")
        if before is not None and before.rounds and _places_changed(before, account):
            raise ApprovalError(
                f"The data of silo '{self.silo}' was updated after this plan's first round, and the plan divides the "
                f"{plan.unit}s by position: one that moved might take part twice. Ask for a new plan."
            )
        self._check_budget(plan, events, account)

    def _check_claim(self, plan: Plan, terms: SiloTerms, events: list[tuple[Event, int]]) -> None:
        """Raise ApprovalError if the plan's noise does not give what it claims, against any observer."""
        for claimed in terms.guarantees:
            true_epsilon = cost(events, claimed)
            if true_epsilon > claimed.epsilon:
                raise ApprovalError(
                    f"The plan claims epsilon {claimed.epsilon:.6g} at delta {claimed.delta:.3g} for silo "
                    f"'{self.silo}'{_named(claimed, plan.observers, plan.most_colluders)}, but its noise gives epsilon "
                    f"{true_epsilon:.6g}. Ask for a plan with more noise or fewer rounds."
                )

    def _check_budget(self, plan: Plan, events: list[tuple[Event, int]], account: Account) -> None:
        """Raise ApprovalError if all releases, running plans and this one would exceed the budget."""
        history = account.commitments({plan.digest(): events})
        observers = observers_of(plan.observers, account.observers)
        filtered = ", where plans may be chosen by earlier answers" if account.answered else ""
        for limit in account.budget.limits:
            total = used(history, limit)
            if total > limit.epsilon:
                raise ApprovalError(
                    f"With this plan, all releases from the data of silo '{self.silo}' would come to epsilon "
                    f"{total:.6g} at delta {limit.delta:.3g}{_named(limit, observers)}, more than its budget of "
                    f"{limit.epsilon:.6g}{filtered}. Ask for a plan with more noise or "
                    f"fewer rounds, end plans that are no longer needed{self._ending(account, plan)}, or grant a "
                    "larger budget."
                )

    def _ending(self, account: Account, plan: Plan) -> str:
        """Return, for the gate's objection, the command that ends a running plan, and the plans."""
        running = [digest[:12] for digest, p in account.plans.items() if not p.ended and digest != plan.digest()]
        path = shlex.quote(str(self._ledger.path))
        return f" (`ringfence ledger {path} --end PLAN`; running: {', '.join(running[:5])})" if running else ""


def terms_in(plan: Plan, silo: str) -> SiloTerms:
    """Return the silo's terms in a plan that the gate has found to be about its records."""
    terms = plan.terms(silo)
    if terms is None:
        raise ApprovalError(f"Silo '{silo}' takes no part in this plan.")
    return terms


def _withdrawn(approved: ApprovedPlan) -> RefusalReason | None:
    """Return the reason the plan was withdrawn, for the gate's refusal, or None."""
    if approved.ended:
        return RefusalReason.REVOKED
    return None if approved.covered else RefusalReason.BUDGET


def _places_changed(approved: ApprovedPlan, account: Account) -> bool:
    """Return whether the plan divides records by position and was approved for another version of the data."""
    return approved.version != account.version and approved.plan.depends_on_positions


def _named(guarantee: Guarantee, among: Sequence[object], colluders: int | None = None) -> str:
    """Return a guarantee's observer in words, for the gate's objections, if there are several observers."""
    return f" {against_words(guarantee.against, colluders)}" if len(among) > 1 else ""
