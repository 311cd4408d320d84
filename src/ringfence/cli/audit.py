"""`ringfence audit`: attack a mechanism through the real gate, and compare with what is claimed."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.output import AsJson, print_json, print_table, progress, require_folder, say
from ringfence.cli.reporting import NoReport


def audit(
    epsilon: Annotated[float, typer.Option(help="Epsilon claimed for a whole run.", rich_help_panel="Basic")] = 3.0,
    delta: Annotated[float, typer.Option(help="Delta of the claim.", rich_help_panel="Basic")] = 1e-5,
    records: Annotated[
        int, typer.Option(help="Records (or persons) of the silo. Up to 64 are canaries.", rich_help_panel="Basic")
    ] = 64,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds per run. Default: 2 per plan.", rich_help_panel="Basic")
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(
            help="Number of runs. Default: 1200; more with few canaries, fewer with a shuffler.",
            rich_help_panel="Basic",
        ),
    ] = None,
    mechanism: Annotated[
        str,
        typer.Option(
            help="full, fixed, poisson, turns, one-pass, correlated, multi-stage, localized, several-plans, survey, "
            "curvature, evaluation, choice, comparison, statistics, survival-curve, second-moments, feature-moments, "
            "feature-means, preconditioned, shuffled, shuffled-peer, shuffled-alone, person-mean, person-rows, "
            "person-sum or local-sgd.",
            rich_help_panel="Algorithm",
        ),
    ] = "full",
    sabotage: Annotated[
        str,
        typer.Option(
            help="Break the silo on purpose, to see that the audit notices: none, half-noise, root-half-noise, "
            "skip-clip, repeat-round, with-replacement, wrong-sensitivity, reuse-noise, forget-peer, keep-order or "
            "ignore-persons.",
            rich_help_panel="Algorithm",
        ),
    ] = "none",
    report: Annotated[
        Path, typer.Option(metavar="FILE", help="Write the report here (HTML).", rich_help_panel="Output")
    ] = Path("ringfence-audit.html"),
    no_report: NoReport = False,
    json: AsJson = False,
) -> None:
    """Attack a silo's gate, and compare epsilon with the claim.

    A hostile server plays against the real gate, ledger, accountant and noise with synthetic records. The result is a
    lower bound on epsilon. The exit status is 1 if it refutes the claim.

    Examples:
      ringfence audit
      ringfence audit --mechanism poisson --epsilon 1
      ringfence audit --sabotage half-noise
    """
    from ringfence.audit.game import audit as play
    from ringfence.audit.game import default_rounds
    from ringfence.audit.plans import AuditQuestion

    if not no_report:
        require_folder(report)
    question = AuditQuestion(epsilon, delta, records, default_rounds(mechanism) if rounds is None else rounds)
    with progress() as bar:
        task = bar.add_task("runs")
        found = play(
            mechanism,
            question,
            runs=runs,
            sabotage=sabotage,
            watch=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if not no_report:
        from ringfence.report.audited import audit_report

        audit_report(found.data(), found.text()).write(report)
    if json:
        print_json(found.data())
    else:
        print_table(["quantity", "value"], found.rows())
        say("\n".join(["", *found.text(), *([] if no_report else [f"report {report}"])]))
    if found.refuted:
        raise typer.Exit(1)
