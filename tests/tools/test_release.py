"""A release is refused where tag and version disagree or two builds differ, and its checksums and signature hold."""

import subprocess
from pathlib import Path

import pytest

from tools.release import NAMESPACE, differing, require_tag, seal


def git(folder: Path, *words: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=A Maintainer", "-c", "user.email=maintainer@ringfence.example", *words],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [1.0.0]\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "Begin", "--no-gpg-sign")
    return tmp_path


def test_a_tag_that_names_the_version_is_a_release(repository: Path) -> None:
    git(repository, "tag", "v1.0.0")
    git(repository, "tag", "visited")
    assert require_tag(repository, "1.0.0") == "release 1.0.0"


@pytest.mark.parametrize(
    ("tags", "version", "reason"),
    [
        (["v1.0.0"], "1.0.1", "The commit's tag is v1.0.0, and pyproject.toml says 1.0.1"),
        (["v1.0.0"], "1.1.0.dev0", "The commit's tag is v1.0.0"),
        (["v1.0.0", "v1.0.1"], "1.0.0", "The commit's tag is v1.0.0, v1.0.1"),
        ([], "1.0.0", "is released from its tag"),
        (["v2.0.0"], "2.0.0", r"has no section \[2.0.0\]"),
    ],
)
def test_a_version_that_its_tag_does_not_confirm_is_refused(
    repository: Path, tags: list[str], version: str, reason: str
) -> None:
    for tag in tags:
        git(repository, "tag", tag)
    with pytest.raises(SystemExit, match=reason):
        require_tag(repository, version)


def test_without_a_tag_a_version_under_development_can_be_rehearsed(repository: Path) -> None:
    assert require_tag(repository, "1.1.0.dev0").startswith("rehearsal")


def test_builds_that_differ_in_a_byte_or_a_file_are_named(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        (folder / "same").write_bytes(b"same")
        (folder / "wheel").write_bytes(b"same")
    assert differing(one, other) == []
    (other / "wheel").write_bytes(b"sane")
    (one / "sdist").write_bytes(b"")
    assert differing(one, other) == ["sdist", "wheel"]


def test_checksums_are_signed_with_the_key_and_find_a_changed_file(tmp_path: Path) -> None:
    key, dist = tmp_path / "key", tmp_path / "dist"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    dist.mkdir()
    (dist / "a.whl").write_bytes(b"wheel")
    (dist / "a.tar.gz").write_bytes(b"source")
    [sums, signature] = seal(dist, str(key))
    signer, allowed = "releases@ringfence", tmp_path / "allowed"
    allowed.write_text(f"{signer} {key.with_suffix('.pub').read_text()}")
    verify: list[str | Path] = ["ssh-keygen", "-Y", "verify", "-f", allowed, "-I", signer, "-s", signature, "-n"]

    def is_signed(content: bytes, purpose: str) -> bool:
        return subprocess.run([*verify, purpose], input=content, capture_output=True, check=False).returncode == 0

    def is_whole() -> bool:
        check = ["sha256sum", "--check", "--quiet", sums.name]
        return subprocess.run(check, cwd=dist, capture_output=True, check=False).returncode == 0

    assert is_signed(sums.read_bytes(), NAMESPACE)
    assert not is_signed(sums.read_bytes() + b" ", NAMESPACE)
    assert not is_signed(sums.read_bytes(), "git")
    assert is_whole()
    (dist / "a.whl").write_bytes(b"whale")
    assert not is_whole()


def test_without_a_key_no_earlier_signature_is_left(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(b"wheel")
    (tmp_path / "SHA256SUMS.sig").write_bytes(b"of an earlier build")
    assert seal(tmp_path, None) == [tmp_path / "SHA256SUMS"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["SHA256SUMS", "a.whl"]
