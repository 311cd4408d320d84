"""Two checklists of the dossier: the questions of NIST SP 800-226, and those of an output checker."""

from ringfence.evidence.certificate_history import ROUNDING
from ringfence.evidence.dossier.evidence import Evidence
from ringfence.html.markup import Html, Value, paragraph, readable, section, table
from ringfence.model.statement import best_guess
from ringfence.protocol import claimed_against


def nist_section(evidence: Evidence) -> Html:
    """Answer the dossier's NIST checklist, component by component of the publication's pyramid, from top to base."""
    plan, report = evidence.plan, evidence.evaluation
    worst = max((silo.run[0] for silo in evidence.silos), key=lambda own: own.epsilon)
    largest = max(silo.run[0].delta for silo in evidence.silos)
    is_small = all(silo.run[0].delta <= (1 + ROUNDING) / silo.terms.records**2 for silo in evidence.silos)
    small = "at most 1/n² in every silo" if is_small else "above 1/n² in some silo"
    observer = claimed_against(plan.observers, plan.most_colluders)
    answers = {
        "Privacy parameters: what are ε and δ, and over which releases?": f"For each {plan.unit}, {observer}: at most "
        f"epsilon = {worst.epsilon:.4g} over this run, fixed in advance. Delta is at most {largest:.2g}, {small}. "
        f"{_all_releases_answer(evidence)}",
        "Which variant, and how was it converted?": "(ε, δ), computed numerically from the noise itself, exactly or as "
        "an upper bound, with no conversion from Rényi or concentrated variants. The best guess stated beside it is "
        "computed from the same noise.",
        "Unit of privacy: what is one person's data?": _unit_answer(evidence),
        "Bounded or unbounded neighbours?": f"Bounded: data sets that differ in one replaced {plan.unit}. How many "
        f"{plan.unit}s a silo has is public.",
        "Other releases of the same data?": "Everything that passed the gate is in the ledger and in its total. Only "
        "the silo can say what else was done with the records.",
        "Algorithms and correctness: is the mechanism proved, and who checked it?": "Sensitivities and composition are "
        "proved in Ringfence's documentation, and checking a certificate recomputes every charge from the plan. "
        f"{_audit_answer(evidence)}",
        "Utility: how accurate is the result?": _utility_answer(evidence),
        "Bias: for whom is it worse?": "Noise hurts small groups and small silos more, and clipping reduces the "
        "influence of unusual records. "
        + ("Metrics per silo are in the evaluation. " if report is not None and len(report.silos) > 1 else "")
        + "No metrics for other groups were asked for; `ringfence statistics` and `ringfence evaluate` can ask, at "
        "a cost in budget.",
        "Trust model: who must be trusted with what?": "Each silo trusts its own machine and operator. Beyond that the "
        f"guarantee relies on: {plan.trust}. It holds {observer}. {' '.join(plan.leading_channel.reliance_words())}",
        "Side channels: can timing or arithmetic leak?": "Sums are exact, in whole numbers, and noise is discrete, "
        "from the operating system's randomness. How long an answer takes is not covered by the guarantee.",
        "Access control: who can reach the records?": "Only the silo's agent opens them; couriers carry bytes. "
        + (_access_answer(evidence) or "How the silo protects its own machine is for the silo to say."),
        "Data collection exposure: what happened before?": "Not in this dossier: how records were collected and kept "
        "is for each silo to answer.",
    }
    return section(
        "Questions of NIST SP 800-226",
        paragraph("Guidelines for Evaluating Differential Privacy Guarantees (March 2025), by the components of its "
                 "pyramid, from top to base. The wording of the questions is ours."),
        table("Answers", ["question", "answer"], [(name, readable(text)) for name, text in answers.items()]),
    )  # fmt: skip


def output_checker_section(evidence: Evidence) -> Html:
    """Answer the dossier's checklist of someone who checks the outputs of a secure environment."""
    plan, model, uncertified = evidence.plan, evidence.model, evidence.uncertified
    smallest = min(evidence.silos, key=lambda silo: silo.terms.records)
    rows: list[tuple[Value, ...]] = [
        ("What is to be released?", "no model was given" if model is None else f"{model.plan.dimension} weights of a "
         "linear model, and what its file says about plan, guarantees and evaluation", "see sources"),
        ("Is any record, count, minimum, maximum or example in it?", f"No {plan.unit} and no exact statistic of them. "
         "The plan makes the silos' sizes and the schema public.", "by the plan"),
        ("How many contribute, at least?", f"{smallest.terms.records:,} {plan.unit}s in the smallest silo, "
         f"“{smallest.name}”", "by the plan" if smallest.certified is None else "certificate"),
        ("Can one contributor dominate?", f"No: each {plan.unit}'s part is clipped to a public bound "
         "before it is added.", "by the plan"),
        ("Can it be compared with an earlier output to single somebody out?", "The ledger counts all earlier outputs "
         "together, whatever they are compared with." if not uncertified else
         f"Not known for {', '.join(uncertified)}; for the others the ledger counts all earlier outputs together.",
         "certificate" if evidence.certified else "missing"),
        ("Could membership of one person be inferred?", _membership_answer(evidence), "computed from the noise"),
        ("Was it attacked?", _audit_answer(evidence), "missing" if evidence.audit is None else "its author's word"),
        ("Was accuracy measured without noise?", "Not in this dossier. Reports that show such metrics are marked NOT "
         "PRIVATE and must not leave.", "by the dossier's design"),
        ("Who approved the release?", "Each silo's operator, as listed under Measures" if not uncertified else
         f"As listed under Measures; not shown for {', '.join(uncertified)}",
         "certificate" if evidence.certified else "missing"),
        ("Decision of the output checker", "", "to be filled in"),
    ]  # fmt: skip
    return section("An output checker's list", table("Answers", ["question", "answer", "shown by"], rows))


def _all_releases_answer(evidence: Evidence) -> str:
    """Answer, for the dossier's checklists, what all releases from the records cost together."""
    if not evidence.certified:
        return "What else was released from the same records is not known: no silo gave a certificate."
    worst = max(evidence.certified.values(), key=lambda found: found.guarantee[0].epsilon)
    total = worst.guarantee[0]
    return (
        f"Over everything in the ledgers shown, however plans were chosen and whenever you stop, it is at most "
        f"epsilon = {total.epsilon:.4g} at delta = {total.delta:.2g}, for each {worst.unit}, against "
        f"{worst.against(total.against)}."
    )


def _unit_answer(evidence: Evidence) -> str:
    """Answer, for the dossier's checklists, what the privacy unit is."""
    if evidence.plan.unit == "person":
        return (
            "A person with all their rows in one silo, as identified by the schema's person column. Rows of one person "
            "in several silos add up: see the statement."
        )
    return (
        "One record of one silo. A person with several records, or with records in several silos, is protected less: "
        "see the statement for what that costs."
    )


def _audit_answer(evidence: Evidence) -> str:
    """Answer, for the dossier's checklists, what an audit has shown."""
    audit = evidence.audit
    if audit is None:
        return "No audit was given."
    verdict = "REFUTES" if audit.refuted else "does not refute"
    return (
        f"An audit, of the mechanism “{audit.mechanism}” with synthetic records and not of this run, {verdict} the "
        "claim."
    )


def _utility_answer(evidence: Evidence) -> str:
    """Answer, for the dossier's checklists, how good the model is."""
    if evidence.evaluation is None:
        return "No evaluation was given."
    first = evidence.evaluation.together.sentences()[0]
    return f"{first[0].upper()}{first[1:]}. All metrics, with intervals, are under “How good the model is”."


def _access_answer(evidence: Evidence) -> str:
    """Answer, for the dossier's checklists, where the courier may run as a user who can read the records."""
    named = [name for name, one in evidence.certified.items() if one.same_user]
    return f"At {', '.join(named)} the courier may run as a user who can read the records." if named else ""


def _membership_answer(evidence: Evidence) -> str:
    """Answer, for the dossier's checklists, how well membership of one record or person can be guessed."""
    observer = evidence.plan.observers[0]
    bound = max(best_guess(silo.run[0]) for silo in evidence.silos)
    exact = max(evidence.exact(silo, observer) for silo in evidence.silos)
    return (
        f"The best guess about one {evidence.plan.unit} of a silo is right with probability at most {bound:.1%} by "
        f"(ε, δ), and {exact:.1%} computed exactly, after this run alone; a coin is right with 50%."
    )
