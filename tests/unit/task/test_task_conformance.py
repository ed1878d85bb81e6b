from pathlib import Path

from tests.conformance.__main__ import run_file

CASES = Path(__file__).parents[2] / "conformance" / "cases"


def test_the_originals_cases_about_lifecycles_pass() -> None:
    passed, failures, _ = run_file(CASES / "lifecycles.json")
    assert failures == []
    assert passed > 0
