"""`make dist` and `make release`: what we hand out, from the last commit and nothing else.

`build` makes wheel and sdist twice, in two folders, under different umasks, time zones, locales and hash seeds, and
refuses if a byte differs: whoever has the commit and the same version of hatchling (the wheel names it) gets the same
files. `release` refuses a version that the commit's tag does not confirm, then adds what is in an installation (SBOM,
CycloneDX), checksums, and a signature if there is a key.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
NAMESPACE = "ringfence-release"  # of signatures: one made for another purpose is no release's
SUMS = "SHA256SUMS"

_WAYS: tuple[tuple[int, Mapping[str, str]], ...] = (
    (0o022, {"TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "1"}),
    (0o077, {"TZ": "Asia/Kathmandu", "LC_ALL": "POSIX", "PYTHONHASHSEED": "2"}),
)


def build(root: Path, dist: Path) -> list[Path]:
    """Build wheel and sdist of the last commit, twice, and leave them in `dist`, which then has nothing else."""
    with tempfile.TemporaryDirectory(prefix="ringfence-release-") as folder:
        builds = [_built(root, Path(folder) / f"build-{'again-' * number}", *way) for number, way in enumerate(_WAYS)]
        if different := differing(*builds):
            raise SystemExit(f"Built twice, and not the same bytes: {', '.join(different)}. Nothing was released.")
        shutil.rmtree(dist, ignore_errors=True)
        dist.mkdir()
        return [Path(shutil.copy(file, dist)) for file in sorted(builds[0].iterdir())]


def _built(root: Path, folder: Path, umask: int, environment: Mapping[str, str]) -> Path:
    source, made = folder / "source", folder / "made"
    source.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=root, stdout=subprocess.PIPE, check=True).stdout  # noqa: S607
    subprocess.run(["tar", "-x", "-C", source], input=archive, check=True, umask=umask)  # noqa: S603, S607
    subprocess.run(  # noqa: S603 (a wheel is built from the sdist, as whoever gets only that would)
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", made, source],
        env=os.environ | environment | {"SOURCE_DATE_EPOCH": _git(root, "log", "-1", "--format=%ct")},
        umask=umask, stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    return made


def differing(one: Path, other: Path) -> list[str]:
    """Name the files of two folders that only one has, or that are not the same byte for byte."""
    names = {file.name for folder in (one, other) for file in folder.iterdir()}
    return sorted(name for name in names if len({_content(folder / name) for folder in (one, other)}) > 1)


def _content(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() else None


def require_tag(root: Path, version: str) -> str:
    """Return what kind of release this is; refuse if the tag of the last commit names another version than the project.

    Without a tag only a version under development (`.dev`) may be built, as a rehearsal.
    """
    tags = [tag for tag in _git(root, "tag", "--points-at", "HEAD").split() if re.match(r"v\d", tag)]
    if tags and tags != [f"v{version}"]:
        raise SystemExit(
            f"The commit's tag is {', '.join(tags)}, and pyproject.toml says {version}: a release is tagged "
            f"v{version} and nothing else. Correct the one that is wrong."
        )
    if not tags and ".dev" not in version:
        raise SystemExit(f"Version {version} is released from its tag: `git tag --sign v{version}`, then this again.")
    if tags and f"\n## [{version}]" not in (root / "CHANGELOG.md").read_text(encoding="utf-8"):
        raise SystemExit(f"CHANGELOG.md has no section [{version}]: give the unreleased changes this heading.")
    return f"release {version}" if tags else f"rehearsal of a release: {version} is under development, and not tagged"


def describe(wheel: Path, dist: Path) -> list[Path]:
    """Write what a fresh installation has, bare and with `all`, as CycloneDX documents."""
    made = []
    stem = "-".join(wheel.name.split("-")[:2])
    for extra in ("", "all"):
        with tempfile.TemporaryDirectory(prefix="ringfence-installed-") as folder:
            python = _installed(wheel, extra, Path(folder))
            made.append(dist / f"{stem}{extra and '-'}{extra}.cdx.json")
            subprocess.run(  # noqa: S603
                [Path(sys.executable).with_name("cyclonedx-py"), "environment", "--output-reproducible", "--of", "JSON",
                 "--pyproject", ROOT / "pyproject.toml", "--mc-type", "application", "-o", made[-1], python],
                stderr=subprocess.DEVNULL, check=True,
            )  # fmt: skip
    return made


def _installed(wheel: Path, extra: str, folder: Path) -> Path:
    """Install into an environment that has nothing else, not even pip."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)  # noqa: S603
    python = folder / "bin" / "python"
    subprocess.run(  # noqa: S603
        [
            sys.executable,
            "-m",
            "pip",
            "--python",
            python,
            "install",
            "--quiet",
            f"{wheel}[{extra}]" if extra else wheel,
        ],
        check=True,
    )
    for origin in folder.glob("lib/*/site-packages/ringfence-*.dist-info/direct_url.json"):
        origin.unlink()  # where the wheel lies on this machine is nobody's business
    return python


def seal(dist: Path, key: str | None) -> list[Path]:
    """Write the checksums of all files, as `sha256sum --check` reads them, and sign them if there is a key."""
    files = sorted(file for file in dist.iterdir() if file.name not in (SUMS, f"{SUMS}.sig"))
    sums = dist / SUMS
    sums.write_text("".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files))
    signature = dist / f"{SUMS}.sig"
    signature.unlink(missing_ok=True)
    if not key:
        return [sums]
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", NAMESPACE, sums], check=True)  # noqa: S603, S607
    return [sums, signature]


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603, S607


def main(words: Sequence[str]) -> None:
    """Build; and, if asked for a release, check the tag first and add SBOM, checksums and signature."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    if list(words) not in (["build"], ["release"]):
        raise SystemExit("python -m tools.release build, or release")
    releases = list(words) == ["release"]
    what = require_tag(ROOT, version) if releases else f"build of {version}"
    if _git(ROOT, "status", "--porcelain"):
        what += "; what is not committed is not in it"
    say = sys.stdout.write
    say(f"{what}\n")
    made = build(ROOT, DIST)
    say("built twice, with the same bytes\n")
    if releases:
        key = os.environ.get("RELEASE_KEY")
        made += describe(next(file for file in made if file.suffix == ".whl"), DIST)
        made += seal(DIST, key)
        say(f"signed with {key}\n" if key else "not signed: RELEASE_KEY names no key\n")
    for file in made:
        say(f"{file.relative_to(ROOT)}  {file.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main(sys.argv[1:])
