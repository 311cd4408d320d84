"""`ringfence account`, `ringfence plan` and `ringfence bounds`: numbers only, no record is read."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ringfence.cli.options import SchemaFile, Target, parse_sizes, takes_plan_request
from ringfence.cli.output import AsJson, print_json, print_table, require_folder, say, warn
from ringfence.errors import AccountingError


def account(
    records: Annotated[
        int, typer.Option(help="Records of the silo (or persons, see --unit), n.", rich_help_panel="Basic")
    ],
    rounds: Annotated[int, typer.Option(help="Rounds that the silo answers, R.", rich_help_panel="Basic")],
    delta: Annotated[float, typer.Option(help="Delta of the guarantee.", rich_help_panel="Basic")],
    clip: Annotated[
        float, typer.Option(help="Clipping norm of a record's (or person's) gradient, L.", rich_help_panel="Algorithm")
    ] = 1.0,
    sampling: Annotated[
        str, typer.Option(help="full, fixed, poisson or one-pass.", rich_help_panel="Algorithm")
    ] = "full",
    batch: Annotated[
        int | None, typer.Option(help="Records (or persons) per round, K. Default: all.", rich_help_panel="Algorithm")
    ] = None,
    sigma: Annotated[
        float | None,
        typer.Option(
            help="Standard deviation of the noise on each coordinate of the averaged gradient.", rich_help_panel="Basic"
        ),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Epsilon of the guarantee.", rich_help_panel="Basic")] = None,
    noise: Annotated[
        str,
        typer.Option(
            help="How noise is computed from epsilon: exact; by a closed form "
            "of the paper (theorem, practical, one-pass, local-sgd); or shuffled, with one "
            "Gaussian message for each of --records, over all silos that do not "
            "collude.",
            rich_help_panel="Algorithm",
        ),
    ] = "exact",
    unit: Annotated[
        str,
        typer.Option(
            help="What epsilon protects: a record, or a person with any number of rows, as "
            "in plans whose schema names a person column.",
            rich_help_panel="Privacy",
        ),
    ] = "record",
    rows_per_person: Annotated[
        int,
        typer.Option(
            help="Rows of one person in a silo that protects records; gives person_epsilon.", rich_help_panel="Privacy"
        ),
    ] = 1,
    silos_per_person: Annotated[
        int, typer.Option(help="Silos of this kind that hold rows of one person.", rich_help_panel="Privacy")
    ] = 1,
    json: AsJson = False,
) -> None:
    """Convert noise to epsilon, or epsilon to noise.

    The answer is exact for each record (or person) under replace-one adjacency, against anyone who sees every round of
    one plan. person_epsilon is the cost of all rows of a person at the same delta, where these are several records or
    lie in several silos: exact for full batches, an upper bound for sampled ones. With a closed form of the paper,
    epsilon is the true value and nominal_epsilon the one that the formula was given.

    Examples:
      ringfence account --records 1000 --rounds 25 --delta 1e-6 --epsilon 1
      ringfence account --records 1000 --rounds 25 --delta 1e-6 --sigma 0.05
    """
    if (sigma is None) == (epsilon is None):
        raise AccountingError("Give either --sigma, to compute epsilon, or --epsilon, to compute sigma.")
    question: Any = {"records": records, "rounds": rounds, "sampling": sampling, "batch": batch, "clip": clip}
    if noise == "exact":
        from ringfence.accounting import account

        answer = account.answer_question(
            **question,
            delta=delta,
            sigma=sigma,
            epsilon=epsilon,
            unit=unit,
            rows_per_person=rows_per_person,
            silos_per_person=silos_per_person,
        )
    elif (unit, rows_per_person, silos_per_person) != ("record", 1, 1):
        raise AccountingError("The cost to a person is computed for exact noise only: remove --noise.")
    else:
        from ringfence.research.theory import questions as paper

        answer = paper.answer_question(**question, delta=delta, epsilon=epsilon, noise=noise)
    if json:
        print_json(answer)
    else:
        advice = answer.pop("advice", None)
        print_table(["quantity", "value"], [[name, value] for name, value in answer.items() if value is not None])
        protected = answer.get("unit", "record")
        say(f"\nEpsilon is for each {protected}, against anyone who sees every round of this one plan.")
        if advice is not None:
            say(f"\n{advice}")


@takes_plan_request
def plan(
    *,
    schema: SchemaFile,
    target: Target,
    silo: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=RECORDS",
            help="A silo and its number of records (or persons, if the schema names a person column). Once per silo.",
            rich_help_panel="Basic",
        ),
    ],
    request: Any,
    out: Annotated[Path | None, typer.Option(help="Write the plan here (JSON).", rich_help_panel="Output")] = None,
    json: AsJson = False,
) -> None:
    """Choose algorithm, rounds and noise for given silos and budgets.

    The choice rests on public numbers alone: sizes, budgets, schema and loss. No record is read.

    Examples:
      ringfence plan --schema schema.toml --target ill --epsilon 1 --silo north=500 --silo south=800
      ringfence plan --schema schema.toml --target ill --epsilon 1 --silo north=500 --out plan.json
    """
    from ringfence.planning.explain import alternatives_table, as_data, explain_proposal, warnings
    from ringfence.planning.propose import propose_for
    from ringfence.protocol.guarantee import claimed_against
    from ringfence.protocol.schema import load_schema

    require_folder(out)
    proposal = propose_for(request, load_schema(schema, target), parse_sizes(silo))
    made = proposal.plan
    if out is not None:
        out.write_bytes(made.content)
    if json:
        print_json({"digest": made.digest(), **as_data(proposal), "plan": made.model_dump(mode="json")})
        return
    first = made.training_numbers[0]
    print_table(
        ["silo", f"{made.unit}s", "batch", "sigma", "epsilon", "delta", "weight"],
        [
            [t.name, t.records, own.batch, own.sigma, t.guarantee.epsilon, t.guarantee.delta, t.weight]
            for t in made.silos
            for own in [t.stages[first]]
        ],
        title=f"For each {made.unit}, {claimed_against(made.observers, made.most_colluders)}, by this plan alone",
    )
    if proposal.alternatives:
        say()
        print_table(*alternatives_table(proposal), title="Alternatives, best first")
    say("\n".join(["", *explain_proposal(proposal), f"plan {made.digest()}"]))
    for line in warnings(proposal):
        warn(line)


def bounds(
    silos: Annotated[int, typer.Option(help="Number of silos, N.", rich_help_panel="Basic")],
    records: Annotated[int, typer.Option(help="Records per silo, n.", rich_help_panel="Basic")],
    dimension: Annotated[int, typer.Option(help="Number of the model's weights, d.", rich_help_panel="Basic")],
    epsilon: Annotated[float, typer.Option(help="Epsilon of every silo's guarantee.", rich_help_panel="Basic")],
    delta: Annotated[
        float | None,
        typer.Option(help="Delta of every silo's guarantee. Default: 1/n², at most 1e-5.", rich_help_panel="Privacy"),
    ] = None,
    lipschitz: Annotated[
        float, typer.Option(help="Largest norm of a record's gradient, L.", rich_help_panel="Model")
    ] = 1.0,
    diameter: Annotated[
        float, typer.Option(help="Diameter of the set of weights, D; its centre is the start.", rich_help_panel="Model")
    ] = 2.0,
    smoothness: Annotated[
        float | None, typer.Option(help="Smoothness of the loss, β. Default: not smooth.", rich_help_panel="Model")
    ] = None,
    strong_convexity: Annotated[
        float, typer.Option(help="Strong convexity of the loss, μ.", rich_help_panel="Model")
    ] = 0.0,
    available: Annotated[
        float | None,
        typer.Option(help="Silos that answer a round, M (harmonic mean). Default: all.", rich_help_panel="Algorithm"),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            help="Number of rounds, R. Default: the best one for each loss bound.", rich_help_panel="Algorithm"
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Print upper and lower bounds on the excess risk.

    Upper and lower bounds are the paper's, up to constants. Loss bounds are proved with all constants, for the least
    noise that meets the budget. No record is read.

    Examples:
      ringfence bounds --silos 10 --records 1000 --dimension 20 --epsilon 1
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
        say()

    show("Upper bounds (order of magnitude)", report.upper)
    show("Lower bounds (order of magnitude)", report.lower)
    show("Rates with less and with more trust (order of magnitude)", report.reference)
    show("Loss bounds (with all constants and the exact noise)", report.loss_bounds, "rounds", "noise")
    free = "is free" if report.privacy_is_free else "is not free"
    group = report.user_level
    say(
        f"On a scale from no trust (0) to a trusted server (1), these silos are at {report.position:.2f}.\n"
        f"Privacy {free}: d = {dimension}, and ε²n = {epsilon**2 * records:.4g}.\n"
        f"A silo's whole data set is protected with epsilon {group.epsilon:.4g} at delta {group.delta:.3g}"
        + (", which is no protection at all." if group.delta >= 1 else ".")
    )
