"""`ringfence dossier`: one signed document for those who decide, and checking it."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.options import parse_keys
from ringfence.cli.output import AsJson, print_result, require_folder

app = typer.Typer(
    help="Write one signed document for data protection officers, ethics boards and output checkers, or check one.",
    no_args_is_help=True,
)


@app.command()
def write(
    key: Annotated[
        Path, typer.Option(metavar="FILE", help="The private key that signs it, by `ringfence dossier key`.")
    ],
    out: Annotated[Path, typer.Option(help="Write the dossier here (HTML); PDF and signature beside it.")] = Path(
        "dossier.html"
    ),
    plan: Annotated[Path | None, typer.Option(metavar="FILE", help="The plan; a model holds its own.")] = None,
    model: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The model that came out of it, with its evaluation.")
    ] = None,
    certificate: Annotated[list[Path], typer.Option(metavar="FILE", help="A silo's certificate; once per silo.")] = [],  # noqa: B006
    silo_key: Annotated[
        list[str],
        typer.Option(metavar="NAME=KEY", help="A silo's public key, as you got it from the silo by another way."),
    ] = [],  # noqa: B006
    audit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="An audit's result: the output of `ringfence audit --json`.")
    ] = None,
    evaluation: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A later evaluation: a run's report.json, or the output of `ringfence evaluate --json`.",
        ),
    ] = None,
    no_pdf: Annotated[bool, typer.Option("--no-pdf", help="Write no PDF.")] = False,
    json: AsJson = False,
) -> None:
    """Write what was released, to whom, under which guarantee, who approved it, and what was tested; then sign it.

    Certificates are verified first, and compared with plan and model; what does not fit is refused, and what is not
    given is named in the dossier. The PDF is printed by a Chromium on this machine, if there is one.
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
        Path | None, typer.Option(metavar="FILE", help="Its signature; by default the .signature.json beside it.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="The signer's public key, as you got it from them by another way.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Check that a dossier is what was signed."""
    from ringfence.dossier.signing import signature_path, verify_dossier

    signed = verify_dossier(files, signature or signature_path(files[0]), key=key)
    who = "the key that you named" if key else f"the key {signed.public_key}; ask its owner by another way (--key)"
    names = ", ".join(str(file) for file in files)
    print_result(
        f"{names}: as signed {signed.issued}, about plan {signed.plan}, by {who}.\nThe signature shows that the "
        "dossier is unchanged, and who wrote it. `ringfence verify` checks the certificates that it was made of.",
        {"valid": True, "key_was_given": key is not None, **signed.model_dump(mode="json")},
        json=json,
    )


@app.command("key")
def new_key(
    out: Annotated[Path, typer.Option(help="Write the private key here, into a new file.")], json: AsJson = False
) -> None:
    """Make a key that signs dossiers, and print its public part."""
    from ringfence.dossier.signing import make_key

    require_folder(out)
    public = make_key(out)
    print_result(
        f"{out} holds the private key: keep it. Give the public key to whoever reads your dossiers: {public}",
        {"key": str(out), "public_key": public},
        json=json,
    )
