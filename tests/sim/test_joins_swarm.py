"""Joins of two streams survive everything that the simulator can do to them; planted bugs are
found."""

from __future__ import annotations

import pytest
from tests.sim.joins.bugs import NAMES
from tests.sim.joins.run import simulate
from tests.sim.swarming import check_that_runs_depend_on_their_seeds, first_found
from tests.sim.windows.run import explain, outcomes

pytestmark = pytest.mark.simulation
SEEDS, LONG_SEEDS = range(12), range(12, 120)
FOUND_BY = {
    "M1": {"M1", "W5"},
    "M2": {"M1", "W5"},
    "M3": {"M1"},
    "M4": {"M1"},
    "M5": {"M1", "W5"},
    "M6": {"M1"},
}
"""The invariants by which each may be found: another one would mean that it is not understood."""
FIRST_SEEDS = {"M2": 1, "M3": 2, "M4": 2}
"""Where to begin to look for those that show in some of the jobs only."""
SEEDS_MAX = 60


@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(LONG_SEEDS, marks=pytest.mark.long)])
def test_no_invariant_breaks(seeds: range) -> None:
    for outcome in outcomes(seeds, bug=None, jobs=1, one_of=simulate):
        assert outcome.problem is None, explain(outcome, None, "joins")


@pytest.mark.parametrize("bug", NAMES)
def test_a_planted_bug_is_found(bug: str) -> None:
    first = FIRST_SEEDS.get(bug, 0)
    found = first_found(outcomes(range(first, first + SEEDS_MAX), bug, jobs=1, one_of=simulate))
    assert found is not None, f"{bug} is not found"
    assert found.problem is not None
    assert found.problem.split(":")[0] in FOUND_BY[bug], explain(found, bug, "joins")


def test_a_run_depends_on_its_seed_only() -> None:
    check_that_runs_depend_on_their_seeds(simulate)
