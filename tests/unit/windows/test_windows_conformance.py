from pathlib import Path

import pytest
from tests.conformance.__main__ import run_file

CASES = Path(__file__).parents[2] / "conformance" / "cases"


@pytest.mark.parametrize(
    "name",
    ["window_ids", "units", "aggregations", "triggers", "window_jobs_0.9", "window_jobs_0.10plus"],
)
def test_the_originals_cases_pass_or_are_decided(name):
    passed, failures, _ = run_file(CASES / f"{name}.json")
    assert failures == []
    assert passed > 0
