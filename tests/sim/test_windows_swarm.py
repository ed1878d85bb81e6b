"""Windowed jobs survive everything that the simulator can do to them; planted bugs are found."""

from __future__ import annotations

import pytest
from tests.sim.swarming import check_that_runs_depend_on_their_seeds, first_found
from tests.sim.windows.bugs import NAMES
from tests.sim.windows.run import explain, outcomes, simulate

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
SEEDS_MAX = 60


@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(LONG_SEEDS, marks=pytest.mark.long)])
def test_no_invariant_breaks(seeds: range) -> None:
    for outcome in outcomes(seeds, bug=None, jobs=1):
        assert outcome.problem is None, explain(outcome, bug=None)


@pytest.mark.parametrize("bug", NAMES)
def test_a_planted_bug_is_found(bug: str) -> None:
    first = FIRST_SEEDS.get(bug, 0)
    found = first_found(outcomes(range(first, first + SEEDS_MAX), bug, jobs=1))
    assert found is not None, f"{bug} is not found"
    assert found.problem is not None
    assert found.problem.split(":")[0] in FOUND_BY[bug], explain(found, bug)


def test_a_run_depends_on_its_seed_only() -> None:
    check_that_runs_depend_on_their_seeds(simulate)
