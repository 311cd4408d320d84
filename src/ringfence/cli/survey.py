"""`ringfence survey`: a private look at what the features are like, for filling in a schema."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.options import SchemaFile, Target
from ringfence.cli.output import AsJson, print_json, print_table


def survey(
    files: Annotated[list[Path], typer.Argument(metavar="SILO.csv...", help="One CSV per silo; its stem names it.")],
    schema: SchemaFile,
    target: Target,
    epsilon: Annotated[float, typer.Option(help="What the survey may cost every silo.")],
    delta: Annotated[float | None, typer.Option(help="Every silo's delta; by default 1/n², at most 1e-5.")] = None,
    ledgers: Annotated[Path | None, typer.Option(help="Folder of the ledgers; by default beside each CSV.")] = None,
    json: AsJson = False,
) -> None:
    """Estimate every feature's mean and standard deviation across silos, privately; each silo's ledger is charged.

    Use it where nothing is publicly known, to choose a column's center and scale. Training on the same records
    afterwards composes with it.
    """
    from ringfence.workflow import survey_files

    result, found = survey_files(files, schema, target, epsilon=epsilon, delta=delta, ledgers=ledgers)
    (moments,) = result.findings.values()
    noise = moments.noise * result.model.plan.data.feature_norm
    if json:
        features = {name: {"mean": mean, "deviation": deviation} for name, (mean, deviation) in found.items()}
        silos = {name: silo.model_dump() for name, silo in result.statement.silos.items()}
        print_json({"plan": result.model.plan.digest(), "features": features, "noise": noise, "silos": silos})
        return
    print_table(
        ["feature", "mean", "standard deviation"],
        [[name, mean, deviation] for name, (mean, deviation) in found.items()],
        title=f"Numbers in their own units, categories as scaled; the noise in a scaled mean is {noise:.2g}",
    )
    typer.echo(f"\n{result.statement.text()}")
