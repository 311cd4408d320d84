"""`ringfence dossier`: one signed document for those who decide, and checking it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ringfence.cli.options import App
from ringfence.cli.output import Output, require_folder
from ringfence.planning.options import REQUIRED, offered, parse_public_keys

app = App(help="Write or check a signed dossier for those who decide.")


@app.command()
def write(
    key: Path = offered(
        REQUIRED, "The private key to sign with, from `ringfence dossier key`.", "Basic", metavar="FILE"
    ),
    out: Path = offered(Path("dossier.html"), "Write the dossier here (HTML), with its signature beside it.", "Output"),
    plan: Path | None = offered(None, "The plan. Default: the model's own.", "Basic", metavar="FILE"),
    model: Path | None = offered(None, "The trained model, with its evaluation.", "Basic", metavar="FILE"),
    certificate: Sequence[Path] = offered((), "A silo's certificate. Once per silo.", "Basic", metavar="FILE"),
    silo_key: Mapping[str, str] = offered(
        {},
        "A silo's public key, which the silo told you through another channel.",
        "Basic",
        metavar="NAME=KEY",
        reads=list[str],
        parser=parse_public_keys,
    ),
    audit: Path | None = offered(
        None, "An audit: the output of `ringfence audit --json`.", "Evaluation", metavar="FILE"
    ),
    evaluation: Path | None = offered(
        None,
        "A later evaluation: a run's report.json, or the output of `ringfence evaluate --json`.",
        "Evaluation",
        metavar="FILE",
    ),
) -> Output:
    """Write and sign a dossier: releases, guarantees, approvals, tests.

    Certificates are verified first and compared with plan and model. Contradictions are refused, and the dossier names
    what was not given.

    Examples:
      ringfence dossier write --key me.key --model model.json --certificate north.json
    """
    from ringfence.evidence.dossier.evidence import Inputs
    from ringfence.evidence.dossier.writing import write_dossier

    require_folder(out)
    inputs = Inputs(plan, model, certificate, audit, evaluation, silo_key)
    written = write_dossier(inputs, key, out)
    return Output(written.data(), written.text())


@app.command()
def verify(
    dossier: Path = offered(REQUIRED, "The dossier.", argument=True, metavar="FILE"),
    signature: Path | None = offered(
        None, "The signature. Default: the .signature.json file beside the dossier.", metavar="FILE"
    ),
    key: str | None = offered(None, "The signer's public key, which they told you through another channel."),
) -> Output:
    """Check that a dossier is unchanged since it was signed.

    Examples:
      ringfence dossier verify dossier.html --key PUBLIC-KEY
    """
    from ringfence.evidence.dossier.signing import signature_path, verify_dossier

    signed = verify_dossier(dossier, signature or signature_path(dossier), key=key)
    who = (
        "the key that you gave"
        if key
        else f"the key {signed.public_key}; confirm it with its owner and give it as --key"
    )
    return Output(
        {"valid": True, "key_was_given": key is not None, **signed.model_dump(mode="json")},
        f"{dossier}: unchanged since it was signed {signed.issued}, about plan {signed.plan}, with {who}.\n"
        "The signature shows that the dossier is unchanged, and who wrote it. `ringfence verify` checks the "
        "certificates it is based on.",
    )


@app.command("key")
def new_key(out: Path = offered(REQUIRED, "Write the private key to this new file.")) -> Output:
    """Make a key for signing dossiers, and show its public key.

    Examples:
      ringfence dossier key --out me.key
    """
    from ringfence.evidence.dossier.signing import make_key

    require_folder(out)
    public = make_key(out)
    return Output(
        {"key": str(out), "public_key": public},
        f"{out} holds the private key: keep it safe. Give the public key to the readers of your dossiers: {public}",
    )
