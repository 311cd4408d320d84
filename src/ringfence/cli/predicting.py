"""`ringfence predict`: what a model says of new rows."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.output import AsJson, print_json, require_folder, say, warn
from ringfence.foreign_text import visible


def predict(
    model: Annotated[
        Path, typer.Argument(help="A model from `ringfence train --out` or `ringfence silo personalise`.")
    ],
    file: Annotated[Path, typer.Argument(help="A table with the schema's feature columns.")],
    id: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Copy this column of the table, before the predictions."),
    ] = None,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Add the probability of every class.")] = False,
    interval: Annotated[
        float | None,
        typer.Option(
            metavar="COVERAGE",
            help="Add an interval, computed from the model's private RMSE, that covers this share of targets if errors "
            "are Gaussian.",
        ),
    ] = None,
    upper: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL",
            help="A model of a higher quantile than MODEL. Adds the interval between the two.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the predictions here: as Parquet if the name ends in .parquet, else as CSV."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Predict the target for every row of a table.

    Examples:
      ringfence predict model.json new.csv
      ringfence predict model.json new.csv --id patient --probabilities --out predictions.csv
    """
    from ringfence.personal import PersonalModel, load_any
    from ringfence.predicting import with_ids
    from ringfence.sources import read_table
    from ringfence.tabular import csv_text, write_table

    require_folder(out)
    loaded, other = load_any(model), None if upper is None else load_any(upper)
    for one in (loaded, other):
        if isinstance(one, PersonalModel):
            warn(f"ringfence: {one.notice}")
    table = read_table(file)
    columns = loaded.predict_columns(
        table, source=file.name, probabilities=probabilities, coverage=interval, upper=other
    )
    target, predictions = next(iter(columns.items()))
    if id is not None:
        columns = with_ids(columns, table, id, source=file.name)
    if out is not None:
        write_table(out, columns)
    if json:
        others = {name: values for name, values in columns.items() if name != target}
        print_json({"target": target, "predictions": predictions, **({"columns": others} if others else {})})
    elif out is None:  # a line per row, whatever a category says
        say(csv_text({visible(name): [visible(str(v)) for v in values] for name, values in columns.items()}), end="")
    else:
        say(f"Wrote {len(predictions)} predictions to {out}.")
