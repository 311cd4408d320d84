"""`ringfence dossier`, from `ringfence train --out` to a check of the signature."""

import json

import pytest

from ringfence.evidence.dossier.evidence import Inputs, gather_evidence
from ringfence.model.model import Model
from tests.cli.conftest import Federation, refuses, ringfence, ringfence_json

SAID = ("--purpose", "A study of costs", "--controller", "A Clinic", "--contact", "dpo@clinic.example")


class Decider:
    """Has a trained model, the certificate of every silo and a key, and writes a dossier of them."""

    def __init__(self, federation: Federation, *more: str) -> None:
        self.model = federation.model("--max-rounds", "5", *SAID, *more, target="cost")
        self.certificates = [federation.folder / f"{file.stem}.certificate.json" for file in federation.files]
        for file, certificate in zip(federation.files, self.certificates, strict=True):
            folder, known = federation.folder / file.stem, file.with_suffix(".ledger")
            changes = ("--epsilon", "9", "--delta", "1e-5", "--same-data-as", known, "--note", "a second study")
            ringfence(*federation.silo_init(folder, *changes, name=file.stem))
            ringfence("silo", "certificate", folder, "--out", certificate)
        self.key, self.out = federation.folder / "signing.key", federation.folder / "dossier.html"
        self.public = ringfence_json("dossier", "key", "--out", self.key)["public_key"]

    def dossier(self) -> list[object]:
        given = [word for certificate in self.certificates for word in ("--certificate", certificate)]
        return ["dossier", "write", "--key", self.key, "--out", self.out, "--model", self.model, *given]


def test_a_trained_model_and_its_silos_certificates_make_a_dossier_that_verifies(federation: Federation) -> None:
    decider = Decider(federation)
    made, out, public = ringfence_json(*decider.dossier()), decider.out, decider.public
    assert made["public_key"] == public
    assert [line.split(":")[0] for line in made["missing"]] == [
        *(f"The key of silo '{file.stem}' was not confirmed independently" for file in federation.files),
        "No audit was given",
    ]
    page = out.read_text()
    assert all(word in page for word in SAID[1::2])
    found = ringfence_json("dossier", "verify", out, "--key", public)
    assert found["valid"]
    assert set(found["sources"]) == {path.name for path in (decider.model, *decider.certificates)}
    assert "as signed" in ringfence("dossier", "verify", out).stdout
    out.write_text(page.replace("A Clinic", "B Clinic"))
    refuses("is not what was signed", "dossier", "verify", out)


def test_the_dossier_of_a_choice_counts_all_its_candidates(federation: Federation) -> None:
    decider = Decider(federation, "--try", "clip=0.5,1")
    assert "No audit was given" in ringfence_json(*decider.dossier())["missing"][-1]
    choice = Model.load(decider.model).choice
    assert choice is not None
    page = decider.out.read_text()
    assert all(plan.digest() in page for plan in choice.plans)
    assert all(plan.purpose == SAID[1] for plan in choice.plans)
    inputs = Inputs(model=decider.model, certificates=decider.certificates)
    for silo in gather_evidence(inputs).silos:
        assert silo.run[0].epsilon == pytest.approx(2, rel=1e-3)  # of all candidates and of their comparison


def test_a_statement_that_the_certificates_contradict_is_refused(federation: Federation) -> None:
    decider = Decider(federation)
    text = json.loads(decider.model.read_text())
    text["guarantees"]["north"]["rounds"] = 1
    decider.model.write_text(json.dumps(text))
    refuses("The statement is not true of silo 'north'", *decider.dossier())
    assert not decider.out.exists()


def test_a_key_of_a_silo_is_read_or_refused() -> None:
    wrong = ["--key", "k", "--plan", "p", "--silo-key", "north=123"]
    refuses("'north=123' is not of the form NAME=KEY", "dossier", "write", *wrong)
