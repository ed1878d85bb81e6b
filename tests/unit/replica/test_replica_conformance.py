from pathlib import Path

import pytest
from tests.conformance.__main__ import run_file

CASES = Path(__file__).parents[2] / "conformance" / "cases"


@pytest.mark.parametrize(
    ("name", "cases"),
    [
        ("kafka_partitions", 18),
        ("log_commands", 67),
        ("log_sequences", 5),
        ("planning", 10),
        ("scheduler_end_states", 14),
        ("scheduler_reconfigure", 72),
        ("scheduler_units", 44),
    ],
)
def test_the_originals_cases_pass_or_are_decided(name, cases):
    passed, failures, _ = run_file(CASES / f"{name}.json")
    assert failures == []
    assert passed >= cases
