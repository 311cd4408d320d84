"""`ringfence dossier`: one signed document for those who decide, and checking it."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.help import App
from ringfence.cli.options import parse_keys
from ringfence.cli.output import AsJson, print_result, require_folder

app = App(
    help="Write or check a signed dossier for those who decide.",
)


@app.command()
def write(
    key: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="The private key to sign with, from `ringfence dossier key`.", rich_help_panel="Basic"
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(help="Write the dossier here (HTML), with PDF and signature beside it.", rich_help_panel="Output"),
    ] = Path("dossier.html"),
    plan: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The plan. Default: the model's own.", rich_help_panel="Basic")
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The trained model, with its evaluation.", rich_help_panel="Basic"),
    ] = None,
    certificate: Annotated[
        list[Path], typer.Option(metavar="FILE", help="A silo's certificate. Once per silo.", rich_help_panel="Basic")
    ] = [],  # noqa: B006
    silo_key: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=KEY",
            help="A silo's public key, which the silo told you through another channel.",
            rich_help_panel="Basic",
        ),
    ] = [],  # noqa: B006
    audit: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="An audit: the output of `ringfence audit --json`.", rich_help_panel="Evaluation"
        ),
    ] = None,
    evaluation: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A later evaluation: a run's report.json, or the output of `ringfence evaluate --json`.",
            rich_help_panel="Evaluation",
        ),
    ] = None,
    no_pdf: Annotated[bool, typer.Option("--no-pdf", help="Write no PDF.", rich_help_panel="Output")] = False,
    json: AsJson = False,
) -> None:
    """Write and sign a dossier: releases, guarantees, approvals, tests.

    Certificates are verified first and compared with plan and model. Contradictions are refused, and the dossier names
    what was not given. The PDF is printed by Chromium, if this machine has one.

    Examples:
      ringfence dossier write --key me.key --model model.json --certificate north.json
    """
    from ringfence.dossier.evidence import Inputs
    from ringfence.dossier.writing import write_dossier

    require_folder(out)
    written = write_dossier(
        Inputs(plan, model, certificate, audit, evaluation, parse_keys(silo_key)), key, out, with_pdf=not no_pdf
    )
    print_result(written.text(), written.data(), json=json)


@app.command()
def verify(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="The dossier, as HTML or PDF, or both.")],
    signature: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The signature. Default: the .signature.json file beside the dossier."),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="The signer's public key, which they told you through another channel.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Check that a dossier is unchanged since it was signed.

    Examples:
      ringfence dossier verify dossier.html --key PUBLIC-KEY
    """
    from ringfence.dossier.signing import signature_path, verify_dossier

    signed = verify_dossier(files, signature or signature_path(files[0]), key=key)
    who = (
        "the key that you gave"
        if key
        else f"the key {signed.public_key}; confirm it with its owner and give it as --key"
    )
    names = ", ".join(str(file) for file in files)
    print_result(
        f"{names}: unchanged since it was signed {signed.issued}, about plan {signed.plan}, with {who}.\nThe signature "
        "shows that the dossier is unchanged, and who wrote it. `ringfence verify` checks the certificates it is based "
        "on.",
        {"valid": True, "key_was_given": key is not None, **signed.model_dump(mode="json")},
        json=json,
    )


@app.command("key")
def new_key(
    out: Annotated[Path, typer.Option(help="Write the private key to this new file.")], json: AsJson = False
) -> None:
    """Make a key for signing dossiers, and show its public key.

    Examples:
      ringfence dossier key --out me.key
    """
    from ringfence.dossier.signing import make_key

    require_folder(out)
    public = make_key(out)
    print_result(
        f"{out} holds the private key: keep it safe. Give the public key to the readers of your dossiers: {public}",
        {"key": str(out), "public_key": public},
        json=json,
    )
