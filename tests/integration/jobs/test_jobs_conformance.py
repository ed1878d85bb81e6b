"""The original's own cases of whole jobs, on a cluster in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conformance.__main__ import run_file

pytestmark = [pytest.mark.server, pytest.mark.slow]
FILE = Path(__file__).parents[2] / "conformance" / "jobs" / "integration_jobs.json"


def test_the_originals_jobs_end_as_there() -> None:
    passed, failures, _ = run_file(FILE)
    assert failures == []
    assert passed == 43
