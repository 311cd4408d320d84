"""`ringfence account`, `ringfence plan` and `ringfence bounds`: numbers only, no record is read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringfence.cli.output import Output, Table, require_folder, warn
from ringfence.errors import AccountingError
from ringfence.federation.requests import DELTA, SCHEMA, TARGET
from ringfence.planning.options import REQUIRED, offered, offered_sizes
from ringfence.planning.request import PlanRequest


@dataclass(frozen=True)
class AccountOptions:
    """A run of one silo, and either its noise or its epsilon."""

    records: int = offered(REQUIRED, "Records of the silo (or persons, see --unit), n.", "Basic")
    rounds: int = offered(REQUIRED, "Rounds that the silo answers, R.", "Basic")
    delta: float = offered(REQUIRED, "Delta of the guarantee.", "Basic")
    clip: float = offered(1.0, "Clipping norm of a record's (or person's) gradient, L.", "Algorithm")
    sampling: str = offered("full", "full, fixed, poisson or one-pass.", "Algorithm")
    batch: int | None = offered(None, "Records (or persons) per round, K. Default: all.", "Algorithm")
    sigma: float | None = offered(
        None, "Standard deviation of the noise on each coordinate of the averaged gradient.", "Basic"
    )
    epsilon: float | None = offered(None, "Epsilon of the guarantee.", "Basic")
    noise: str = offered(
        "exact",
        "How noise is computed from epsilon: exact; by a closed form of the paper (theorem, practical, one-pass, "
        "local-sgd); or shuffled, with one Gaussian message for each of --records, over all silos that do not collude.",
        "Algorithm",
    )
    unit: str = offered(
        "record",
        "What epsilon protects: a record, or a person with any number of rows, as in plans whose schema names a person "
        "column.",
        "Privacy",
    )
    rows_per_person: int = offered(
        1, "Rows of one person in a silo that protects records; gives person_epsilon.", "Privacy"
    )
    silos_per_person: int = offered(1, "Silos of this kind that hold rows of one person.", "Privacy")


def account(options: AccountOptions) -> Output:
    """Convert noise to epsilon, or epsilon to noise.

    The answer is exact for each record (or person) under replace-one adjacency, against anyone who sees every round of
    one plan. person_epsilon is the cost of all rows of a person at the same delta, where these are several records or
    lie in several silos: exact for full batches, an upper bound for sampled ones. With a closed form of the paper,
    epsilon is the true value and nominal_epsilon the one that the formula was given.

    Examples:
      ringfence account --records 1000 --rounds 25 --delta 1e-6 --epsilon 1
      ringfence account --records 1000 --rounds 25 --delta 1e-6 --sigma 0.05
    """
    if (options.sigma is None) == (options.epsilon is None):
        raise AccountingError("Give either --sigma, to compute epsilon, or --epsilon, to compute sigma.")
    query = vars(options).copy()
    person = {name: query.pop(name) for name in ("unit", "rows_per_person", "silos_per_person")}
    if options.noise == "exact":
        from ringfence.accounting.account import answer_query

        del query["noise"]
        answer = answer_query(**query, **person)
    elif tuple(person.values()) != ("record", 1, 1):
        raise AccountingError("The cost to a person is computed for exact noise only: remove --noise.")
    else:
        from ringfence.research.theory.queries import answer_query as answer_by_closed_form

        del query["sigma"]
        answer = answer_by_closed_form(**query)
    advice = answer.get("advice")
    return Output(
        answer,
        Table(
            ["quantity", "value"],
            [[name, value] for name, value in answer.items() if value is not None and name != "advice"],
        ),
        f"\nEpsilon is for each {answer.get('unit', 'record')}, against anyone who sees every round of this one plan.",
        *([] if advice is None else [f"\n{advice}"]),
    )


def plan(
    *,
    schema: Path = offered(REQUIRED, *SCHEMA),
    target: Sequence[str] = offered(REQUIRED, *TARGET),
    sizes: Mapping[str, int] = offered_sizes(
        REQUIRED,
        "A silo and its number of records (or persons, if the schema names a person column). Once per silo.",
        "Basic",
    ),
    request: PlanRequest,
    out: Path | None = offered(None, "Write the plan here (JSON).", "Output"),
    anyway: bool = offered(False, "With --out: write a plan even if nothing useful is expected of it.", "Output"),
) -> Output:
    """Choose algorithm, rounds and noise for given silos and budgets.

    It prints every silo's noise, the alternatives, and what to expect, from a rehearsal on simulated records. All of it
    rests on public numbers alone: sizes, budgets, schema and loss. No record is read, and nothing is charged.

    Examples:
      ringfence plan --schema schema.toml --target ill --epsilon 1 --silo north=500 --silo south=800
      ringfence plan --schema schema.toml --target ill --epsilon 1 --silo north=500 --out plan.json
    """
    from ringfence.planning.explain import alternatives_table, as_data, explain_proposal
    from ringfence.planning.noise_warnings import plan_warnings
    from ringfence.planning.propose import propose_for
    from ringfence.protocol import claimed_against, load_schema
    from ringfence.rehearsal.quote import rehearse

    require_folder(out)
    proposal = propose_for(request, load_schema(schema, target), sizes)
    made = proposal.plan
    quote = rehearse(made)
    if out is not None:
        if not (anyway or quote.is_worth_it):
            for line in quote.lines():
                warn(line)
            quote.require_worth()
        out.write_bytes(made.content)
    first = made.training_numbers[0]
    silos = Table(
        ["silo", f"{made.unit}s", "batch", "sigma", "epsilon", "delta", "weight"],
        [
            [t.name, t.records, own.batch, own.sigma, t.guarantee.epsilon, t.guarantee.delta, t.weight]
            for t in made.silos
            for own in [t.stages[first]]
        ],
        f"For each {made.unit}, {claimed_against(made.observers, made.most_colluders)}, by this plan alone",
    )
    others: list[str | Table] = (
        ["", Table(*alternatives_table(proposal), "Alternatives, best first")] if proposal.alternatives else []
    )
    return Output(
        {"digest": made.digest(), **as_data(proposal), **quote.as_data(), "plan": made.model_dump(mode="json")},
        silos,
        *others,
        "\n".join(["", *explain_proposal(proposal), "", *quote.lines(), "", f"plan {made.digest()}"]),
        warnings=plan_warnings(proposal),
    )


@dataclass(frozen=True)
class BoundsOptions:
    """The paper's learning problem (`research.theory.problem.Problem`)."""

    silos: int = offered(REQUIRED, "Number of silos, N.", "Basic")
    records: int = offered(REQUIRED, "Records per silo, n.", "Basic")
    dimension: int = offered(REQUIRED, "Number of the model's weights, d.", "Basic")
    epsilon: float = offered(REQUIRED, "Epsilon of every silo's guarantee.", "Basic")
    delta: float | None = offered(None, *DELTA)
    lipschitz: float = offered(1.0, "Largest norm of a record's gradient, L.", "Model")
    diameter: float = offered(2.0, "Diameter of the set of weights, D; its centre is the start.", "Model")
    smoothness: float | None = offered(None, "Smoothness of the loss, β. Default: not smooth.", "Model")
    strong_convexity: float = offered(0.0, "Strong convexity of the loss, μ.", "Model")
    available: float | None = offered(None, "Silos that answer a round, M (harmonic mean). Default: all.", "Algorithm")
    rounds: int | None = offered(None, "Number of rounds, R. Default: the best one for each loss bound.", "Algorithm")


def bounds(options: BoundsOptions) -> Output:
    """Print upper and lower bounds on the excess risk.

    Upper and lower bounds are the paper's, up to constants. Loss bounds are proved with all constants, for the least
    noise that meets the budget. No record is read.

    Examples:
      ringfence bounds --silos 10 --records 1000 --dimension 20 --epsilon 1
    """
    from ringfence.planning.defaults import default_delta
    from ringfence.research.theory.bound_report import Row, bound_report
    from ringfence.research.theory.problem import Problem

    numbers = vars(options).copy()
    rounds = numbers.pop("rounds")
    if options.delta is None:
        numbers["delta"] = default_delta(options.records)
    report = bound_report(Problem(**numbers), rounds=rounds)

    def table(title: str, rows: tuple[Row, ...], *columns: str) -> Table:
        """Return a table of upper or lower bounds on the excess risk."""
        header = ["bound", "risk", "value", *columns, *(["why not"] if any(row.why for row in rows) else [])]
        cells: list[dict[str, Any]] = [
            {"bound": row.name, "risk": row.about, "value": row.value, "rounds": row.rounds, "noise": row.sigma,
             "why not": row.why or ""}
            for row in rows
        ]  # fmt: skip
        return Table(header, [["-" if row[name] is None else row[name] for name in header] for row in cells], title)

    free = "is free" if report.privacy_is_free else "is not free"
    group = report.user_level
    return Output(
        report.to_dict(),
        table("Upper bounds (order of magnitude)", report.upper),
        "",
        table("Lower bounds (order of magnitude)", report.lower),
        "",
        table("Rates with less and with more trust (order of magnitude)", report.reference),
        "",
        table("Loss bounds (with all constants and the exact noise)", report.loss_bounds, "rounds", "noise"),
        "",
        f"On a scale from no trust (0) to a trusted server (1), these silos are at {report.position:.2f}.\n"
        f"Privacy {free}: d = {options.dimension}, and ε²n = {options.epsilon**2 * options.records:.4g}.\n"
        f"A silo's whole data set is protected with epsilon {group.epsilon:.4g} at delta {group.delta:.3g}"
        + (", which is no protection at all." if group.delta >= 1 else "."),
    )
