"""`ringfence account` and `ringfence plan`: numbers only, no record is read."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ringfence.cli.options import SchemaFile, Target, parse_sizes, takes_plan_request
from ringfence.cli.output import AsJson, print_json, print_table, require_folder
from ringfence.errors import AccountingError


def account(
    records: Annotated[int, typer.Option(help="Records of the silo, n.")],
    rounds: Annotated[int, typer.Option(help="Rounds it answers, R.")],
    delta: Annotated[float, typer.Option(help="The guarantee's delta.")],
    clip: Annotated[float, typer.Option(help="Largest norm of a record's gradient, L.")] = 1.0,
    sampling: Annotated[str, typer.Option(help="full, fixed, poisson or one-pass.")] = "full",
    batch: Annotated[int | None, typer.Option(help="Records per round, K, unless sampling is full.")] = None,
    sigma: Annotated[float | None, typer.Option(help="Noise of the averaged gradient, per coordinate.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="The guarantee's epsilon.")] = None,
    noise: Annotated[str, typer.Option(help="How epsilon becomes noise: exact; a closed form of the paper: "
                                       "theorem, practical, one-pass, local-sgd; or shuffled: one Gaussian message "
                                       "for each of --records, those of all silos.")] = "exact",
    json: AsJson = False,
) -> None:  # fmt: skip
    """Answer: how much privacy does this noise give, or how much noise does this privacy need?

    Exact under replacing one record. With a closed form of the paper, epsilon is the true one and
    nominal_epsilon what the formula was asked for.
    """
    if (sigma is None) == (epsilon is None):
        raise AccountingError("Give either --sigma, to learn epsilon, or --epsilon, to learn sigma.")
    question: Any = {"records": records, "rounds": rounds, "sampling": sampling, "batch": batch, "clip": clip}
    if noise == "exact":
        from ringfence.accounting import account

        answer = account.answer_question(**question, delta=delta, sigma=sigma, epsilon=epsilon)
    else:
        from ringfence.research.theory import questions as paper

        answer = paper.answer_question(**question, delta=delta, epsilon=epsilon, noise=noise)
    if json:
        print_json(answer)
    else:
        print_table(["quantity", "value"], [[name, value] for name, value in answer.items() if value is not None])


@takes_plan_request
def plan(
    *,
    schema: SchemaFile,
    target: Target,
    silo: Annotated[list[str], typer.Option(metavar="NAME=RECORDS", help="A silo and its size; once per silo.")],
    request: Any,
    out: Annotated[Path | None, typer.Option(help="Write the plan here (JSON).")] = None,
    json: AsJson = False,
) -> None:
    """Make a plan from sizes, budgets and a loss: which algorithm, how many rounds, and every silo's noise.

    The choice is the one with the least bound on the trained model's excess loss, which is found from public numbers
    alone.
    """
    from ringfence.planning.explain import alternatives_table, as_data, explain_proposal
    from ringfence.planning.propose import propose_for
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
        ["silo", "records", "batch", "sigma", "epsilon", "delta", "weight"],
        [
            [t.name, t.records, own.batch, own.sigma, t.guarantee.epsilon, t.guarantee.delta, t.weight]
            for t in made.silos
            for own in [t.stages[first]]
        ],
    )
    if proposal.alternatives:
        typer.echo("")
        print_table(*alternatives_table(proposal), title="What was compared, best first")
    typer.echo("\n".join(["", *explain_proposal(proposal), f"plan {made.digest()}"]))
