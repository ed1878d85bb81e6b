"""`make release`: all that is given to others, into `dist/`; only the upload is left to a person.

    python -m release [--draft] [--images ENGINE] [--into FOLDER]

Wheel and source, the chart as an archive and as an artifact, bills of materials, checksums; images
where an engine is named. The wheel is installed into a bare environment, of which the bill is
written: what is released has been installed once. A release whose parts name different versions, or
that the changes do not speak of, is refused before anything is made.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from release import images
from release.chart import CHANGES, CHART, ReleaseError, changes, package
from release.images import IMAGES, ROOT, version

BILL = ROOT / "release" / "bill.py"
NAME = "onyx-on-kubernetes"
_NOT_YET = "not released"
_GENERATED = ROOT / "tests" / "support" / "generated"


def problems(draft: bool) -> Iterator[str]:
    """What does not fit together, each with what to do."""
    own = version()
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    for key in ("version", "appVersion"):
        if chart[key] != own:
            yield f"charts/onyx/Chart.yaml has {key} {chart[key]}, pyproject.toml {own}"
    try:
        heading, _ = changes(CHANGES.read_text(), own)
        if _NOT_YET in heading and not draft:
            yield f"CHANGELOG.md says `{heading}`: write the date in its place, or --draft"
    except ReleaseError as error:
        yield str(error)
    kept = _GENERATED / "values_released" / f"{own}.yaml"
    if not kept.exists():
        yield f"copy charts/onyx/values.yaml to {kept.relative_to(ROOT)}, for later tests"


def release(into: Path, variables: Mapping[str, str], engine: str) -> None:
    """Make everything in an empty folder.

    Args:
        variables: names of images, as `make images` takes them.
        engine: docker or podman, for images; empty: none are built.

    Raises:
        ReleaseError: something could not be made.
    """
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    distributions(into)
    package(into, variables)
    python = bare_environment(into / ".bare", next(into.glob("*.whl")))
    try:
        _write_bill([str(python)], f"{NAME}-{version()}", NAME, into)
    finally:
        shutil.rmtree(into / ".bare")
    if engine:
        of_images(engine, {"TAG": version(), **variables}, into)
    files = sorted(each for each in into.iterdir() if each.is_file())
    lines = [f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in files]
    (into / "SHA256SUMS").write_text("".join(lines))


def distributions(into: Path) -> None:
    """Wheel and source, with the time of the commit in them: who builds again gets the same."""
    asked = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    time = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    environment = {**os.environ, **({"SOURCE_DATE_EPOCH": time} if time else {})}
    _run([sys.executable, "-m", "hatchling", "build", "--directory", str(into)], env=environment)


def bare_environment(folder: Path, wheel: Path) -> Path:
    """An environment with a wheel and what it needs, at the tested versions; its Python."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    quiet = ("--quiet", "--disable-pip-version-check")
    tested = str(ROOT / "constraints.txt")
    _run([str(python), "-m", "pip", "install", *quiet, "--constraint", tested, str(wheel)])
    return python


def of_images(engine: str, variables: Mapping[str, str], into: Path) -> None:
    """Build the images, and have each of ours write its bill."""
    if images.build(engine, (), variables):
        raise ReleaseError("the images could not be built: see above")
    for image in (each for each in IMAGES if not each.on):
        inside = [engine, "run", "--rm", "--interactive", "--network=none", "--entrypoint=python"]
        name = f"{image.repository}-{version()}{image.suffix}"
        _write_bill([*inside, image.name(variables)], name, image.repository, into)


def _write_bill(python: Sequence[str], file: str, name: str, into: Path) -> None:
    done = _run([*python, "-", name, version()], stdin=BILL.read_text())
    (into / f"{file}.cdx.json").write_text(done)


def _run(command: Sequence[str], env: Mapping[str, str] | None = None, stdin: str = "") -> str:
    done = subprocess.run(
        command, cwd=ROOT, env=env, input=stdin, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise ReleaseError(f"{' '.join(command)} failed with code {done.returncode}: see above")
    return done.stdout


def main() -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m release")
    parser.add_argument("--draft", action="store_true", help="of a version that has no date yet")
    parser.add_argument("--images", default="", metavar="ENGINE", help="build images too")
    parser.add_argument("--into", type=Path, default=ROOT / "dist", metavar="FOLDER")
    options = parser.parse_args()
    wrong = list(problems(options.draft))
    for each in wrong:
        print(f"release: {each}", file=sys.stderr)
    if wrong:
        return 1
    try:
        release(options.into.resolve(), os.environ, options.images)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print((options.into / "SHA256SUMS").read_text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
