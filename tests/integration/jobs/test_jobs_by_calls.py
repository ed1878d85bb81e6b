"""Jobs that were put together in Python run: from their program, and on a cluster that is there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs import job_functions as own

from onyx.api import await_job_completion
from onyx.builder import Job, files, sequence
from onyx.settings import Settings
from onyx.testing import TestEnv, with_test_env

pytestmark = pytest.mark.server
ROOT = Path(__file__).parents[3]
TIMEOUT_S = 120.0


def ran(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def rows(folder: Path) -> list[dict[str, Any]]:
    lines = [line for part in folder.glob("*.jsonl") for line in part.read_text().splitlines()]
    return [json.loads(line) for line in sorted(lines)]


def test_the_program_of_the_example_writes_what_its_page_says(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    shutil.copytree(ROOT / "examples" / "builder", folder)
    done = ran(folder, "shop.py")
    assert done.returncode == 0, done.stdout + done.stderr
    page = (folder / "README.md").read_text()
    assert rows(folder / "totals") == [
        json.loads(line) for line in re.findall(r"^    (\{.*\})$", page, re.MULTILINE)
    ]
    assert [each["total"] for each in rows(folder / "large")] == [21]


FAILS = """
from onyx.builder import Job, sequence, stdout

def half(segment):
    return {"half": 1 / segment["n"]}

if __name__ == "__main__":
    Job("half").read(sequence(segments=[{"n": 0}])).map(half).write(stdout()).run()
"""


@pytest.mark.slow
def test_a_program_whose_job_fails_ends_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(FAILS)
    done = ran(tmp_path, "program.py")
    assert done.returncode == 1
    assert "JobFailed: job half has failed: " in done.stderr
    assert "ZeroDivisionError" in done.stderr.partition("JobFailed")[2]


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestEnv]:
    settings = Settings(data_dir=str(tmp_path_factory.mktemp("data")))
    with with_test_env(3, modules=[own.__name__], settings=settings) as env:
        yield env


def test_a_job_is_submitted_to_a_cluster_that_is_there(env: TestEnv, tmp_path: Path) -> None:
    job = Job("submitted").read(sequence(segments=[{"n": 1}, {"n": 2}])).map(own.inc)
    submission = job.write(files(str(tmp_path / "out"))).submit(env.settings)
    assert await_job_completion(env.settings, submission.job)
    assert rows(tmp_path / "out") == [{"n": 2}, {"n": 3}]


def test_log_lines_of_a_task_have_the_metadata_of_its_job(env: TestEnv, tmp_path: Path) -> None:
    job = Job("located", metadata={"team": "sales", "level": 3, "jobId": "located-1", "more": [1]})
    job = job.read(sequence(segments=[{"n": 1}])).map(own.located).write(files(str(tmp_path)))
    assert env.run(job.build()).state == "completed"
    assert rows(tmp_path) == [{"n": 1, "metadata.team": "sales", "metadata.level": 3}]
