"""The original's own cases of valid and invalid jobs."""

from __future__ import annotations

from pathlib import Path

from tests.conformance.__main__ import run_file

CASES = Path(__file__).parents[2] / "conformance" / "cases"


def test_the_originals_jobs_are_valid_or_not_as_there_or_are_decided() -> None:
    passed, failures, _ = run_file(CASES / "validation.json")
    assert failures == []
    assert passed > 150
