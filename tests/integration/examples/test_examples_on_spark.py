"""The first example on either engine: the same manifest, the same rows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HELLO = Path(__file__).parents[3] / "examples" / "hello"
TIMEOUT_S = 400.0


@pytest.mark.server
@pytest.mark.parametrize("engine", ["peers", "spark"])
def test_hello_greets_the_same_people_on_either_engine(engine: str) -> None:
    command = [sys.executable, "-m", "onyx.cli", "run", "job.yaml", "--engine", engine]
    done = subprocess.run(command, cwd=HELLO, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    greetings = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert sorted(greetings) == [
        '{"greeting":"Hello, Ada of London!"}',
        '{"greeting":"Hello, Edsger of Rotterdam!"}',
        '{"greeting":"Hello, Grace of New York!"}',
    ]
