"""Windowed jobs survive everything that the simulator can do to them; planted bugs are found."""

from __future__ import annotations

import pytest
from tests.sim.swarming import (
    check_that_it_is_found,
    check_that_nothing_breaks,
    check_that_runs_depend_on_their_seeds,
)
from tests.sim.windows.bugs import NAMES
from tests.sim.windows.run import simulate

pytestmark = pytest.mark.simulation
SEEDS, LONG_SEEDS = range(10), range(10, 60)
FOUND_BY = {
    "B7": {"C5"},
    "B9": {"F2"},
    "B13": {"W3"},
    "B14": {"W4"},
    "B19": {"C5"},
    "B20": {"C5"},
    "B21": {"C5"},
    "B22": {"W1"},
    "B23": {"V3"},
    "B24": {"C5"},
    "B25": {"W2"},
    "B26": {"O1"},
    "B27": {"O1"},
    "B28": {"O1"},
}
"""The invariants by which each may be found: another one would mean that it is not understood."""
FIRST_SEEDS = {"B9": 12, "B14": 2, "B19": 7, "B21": 40, "B26": 4, "B27": 4, "B28": 4}
"""Where to begin to look for those that show in one of some dozen jobs only."""


@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(LONG_SEEDS, marks=pytest.mark.slow)])
def test_no_invariant_breaks(seeds: range) -> None:
    check_that_nothing_breaks(seeds, "windows", simulate)


@pytest.mark.parametrize("bug", NAMES)
def test_a_planted_bug_is_found(bug: str) -> None:
    check_that_it_is_found(bug, FIRST_SEEDS.get(bug, 0), FOUND_BY[bug], "windows", simulate)


def test_a_run_depends_on_its_seed_only() -> None:
    check_that_runs_depend_on_their_seeds(simulate)
