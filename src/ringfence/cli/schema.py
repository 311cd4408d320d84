"""`ringfence schema`: the public description of a table."""

from pathlib import Path

from ringfence.cli.options import App, AsJson
from ringfence.cli.output import Output, require_folder, show_output
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

    No bound or category is read from the data, and no value but common codes for a missing value, such as k.A. or
    -999. Free text is ignored. A comment names the columns that may identify persons. What you should know about your
    own table, such as identifiers that repeat, is printed, and is not in the draft.

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
    text = draft_schema(columns, tokens=has_tokens(table, columns))
    remarks = [f"Column '{name}': {column.remark}" for name, column in columns.items() if column.remark]
    remarks += [
        f"Column '{name}': its values repeat. If it identifies persons, some have several rows, and only "
        f'person = "{name}" in the schema protects all rows of a person together.'
        for name in repeating
    ]
    if out is not None:
        out.write_text(text, encoding="utf-8")
        text = (
            f'Wrote {out}. Fill in every "?" from public knowledge, then check that all cells fit: '
            f"`ringfence schema check {out} {file}`."
        )
    types = {name: column.fields["type"] for name, column in columns.items()}
    data = {"columns": types, "remarks": remarks, "repeating": repeating, "out": None if out is None else str(out)}
    return Output(data, text, warnings=remarks)


@app.command()
def check(
    schema: Path = offered(REQUIRED, "The public schema (TOML).", argument=True),
    files: list[Path] = offered(REQUIRED, "The tables to check.", argument=True, metavar="FILE..."),
    json: AsJson = False,
) -> None:
    """List everything in tables that does not fit the schema.

    Each problem is named by row and column, with what to do about it. Numbers beyond their bounds are counted, and
    codes for a missing value, such as -999, are named with the line that the schema needs; no other value is shown.
    The list depends on the records and has no noise: it is for the tables' owners only.

    Examples:
      ringfence schema check schema.toml north.csv
      ringfence schema check schema.toml north.csv south.csv west.csv
    """
    from ringfence.silo.records.schema_check import check_schema

    found = dict(zip(files, check_schema(schema, files), strict=True))

    def of_files(part: str) -> list[str]:
        """Return the problems of all files, or the advice, each once and with the files' names unless it is of all."""
        sentences = dict[str, list[str]]()
        for file, own in found.items():
            for each in getattr(own, part):
                sentences.setdefault(each, []).append(file.name)
        return [each if len(of) == len(found) else f"{', '.join(of)}: {each}" for each, of in sentences.items()]

    problems, advice = of_files("problems"), of_files("advice")
    fitting = [] if problems else [f"{file} fits {schema}." for file in files]
    data = {"fits": not problems, "problems": problems, "advice": advice}
    show_output(Output(data, *problems, *fitting, *advice), json=json)
    if problems:
        misfits = ", ".join(str(file) for file, own in found.items() if own.problems)
        count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
        raise RecordsError(
            f"{schema} does not describe {misfits}: {count}. Correct the schema or the table and check again."
        )
