"""The operator's page as a process, and what tests do there."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from ringfence.protocol import Plan
from ringfence.silo.folder import SiloFolder
from ringfence.silo.operator import decisions
from ringfence.silo.operator.service import token_path
from tests.browser import Visit, Window
from tests.nursery import Python
from tests.silo.agents import ROOT


class Desk:
    """The page's process."""

    def __init__(self, silo_folder: SiloFolder) -> None:
        self.silo_folder = silo_folder
        self.process = Python(
            [sys.executable, "-m", "ringfence", "silo", "page", str(silo_folder.path)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", self.said)
        assert found, self.said
        self.address, self.port = found[0], int(found[1])

    @property
    def token(self) -> str:
        return token_path(self.silo_folder).read_text().strip()

    def post(self, path: str, fields: dict[str, str], **headers: str) -> tuple[int, str]:
        """Send a form as a browser on this page would; keywords change a header, or with "" leave it out."""
        sent = {
            "Host": f"127.0.0.1:{self.port}", "Origin": f"http://127.0.0.1:{self.port}",
            "Content-Type": "application/x-www-form-urlencoded", **headers,
        }  # fmt: skip
        return self.send("POST", path, urlencode(fields), {name: value for name, value in sent.items() if value})

    def send(self, method: str, path: str, body: str, headers: dict[str, str]) -> tuple[int, str]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.putrequest(method, path, skip_host=True)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                connection.putheader(name, value)
            connection.endheaders(body.encode())
            answer = connection.getresponse()
            self.headers = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def key(self) -> str:
        """Enter, and return the key that stands in the forms."""
        status, page = self.post("/enter", {"token": self.token})
        assert status == 200
        found = re.search(r'name="key" value="([\w-]+)"', page)
        assert found
        return found[1]


@contextmanager
def desk_of(silo_folder: SiloFolder) -> Iterator[Desk]:
    desk = Desk(silo_folder)
    try:
        yield desk
    finally:
        desk.process.send_signal(signal.SIGTERM)
        output, _ = desk.process.communicate(timeout=120)
        assert desk.process.returncode == 0
        assert output == ""  # it complains about nothing, and logs nobody


def wait_with(silo_folder: SiloFolder, plan: Plan, name: str = "plan.json") -> Path:
    """Put a plan's file where it waits."""
    path = silo_folder.path / "plans" / name
    path.write_bytes(plan.content)
    return path


def entered(window: Window, desk: Desk, **options: Any) -> Visit:
    visit = window.open(desk.address, **options)
    visit.page.get_by_label("token").fill(desk.token)
    visit.page.get_by_role("button", name="Sign in").click()
    visit.page.get_by_role("heading", name="Privacy budget").wait_for()
    return visit


def plans(silo_folder: SiloFolder) -> dict[str, str]:
    """The state of every plan that was ever approved."""
    return {plan["plan"]: plan["state"] for plan in decisions.status(silo_folder)["plans"]}


def state(silo_folder: SiloFolder, plan: Plan) -> str:
    return plans(silo_folder).get(plan.digest(), "never approved")


def press(visit: Visit, key: str, *, until: str) -> None:
    """Press a key until the named thing has the focus."""
    for _ in range(40):
        if visit.page.evaluate("(document.activeElement.innerText || document.activeElement.id)") == until:
            return
        visit.page.keyboard.press(key)
    raise AssertionError(f"'{until}' cannot be reached by keyboard")
