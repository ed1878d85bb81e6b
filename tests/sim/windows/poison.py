"""Segments that end the process which works on them, a few times: then they let themselves be
worked on, so that all that must hold of a job still holds, and nobody else is ever blamed.

The process dies where it stands: what its task would do about the exception by which the function
is left is not seen by anybody. Its flight recorder is the real one, and so is what the supervisor
makes of it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from tests.support.log.runs import by_job

from onyx.ids import TaskName
from onyx.processes import exit_examiner
from onyx.replica.state import Replica
from onyx.telemetry import recorder
from onyx.telemetry.recorder import Recorder

if TYPE_CHECKING:
    from tests.sim.windows.process import Process
    from tests.sim.windows.world import World

DEATHS = 2
"""Of all poisonous segments together: with one more, one that was in the batches of all of them
would be refused."""


class Death(BaseException):
    """The process has ended inside a function."""


class Poison:
    """Which segments are poisonous, and what their victims have left.

    Args:
        choice: draws whether there are any, and which.
    """

    def __init__(self, world: World, choice: random.Random) -> None:
        self._world = world
        places = [
            (partition, position)
            for partition, segments in enumerate(world.story.partitions)
            for position, segment in enumerate(segments)
            if "bad" not in segment and segment["leaves"]
        ]
        chosen = choice.sample(places, min(len(places), choice.choice((0, 0, 1, 2))))
        self._left = dict.fromkeys(chosen, DEATHS // len(chosen) if chosen else 0)
        self._leaves = {
            world.story.partitions[partition][position]["leaves"][0]["number"]: (
                partition,
                position,
            )
            for partition, position in chosen
        }
        """By the first leaf of each."""
        self._reports = 0

    def guarded(self, process: Process, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function in which the process dies over such a segment."""

        def called(segment: Mapping[str, Any]) -> Any:
            leaves = segment["leaves"] if _is_whole(segment) else None
            place = self._leaves.get(leaves[0]["number"]) if leaves else None
            if place is not None and self._left[place]:
                self._left[place] -= 1
                process.deaths = process.recorded.deaths()
                raise Death
            return function(segment)

        return called

    def reported(self, process: Process, replica: Replica) -> Replica:
        """The replica when the successor of a dead process has said over what it died."""
        job = self._world.job_id
        known = replace(replica, jobs=(job,))
        for report in exit_examiner.reports(process.deaths or (), lived_s=1.0):
            self._reports += 1
            named = replace(report, loss=f"{self._reports}")
            known = named.apply(known, known.version)
        return replace(replica, records=known.records)

    def check(self, replica: Replica) -> None:
        """P1: nobody is blamed but those who have done it."""
        for counts in by_job(replica, "losses").values():
            for key, count in counts.items():
                partition, position = map(int, key.split()[0].split(":"))
                first = replica.partitions(self._world.job_id)[TaskName("read")].first
                blamed = (partition - first, position)
                assert blamed in self._left, f"P1: {key} is innocent"
                assert count <= DEATHS, f"P1: {key} has lost {count}"


def recording(world: World) -> Recorder:
    """The flight recorder of one process."""
    descriptor = recorder.create()
    made = Recorder(descriptor, world.clock)
    os.close(descriptor)
    return made


def _is_whole(segment: Mapping[str, Any]) -> bool:
    """Whether it is one of the source that is good for something."""
    return "leaves" in segment and "bad" not in segment
