"""`ringfence silo personalise` and `compare`: for the silo alone, in its own folder, and at no cost."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from ringfence.errors import MessageError
from ringfence.model.model import Model
from ringfence.model.personal import NOT_PRIVATE, PersonalModel
from tests.cli.conftest import Federation, Finished, Json, Ringfence, check_one_sentence


class Owner:
    """A silo's folder for 'north', which goes on with the ledger of its training, and the federation's model."""

    def __init__(self, federation: Federation, run: Ringfence, run_json: Json, target: str = "cost") -> None:
        self.federation, self._run, self._run_json = federation, run, run_json
        self.folder, self.model = federation.folder / "silo", federation.folder / "model.json"
        done = run(*federation.train("--out", str(self.model), "--no-report", target=target, epsilon="4", exact=False))
        assert done.returncode == 0, done.stderr
        self.init()

    def init(self, *changes: str, schema: Path | None = None, data: Path | None = None) -> None:
        done = self._run(
            "silo", "init", str(self.folder), "--name", "north", "--data", str(data or self.federation.files[0]),
            "--schema", str(schema or self.federation.schema), "--epsilon", "9", "--delta", "1e-6",
            *(changes or ("--same-data-as", str(self.federation.folder / "north.ledger"))),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def run(self, command: str, *arguments: str) -> Finished:
        return self._run("silo", command, str(self.folder), *arguments)

    def json(self, command: str, *arguments: str) -> dict[str, Any]:
        return self._run_json("silo", command, str(self.folder), *arguments)


@pytest.fixture
def owner(federation: Federation, ringfence: Ringfence, ringfence_json: Json) -> Owner:
    return Owner(federation, ringfence, ringfence_json)


def test_an_own_model_stays_in_the_folder_for_its_owner_alone_and_says_that_it_is_not_private(owner: Owner) -> None:
    before = owner.json("status")
    told = owner.run("personalise", str(owner.model), "--note", "for the ward")
    assert told.returncode == 0, told.stderr
    assert NOT_PRIVATE in told.stdout
    own = owner.folder / "own"
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in own.iterdir()} == {0o600}
    (model,), (page,) = own.glob("*.json"), own.glob("*.html")
    content = json.loads(model.read_text())
    assert content["kind"] == "ringfence-own-model"
    assert content["notice"] == NOT_PRIVATE
    assert "NOT PRIVATE" in page.read_text()
    assert owner.json("status")["costs"] == before["costs"]


def test_the_ledger_says_that_records_were_used_and_tells_nothing_of_what_was_found(
    owner: Owner, ringfence: Ringfence, federation: Federation
) -> None:
    owner.run("personalise", str(owner.model), "--note", "for the ward")
    owner.run("compare", str(owner.model))
    one, other = owner.json("ledger")["entries"][-2:]
    assert (one["kind"], one["use"], one["note"]) == ("used", "personalised", "for the ward")
    assert (other["kind"], other["use"]) == ("used", "compared")
    assert set(other) == {"number", "time", "kind", "format", "use", "model", "plan", "by"}
    assert one["plan"] == Model.load(owner.model).plan.digest()
    assert "nothing left it and nothing is charged" in owner.run("ledger").stdout
    certificate = federation.folder / "certificate.json"
    assert owner.run("certificate", "--out", str(certificate)).returncode == 0
    assert ringfence("verify", str(certificate)).returncode == 0


def test_the_comparison_is_on_held_out_records_and_names_all_three_models(owner: Owner) -> None:
    found = owner.json("compare", str(owner.model))
    assert found["private"] is False
    assert found["measured_on"]["records"] == 60  # a fifth of 300
    assert list(found["models"]) == ["own records alone", "the federation's model", "the silo's own model"]
    rmse = {name: scores["rmse"] for name, scores in found["models"].items()}
    # The records are a linear function without noise of their own; the federation's weights have noise.
    assert rmse["the silo's own model"] < rmse["the federation's model"]
    assert "gain" not in found["models"]["own records alone"]
    told = owner.run("compare", str(owner.model)).stdout
    assert NOT_PRIVATE in told
    assert "On 60 records that no model was fitted to" in told


def test_an_own_model_predicts_and_every_prediction_says_that_it_is_not_private(
    owner: Owner, ringfence: Ringfence, federation: Federation
) -> None:
    path = owner.json("personalise", str(owner.model))["model"]
    loaded = PersonalModel.parse(Path(path).read_bytes(), error=MessageError)
    done = ringfence("predict", path, str(federation.files[0]), "--interval", "0.9")
    assert done.returncode == 0
    assert "NOT PRIVATE" in done.stderr
    header, first, *_ = done.stdout.splitlines()
    assert header == "cost,lower,upper"
    middle, lower, upper = map(float, first.split(","))
    assert upper - lower == pytest.approx(2 * 1.6448536 * (loaded.rmse or 0.0), rel=1e-6)
    assert lower < middle < upper


def test_a_model_of_another_schema_is_refused_and_nothing_is_written(
    owner: Owner, ringfence: Ringfence, federation: Federation
) -> None:
    other = federation.folder / "other.toml"
    other.write_text(federation.schema.read_text().replace("upper = 10\n", "upper = 20\n"))
    model = federation.folder / "other.json"
    done = ringfence(
        "train", str(federation.files[1]), "--schema", str(other), "--target", "cost", "--epsilon", "4", "--delta",
        "1e-6", "--out", str(model), "--no-report",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    entries = owner.json("ledger")["entries"]
    for command in ("personalise", "compare"):
        check_one_sentence(owner.run(command, str(model)), "trained with this silo's schema")
    assert owner.json("ledger")["entries"] == entries
    assert not (owner.folder / "own").exists()


def test_a_silo_with_too_few_records_or_none_is_told_what_to_do(
    federation: Federation, ringfence: Ringfence, ringfence_json: Json
) -> None:
    owner = Owner(federation, ringfence, ringfence_json)
    rows = federation.files[0].read_text().splitlines()
    few = federation.folder / "few.csv"
    few.write_text("\n".join([rows[0], *[f"{number},5,a,no,40" for number in range(9)]]) + "\n")
    owner.folder = federation.folder / "few-silo"
    owner.init("--unusual-budget", data=few)
    check_one_sentence(owner.run("personalise", str(owner.model)), "use the federation's model as it is")
    check_one_sentence(owner.run("compare", str(owner.model)), "needs at least")
    few.write_text(rows[0] + "\n")
    check_one_sentence(owner.run("personalise", str(owner.model)), "no records")


def test_an_own_model_is_not_taken_for_a_federation_s(owner: Owner, ringfence: Ringfence) -> None:
    path = owner.json("personalise", str(owner.model))["model"]
    check_one_sentence(ringfence("model", "card", path), "is a silo's own model, which is NOT private")
    check_one_sentence(owner.run("personalise", path), "is a silo's own model, which is NOT private")


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_noted(owner: Owner) -> None:
    (owner.folder / "own").write_text("in the way")
    entries = owner.json("ledger")["entries"]
    check_one_sentence(owner.run("personalise", str(owner.model)), "cannot be written")
    assert owner.json("ledger")["entries"] == entries
