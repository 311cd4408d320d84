"""`ringfence schema`: the public description of a table."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.output import AsJson, print_json, require_folder, say, warn
from ringfence.errors import OutputError

app = typer.Typer(help="Describe a table's columns by public knowledge.", no_args_is_help=True)


@app.command()
def draft(
    file: Annotated[Path, typer.Argument(help="A CSV file with a header line.")],
    out: Annotated[Path | None, typer.Option(help="Write the draft here instead of printing it.")] = None,
    json: AsJson = False,
) -> None:
    """Draft a schema to fill in: names and types only, no bound or category is read from the data.

    Columns that may tell whose a row is are named in a comment; if their values repeat in the file, a warning tells
    you, and the draft does not.
    """
    from ringfence.protocol.encoding import column_types, repeating_identifiers
    from ringfence.protocol.schema import draft_schema

    require_folder(out)
    if out is not None and out.exists():
        raise OutputError(f"{out} exists, and may be filled in already: name another file, or remove this one.")
    types, repeating = column_types(file), repeating_identifiers(file)
    text = draft_schema(types)
    for name in repeating:
        warn(
            f"Values of the column '{name}' repeat. If it tells whose a row is, somebody has several rows, and only "
            f'person = "{name}" in the schema protects all of them together.'
        )
    if out is not None:
        out.write_text(text, encoding="utf-8")
    if json:
        print_json({"columns": types, "repeating": repeating, "out": None if out is None else str(out)})
    elif out is None:
        say(text)
    else:
        say(f'Wrote {out}: fill in every "?" from public knowledge, then train with it.')
