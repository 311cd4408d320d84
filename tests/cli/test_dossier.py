"""`ringfence dossier`, from `ringfence train --out` to a check of the signature."""

import json
from pathlib import Path

import pytest

from ringfence.evidence.dossier.evidence import Inputs, gather_evidence
from ringfence.model.model import Model
from tests.cli.conftest import Federation, refuses, ringfence, ringfence_json

SAID = ("--purpose", "A study of costs", "--controller", "A Clinic", "--contact", "dpo@clinic.example")


def certified(federation: Federation, *more: str) -> tuple[str, list[str]]:
    """Train, let every silo sign a certificate, and return the model's file and the options of the certificates."""
    model = federation.folder / "model.json"
    trained = federation.train("--max-rounds", "5", "--out", model, "--no-report", *SAID, *more, target="cost")
    ringfence(*trained)
    options: list[str] = []
    for file in federation.files:
        folder, certificate = federation.folder / file.stem, federation.folder / f"{file.stem}.certificate.json"
        ringfence(
            "silo",
            "init",
            folder,
            "--name",
            file.stem,
            "--data",
            file,
            "--schema",
            federation.schema,
            "--same-data-as",
            file.with_suffix(".ledger"),
            "--epsilon",
            "9",
            "--delta",
            "1e-5",
        )
        ringfence("silo", "certificate", folder, "--out", certificate)
        options += ["--certificate", str(certificate)]
    return str(model), options


def test_a_trained_model_and_its_silos_certificates_make_a_dossier_that_verifies(federation: Federation) -> None:
    model, certificates = certified(federation)
    key, out = federation.folder / "signing.key", federation.folder / "dossier.html"
    public = ringfence_json("dossier", "key", "--out", key)["public_key"]
    options = ["--key", str(key), "--out", str(out), "--no-pdf"]
    made = ringfence_json("dossier", "write", *options, "--model", model, *certificates)
    assert made["public_key"] == public
    assert made["pdf"] is None
    assert [line.split(":")[0] for line in made["missing"]] == [
        *(f"The key of silo '{file.stem}' was not confirmed independently" for file in federation.files),
        "No audit was given",
    ]
    page = out.read_text()
    assert all(word in page for word in SAID[1::2])
    found = ringfence_json("dossier", "verify", out, "--key", public)
    assert found["valid"]
    assert set(found["sources"]) == {Path(name).name for name in (model, *certificates[1::2])}
    assert "as signed" in ringfence("dossier", "verify", out).stdout
    out.write_text(page.replace("A Clinic", "B Clinic"))
    refuses("is not what was signed", "dossier", "verify", out)


def test_the_dossier_of_a_choice_counts_all_its_candidates(federation: Federation) -> None:
    model, certificates = certified(federation, "--try", "clip=0.5,1")
    key, out = federation.folder / "signing.key", federation.folder / "dossier.html"
    ringfence_json("dossier", "key", "--out", key)
    options = ["--key", str(key), "--out", str(out), "--no-pdf"]
    made = ringfence_json("dossier", "write", *options, "--model", model, *certificates)
    assert "No audit was given" in made["missing"][-1]
    choice = Model.load(Path(model)).choice
    assert choice is not None
    page = out.read_text()
    assert all(plan.digest() in page for plan in choice.plans)
    assert all(plan.purpose == SAID[1] for plan in choice.plans)
    inputs = Inputs(model=Path(model), certificates=[Path(name) for name in certificates[1::2]])
    for silo in gather_evidence(inputs).silos:
        assert silo.run[0].epsilon == pytest.approx(2, rel=1e-3)  # of all candidates and of their comparison


def test_a_statement_that_the_certificates_contradict_is_refused(federation: Federation) -> None:
    model, certificates = certified(federation)
    told = json.loads(Path(model).read_text())
    told["guarantees"]["north"]["rounds"] = 1
    Path(model).write_text(json.dumps(told))
    key, out = federation.folder / "signing.key", federation.folder / "dossier.html"
    ringfence("dossier", "key", "--out", key)
    refuses(
        "The statement is not true of silo 'north'",
        "dossier",
        "write",
        "--key",
        key,
        "--out",
        out,
        "--model",
        model,
        *certificates,
    )
    assert not out.exists()


def test_a_key_of_a_silo_is_read_or_refused(federation: Federation) -> None:
    refuses(
        "'north=123' is not of the form NAME=KEY",
        "dossier",
        "write",
        "--key",
        "k",
        "--plan",
        "p",
        "--silo-key",
        "north=123",
    )
