"""`ringfence schema`: the public description of a table."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.output import AsJson, print_json, require_folder, say, warn
from ringfence.errors import OutputError, RecordsError

app = typer.Typer(help="Describe a table's columns by public knowledge.", no_args_is_help=True)


@app.command()
def draft(
    file: Annotated[Path, typer.Argument(help="A table: CSV with a header line, Parquet, NumPy, or a description.")],
    out: Annotated[Path | None, typer.Option(help="Write the draft here instead of printing it.")] = None,
    json: AsJson = False,
) -> None:
    """Draft a schema to fill in: names and types only, no bound or category is read from the data.

    Columns that may tell whose a row is are named in a comment; if their values repeat in the file, a warning tells
    you, and the draft does not.
    """
    from ringfence import sources
    from ringfence.protocol.drafts import draft_schema, drafted_columns, has_tokens, repeating_identifiers

    require_folder(out)
    if out is not None and out.exists():
        raise OutputError(f"{out} exists, and may be filled in already: name another file, or remove this one.")
    table = sources.read_table(file)
    columns, repeating = drafted_columns(table), repeating_identifiers(table)
    text = draft_schema(columns, tokens=has_tokens(table))
    for name in repeating:
        warn(
            f"Values of the column '{name}' repeat. If it tells whose a row is, somebody has several rows, and only "
            f'person = "{name}" in the schema protects all of them together.'
        )
    if out is not None:
        out.write_text(text, encoding="utf-8")
    if json:
        types = {name: column["type"] for name, column in columns.items()}
        print_json({"columns": types, "repeating": repeating, "out": None if out is None else str(out)})
    elif out is None:
        say(text)
    else:
        say(
            f'Wrote {out}: fill in every "?" from public knowledge, then see whether all cells fit: '
            f"`ringfence schema check {out} {file}`."
        )


@app.command()
def check(
    schema: Annotated[Path, typer.Argument(help="The public schema (TOML).")],
    file: Annotated[Path, typer.Argument(help="The table that it is to describe.")],
    json: AsJson = False,
) -> None:
    """Name everything in a table that does not fit its schema, by row and column, with what to do; show no value.

    What it prints hangs on the records, without noise: it is for the table's owner alone.
    """
    from ringfence.silo.schema_check import check_schema

    problems = check_schema(schema, file)
    if json:
        print_json({"fits": not problems, "problems": problems})
    for problem in problems if not json else ():
        say(problem)
    if problems:
        count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
        raise RecordsError(f"{file} does not fit {schema}: {count}. Correct the schema, or the table, and check again.")
    if not json:
        say(f"{file} fits {schema}.")
