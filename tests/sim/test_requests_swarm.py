"""Jobs that take requests survive everything that the simulator can do to them and to clients;
planted bugs are found."""

from __future__ import annotations

import pytest
from tests.sim.requests.bugs import NAMES
from tests.sim.requests.run import simulate
from tests.sim.swarming import (
    check_that_it_is_found,
    check_that_nothing_breaks,
    check_that_runs_depend_on_their_seeds,
)

pytestmark = pytest.mark.simulation
SEEDS, LONG_SEEDS = range(12), range(12, 80)
FOUND_BY = {
    "R1": {"J1"},
    "R2": {"J1"},
    "R3": {"J1"},
    "R4": {"J3"},
    "R5": {"J2"},
    "R6": {"J2", "J5"},
    "R7": {"J2"},
    "R8": {"J4"},
    "R9": {"J5"},
    "R10": {"C5", "J2"},
    "R11": {"C5"},
    "R12": {"O1"},
    "R13": {"O1"},
    "R14": {"D2"},
}
"""The invariants by which each may be found: another one would mean that it is not understood."""
FIRST_SEEDS = {"R6": 83, "R7": 2, "R9": 1, "R10": 109, "R12": 3, "R13": 3}
"""Where to begin to look for those that show in one of some dozen jobs only."""


@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(LONG_SEEDS, marks=pytest.mark.slow)])
def test_no_invariant_breaks(seeds: range) -> None:
    check_that_nothing_breaks(seeds, "requests", simulate)


@pytest.mark.parametrize("bug", NAMES)
def test_a_planted_bug_is_found(bug: str) -> None:
    check_that_it_is_found(bug, FIRST_SEEDS.get(bug, 0), FOUND_BY[bug], "requests", simulate)


def test_a_run_depends_on_its_seed_only() -> None:
    check_that_runs_depend_on_their_seeds(simulate)
