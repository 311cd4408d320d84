"""The operator's page, attacked by whoever can reach its port, by the plans that it shows, and in its files."""

import csv
import os
import stat
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ringfence.planning.request import Member
from ringfence.silo.folder import SiloFolder
from ringfence.silo.operator.service import IDLE_SECONDS, LONGEST_REQUEST, SessionKeys, token_path
from tests.browser import PHONE, Window
from tests.nursery import completed
from tests.silo.agents import ROOT, approved, edit_ledger, make_silo_folder
from tests.silo.operator.desk import Desk, desk_of, entered, plans, state, wait_with
from tests.support import MakePlan

HOSTILE = "<img src=x onerror=alert(1)>&amp;"


def test_words_of_a_hostile_plan_stay_text(
    window: Window, desk: Desk, silo_folder: SiloFolder, plan_of: MakePlan
) -> None:
    wait_with(silo_folder, plan_of(members=[Member("clinic", 40, 1.0, 1e-6), Member(HOSTILE, 40, 1.0, 1e-6)]))
    (silo_folder.path / "plans" / "<b>bad.json").write_text('{"<i>": 1}')
    visit = entered(window, desk)
    assert "<b>bad.json" in visit.page.inner_text("main")
    visit.page.get_by_role("button", name="Review").click()
    visit.page.get_by_role("heading", name="To whom").wait_for()
    assert HOSTILE in visit.page.inner_text("main")
    assert visit.page.locator("img, script, b, i").count() == 0
    assert visit.console == []


def test_without_the_token_nothing_is_shown_and_nothing_is_done(
    window: Window, desk: Desk, silo_folder: SiloFolder, plan_of: MakePlan
) -> None:
    plan = approved(silo_folder, plan_of())
    visit = window.open(desk.address)
    visit.page.get_by_role("button", name="Sign in").click()  # the browser itself asks for the field
    assert visit.page.evaluate("document.activeElement.id") == "token"
    visit.page.get_by_label("token").fill(silo_folder.token())  # the couriers' token opens another door
    visit.page.get_by_role("button", name="Sign in").click()
    visit.page.get_by_text("Wrong token. Try again.").wait_for()
    shown = visit.page.content()
    assert plan.digest()[:8] not in shown
    assert "epsilon" not in shown
    for path in ("/home", "/ledger", "/plan", "/approve", "/refuse", "/end", "/revoke", "/stop", "/add", "/budget"):
        for key in ("", "x", desk.token):
            status, page = desk.post(path, {"key": key, "plan": plan.digest()})
            assert status == 403
            assert plan.digest()[:8] not in page
    assert state(silo_folder, plan) == "running"


def test_a_page_of_another_site_cannot_decide_even_while_the_operator_is_in(
    window: Window, desk: Desk, silo_folder: SiloFolder, plan_of: MakePlan
) -> None:
    plan = approved(silo_folder, plan_of())
    visit = entered(window, desk)

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            form = f'<form method=post action="{desk.address}stop"><input name=key value=x><button>win</button></form>'
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(form.encode() + f'<iframe src="{desk.address}"></iframe>'.encode())

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        page = visit.page.context.new_page()  # the same browser, with whatever it carries
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        assert page.frames[1].locator("input").count() == 0  # it is not framed
        page.get_by_text("win").click()
        page.get_by_text("This form did not come from the operator page").wait_for()
        assert page.context.cookies() == []
    finally:
        server.shutdown()
        server.server_close()
    assert state(silo_folder, plan) == "running"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": ""}, 421),
        ({"Host": "127.0.0.1"}, 421),
        ({"Origin": ""}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
    ],
)
def test_requests_from_elsewhere_are_turned_away_even_with_a_good_key(
    desk: Desk, silo_folder: SiloFolder, plan_of: MakePlan, headers: dict[str, str], status: int
) -> None:
    plan = approved(silo_folder, plan_of())
    key = desk.key()
    given, _ = desk.post("/stop", {"key": key}, **headers)
    assert given in (status, 400)  # without any Host, the server refuses by itself
    assert state(silo_folder, plan) == "running"
    assert desk.post("/stop", {"key": key})[0] == 200
    assert state(silo_folder, plan) == "revoked"


def test_every_answer_forbids_scripts_frames_and_keeping(desk: Desk) -> None:
    for method, path in (("GET", "/"), ("GET", "/home"), ("PUT", "/stop"), ("POST", "/nothing")):
        status, page = desk.send(method, path, "", {"Host": f"localhost:{desk.port}"})
        assert status == (200 if path == "/" else 404)
        assert "default-src 'none'" in desk.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in desk.headers["content-security-policy"]
        assert desk.headers["cache-control"] == "no-store"
        assert desk.headers["x-frame-options"] == "DENY"
        assert "set-cookie" not in desk.headers
        assert page.startswith("<!doctype html>")


def test_odd_forms_do_nothing(desk: Desk, silo_folder: SiloFolder, plan_of: MakePlan) -> None:
    plan = approved(silo_folder, plan_of())
    key = desk.key()
    head = {"Host": f"127.0.0.1:{desk.port}", "Origin": f"http://127.0.0.1:{desk.port}"}
    assert desk.send("POST", "/stop", f"key={key}&key={key}", head)[0] == 403
    assert desk.send("POST", "/stop", "\x00%ff=%fe&key", head)[0] == 403
    assert desk.post("/add", {"key": key, "content": "x" * LONGEST_REQUEST})[0] == 413
    assert desk.post("/add", {"key": key, "content": "not a plan"})[0] == 409
    assert desk.post("/revoke", {"key": key, "plan": "0" * 64})[0] == 409
    assert desk.post("/approve", {"key": key})[0] == 409
    assert state(silo_folder, plan) == "running"


def test_no_entry_of_the_folder_of_plans_keeps_the_operator_from_stopping_everything(
    desk: Desk, silo_folder: SiloFolder, plan_of: MakePlan
) -> None:
    plan, waiting = approved(silo_folder, plan_of()), silo_folder.path / "plans"
    os.mkfifo(waiting / "pipe.json")
    (waiting / "endless.json").symlink_to("/dev/zero")
    with (waiting / "huge.json").open("wb") as file:
        file.truncate(3 * 10**9)
    key = desk.key()
    status, page = desk.post("/home", {"key": key})
    assert status == 200
    assert "Stop everything" in page
    assert page.count("it is not a regular file") == 2
    assert "it has 3000000000 bytes" in page
    assert desk.post("/stop", {"key": key})[0] == 200
    assert state(silo_folder, plan) == "revoked"


def test_a_file_that_was_changed_after_the_review_approves_nothing(
    desk: Desk, silo_folder: SiloFolder, plan_of: MakePlan
) -> None:
    reviewed, other = plan_of(), plan_of(epsilon=1.5)
    wait_with(silo_folder, reviewed)
    key = desk.key()
    assert desk.post("/plan", {"key": key, "plan": reviewed.digest()})[0] == 200
    wait_with(silo_folder, other)
    status, page = desk.post("/approve", {"key": key, "plan": reviewed.digest()})
    assert status == 409
    assert "its file has changed" in page
    assert {reviewed.digest(), other.digest()}.isdisjoint(plans(silo_folder))


def test_after_signing_out_the_key_is_refused(desk: Desk) -> None:
    key = desk.key()
    assert desk.post("/home", {"key": key})[0] == 200
    assert desk.post("/leave", {"key": key})[0] == 200
    assert desk.post("/home", {"key": key})[0] == 403


def test_a_key_expires_when_it_is_not_used_and_few_are_kept() -> None:
    now = [0.0]
    keys = SessionKeys(lambda: now[0])
    first = keys.new()
    now[0] = IDLE_SECONDS
    assert keys.opens(first)
    now[0] = 2 * IDLE_SECONDS + 1
    assert not keys.opens(first)
    now[0] += 1
    early = keys.new()
    for _ in range(8):
        now[0] += 1
        keys.new()
    assert not keys.opens(early)


def test_the_token_is_its_owners_only_and_not_the_couriers(desk: Desk, silo_folder: SiloFolder) -> None:
    assert stat.S_IMODE(token_path(silo_folder).stat().st_mode) == 0o600
    assert stat.S_IMODE((silo_folder.path / "plans").stat().st_mode) == 0o700
    assert desk.token != silo_folder.token()
    assert len(desk.token) == 64
    assert desk.token not in desk.said
    courier = (silo_folder.path / "courier.toml").read_text()
    assert "operator" not in courier


def test_no_page_shows_a_records_value_and_a_phone_shows_all_of_it(
    window: Window, desk: Desk, silo_folder: SiloFolder, plan_of: MakePlan
) -> None:
    approved(silo_folder, plan_of())
    wait_with(silo_folder, plan_of(epsilon=0.5))
    with Path(silo_folder.settings.data_file).open(newline="") as file:
        values = {cell for row in list(csv.reader(file))[1:] for cell in row[:3]}
    visit = entered(window, desk, width=PHONE)
    for button in ("Review", "Ledger", "Refresh"):
        assert visit.overflow() == 0
        content = visit.page.content()
        assert not [value for value in values if value in content]
        visit.page.get_by_role("button", name=button).click()
        visit.page.wait_for_load_state()
    assert visit.console == []


def test_a_ledger_that_was_tampered_with_is_not_shown_and_the_page_does_not_begin_on_it(
    window: Window, tmp_path: Path
) -> None:
    silo_folder = make_silo_folder(tmp_path, seed=8)
    with desk_of(silo_folder) as desk:
        visit = entered(window, desk)
        statement = "UPDATE entries SET body = replace(body, '2.0', '9.0') WHERE kind = 'budget'"
        edit_ledger(silo_folder.ledger_path, statement)
        visit.page.get_by_role("button", name="Refresh").click()
        visit.page.get_by_role("alert").wait_for()
        assert "epsilon" not in visit.page.get_by_role("alert").inner_text()
    command = [sys.executable, "-m", "ringfence", "silo", "page", str(silo_folder.path)]
    done = completed(command, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
