"""Seeds of the world of windows: what came of each, and how to repeat it."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from tests.sim.windows.bugs import planted
from tests.sim.windows.violation import Violation
from tests.sim.windows.world import World

CHUNK_SEEDS = 5
Planting = Callable[[str | None], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one run."""

    seed: int
    problem: str | None
    """The invariant that was broken, by its name first."""
    rounds: int
    virtual_s: float
    options: str
    recent: tuple[str, ...]
    trace_hash: str


def simulate(
    seed: int,
    bug: str | None = None,
    world_of: type[World] = World,
    planting: Planting = planted,
) -> Outcome:
    """One run; the first violation ends it.

    Args:
        world_of: which kind of jobs.
        planting: plants a bug of that kind.
    """
    problem = None
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # simulated faults are no news
    try:
        with planting(bug):
            world = world_of(seed)
            began_s = world.clock.monotonic_s()
            try:
                world.run()
            except (AssertionError, Violation) as error:
                problem = str(error) or traceback.format_exc()
            except Exception:
                problem = f"U: {traceback.format_exc()}"
    finally:
        logging.disable(disabled)
    story, options = world.story, world.options
    return Outcome(
        seed,
        problem,
        world.rounds,
        world.clock.monotonic_s() - began_s,
        f"{sorted(options.on)}, {options.settings.state}, {options.roll_limits}\n{story.spec}",
        tuple(world.events),
        world.trace.hexdigest(),
    )


Simulate = Callable[..., Outcome]


def outcomes(
    seeds: range, bug: str | None, jobs: int, one_of: Simulate = simulate
) -> Iterator[Outcome]:
    """In the order of the seeds, computed by `jobs` processes."""
    one = partial(one_of, bug=bug)
    if jobs == 1:
        yield from map(one, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(one, seeds, chunksize=CHUNK_SEEDS)


def explain(outcome: Outcome, bug: str | None, world: str = "windows") -> str:
    planted_bug = f" BUG={bug}" if bug else ""
    lines = [
        f"{world}, seed {outcome.seed}: {outcome.problem}",
        f"repeat with: make sim WORLD={world} SEED={outcome.seed}{planted_bug}",
        f"options: {outcome.options}",
        *(f"  {event}" for event in outcome.recent),
    ]
    return "\n".join(lines)
