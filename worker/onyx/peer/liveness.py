"""Liveness and readiness of a peer group (`/livez`, `/readyz`).

Live: its threads move. A thread beats in each of its rounds. Only threads that never block for long
are watched: the group's own, the one that the tasks share, and the log's. A thread of its own may
take as long as its blocking task does.

Ready: the group takes part in the cluster with all its peers (`obstacle`).
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from onyx.base.seams import Clock
from onyx.ids import PeerId
from onyx.peer.group import GroupState


class Watched(StrEnum):
    """Threads that must move."""

    GROUP = "the thread of the peer group"
    TASKS = "the thread that the tasks share"
    LOG = "the thread of the log"
    REQUESTS = "the thread of requests"


class Liveness:
    """The beats of one peer group, over all its incarnations. Any thread may call.

    Args:
        clock: monotonic time.
        stalled_after_s: a thread without a beat for so long is stuck.
    """

    def __init__(self, clock: Clock, stalled_after_s: float) -> None:
        self._clock = clock
        self._stalled_after_s = stalled_after_s
        self._beats: dict[Watched, float] = {}

    def beat(self, thread: Watched) -> None:
        """This thread moves; from now on it has to."""
        self._beats[thread] = self._clock.monotonic_s()

    def forget(self, *threads: Watched) -> None:
        """These threads have ended."""
        for thread in threads:
            self._beats.pop(thread, None)

    def stalled(self) -> str:
        """Which thread has not moved for too long; empty when all move."""
        now_s = self._clock.monotonic_s()
        for thread, beat_s in sorted(self._beats.copy().items()):
            if now_s - beat_s > self._stalled_after_s:
                return f"{thread} has not moved for {now_s - beat_s:.0f} s"
        return ""


def obstacle(
    state: GroupState | None, peers: Collection[PeerId], silent_s: float | None = None
) -> str:
    """Why a group does not take part with all its peers; empty when it does.

    What counts is the lease, not the connection: while it is held a group works through a short
    break, and when it has ended the group is paused though the connection may seem to live.

    Args:
        state: of the present incarnation; None while it connects.
        peers: that it offers.
        silent_s: seconds for which ZooKeeper has not answered, if the lease has ended; else None.
    """
    if state is None:
        return "connecting to ZooKeeper"
    if state.leaving:
        return "leaving the cluster"
    if silent_s is not None:
        return f"paused: ZooKeeper has not answered for {silent_s:.0f} s"
    if not state.joined:
        return "joining the cluster"
    there = set(peers).intersection(state.replica.groups_index.get(state.group, ()))
    if len(there) < len(peers):
        return f"joining the cluster: {len(there)} of {len(peers)} peers take part"
    return ""
