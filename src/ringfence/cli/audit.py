"""`ringfence audit`: attack a mechanism through the real gate, and compare with what is claimed."""

from pathlib import Path

from ringfence.cli.output import Output, Table, require_folder
from ringfence.federation.progress import progress
from ringfence.planning.options import offered


def audit(
    epsilon: float = offered(3.0, "Epsilon claimed for a whole run.", "Basic"),
    delta: float = offered(1e-5, "Delta of the claim.", "Basic"),
    records: int = offered(64, "Records (or persons) of the silo. Up to 64 are canaries.", "Basic"),
    rounds: int | None = offered(None, "Rounds per run. Default: 2 per plan.", "Basic"),
    runs: int | None = offered(
        None, "Number of runs. Default: 1200; more with few canaries, fewer with a shuffler.", "Basic"
    ),
    mechanism: str = offered(
        "full",
        "full, fixed, poisson, turns, one-pass, correlated, multi-stage, localized, several-plans, curvature, "
        "evaluation, choice, comparison, statistics, survival-curve, column-distributions, second-moments, "
        "feature-moments, feature-means, preconditioned, shuffled, shuffled-peer, shuffled-alone, person-mean, "
        "person-rows or person-sum.",
        "Algorithm",
    ),
    sabotage: str = offered(
        "none",
        "Break the silo on purpose, to see that the audit notices: none, half-noise, root-half-noise, skip-clip, "
        "repeat-round, with-replacement, wrong-sensitivity, reuse-noise, forget-peer, keep-order, ignore-persons "
        "or forget-tries.",
        "Algorithm",
    ),
    report: Path = offered(Path("ringfence-audit.html"), "Write the report here (HTML).", "Output", metavar="FILE"),
    no_report: bool = offered(False, "Write no report.", "Output"),
) -> Output:
    """Attack a silo's gate, and compare epsilon with the claim.

    A hostile server plays against the real gate, ledger, accountant and noise with synthetic records. The result is a
    lower bound on epsilon. The exit status is 1 if it refutes the claim.

    Examples:
      ringfence audit
      ringfence audit --mechanism poisson --epsilon 1
      ringfence audit --sabotage half-noise
    """
    from ringfence.evidence.audit.game import audit as play
    from ringfence.evidence.audit.game import mechanism_named
    from ringfence.evidence.audit.plans import AuditQuery

    page = None if no_report else report
    require_folder(page)
    asked = mechanism_named(mechanism).rounds if rounds is None else rounds
    with progress() as bar:
        task = bar.add_task("runs")
        found = play(
            mechanism,
            AuditQuery(epsilon, delta, records, asked),
            runs=runs,
            sabotage=sabotage,
            watch=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if page is not None:
        from ringfence.evidence.report.audit_report import audit_report

        audit_report(found.data(), found.text()).write(page)
    return Output(
        found.data(),
        Table(["quantity", "value"], found.rows()),
        "",
        *found.text(),
        *([] if page is None else [f"report {page}"]),
        failed=found.refuted,
    )
