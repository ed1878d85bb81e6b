"""The first example on either engine: the same manifest, the same rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.servers.processes import ran

HELLO = Path(__file__).parents[3] / "examples" / "hello"
TIMEOUT_S = 400.0


@pytest.mark.server
@pytest.mark.parametrize("engine", ["peers", "spark"])
def test_hello_greets_the_same_people_on_either_engine(engine: str) -> None:
    done = ran(HELLO, "run", "job.yaml", "--engine", engine, timeout_s=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    greetings = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert sorted(greetings) == [
        '{"greeting":"Hello, Ada of London!"}',
        '{"greeting":"Hello, Edsger of Rotterdam!"}',
        '{"greeting":"Hello, Grace of New York!"}',
    ]
