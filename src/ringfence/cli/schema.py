"""`ringfence schema`: the public description of a table."""

from pathlib import Path

from ringfence.cli.options import App, AsJson
from ringfence.cli.output import Output, require_folder, show_output, warn
from ringfence.errors import OutputError, RecordsError
from ringfence.planning.options import REQUIRED, offered

app = App(help="Describe a table's columns: draft and check schemas.")


@app.command()
def draft(
    file: Path = offered(
        REQUIRED, "A table: CSV with a header, Parquet, NumPy, or a TOML file that describes it.", argument=True
    ),
    out: Path | None = offered(None, "Write the draft here instead of printing it."),
) -> Output:
    """Draft a schema with names and types, for you to fill in.

    No bound or category is read from the data. A comment names the columns that may identify persons; if their values
    repeat, a warning says so, but not the draft.

    Examples:
      ringfence schema draft north.csv --out schema.toml
    """
    from ringfence import sources
    from ringfence.protocol.schema.draft import draft_schema, drafted_columns, has_tokens, repeating_identifiers

    require_folder(out)
    if out is not None and out.exists():
        raise OutputError(f"{out} already exists, and may have been filled in: name another file, or remove this one.")
    table = sources.read_table(file)
    columns, repeating = drafted_columns(table), repeating_identifiers(table)
    text = draft_schema(columns, tokens=has_tokens(table))
    for name in repeating:
        warn(
            f"Values in column '{name}' repeat. If the column identifies persons, some have several rows, and only "
            f'person = "{name}" in the schema protects all rows of a person together.'
        )
    if out is not None:
        out.write_text(text, encoding="utf-8")
        text = (
            f'Wrote {out}. Fill in every "?" from public knowledge, then check that all cells fit: '
            f"`ringfence schema check {out} {file}`."
        )
    types = {name: column["type"] for name, column in columns.items()}
    return Output({"columns": types, "repeating": repeating, "out": None if out is None else str(out)}, text)


@app.command()
def check(
    schema: Path = offered(REQUIRED, "The public schema (TOML).", argument=True),
    files: list[Path] = offered(REQUIRED, "The tables to check.", argument=True, metavar="FILE..."),
    json: AsJson = False,
) -> None:
    """List everything in tables that does not fit the schema.

    Each problem is named by row and column, with what to do about it; no value is shown. The list depends on the
    records and has no noise: it is for the tables' owners only.

    Examples:
      ringfence schema check schema.toml north.csv
      ringfence schema check schema.toml north.csv south.csv west.csv
    """
    from ringfence.silo.records.schema_check import check_schema

    found = {file: check_schema(schema, file) for file in files}
    problems = [
        problem if len(files) == 1 else f"{file.name}: {problem}" for file, own in found.items() for problem in own
    ]
    fitting = [] if problems else [f"{file} fits {schema}." for file in files]
    show_output(Output({"fits": not problems, "problems": problems}, *problems, *fitting), json=json)
    if problems:
        misfits = ", ".join(str(file) for file, own in found.items() if own)
        count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
        raise RecordsError(
            f"{schema} does not describe {misfits}: {count}. Correct the schema or the table and check again."
        )
