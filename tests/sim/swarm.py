"""What is drawn once for a seed: sizes, delays, and how often each kind of fault strikes.

Swarm testing: every family of faults is switched off with probability one half, because a fault
that is always there hides the bugs that need its absence.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.sim.zk import Delays

FAMILIES = (
    "crash",
    "freeze",
    "reset",
    "blackhole",
    "expiry",
    "outage",
    "collect",
    "leave",
    "peers",
    "jobs",
    "poison",
    "lifecycle",
)


@dataclass(frozen=True, slots=True)
class Options:
    processes: int
    peers_max: int
    """Most virtual peers of one process."""
    session_timeout_s: float
    start_s: float
    """Within which the processes start."""
    work_s: float
    """Longest step of a task."""
    delays: Delays
    """Of one message between a client and ZooKeeper."""
    periods_s: tuple[tuple[str, float], ...]
    """Mean time between two faults of a family; a family that is off is missing."""
    replays: bool
    """Whether the whole log is folded again at the end (L6)."""
    collects_s: float | None
    """Mean time between two rounds of the oldest group, which collects garbage; None: never."""


def draw_options(seed: int) -> Options:
    choice = random.Random(f"{seed}/swarm")
    return Options(
        processes=choice.choice((1, 2, 3, 3, 4, 5)),
        peers_max=choice.randint(1, 3),
        session_timeout_s=choice.choice((2.0, 4.0, 6.0)),
        start_s=choice.choice((0.0, 0.5, 5.0)),
        work_s=choice.choice((0.05, 0.5, 2.0)),
        delays=Delays(0.0005, choice.choice((0.001, 0.02, 0.3))),
        periods_s=tuple(
            (family, round(2.0 ** choice.uniform(0, 4.5), 2))
            for family in FAMILIES
            if choice.random() < 0.5
        ),
        replays=choice.random() < 0.25,
        collects_s=choice.choice((None, 0.5, 3.0)),
    )
