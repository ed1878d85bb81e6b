"""Joins of two streams survive everything that the simulator can do to them; planted bugs are
found."""

from __future__ import annotations

import pytest
from tests.sim.joins.bugs import NAMES
from tests.sim.joins.run import simulate
from tests.sim.swarming import (
    check_that_it_is_found,
    check_that_nothing_breaks,
    check_that_runs_depend_on_their_seeds,
)

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


@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(LONG_SEEDS, marks=pytest.mark.slow)])
def test_no_invariant_breaks(seeds: range) -> None:
    check_that_nothing_breaks(seeds, "joins", simulate)


@pytest.mark.parametrize("bug", NAMES)
def test_a_planted_bug_is_found(bug: str) -> None:
    check_that_it_is_found(bug, FIRST_SEEDS.get(bug, 0), FOUND_BY[bug], "joins", simulate)


def test_a_run_depends_on_its_seed_only() -> None:
    check_that_runs_depend_on_their_seeds(simulate)
