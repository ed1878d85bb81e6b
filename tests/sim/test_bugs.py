"""The simulator finds what it is there to find: planted bugs, each within 5,000 schedules."""

from __future__ import annotations

import pytest
from tests.sim.__main__ import STEPS, outcomes
from tests.sim.bugs import NAMES

pytestmark = pytest.mark.simulation
SEEDS = range(5_000)
EXPECTED = {
    "B1": {"L3"},
    "B2": {"L4"},
    "B3": {"V1"},
    "B4": {"V1"},
    "B5": {"L1"},
    "B6": {"L4"},
}
"""The invariants by which each may be found: another one would mean that it is not understood."""


FIRST_SEEDS = {"B1": 300}
"""Where to begin to look for one that shows in one of some hundred schedules only."""


@pytest.mark.parametrize("bug", NAMES)
def test_a_planted_bug_is_found(bug):
    runs = outcomes(SEEDS[FIRST_SEEDS.get(bug, 0) :], STEPS, bug, jobs=1)
    found = next(each for each in runs if each.problem is not None)

    assert found.problem.split(":")[0] in EXPECTED[bug]
