"""`ringfence account`, `ringfence plan` and `ringfence bounds`: numbers only, no record is read."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ringfence.cli.options import SchemaFile, Target, parse_sizes, takes_plan_request
from ringfence.cli.output import AsJson, print_json, print_table, require_folder, say, warn
from ringfence.errors import AccountingError


def account(
    records: Annotated[int, typer.Option(help="Records of the silo, n, or persons, by --unit.")],
    rounds: Annotated[int, typer.Option(help="Rounds it answers, R.")],
    delta: Annotated[float, typer.Option(help="The guarantee's delta.")],
    clip: Annotated[float, typer.Option(help="Largest norm of a record's, or person's, gradient, L.")] = 1.0,
    sampling: Annotated[str, typer.Option(help="full, fixed, poisson or one-pass.")] = "full",
    batch: Annotated[int | None, typer.Option(help="How many take part in a round, K, if not all.")] = None,
    sigma: Annotated[float | None, typer.Option(help="Noise of the averaged gradient, per coordinate.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="The guarantee's epsilon.")] = None,
    noise: Annotated[str, typer.Option(help="How epsilon becomes noise: exact; a closed form of the paper: "
                                       "theorem, practical, one-pass, local-sgd; or shuffled: one Gaussian message "
                                       "for each of --records, those of all silos that tell nobody theirs.")] = "exact",
    unit: Annotated[str, typer.Option(help="What epsilon protects: a record, or a person with any number of rows, as "
                                      "plans do where the schema says whose a row is.")] = "record",
    rows_per_person: Annotated[int, typer.Option(help="Rows of one person in a silo whose unit is a record, for "
                                                 "person_epsilon.")] = 1,
    silos_per_person: Annotated[int, typer.Option(help="Silos like this with rows of one person.")] = 1,
    json: AsJson = False,
) -> None:  # fmt: skip
    """Answer: how much privacy does this noise give, or how much noise does this privacy need?

    Exact for each record, or each person, under replacing it, against anyone who sees every round of one plan.
    person_epsilon is what all rows of a person cost together at the same delta, where they are several records or lie
    in several silos: exact for full batches, an upper bound for drawn ones. With a closed form of the paper, epsilon is
    the true one and nominal_epsilon what the formula was asked for.
    """
    if (sigma is None) == (epsilon is None):
        raise AccountingError("Give either --sigma, to learn epsilon, or --epsilon, to learn sigma.")
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
        raise AccountingError("What a person pays is answered for exact noise: leave --noise out.")
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
            metavar="NAME=RECORDS", help="A silo and how many records it has, or persons, by the schema; once per silo."
        ),
    ],
    request: Any,
    out: Annotated[Path | None, typer.Option(help="Write the plan here (JSON).")] = None,
    json: AsJson = False,
) -> None:
    """Make a plan from sizes, budgets and a loss: which algorithm, how many rounds, and every silo's noise.

    The choice is the one with the least bound on the trained model's excess loss, which is found from public numbers
    alone.
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
        print_table(*alternatives_table(proposal), title="What was compared, best first")
    say("\n".join(["", *explain_proposal(proposal), f"plan {made.digest()}"]))
    for line in warnings(proposal):
        warn(line)


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
        say()

    show("Upper bounds (order of magnitude)", report.upper)
    show("Lower bounds (order of magnitude)", report.lower)
    show("Rates with less and with more trust (order of magnitude)", report.reference)
    show("Loss bounds (with all constants and the exact noise)", report.loss_bounds, "rounds", "noise")
    free = "is free" if report.privacy_is_free else "is not free"
    group = report.user_level
    say(
        f"Between no trust (0) and a trusted server (1), these silos sit at {report.position:.2f}.\n"
        f"Privacy {free}: d = {dimension}, and ε²n = {epsilon**2 * records:.4g}.\n"
        f"A silo's whole data set is protected with epsilon {group.epsilon:.4g} at delta {group.delta:.3g}"
        + (", which promises nothing." if group.delta >= 1 else ".")
    )
