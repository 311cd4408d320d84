"""`ringfence bounds`: what the theory says about a problem; numbers only, no record is read."""

from typing import Annotated, Any

import typer

from ringfence.cli.output import AsJson, print_json, print_table


def bounds(
    silos: Annotated[int, typer.Option(help="Silos, N.")],
    records: Annotated[int, typer.Option(help="Records of each silo, n.")],
    dimension: Annotated[int, typer.Option(help="Weights of the model, d.")],
    epsilon: Annotated[float, typer.Option(help="Every silo's epsilon.")],
    delta: Annotated[float | None, typer.Option(help="Every silo's delta; by default 1/n², at most 1e-5.")] = None,
    lipschitz: Annotated[float, typer.Option(help="Largest norm of a record's gradient, L.")] = 1.0,
    diameter: Annotated[float, typer.Option(help="Diameter of the set of weights, D; the start is its centre.")] = 2.0,
    smoothness: Annotated[float | None, typer.Option(help="Smoothness of the loss, β; none if not given.")] = None,
    strong_convexity: Annotated[float, typer.Option(help="Strong convexity of the loss, μ.")] = 0.0,
    available: Annotated[float | None, typer.Option(help="Silos that answer a round, M (harmonic mean); all "
                                                    "if not given.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds, R; for each loss bound the best number if not "
                                               "given.")] = None,
    json: AsJson = False,
) -> None:  # fmt: skip
    """Print how small the excess risk can be made, and how small it cannot, before any record is seen.

    Upper and lower bounds are the paper's, as orders of magnitude: their constants are 1. Loss bounds are proved
    with all constants, with the least noise that meets the budget.
    """
    from ringfence.planning import defaults
    from ringfence.planning.problem import Problem
    from ringfence.research.theory.bound_report import Row, bound_report

    problem = Problem(
        silos=silos,
        records=records,
        dimension=dimension,
        lipschitz=lipschitz,
        diameter=diameter,
        epsilon=epsilon,
        delta=defaults.delta(records) if delta is None else delta,
        smoothness=smoothness,
        strong_convexity=strong_convexity,
        available=available,
    )
    report = bound_report(problem, rounds=rounds)
    if json:
        print_json(report.to_dict())
        return

    def show(title: str, rows: tuple[Row, ...], *columns: str) -> None:
        header = ["bound", "risk", "value", *columns]
        if any(row.why for row in rows):
            header.append("why not")
        content: list[list[Any]] = []
        for row in rows:
            cells = {"bound": row.name, "risk": row.about, "value": row.value, "rounds": row.rounds, "noise": row.sigma}
            shown = {name: "-" if value is None else value for name, value in cells.items()} | {
                "why not": row.why or ""
            }
            content.append([shown[name] for name in header])
        print_table(header, content, title=title)
        typer.echo()

    show("Upper bounds (order of magnitude)", report.upper)
    show("Lower bounds (order of magnitude)", report.lower)
    show("Rates with less and with more trust (order of magnitude)", report.reference)
    show("Loss bounds (with all constants and the exact noise)", report.loss_bounds, "rounds", "noise")
    free = "is free" if report.privacy_is_free else "is not free"
    group = report.user_level
    typer.echo(
        f"Between no trust (0) and a trusted server (1), these silos sit at {report.position:.2f}.\n"
        f"Privacy {free}: d = {dimension}, and ε²n = {epsilon**2 * records:.4g}.\n"
        f"A silo's whole data set is protected with epsilon {group.epsilon:.4g} at delta {group.delta:.3g}"
        + (", which promises nothing." if group.delta >= 1 else ".")
    )
