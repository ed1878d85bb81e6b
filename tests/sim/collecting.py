"""The collection of garbage by the oldest of the simulated groups: what `peer.watch.collecting` and
`history.collection` do, a request a step. Every step may be the last one of its process, come late
because the process was frozen, or have no answer; the next round of anybody begins anew.

What is old enough is decided by the product's own code. What lies beside the log is not simulated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.zk import Reply, Status

from onyx.history.collection import expired, forget, trim_to
from onyx.ids import Position
from onyx.replica.state import Replica
from onyx.settings import HistorySettings

if TYPE_CHECKING:
    from tests.sim.process import Process

SETTINGS = HistorySettings(jobs_max=1, remembered_max=2, entries_max=12)
DELETED_AT_ONCE = 3


class Collecting:
    """Of one incarnation."""

    def __init__(self, process: Process, interval_s: float) -> None:
        self._process = process
        self._interval_s = interval_s
        self._wait()

    def _wait(self) -> None:
        self._process.later(self._process.chance.uniform(0, 2 * self._interval_s), self._round)

    def _round(self) -> None:
        process = self._process
        self._wait()
        if process.state is None or not process.permitted():
            return
        replica = process.replica
        if replica.groups[:1] != (process.group,):
            return
        self._forget(replica)
        process.client.call("origin", (), lambda reply: self._trim(replica, reply))

    def _forget(self, replica: Replica) -> None:
        needed = {replica.upgrades(job) for job in replica.jobs} - {None}
        jobs = expired(replica, needed, (), 0, SETTINGS)  # type: ignore[arg-type]
        commands = forget(replica, jobs, (), self._process.group, SETTINGS.remembered_max)
        queue = self._process.queue
        if commands and queue is not None and not queue.fenced:
            self._process.world.log(self._process.group, "forgets", jobs)
            self._process.send(queue.enqueue(commands))

    def _trim(self, replica: Replica, reply: Reply) -> None:
        if reply.status is not Status.OK:
            return
        origin, _, version = reply.value
        position = trim_to(Position(origin), replica.version, (), 0, SETTINGS)
        if position is None:
            return
        cluster = self._process.cluster
        stored = cluster.encode(cluster.checkers.replicas[position])
        self._process.client.call(
            "put_origin", ((position, stored), version), lambda put: self._delete(put)
        )

    def _delete(self, put: Reply) -> None:
        """Also what others have left, whoever moved the origin."""
        if put.status is not Status.CONNECTION_LOSS:
            self._process.client.call("origin", (), lambda reply: self._list(reply))

    def _list(self, reply: Reply) -> None:
        if reply.status is Status.OK:
            origin = reply.value[0]
            self._process.client.call("children", (False,), lambda found: self._some(origin, found))

    def _some(self, origin: int, found: Reply) -> None:
        if found.status is not Status.OK:
            return
        old = sorted(each for each in found.value if each <= origin)
        for start in range(0, len(old), DELETED_AT_ONCE):
            some = tuple(old[start : start + DELETED_AT_ONCE])
            self._process.client.call("delete", (some,), lambda _: None)
