"""Takes the screenshots beside this file: `python docs/images/screenshots.py`. Needs the `test` extra and Chromium.

It trains on invented patients, so the pictures show what the commands write, with fresh noise each time. Pictures are
reduced to 64 colours, which keeps the repository small.
"""

import hashlib
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

HERE = Path(__file__).parent
SCHEMA = """
columns.age = {type = "numeric", lower = 0, upper = 120}
columns.pressure = {type = "numeric", lower = 50, upper = 250}
columns.smoker = {type = "categorical", categories = ["no", "yes"]}
columns.ill = {type = "categorical", categories = ["no", "yes"]}
"""
SIZES = {"north": 500, "south": 800, "west": 300}
SCHEMA_FILE = ("--schema", "schema.toml")
COMMON = (*SCHEMA_FILE, "--target", "ill")
SAID = ("--purpose", "A study of who falls ill", "--controller", "University Hospital North")


def patients(folder: Path) -> None:
    """Invent three silos' records."""
    choices = random.Random(1)  # noqa: S311 (invented data)
    (folder / "schema.toml").write_text(SCHEMA)
    for silo, size in SIZES.items():
        lines = ["age,pressure,smoker,ill"]
        for _ in range(size):
            age, pressure, smoker = choices.randint(20, 90), round(choices.gauss(130, 20)), choices.random() < 0.3
            ill = (age - 60) / 15 + (pressure - 130) / 20 + 1.5 * smoker + choices.gauss(0, 1) > 0
            lines.append(f"{age},{pressure},{'yes' if smoker else 'no'},{'yes' if ill else 'no'}")
        (folder / f"{silo}.csv").write_text("\n".join(lines) + "\n")


def ringfence(folder: Path, *arguments: str) -> None:
    """Run a command in the folder."""
    subprocess.run([sys.executable, "-m", "ringfence", *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL)  # noqa: S603


def opened(browser: Browser, width: int = 760, height: int = 1000, scheme: Literal["light", "dark"] = "light") -> Page:
    """Open a window of this size."""
    return browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)


def take(page: Page, name: str) -> None:
    """Write what the window shows."""
    Image.open(BytesIO(page.screenshot())).convert("RGB").quantize(64).save(HERE / f"{name}.png", optimize=True)


def report(browser: Browser, folder: Path) -> None:
    """Take the report of a run: its beginning, its costs, the privacy-accuracy curve in the dark, and a phone."""
    files = [f"{silo}.csv" for silo in SIZES]
    ringfence(folder, "train", *files, *COMMON, "--epsilon", "1", "--cap", "3,1e-5", "--out", "model.json", *SAID)
    address = (folder / "model.html").as_uri()
    page = opened(browser)
    page.goto(address)
    take(page, "report")
    page.evaluate("document.querySelectorAll('h2')[1].scrollIntoView()")
    take(page, "report-costs")
    dark = opened(browser, height=900, scheme="dark")
    dark.goto(address)
    dark.get_by_role("heading", name="Privacy and accuracy").evaluate("heading => heading.scrollIntoView()")
    take(dark, "report-dark")
    phone = opened(browser, 390, 844)
    phone.goto(address)
    phone.get_by_role("heading", name="What it cost each silo").evaluate("heading => heading.scrollIntoView()")
    take(phone, "report-phone")


def operator_page(browser: Browser, folder: Path) -> None:
    """Take the operator's page with a plan that runs and one that waits, and the review of the latter."""
    sizes = [option for silo, size in SIZES.items() for option in ("--silo", f"{silo}={size}")]
    ringfence(
        folder, "silo", "init", "clinic", "--name", "north", "--data", "north.csv", *SCHEMA_FILE, "--epsilon", "3",
        "--delta", "1e-5", "--new-beginning", "these records are invented",
    )  # fmt: skip
    for name, epsilon in (("first", "1"), ("second", "0.5")):
        ringfence(folder, "plan", *COMMON, *sizes, "--epsilon", epsilon, "--out", f"{name}.json")
    digest = hashlib.sha256((folder / "first.json").read_bytes()).hexdigest()
    ringfence(folder, "silo", "approve", "clinic", "first.json", "--digest", digest)
    (folder / "clinic" / "plans").mkdir()
    shutil.copy(folder / "second.json", folder / "clinic" / "plans")
    served = subprocess.Popen(
        [sys.executable, "-u", "-m", "ringfence", "silo", "page", "clinic"],
        cwd=folder, stdout=subprocess.PIPE, text=True, env=os.environ,
    )  # fmt: skip
    try:
        address = re.search(r"http\S+", served.stdout.readline() if served.stdout else "")
        if address is None:
            raise RuntimeError("the operator's page did not start")
        token = (folder / "clinic" / "operator.token").read_text().strip()
        page, phone = opened(browser), opened(browser, 390, 844, "dark")
        for window in (page, phone):
            window.goto(address[0])
            window.get_by_label("token").fill(token)
            window.get_by_role("button", name="Sign in").click()
            window.get_by_role("heading", name="Privacy budget").wait_for()
        take(page, "operator-page")
        phone.get_by_role("heading", name="Running plans").evaluate("heading => heading.scrollIntoView()")
        take(phone, "operator-phone")
        page.get_by_role("button", name="Review").click()
        page.get_by_role("button", name="Approve").wait_for()
        take(page, "operator-review")
    finally:
        served.terminate()
        served.wait(60)


def dossier(browser: Browser, folder: Path) -> None:
    """Take the dossier of a run of which two silos gave a certificate."""
    for silo in ("south", "west"):
        ringfence(
            folder, "silo", "init", silo, "--name", silo, "--data", f"{silo}.csv", *SCHEMA_FILE, "--epsilon", "3",
            "--delta", "1e-5", "--same-data-as", f"{silo}.ledger", "--note", "policy",
        )  # fmt: skip
        ringfence(folder, "silo", "certificate", silo, "--out", f"{silo}.certificate.json")
    ringfence(folder, "dossier", "key", "--out", "signing.key")
    certificates = [word for silo in ("south", "west") for word in ("--certificate", f"{silo}.certificate.json")]
    ringfence(folder, "dossier", "write", "--key", "signing.key", "--model", "model.json", *certificates)
    page = opened(browser)
    page.goto((folder / "dossier.html").as_uri())
    take(page, "dossier")


def main() -> None:
    """Take all of them."""
    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        folder = Path(name)
        os.environ["XDG_STATE_HOME"] = name  # the same records at every run
        patients(folder)
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=sandbox)
        report(browser, folder)
        dossier(browser, folder)
        operator_page(browser, folder)
        browser.close()


if __name__ == "__main__":
    main()
