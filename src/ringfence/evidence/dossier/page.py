"""The dossier as a page: the sections of a data protection impact assessment, then two checklists."""

from collections.abc import Iterable

from ringfence.evidence.dossier.checklists import nist_section, output_checker_section
from ringfence.evidence.dossier.evidence import Evidence, SiloEvidence
from ringfence.evidence.report import sections
from ringfence.evidence.report.page import ReportPage, counted, kicker_line
from ringfence.html.markup import (
    Html,
    Value,
    bullets,
    key_numbers,
    minute,
    note,
    outline,
    paragraph,
    section,
    table,
    tag,
    together,
)
from ringfence.model.statement import best_guess, observer_words
from ringfence.protocol import Observer, rounds_words
from ringfence.protocol.plan.guarantee import against
from ringfence.silo.ledger.budget import Basis
from ringfence.silo.operator.review import reveals, to_whom

NOT_SAID = "not said: see “What is missing”"
MOST_COLUMNS = 60


def dossier_page(evidence: Evidence, public_key: str) -> ReportPage:
    """Return the dossier; `public_key` is the one that it will be signed by."""
    plan, silos, report = evidence.plan, evidence.silos, evidence.evaluation
    parts = (
        paragraph(
            f"This dossier is about one plan of {counted(len(silos), 'silo')}, {plan.aim}. It says what "
            "was released, to whom, under which guarantee, who approved it and when, and what was tested. Statements "
            "about a silo were checked against its signed certificate, if it gave one. Whatever was not given is "
            "listed.",
            class_="lead",
        ),
        key_numbers(
            {
                f"largest epsilon of this run, per {plan.unit}": max(silo.run[0].epsilon for silo in silos),
                "silos with a certificate": f"{len(evidence.certified)} of {len(silos)}",
                f"{plan.unit}s in all": f"{sum(silo.terms.records for silo in silos):,}",
                **sections.rounds_number(*evidence.plans),
            }
        ),
        _audit_warning(evidence),
        section("What is missing", bullets(*evidence.missing()) if any(evidence.missing()) else paragraph("Nothing.")),
        _description_section(evidence),
        _necessity_section(evidence),
        _risks_section(evidence),
        _measures_section(evidence),
        sections.evaluation_section(report, sections.evaluation_charts(report)),
        nist_section(evidence),
        output_checker_section(evidence),
        section("The words", sections.glossary(plan.unit)),
        _sources_section(evidence, public_key),
    )
    kicker = kicker_line("Dossier", f"plan {plan.digest()[:12]}")
    return ReportPage(f"Privacy dossier: {plan.purpose or plan.aim}", kicker, parts)


def _audit_warning(evidence: Evidence) -> Html | None:
    """Return the dossier page's warning that the audit refutes the claim; None if it does not."""
    if evidence.audit is None or not evidence.audit.refuted:
        return None
    words = tag("strong", "THE AUDIT REFUTES THE CLAIM. ")
    return note(words, "Do not rely on any guarantee below until this is explained.", warning=True)


def _description_section(evidence: Evidence) -> Html:
    """Return the dossier page's section that describes the processing."""
    plan, first = evidence.plan, evidence.silos[0].terms
    times = [time for own in evidence.silos for shown in own.plans.values() for time in shown.released.values()]
    released: Value = "no certificate shows a release"
    if times:
        released = together(minute(min(times)), " to ", minute(max(times)), " UTC")
    sizes = ", ".join(f"{own.name}: {own.terms.records:,}" for own in evidence.silos)
    columns = [(name, *column.described) for name, column in plan.data.used.items()]
    left_out = f", the first {MOST_COLUMNS} of {len(columns)}" if len(columns) > MOST_COLUMNS else ""
    return section(
        "1. Description of the processing",
        note("GDPR Article 35(7)(a). Purpose, controller and contact are what the plan's author wrote."),
        table(
            "What is processed, and for what",
            ["", ""],
            [
                *((name, plan.responsible.get(name, NOT_SAID)) for name in ("Purpose", "Controller", "Contact")),
                ("What it is", plan.aim),
                (f"{plan.unit.capitalize()}s", sizes),
                ("Released", released),
                ("The plan", tag("code", plan.digest())),
                *(("Other plans of the same run", tag("code", other.digest())) for other in evidence.others),
            ],
        ),
        tag("h3", "What left each silo, and nothing else"),
        paragraph(f"In the plan's words, for silo “{first.name}”; for the others, only the numbers differ."),
        bullets(*reveals(plan, first)),
        tag("h3", "To whom"),
        bullets(*to_whom(plan, first)),
        tag("h3", "Which columns"),
        table(f"The public schema{left_out}", ["column", "kind", "values"], columns[:MOST_COLUMNS]),
    )


def _necessity_section(evidence: Evidence) -> Html:
    """Return the dossier page's section on necessity and proportionality."""
    plan = evidence.plan
    return section(
        "2. Necessity and proportionality",
        note("GDPR Article 35(7)(b)."),
        tag("h3", "What the plan shows"),
        bullets(
            f"No {plan.unit}'s values leave a silo. What leaves is sums over many of them, with each {plan.unit}'s "
            "part clipped to a public bound, and noise that the silo draws itself.",
            "The schema is part of the plan, with all bounds and categories, and cannot change during a run. That "
            "they come from public knowledge, and not from the records, is its author's statement.",
            f"The plan uses {len(plan.data.used)} columns and has {rounds_words(plan)}; a gate answers nothing else.",
        ),
        tag("h3", "What only the controller can answer"),
        bullets(
            "Which legal basis the processing has, and whether the people concerned were told.",
            "Whether the purpose could be reached with fewer columns, fewer silos or a smaller epsilon.",
            "How long each silo keeps its records: Ringfence neither copies nor deletes them.",
            "Who may use the model, and for what.",
        ),
    )


def _risks_section(evidence: Evidence) -> Html:
    """Return the dossier page's section on risks to the people concerned."""
    plan = evidence.plan
    uncertified = evidence.uncertified
    basis = (
        "what the certificates prove" if evidence.certified else "what the plan promises: no silo gave a certificate"
    )
    return section(
        "3. Risks to the people concerned",
        note(
            "GDPR Article 35(7)(c). The risk is that somebody who sees what a silo sent, or the model, learns whether "
            f"one {plan.unit} was in the data, or what it contains. The bound below is stated as a bet: given two data "
            f"sets that differ in one {plan.unit}, at even odds, how often can the best guess be right? A coin toss is "
            "right half of the time."
        ),
        *(_run_table(evidence, observer) for observer in plan.observers),
        _total_table(evidence) if evidence.certified else None,
        tag("h3", f"What that means, by {basis}"),
        paragraph(
            f"This covers the silos that gave a certificate. For {', '.join(uncertified)} there is only the plan's "
            "promise, in the first table; anyone who also has rows there pays more than is stated here."
        )
        if evidence.certified and uncertified
        else None,
        outline(evidence.statement().words()),
    )


def _run_table(evidence: Evidence, observer: Observer) -> Html:
    """Return the dossier page's table of what the run costs at each silo, against the observer."""
    plan = evidence.plan
    words = observer_words(observer, plan.observers, plan.most_colluders)
    rows: list[tuple[Value, ...]] = [
        (silo.name, own.epsilon, own.delta, f"{best_guess(own):.1%}", f"{evidence.exact(silo, observer):.1%}",
         "certificate" if silo.certified else "the plan alone")
        for silo in evidence.silos
        for own in [against(silo.run, observer)]
    ]  # fmt: skip
    return table(
        f"This run, fixed in advance: for each {plan.unit} of a silo, against {words}",
        ["silo", "epsilon", "at delta", "bet: right at most", "exactly, at most", "shown by"],
        rows,
    )


def _total_table(evidence: Evidence) -> Html:
    """Return the dossier page's table of what all releases of each certified silo cost."""
    rows: list[tuple[Value, ...]] = [
        (name, one.unit, one.against(total.against), total.epsilon, total.delta, f"{best_guess(total):.1%}",
         _BUDGETS[one.history.basis(total.against)])
        for name, one in evidence.certified.items()
        for total in one.guarantee
    ]  # fmt: skip
    return table(
        "Everything in the silo's ledger, however plans were chosen and whenever you stop",
        ["silo", "for each", "against", "epsilon", "at delta", "bet: right at most", "is the budget"],
        rows,
    )


_BUDGETS: dict[Basis, str] = {
    "budget": "yes",
    "first-budget": "yes, of the first answer",
    "odometer": "no: that was raised later",
}
"""Whether a guarantee in the dossier's table is the silo's budget."""


def _measures_section(evidence: Evidence) -> Html:
    """Return the dossier page's section on measures, with approvals and the audit."""
    return section(
        "4. Measures",
        note("GDPR Article 35(7)(d). What each silo's software enforced, and what its certificate shows of it."),
        bullets(
            "Noise, clipping norm and sampling come from the plan that the silo's operator approved by its digest, "
            "never from a server's message.",
            "The ledger is charged before a release is computed; a round is answered once, and nothing beyond the "
            "budget.",
            "A certificate is the whole ledger without the vectors, signed by the silo. Each one given here was "
            "recomputed: hash chain, every charge, totals and signature.",
        ),
        tag("h3", "Who approved it, and when"),
        table(
            "According to the silos' own ledgers and clocks",
            ["silo", "approved by", "when (UTC)", "in these words", "rounds released", "last release (UTC)"],
            [row for silo in evidence.silos for row in _approval_rows(silo)],
        ),
        table(
            "Every budget that a certified silo set",
            ["silo", "set on (UTC)", "budget", "by", "in these words", "raised"],
            [
                (name, minute(each.time), str(each.budget), each.by or "not written down", each.note,
                 "yes" if each.raised else "no")
                for name, one in evidence.certified.items()
                for each in one.history.budgets
            ],
        )
        if evidence.certified
        else None,
        tag("h3", "Certificates"),
        table(
            "What was checked",
            ["silo", "issued (UTC)", "entries", "signed by", "key confirmed"],
            [
                (name, minute(one.issued), one.entries, tag("code", one.public_key),
                 "yes" if one.key_was_given else "no")
                for name, one in evidence.certified.items()
            ],
        )
        if evidence.certified
        else paragraph("None was given."),
        bullets(*_certificate_remarks(evidence)) if any(_certificate_remarks(evidence)) else None,
        tag("h3", "What was tested"),
        paragraph(*_audit_paragraph(evidence)),
    )  # fmt: skip


def _approval_rows(silo: SiloEvidence) -> Iterable[tuple[Value, ...]]:
    """Yield the rows on a silo's approvals for the dossier page."""
    if silo.certified is None:
        yield silo.name, "not known: no certificate", "", "", "", ""
        return
    for followed in silo.plans.values():
        times = sorted(followed.released.values())
        for approval in followed.approvals:
            yield (
                silo.name,
                approval.by or "not written down",
                minute(approval.time),
                approval.note,
                f"{len(times)} of {followed.plan.rounds}",
                minute(times[-1]) if times else "none",
            )


def _certificate_remarks(evidence: Evidence) -> Iterable[str]:
    """Yield the remarks on certificates for the dossier page."""
    for name, one in evidence.certified.items():
        yield from (f"{name}: {remark}" for remark in one.remarks)
        if one.same_user:
            yield (
                f"{name}: its operator allowed the courier to run as a user who can read the records. Anything it read "
                "outside the gate is in no ledger."
            )


def _audit_paragraph(evidence: Evidence) -> tuple[Value, ...]:
    """Return the dossier page's paragraph on the audit."""
    audit = evidence.audit
    if audit is None:
        return ("No audit was given.",)
    verdict = "refutes the claim" if audit.refuted else "does not refute the claim"
    return (
        f"An attack on the real gate, with {audit.records} synthetic records, {audit.rounds} rounds and {audit.runs} "
        f"runs of the mechanism “{audit.mechanism}”, {verdict}. It guessed {audit.score:.1%} right, which shows a rate "
        f"of at least {audit.score_lower:.1%} with confidence {audit.confidence:.6g}; the claim allows "
        f"{audit.score_allowed:.1%}. The claim was epsilon {audit.epsilon_claimed:.4g}, for each record or person, "
        f"over one run, against the server; the attack could show {audit.epsilon_lower:.4g} of it. An audit can refute "
        "a claim and never prove it. This result is as its author gave it: nobody signed it, and anybody can repeat it "
        "with ",
        tag("code", f"ringfence audit --mechanism {audit.mechanism}"),
        ".",
    )


def _sources_section(evidence: Evidence, public_key: str) -> Html:
    """Return the dossier page's section on source files and signature."""
    return section(
        "Sources and signature",
        paragraph("Plan and certificates were checked against each other. Model, audit and evaluation are as their "
                  "authors stated them, and were compared with the certificates where these show them."),
        table("Files that this dossier was made from, by SHA-256", ["file", "digest"],
              [(name, tag("code", digest)) for name, digest in evidence.digests.items()]),
        paragraph("Signed with the key ", tag("code", public_key), ", in the file ", tag("code", ".signature.json"),
                  " beside this one. Check it with ", tag("code", "ringfence dossier verify"), "; get the key from "
                  "its owner through another channel. To check the facts, run ", tag("code", "ringfence verify"),
                  " on the certificates."),
    )  # fmt: skip
