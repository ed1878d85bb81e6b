"""What one incarnation looks at beside its events, about once a second.

The beats of liveness, the traffic, what tasks count, memory, tasks that do not advance, segments
that were dropped, the code that jobs run with, garbage in the log. On the thread of the group.
"""

from __future__ import annotations

import contextlib

from onyx.errors import Unavailable
from onyx.peer.life import Life
from onyx.peer.liveness import WatchedThread
from onyx.peer.watch.code_watch import CodeWatch
from onyx.peer.watch.collecting import GarbageCollection
from onyx.peer.watch.memory_watch import MemoryWatch, return_memory
from onyx.peer.watch.outcome_reports import OutcomeReports
from onyx.peer.watch.stall_watch import StallReports, StallWatch
from onyx.peer.work.workforce import Workforce
from onyx.replica.state import Replica
from onyx.task.task import BatchTask
from onyx.telemetry.container import ContainerMemory

LOOK_INTERVAL_S = 1.0


class GroupWatches:
    """The watches of one incarnation."""

    def __init__(self, life: Life, work: Workforce) -> None:
        self._life = life
        self._work = work
        self._next_look_s = 0.0
        context, log, background = life.context, life.log, life.background.run
        after_s = context.settings.telemetry.job_stalled_after_s
        reports = StallReports(log, background)
        self._stalls = StallWatch(reports, context.metrics, context.clock, after_s)
        counts = None if context.recorder is None else context.recorder.counts
        self._outcomes = OutcomeReports(log, context.clock, background, counts)
        self._code = CodeWatch(log, context.code, context.tags, background)
        self._memory = MemoryWatch(
            ContainerMemory(),
            context.clock,
            context.settings.task.memory_share_max,
            lambda: background(return_memory),
        )
        self._collecting = GarbageCollection(work.services, life.group, context.metrics)

    def look(self, replica: Replica) -> None:
        """Look at everything; each watch knows whether it is time."""
        liveness = self._life.context.liveness
        liveness.beat(WatchedThread.GROUP)
        now_s = self._life.context.clock.monotonic_s()
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + LOOK_INTERVAL_S
            self._life.log.call(lambda: liveness.beat(WatchedThread.LOG))
            self._life.telemetry.report_traffic(self._life.transport.counters())
        permitted = self._life.lease.permitted()
        if self._work.measuring.look(self._work.tasks.runners, replica):
            self._life.telemetry.report_zookeeper(self._life.log.traffic())
            with contextlib.suppress(Unavailable):  # tasks change; the next look is soon
                self._work.measuring.export(self._life.context.metrics)
        tasks = [each.task for each in self._work.tasks.runners]
        loaded = [each for each in tasks if isinstance(each, BatchTask) and each.loaded]
        self._memory.look([each.runtime.sizing for each in loaded])
        self._stalls.look(self._work.tasks.runners, replica, permitted)
        self._outcomes.look(replica.records, permitted)
        self._code.look(replica, permitted)
        self._collecting.look(replica, permitted)

    def report_outcomes(self) -> None:
        """Report the segments that were dropped, before the group leaves."""
        self._outcomes.end()

    def close(self) -> None:
        """The incarnation has ended."""
        self._life.context.liveness.forget(WatchedThread.LOG)
        self._stalls.close()
        self._work.measuring.close(self._life.context.metrics)
        self._collecting.close()
