"""A project of `onyx init` does at once what its page says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from onyx.cli.commands.init import Kind

pytestmark = pytest.mark.server
TIMEOUT_S = 120.0
ENDLESS = ("kafka", "requests")
"""Projects whose jobs have no end; their tests run them, or their functions."""


def python(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("kind", get_args(Kind))
def test_a_new_project_runs_and_its_tests_pass(kind: str, tmp_path: Path) -> None:
    python(tmp_path, "-m", "onyx.cli", "init", kind, "fresh")
    folder = tmp_path / "fresh"
    assert "is valid" in python(folder, "-m", "onyx.cli", "validate", "job.yaml")
    if kind not in ENDLESS:
        assert "job fresh is completed" in python(folder, "-m", "onyx.cli", "run", "job.yaml")
    assert " passed" in python(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider")
