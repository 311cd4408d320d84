"""`ringfence silo personalise` and `compare`: for the silo alone, in its own folder, and at no cost."""

import json
import stat
from pathlib import Path

import pytest

from ringfence.errors import MessageError
from ringfence.model.model import Model
from ringfence.model.personal import NOT_PRIVATE, PersonalModel
from tests.cli.conftest import Federation, SiloCommands, refuses, ringfence


class Owner(SiloCommands):
    """A silo's folder for 'north', which goes on with the ledger of its training, and the federation's model."""

    def __init__(self, federation: Federation, target: str = "cost") -> None:
        super().__init__(federation.folder / "silo")
        self.model = federation.model(target=target, epsilon="4")
        known = federation.folder / "north.ledger"
        ringfence(
            *federation.silo_init(
                self.folder, "--epsilon", "9", "--same-data-as", known, "--note", "all of its studies"
            )
        )


@pytest.fixture
def owner(federation: Federation) -> Owner:
    return Owner(federation)


def test_an_own_model_stays_in_the_folder_for_its_owner_alone_and_says_that_it_is_not_private(owner: Owner) -> None:
    before = owner.json("status")
    text = owner.run("personalise", owner.model, "--note", "for the ward")
    assert NOT_PRIVATE in text.stdout
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
    owner: Owner, federation: Federation
) -> None:
    owner.run("personalise", owner.model, "--note", "for the ward")
    owner.run("compare", owner.model)
    one, other = owner.json("ledger")["entries"][-2:]
    assert (one["kind"], one["use"], one["note"]) == ("used", "personalised", "for the ward")
    assert (other["kind"], other["use"]) == ("used", "compared")
    assert set(other) == {"number", "time", "kind", "format", "use", "model", "plan", "by"}
    assert one["plan"] == Model.load(owner.model).plan.digest()
    assert "nothing left it and nothing is charged" in owner.run("ledger").stdout
    certificate = federation.folder / "certificate.json"
    owner.run("certificate", "--out", certificate)
    ringfence("verify", certificate)


def test_the_comparison_is_on_held_out_records_and_names_all_three_models(owner: Owner) -> None:
    found = owner.json("compare", owner.model)
    assert found["private"] is False
    assert found["measured_on"]["records"] == 60  # a fifth of 300
    assert list(found["models"]) == ["own records alone", "the federation's model", "the silo's own model"]
    rmse = {name: scores["rmse"] for name, scores in found["models"].items()}
    # The records are a linear function without noise of their own; the federation's weights have noise.
    assert rmse["the silo's own model"] < rmse["the federation's model"]
    assert "gain" not in found["models"]["own records alone"]
    text = owner.run("compare", owner.model).stdout
    assert NOT_PRIVATE in text
    assert "On 60 records that no model was fitted to" in text


def test_an_own_model_predicts_and_every_prediction_says_that_it_is_not_private(
    owner: Owner, federation: Federation
) -> None:
    path = owner.json("personalise", owner.model)["model"]
    loaded = PersonalModel.parse(Path(path).read_bytes(), error=MessageError)
    done = ringfence("predict", path, federation.files[0], "--interval", "0.9")
    assert "NOT PRIVATE" in done.stderr
    header, first, *_ = done.stdout.splitlines()
    assert header == "cost,lower,upper"
    middle, lower, upper = map(float, first.split(","))
    assert upper - lower == pytest.approx(2 * 1.6448536 * (loaded.rmse or 0.0), rel=1e-6)
    assert lower < middle < upper


def test_a_model_of_another_schema_is_refused_and_nothing_is_written(owner: Owner, federation: Federation) -> None:
    other = federation.folder / "other.toml"
    other.write_text(federation.schema.read_text().replace("upper = 10}", "upper = 20}"))
    federation.schema, federation.files = other, federation.files[1:2]
    model = federation.model(target="ill")
    entries = owner.json("ledger")["entries"]
    for command in ("personalise", "compare"):
        owner.refuses("trained with this silo's schema", command, model)
    assert owner.json("ledger")["entries"] == entries
    assert not (owner.folder / "own").exists()


def test_a_silo_with_too_few_records_or_none_is_refused_with_the_remedy(owner: Owner, federation: Federation) -> None:
    rows = federation.files[0].read_text().splitlines()
    few = federation.folder / "few.csv"
    few.write_text("\n".join([rows[0], *[f"{number},5,a,no,40" for number in range(9)]]) + "\n")
    owner.folder = federation.folder / "few-silo"
    ringfence(*federation.silo_init(owner.folder, "--unusual-budget", "--data", few))
    owner.refuses("use the federation's model as it is", "personalise", owner.model)
    owner.refuses("needs at least", "compare", owner.model)
    few.write_text(rows[0] + "\n")
    owner.refuses("no records", "personalise", owner.model)


def test_an_own_model_is_not_taken_for_a_federation_s(owner: Owner) -> None:
    path = owner.json("personalise", owner.model)["model"]
    refuses("is a silo's own model, which is NOT private", "model", "card", path)
    owner.refuses("is a silo's own model, which is NOT private", "personalise", path)


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_noted(owner: Owner) -> None:
    (owner.folder / "own").write_text("in the way")
    entries = owner.json("ledger")["entries"]
    owner.refuses("cannot be written", "personalise", owner.model)
    assert owner.json("ledger")["entries"] == entries
