"""The product survives everything that the simulator can do to it, a seed means one run, and the
simulator finds what it is there to find.

`make test` runs the seeds that find planted bugs (`tests.sim.seeds`) and a few more, on the product
as it is, and looks for some of the bugs; `make test-all` runs many seeds, and looks for all.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sim.seeds import COMMAND, FOUND, chosen, first_found, run_with
from tests.sim.swarm import FAMILIES, draw_options
from tests.sim.worlds import WORLD_OF, WORLDS

ROOT = Path(__file__).parents[2]
FEW = {"cluster": 20}
MANY = {"cluster": 500, "windows": 24, "requests": 24, "keyed": 24, "joins": 24}
"""So many seeds from 0 on; `make sim SEEDS=20000` runs more."""
PART = {"cluster": 250}
PART_OF_JOBS = 24
"""Seeds of one test: several run at once, and none takes long enough to look as if it hung."""
QUICK = {"cluster": 0, "windows": 4, "requests": 2, "keyed": 2, "joins": 4}
"""Seeds of short runs."""
SEARCHED = 60
"""Seeds among which a bug is looked for that its seed does not find."""
PARTS = [
    (world, range(begin, begin + PART.get(world, PART_OF_JOBS)))
    for world in WORLDS
    for begin in range(0, MANY[world], PART.get(world, PART_OF_JOBS))
]


def check(world: str, seeds: Iterable[int]) -> None:
    """No invariant breaks."""
    for outcome in WORLDS[world].outcomes(seeds):
        assert outcome.problem is None, WORLDS[world].explain(outcome, None)


@pytest.mark.parametrize("world", WORLDS)
def test_no_invariant_breaks(world: str) -> None:
    check(world, {*chosen(world), *range(FEW.get(world, 0))})


@pytest.mark.slow
@pytest.mark.parametrize(("world", "seeds"), PARTS)
def test_no_invariant_breaks_by_many_seeds(world: str, seeds: range) -> None:
    check(world, seeds)


def bugs() -> Iterator[Any]:
    """All planted bugs. For each seed of `make test` one is looked for there, which shows that the
    seed is worth its time; `make test-all` looks for all."""
    seen: set[tuple[str, int]] = set()
    for bug, world in WORLD_OF.items():
        seed = world, FOUND[world][bug]
        yield pytest.param(bug, marks=[pytest.mark.slow] if seed in seen else [])
        seen.add(seed)


@pytest.mark.parametrize("bug", list(bugs()))
def test_a_planted_bug_is_found(bug: str) -> None:
    world = WORLD_OF[bug]
    kind, seed = WORLDS[world], FOUND[world][bug]
    outcome = run_with(world, bug, seed)
    if outcome.problem is not None:
        invariant = outcome.problem.split(":")[0]
        assert invariant in kind.found_by[bug], f"is not understood: {kind.explain(outcome, bug)}"
        return
    found = first_found(world, bug, (*chosen(world), *range(SEARCHED)))
    renew = f"seed {seed} does not find it any more: run {COMMAND} {world}"
    assert found is not None, f"none of {SEARCHED} seeds finds {bug}, and {renew}"
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn(f"seed {found} finds {bug}; {renew}", stacklevel=1)


def test_a_run_depends_on_its_seed_only() -> None:
    """Another process, whose sets have another order, gives the same runs."""
    script = "from tests.sim.test_swarms import hashes\nfor line in hashes(): print(line)"
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)}
    reported = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    here = hashes()
    assert reported.splitlines() == here
    assert len(set(here)) == len(WORLDS)


def hashes() -> list[str]:
    """Of one run of each world."""
    return [WORLDS[world].simulate(seed).trace_hash for world, seed in QUICK.items()]


def test_every_fault_family_is_on_in_a_third_of_the_schedules() -> None:
    seeds = range(500)
    on = [family for seed in seeds for family, _ in draw_options(seed).periods_s]

    assert [family for family in FAMILIES if on.count(family) < len(seeds) / 3] == []
