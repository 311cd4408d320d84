"""Text that a plan's author, a silo or a model's maker chose cannot forge what an operator reads.

Everything here goes through the real command line, whose bytes are looked at, and the real page in a real browser.
"""

import hashlib
import json
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from ringfence.errors import PlanError
from ringfence.federation.training import Silo, train
from ringfence.planning.request import Member
from ringfence.protocol import Plan
from ringfence.protocol.documents.certificate import SignedCertificate
from ringfence.shuffler.sealing import sign
from ringfence.silo.folder import SiloFolder
from ringfence.silo.ledger.certificate import certify
from ringfence.silo.records.records import Records
from tests.browser import Window
from tests.nursery import completed
from tests.silo.agents import ROOT
from tests.silo.operator.desk import desk_of, entered, wait_with
from tests.support import MakePlan

FORGED_LINE = "The gate would approve it. Nothing is answered until you approve it."
COLUMN = f"a\n\nAt what cost\n\n  This plan: epsilon 0.001\n\n{FORGED_LINE}\n\x1b[2J\x1b[1;1H\x1b]0;owned\x07"
SILO = "south\x9b2J\u202e]dloc[\u2028\u2029\u200b[bold red]:warning:"
HEADINGS = ["What it would reveal", "To whom", "At what cost", "On this machine"]


@pytest.fixture
def honest(plan_of: MakePlan) -> Plan:
    return plan_of(members=[Member("clinic", 40, 1.0, 1e-6), Member("south", 40, 1.0, 1e-6)])


def forged(plan: Plan) -> Plan:
    """Return the plan with names that nobody's planner would write, and that every version's parser reads."""
    content: dict[str, Any] = json.loads(plan.content)
    content["data"]["columns"][COLUMN] = content["data"]["columns"].pop("a")
    content["silos"][1]["name"] = SILO
    return Plan.parse(json.dumps(content).encode(), error=PlanError)


def ringfence(*arguments: object, fails: bool = False) -> bytes:
    """Run the command line, and return every byte that reached the terminal."""
    command = [sys.executable, "-m", "ringfence", *map(str, arguments)]
    done = completed(command, stderr=subprocess.STDOUT, cwd=ROOT)
    assert (done.returncode != 0) == fails, done.stdout
    return bytes(done.stdout)


def text_of(printed: bytes) -> str:
    """Return what was printed, in which nothing may be hidden or drive a terminal."""
    text = printed.decode()
    hidden = {c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")}
    assert not hidden, hidden
    assert b"\x1b" not in printed
    return text


def test_a_review_shows_hostile_names_as_escapes_in_their_own_lines(silo_folder: SiloFolder, honest: Plan) -> None:
    path = silo_folder.path.parent / "plan.json"
    path.write_bytes(honest.content)
    expected = text_of(ringfence("silo", "review", silo_folder.path, path)).splitlines()
    path.write_bytes(forged(honest).content)
    lines = text_of(ringfence("silo", "review", silo_folder.path, path)).splitlines()
    assert expected.count(FORGED_LINE) == 1
    assert FORGED_LINE not in lines
    assert lines[-1].startswith("The gate would NOT approve it.")
    assert [line for line in lines if line in HEADINGS] == [line for line in expected if line in HEADINGS] == HEADINGS
    claims = [line for line in lines if "epsilon 0.001" in line]  # where it is shown, and where objected to
    assert claims
    assert all(r"a\u000a\u000aAt what cost" in line for line in claims)
    assert r"a\u000a\u000aAt what cost" in "\n".join(lines)
    assert r"south\u009b2J\u202e]dloc[\u2028\u2029\u200b[bold red]:warning:" in "\n".join(lines)


def test_a_plan_with_hostile_names_is_not_approved_and_the_refusal_is_one_line(
    silo_folder: SiloFolder, honest: Plan
) -> None:
    path = silo_folder.path.parent / "plan.json"
    for change in ({"name": SILO}, {"name": "south "}):
        content = json.loads(honest.content)
        content["silos"][1] |= change
        path.write_text(json.dumps(content))
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        said = text_of(ringfence("silo", "approve", silo_folder.path, path, "--digest", digest, fails=True))
        assert said.startswith("ringfence: Silo 'clinic' cannot approve this plan: its silo 'south")
        assert len(said.splitlines()) == 1
    assert "approved" not in text_of(ringfence("silo", "ledger", silo_folder.path))


def test_the_page_shows_no_heading_that_a_plan_s_author_wrote(
    window: Window, silo_folder: SiloFolder, honest: Plan
) -> None:
    with desk_of(silo_folder) as desk:
        shown: list[list[str]] = []
        for plan in (honest, forged(honest)):
            path = wait_with(silo_folder, plan)
            visit = entered(window, desk)
            visit.page.get_by_role("button", name="Review").click()
            visit.page.get_by_role("heading", name="What it would reveal").wait_for()
            shown.append(visit.page.get_by_role("heading").all_inner_texts())
            text = visit.page.inner_text("main")
            path.unlink()
        assert shown[0] == shown[1]
        assert r"\u202e]dloc[" in text
        assert r"a\u000a\u000aAt what cost" in text
        assert not set(text) & set("\x1b\x9b\u202e\u2028\u2029\u200b")
        assert "The gate would NOT approve it" in text
        visit.page.get_by_role("button", name="Approve").wait_for(state="detached")


def test_a_note_in_the_ledger_is_text_in_the_terminal_and_on_the_page(
    window: Window, silo_folder: SiloFolder, honest: Plan
) -> None:
    path = silo_folder.path.parent / "plan.json"
    path.write_bytes(honest.content)
    note = "\x1b[2Jfine\n9 ended\u202e [red]:smiley:[/red] <h2>x</h2>"
    ringfence("silo", "approve", silo_folder.path, path, "--digest", honest.digest()[:12], "--note", note)
    shown = r"“\u001b[2Jfine\u000a9 ended\u202e [red]:smiley:[/red] <h2>x</h2>”"
    lines = text_of(ringfence("silo", "ledger", silo_folder.path)).splitlines()
    assert len(lines) == 1 + 3
    assert shown in lines[-1]
    with desk_of(silo_folder) as desk:
        visit = entered(window, desk)
        visit.page.get_by_role("button", name="Ledger").click()
        visit.page.get_by_role("heading", name="The ledger").wait_for()
        assert shown in visit.page.inner_text("main")


def test_a_certificate_s_words_are_text(silo_folder: SiloFolder) -> None:
    key, made = silo_folder.key(), certify(silo_folder).certificate
    issued = "today: every check passed.\n\nWhat is proved\n\n  - All.\x1b[8m\u202e"
    certificate = made.model_copy(update={"issued": issued})
    signed = certificate.signed_bytes()
    path = silo_folder.path.parent / "certificate.json"
    path.write_bytes(SignedCertificate(certificate, sign(key, signed)).to_file())
    lines = text_of(ringfence("verify", path)).splitlines()
    assert r"issued today: every check passed.\u000a\u000aWhat is proved\u000a\u000a  - All.\u001b[8m\u202e" in lines[0]
    assert lines.count("What is proved") == 1


def test_a_model_s_words_are_text(tmp_path: Path, records: Records, plan_of: MakePlan) -> None:
    plan = plan_of(rounds=1)
    model = train(plan, {"clinic": Silo(records, tmp_path / "clinic.ledger")}).model
    content: dict[str, Any] = json.loads(model.canonical())
    hostile: dict[str, Any] = json.loads(content["plan"])
    hostile["silos"][0]["name"] = "clinic\x9b\u202e"
    hostile["data"]["columns"]["ill"]["categories"] = ["no\x1b[2J\nx", "yes\u2028\u202e"]
    content["plan"] = json.dumps(hostile)
    content["guarantees"] = {"clinic\x9b\u202e": content["guarantees"]["clinic"]}
    content["rounds"] = {}
    path, rows = tmp_path / "model.json", tmp_path / "rows.csv"
    path.write_text(json.dumps(content))
    rows.write_text("a,b,c\n0.1,0.2,0.3\n-0.9,-0.8,0.1\n")
    assert r"  clinic\u009b\u202e: each of 40 records" in text_of(ringfence("model", "statement", path))
    predicted = text_of(ringfence("predict", path, rows)).splitlines()
    assert len(predicted) == 3
    assert set(predicted[1:]) <= {r"no\u001b[2J\u000ax", r"yes\u2028\u202e"}
    text_of(ringfence("model", "export", path))


def test_the_name_of_a_file_is_text_in_an_error(silo_folder: SiloFolder) -> None:
    path = silo_folder.path.parent / "plan\x1b[2J\u202e\nringfence: approved.json"
    path.write_text("{}")
    said = text_of(ringfence("silo", "review", silo_folder.path, path.with_name(path.name + "x"), fails=True))
    assert r"plan\u001b[2J\u202e\u000aringfence: approved.json" in said
    assert len(said.splitlines()) == 1


def test_no_silo_and_no_plan_is_made_with_names_that_cannot_be_seen(silo_folder: SiloFolder) -> None:
    base = silo_folder.path.parent
    given = ["--schema", base / "schema.toml"]
    limits = ["--epsilon", "1", "--delta", "1e-6"]
    said = text_of(
        ringfence("silo", "init", base / "x", "--name", "a\u202e", "--data", base / "records.csv", *given, *limits,
                  fails=True)
    )  # fmt: skip
    assert "has invisible characters" in said
    said = text_of(
        ringfence("plan", *given, "--target", "ill", "--silo", "a\u200b=40", *limits, "--rounds", "2", fails=True)
    )
    assert r"its silo 'a\u200b' has invisible characters" in said
