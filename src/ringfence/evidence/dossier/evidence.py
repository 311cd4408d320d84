"""The evidence of a dossier: plan, certificates, model, audit and evaluation, each checked against the others.

A silo's part is taken from its certificate alone, after every check of `verification`; what its plan costs is
recomputed. A document that contradicts another is refused. What was not given, or cannot be checked, is said to be
missing.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, ValidationError

from ringfence.accounting.charges import all_events, costs
from ringfence.accounting.events import seen_by
from ringfence.errors import CertificateError, MessageError, PlanError, visible
from ringfence.estimates.metrics import EvaluationReport
from ringfence.evidence.certificate_history import PlanHistory
from ringfence.evidence.verification import Verified, verify_file, verify_statement
from ringfence.model.model import Model
from ringfence.model.statement import SiloGuarantee, Statement, exact_guess
from ringfence.protocol import Guarantee, Observer, Plan, Public, SiloTerms, explain, load_plan
from ringfence.storage.files import LARGE_LIMIT, read_file


@dataclass(frozen=True)
class Inputs:
    """The files that a dossier is made of. `keys` are silos' public keys, as they were learnt by another way."""

    plan: Path | None = None
    model: Path | None = None
    certificates: Sequence[Path] = ()
    audit: Path | None = None
    evaluation: Path | None = None
    keys: Mapping[str, str] = field(default_factory=dict)

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of every file of a dossier's evidence, by its name; PlanError if two have one name."""
        given = (self.plan, self.model, *self.certificates, self.audit, self.evaluation)
        found: dict[str, str] = {}
        for path in given:
            if path is None:
                continue
            if path.name in found:
                raise PlanError(f"Two of the dossier's files are called {path.name}: rename one of them.")
            found[path.name] = hashlib.sha256(read_file(path, "file", PlanError, LARGE_LIMIT)).hexdigest()
        return found


@dataclass(frozen=True)
class SiloEvidence:
    """One silo: its terms in the plan, what these cost its records, and its certificate, if there is one.

    `plans` are those of the dossier that the certificate shows, by their digests.
    """

    terms: SiloTerms
    run: tuple[Guarantee, ...]
    certified: Verified | None
    plans: Mapping[str, PlanHistory]

    @property
    def name(self) -> str:
        """The name of the silo that the evidence is about."""
        return self.terms.name


class Audit(Public):
    """An audit's result, as `ringfence audit --json` prints it; what else stands there is not read."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)

    mechanism: str
    sabotage: str
    refuted: bool
    epsilon_claimed: float
    epsilon_lower: float
    confidence: float
    delta: float
    records: int
    rounds: int
    runs: int
    score: float
    score_allowed: float
    score_lower: float


@dataclass(frozen=True)
class Evidence:
    """All that was given, checked.

    `evaluation` is as the model's maker or the server says; `evaluated_by` are the silos whose certificates show its
    plan.
    """

    plan: Plan
    others: tuple[Plan, ...]
    model: Model | None
    silos: tuple[SiloEvidence, ...]
    audit: Audit | None
    evaluation: EvaluationReport | None
    evaluated_by: Sequence[str]
    digests: Mapping[str, str]

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The dossier's plan, and the others of a choice that it was part of."""
        return self.plan, *self.others

    @property
    def certified(self) -> dict[str, Verified]:
        """The silos of the dossier's evidence that gave a certificate."""
        return {silo.name: silo.certified for silo in self.silos if silo.certified is not None}

    @property
    def uncertified(self) -> list[str]:
        """The names of the silos of the dossier's evidence that gave no certificate."""
        return [silo.name for silo in self.silos if silo.certified is None]

    def exact(self, silo: SiloEvidence, observer: Observer) -> float:
        """Return how often the observer's best guess about one unit of the silo is right, computed from the noise."""
        return exact_guess(seen_by(observer, all_events(self.plans, silo.name)))

    def statement(self) -> Statement:
        """Return what the dossier's certificates prove, as a statement; what the plan promises, if there are none."""
        proved = {
            silo.name: SiloGuarantee(
                records=silo.terms.records,
                rounds=sum(len(followed.charged) for followed in silo.plans.values()),
                this_run=silo.run,
                all_runs=silo.certified.guarantee,
                used=silo.certified.used,
                remarks=silo.certified.remarks,
            )
            for silo in self.silos
            if silo.certified is not None
        }
        promised = {
            silo.name: SiloGuarantee(
                records=silo.terms.records,
                rounds=sum(stage.most_answers for plan in self.plans for stage in plan.stages),
                this_run=silo.run,
                all_runs=silo.run,
            )
            for silo in self.silos
        }
        return Statement(self.plan, proved or promised, self.others)

    def missing(self) -> Iterator[str]:
        """Yield, one sentence each, what is missing from the dossier."""
        for name in ("purpose", "controller", "contact"):
            if getattr(self.plan, name) is None:
                yield f"The plan names no {name} (`ringfence plan --{name}`)."
        for silo in self.silos:
            yield from self._missing_of(silo)
        if self.model is None:
            yield "No model was given: this dossier does not say which one the plan produced."
        elif self.model.statement is None:
            yield (
                "The model carries no statement, since it was made without the silos' ledgers. The certificates take "
                "its place."
            )
        if self.audit is None:
            yield "No audit was given: this dossier shows no attack on the mechanism (`ringfence audit --json`)."
        if self.evaluation is None:
            yield "No evaluation was given: this dossier does not say how good the model is."
        elif set(self.evaluated_by) != {silo.name for silo in self.silos}:
            yield "Not every silo's certificate shows the evaluation's plan."

    def _missing_of(self, silo: SiloEvidence) -> Iterator[str]:
        """Yield, one sentence each, what a silo's evidence lacks in the dossier."""
        name = f"silo '{visible(silo.name)}'"
        if silo.certified is None:
            yield (
                f"No certificate from {name}: this dossier does not show who approved the plan there, what was "
                "released, or what else was ever released from its records."
            )
            return
        if not silo.certified.key_was_given:
            yield f"The key of {name} was not confirmed independently: someone else may have signed its certificate."
        for plan in self.plans:
            followed = silo.plans.get(plan.digest())
            if followed is None:
                yield f"The certificate of {name} does not show plan {plan.digest()[:12]}."
            elif not followed.ended and len(followed.charged) < plan.rounds:
                yield (
                    f"Plan {plan.digest()[:12]} has not ended at {name}: {len(followed.charged)} of {plan.rounds} "
                    "rounds are charged, and others may still be answered, within its guarantee."
                )


def gather_evidence(inputs: Inputs) -> Evidence:
    """Read and check all evidence; raise at the first document that is invalid or contradicts another."""
    model = None if inputs.model is None else Model.load(inputs.model)
    plan = _dossier_plan(inputs.plan, model)
    others = () if model is None or model.choice is None else model.choice.plans
    found = [_certificate_of_plan(path, plan, inputs.keys) for path in inputs.certificates]
    certified = {one.silo: one for one in found}
    if len(certified) != len(found):
        raise CertificateError(
            "Two of the certificates are from the same silo: give the newer one. `ringfence verify` compares both."
        )
    if model is not None and model.statement is not None and not others and inputs.certificates:
        verify_statement(model.statement, inputs.certificates)
    if unknown := set(inputs.keys) - set(certified):
        raise CertificateError(f"There is a key of silo '{min(unknown)}', but no certificate from it.")
    silos = tuple(_silo_evidence(terms, certified.get(terms.name), (plan, *others)) for terms in plan.silos)
    audit = None if inputs.audit is None else read_audit(read_file(inputs.audit, "audit", MessageError))
    evaluation, evaluated_by = _dossier_evaluation(inputs.evaluation, model, others, certified)
    return Evidence(plan, others, model, silos, audit, evaluation, evaluated_by, inputs.digests())


def _silo_evidence(terms: SiloTerms, certified: Verified | None, plans: Sequence[Plan]) -> SiloEvidence:
    """Return a silo's evidence for the dossier's plans, of which the first is the one that it is about."""
    run = costs(all_events(plans, terms.name), plans[0].observers, terms.guarantee.delta)
    shown = {} if certified is None else certified.history.plans
    return SiloEvidence(terms, run, certified, {name: shown[name] for name in map(Plan.digest, plans) if name in shown})


def read_audit(content: bytes) -> Audit:
    """Read an audit's result as evidence; MessageError if it is not one, or if its silo was broken on purpose."""
    try:
        audit = Audit.model_validate_json(content)
    except ValidationError as refused:
        raise MessageError(
            f"This is not the output of `ringfence audit --json`: {explain(refused)}. Save its output to a file."
        ) from None
    if audit.sabotage != "none":
        raise MessageError(
            "This audit is of a silo that was broken on purpose (--sabotage): it says nothing about yours."
        )
    return audit


def read_evaluation(content: bytes) -> tuple[EvaluationReport, str]:
    """Read a private evaluation and its plan's digest, from a server's report.json or `ringfence evaluate --json`."""
    try:
        stated: Any = json.loads(content)
        report = EvaluationReport.model_validate_json(json.dumps(stated["evaluation"]))
        plan = str(stated["plan"])
    except (ValidationError, ValueError, KeyError, TypeError, RecursionError):
        raise MessageError(
            "This holds no private evaluation: give a run's report.json, or the output of `ringfence evaluate --json`."
        ) from None
    return report, plan


def _dossier_plan(path: Path | None, model: Model | None) -> Plan:
    """Return the dossier's plan, from its file or the model; PlanError if the two differ."""
    if path is None:
        if model is None:
            raise PlanError(
                "A dossier needs a plan: give its file with --plan, or a model that contains it with --model."
            )
        return model.plan
    plan = load_plan(path)
    if model is not None and model.plan.digest() != plan.digest():
        raise PlanError(
            f"The model was trained by plan {model.plan.digest()[:12]}, but {path} is plan {plan.digest()[:12]}: "
            "leave one of them out."
        )
    return plan


def _certificate_of_plan(path: Path, plan: Plan, keys: Mapping[str, str]) -> Verified:
    """Check a certificate as evidence of the dossier: its silo takes part in the plan and approved it."""
    found = verify_file(path)
    if found.silo in keys:
        found = verify_file(path, key=keys[found.silo])
    if plan.terms(found.silo) is None:
        raise CertificateError(f"{path} is from silo '{found.silo}', which takes no part in plan {plan.digest()[:12]}.")
    if plan.digest() not in found.history.plans:
        raise CertificateError(
            f"{path} is from silo '{found.silo}', whose ledger does not show plan {plan.digest()[:12]}: its operator "
            "never approved it, or did so after the certificate was issued. Ask for a newer one, or leave it out."
        )
    return found


def _dossier_evaluation(
    path: Path | None, model: Model | None, others: Sequence[Plan], certified: Mapping[str, Verified]
) -> tuple[EvaluationReport | None, list[str]]:
    """Return the evaluation that was given, or the model's own, and the silos whose certificates show its plan.

    The model's own was asked for by its plan; by the last one of a choice.
    """
    if path is not None:
        report, plan = read_evaluation(read_file(path, "evaluation", MessageError))
    elif model is not None and model.evaluation is not None:
        report, plan = model.evaluation, (others[-1] if others else model.plan).digest()
    else:
        return None, []
    shown = {name: one.history.plans.get(plan) for name, one in certified.items()}
    return report, [name for name, followed in shown.items() if followed is not None and followed.released]
