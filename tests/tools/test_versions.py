"""The documentation's versions are listed newest first, and the entrance leads to the newest release."""

import json
from pathlib import Path

from tools.versions import write


def test_readers_are_led_to_the_newest_release_and_may_choose_any_version(tmp_path: Path) -> None:
    for folder in ("0.9.0", "0.10.0", "0.11.0.dev0", "assets"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "index.html").write_text("pages")
    (tmp_path / "0.8.0").mkdir()  # without pages
    assert write(tmp_path) == "0.10.0"
    listed = json.loads((tmp_path / "versions.json").read_text())
    assert [entry["version"] for entry in listed] == ["0.11.0.dev0", "0.10.0", "0.9.0"]
    assert [entry["aliases"] for entry in listed] == [[], ["latest"], []]
    assert 'url=0.10.0/index.html"' in (tmp_path / "index.html").read_text()


def test_before_the_first_release_it_is_the_newest_version_under_development(tmp_path: Path) -> None:
    for folder in ("0.1.0.dev0", "0.2.0.dev0"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "index.html").write_text("pages")
    assert write(tmp_path) == "0.2.0.dev0"
