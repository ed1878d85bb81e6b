"""The five worlds: how a seed of each is run, and the bugs that are planted there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.sim import bugs as cluster_bugs
from tests.sim import cluster
from tests.sim.joins import bugs as join_bugs
from tests.sim.joins import run as joins
from tests.sim.keyed import bugs as keyed_bugs
from tests.sim.keyed import run as keyed
from tests.sim.planting import FoundBy, Plants
from tests.sim.requests import bugs as request_bugs
from tests.sim.requests import run as requests
from tests.sim.windows import bugs as window_bugs
from tests.sim.windows import run as windows

Outcome = Any
"""Of one run: `seed`, `problem` (the invariant that was broken, by its name first), `trace_hash`,
and what the world counts besides."""
CHUNK_SEEDS = 5


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of world."""

    simulate: Callable[..., Outcome]
    """Runs a seed; `bug` is planted meanwhile."""
    explain: Callable[..., str]
    """What went wrong in an outcome, with the line that repeats it."""
    plants: Plants
    found_by: FoundBy

    def outcomes(
        self, seeds: Iterable[int], bug: str | None = None, processes: int = 1, **more: Any
    ) -> Iterator[Outcome]:
        """In the order of the seeds."""
        one = partial(self.simulate, bug=bug, **more)
        if processes == 1:
            yield from map(one, seeds)
            return
        with ProcessPoolExecutor(processes) as pool:
            yield from pool.map(one, seeds, chunksize=CHUNK_SEEDS)


_JOBS = {
    "windows": (windows, window_bugs),
    "requests": (requests, request_bugs),
    "keyed": (keyed, keyed_bugs),
    "joins": (joins, join_bugs),
}
WORLDS = {
    "cluster": Kind(cluster.simulate, cluster.explain, cluster_bugs.PLANTS, cluster_bugs.FOUND_BY),
    **{
        world: Kind(run.simulate, partial(windows.explain, world=world), bugs.PLANTS, bugs.FOUND_BY)
        for world, (run, bugs) in _JOBS.items()
    },
}
WORLD_OF = {bug: world for world, kind in WORLDS.items() for bug in kind.plants}
"""Where each bug is looked for."""
