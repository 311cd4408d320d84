"""`ringfence train`: from CSV files, a schema and an epsilon to a model."""

from pathlib import Path

import pytest

from ringfence.model.model import Model
from ringfence.protocol import Answer, RoundRequest
from ringfence.silo.gate.gate import Gate
from tests.cli.conftest import Federation, refuses, ringfence, ringfence_json


def test_csvs_a_schema_and_an_epsilon_give_a_good_classifier(federation: Federation) -> None:
    report = ringfence_json(*federation.train())
    assert set(report["test"]) == {"accuracy", "per_silo"}
    assert report["test"]["accuracy"] > 0.85
    assert set(report["test"]["per_silo"]) == set(report["silos"]) == {"north", "south", "west"}
    for silo in report["silos"].values():
        assert silo["records"] == 300
        assert silo["rounds"] == report["rounds"] == report["steps"] + 4 + 2  # of the surveys, and of the evaluation
        (cost,) = silo["this_run"]
        assert (cost["delta"], cost["against"]) == (1e-6, "anyone")
        assert 1.99 < cost["epsilon"] <= 2.0
    assert len(report["plan"]) == 64


@pytest.mark.parametrize(
    ("target", "loss"), [("cost", "squared"), ("ward", "softmax")], ids=["a number", "three categories"]
)
def test_the_target_s_type_decides_the_loss(federation: Federation, target: str, loss: str) -> None:
    report = ringfence_json(*federation.train(target=target))
    assert report["loss"] == loss
    if loss == "squared":
        assert report["test"]["rmse"] < 8.0  # in the target's own units, in which the standard deviation is about 18
    else:
        assert report["test"]["accuracy"] > 0.4


def test_the_exact_error_takes_targets_as_they_are_and_says_what_clamping_makes_of_it(
    federation: Federation, tmp_path: Path
) -> None:
    header, first, *others = federation.files[0].read_text().splitlines()
    beyond = tmp_path / "beyond.csv"  # the schema's bounds for the cost are 0 and 100
    beyond.write_text("\n".join([header, first.rpartition(",")[0] + ",1100", *others]) + "\n")
    report = ringfence_json(*federation.train("--test", f"north={beyond}", target="cost"))
    assert report["test"]["rmse_clamped"] < 10.0
    assert report["test"]["rmse"] > 1000 / 300**0.5  # one of 300 errors is at least 1000, less what is predicted
    assert report["test"]["per_silo"] == {"north": report["test"]["rmse"]}
    assert "rmse_clamped" not in ringfence_json(*federation.train(target="cost"))["test"]
    page = tmp_path / "page.html"
    said = ringfence(*federation.train("--test", f"north={beyond}", "--report", page, target="cost")).stdout
    for shown in (said, page.read_text()):
        assert "With clamped targets" in " ".join(shown.split())


def test_each_silo_can_have_its_own_budget(federation: Federation) -> None:
    report = ringfence_json(*federation.train("--budget", "south=0.5,1e-7"))
    (south,), (north,) = (report["silos"][name]["this_run"] for name in ("south", "north"))
    assert (south["epsilon"], south["delta"]) == (pytest.approx(0.5, rel=1e-3), 1e-7)
    assert (north["epsilon"], north["delta"]) == (pytest.approx(2.0, rel=1e-3), 1e-6)


def test_the_ledger_command_shows_what_train_released(federation: Federation) -> None:
    ringfence(*federation.train("--rounds", "7", "--no-survey"))
    ringfence(*federation.train("--rounds", "8", "--survey"))
    shown = ringfence("ledger", federation.folder / "west.ledger")
    assert "hash chain intact" in shown.stdout
    assert "9/9" in shown.stdout  # an evaluation is two rounds of messages more
    assert "11/11" in shown.stdout  # and a survey one


def test_exact_numbers_are_labelled_as_not_private_and_printed_only_when_asked_for(federation: Federation) -> None:
    shown = ringfence(*federation.train())
    assert "NOT PRIVATE" in shown.stdout
    assert "that no epsilon covers" in " ".join(shown.stdout.split())
    assert "NOT PRIVATE" not in ringfence(*federation.train(exact=False)).stdout
    report = ringfence_json(*federation.train("--held-out", "0"))
    assert not {"test", "evaluation"} & set(report)
    assert report["silos"]["north"]["records"] == 300


def test_nobody_can_seed_the_noise(federation: Federation) -> None:
    model = federation.folder / "model.json"
    weights = []
    for _ in range(2):
        ringfence_json(*federation.train("--out", model, "--overwrite"))
        weights.append(Model.load(model).weights)
    assert weights[0] != weights[1]


def test_a_model_that_was_paid_for_is_not_written_over_and_the_refusal_costs_nothing(federation: Federation) -> None:
    model = federation.folder / "model.json"
    model.write_text("a model that cost a budget")
    refuses("or add --overwrite", *federation.train("--out", model))
    assert model.read_text() == "a model that cost a budget"
    assert not federation.ledgers()


def test_a_tiny_silo_does_not_spoil_the_model_of_the_others(federation: Federation) -> None:
    (federation.folder / "hermit.csv").write_text("age,dose,ward,ill,cost\n50,5,a,no,40\n")
    federation.files.append(federation.folder / "hermit.csv")
    refuses("Silo 'hermit' has 1 record, too few to hold some out", *federation.train())
    report = ringfence_json(*federation.train("--held-out", "0", "--test", f"north={federation.files[0]}"))
    assert report["silos"]["hermit"]["records"] == 1
    assert report["test"]["accuracy"] > 0.85


def test_a_constant_column_is_harmless(federation: Federation) -> None:
    for file in federation.files:
        lines = file.read_text().splitlines()
        constant = [lines[0]] + [",".join(["50", *line.split(",")[1:]]) for line in lines[1:]]
        file.write_text("\n".join(constant) + "\n")
    assert ringfence_json(*federation.train())["test"]["accuracy"] > 0.5


def test_a_damaged_ledger_stops_the_run_before_anything_is_released(federation: Federation) -> None:
    ringfence(*federation.train("--rounds", "3"))
    ledger: Path = federation.folder / "south.ledger"
    ledger.write_bytes(ledger.read_bytes()[:5000])
    refuses("cannot be trusted", *federation.train("--rounds", "3"))


SECRET = "98765.4321"


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (f"{SECRET}x,1,a,no,3", "row 2, column 'age': this is not a finite number"),
        (f",{SECRET},a,no,3", "row 2, column 'age': the cell is empty"),
        (f"1,{SECRET},{SECRET},no,3", "row 2, column 'ward': this category is not in the schema's public list"),
        (f"1,nan,a,no,{SECRET}", "row 2, column 'dose': this is not a finite number"),
        (f"1,inf,a,no,{SECRET}", "row 2, column 'dose': this is not a finite number"),
        (f"1,2,a,{SECRET},3", "row 2, column 'ill': this category"),
        (f"1,2,{SECRET}", "line 2 has 3 cells"),
        (f'1,"{SECRET},a,no,3', "not well-formed CSV"),
    ],
)
def test_bad_rows_are_named_and_no_value_is_shown(federation: Federation, row: str, says: str) -> None:
    header = federation.files[0].read_text().splitlines()[0]
    federation.files[0].write_text(f"{header}\n{row}\n")
    done = refuses(says, *federation.train())
    assert SECRET not in done.stderr + done.stdout
    assert not list(federation.folder.glob("*.ledger"))


def test_an_empty_silo_is_refused_with_the_remedy(federation: Federation) -> None:
    header = federation.files[0].read_text().splitlines()[0]
    federation.files[0].write_text(header + "\n")
    refuses("leave this silo out", *federation.train())


def test_ctrl_c_says_where_to_look_and_keeps_what_was_released_on_the_account(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_answer, answered = Gate.answer, []

    def interrupted(gate: Gate, request: RoundRequest) -> Answer:
        answered.append(request.round)
        if request.round == 3:
            raise KeyboardInterrupt
        return real_answer(gate, request)

    monkeypatch.setattr(Gate, "answer", interrupted)
    done = ringfence(*federation.train(), status=130)
    assert "ledgers show what was released" in done.stderr
    (plan,) = ringfence_json("ledger", federation.folder / "north.ledger")["plans"]
    assert (plan["charged"], plan["state"]) == (3, "finished")
