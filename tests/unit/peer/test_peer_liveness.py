"""Which thread is stuck, and why a group does not take part."""

from __future__ import annotations

import pytest
from immutables import Map
from msgspec.structs import replace
from tests.support.clocks import ManualClock

from onyx.ids import GroupId, PeerId
from onyx.peer.group import GroupState
from onyx.peer.liveness import Liveness, WatchedThread, obstacle
from onyx.replica.state import Replica

ME = GroupId("g1")
PEERS = (PeerId("p1"), PeerId("p2"))


def test_a_thread_without_a_beat_for_too_long_is_named() -> None:
    clock = ManualClock()
    liveness = Liveness(clock, stalled_after_s=60.0)
    assert liveness.stalled() == "", "nothing has to move that has never moved"
    for thread in WatchedThread:
        liveness.beat(thread)
    clock.advance(60.0)
    assert liveness.stalled() == ""
    liveness.beat(WatchedThread.GROUP)
    liveness.beat(WatchedThread.LOG)
    liveness.beat(WatchedThread.REQUESTS)
    clock.advance(1.0)
    assert liveness.stalled() == "the thread that the tasks share has not moved for 61 s"
    liveness.forget(WatchedThread.TASKS)
    assert liveness.stalled() == ""


JOINED = GroupState(
    ME, Replica(groups=(ME,), groups_index=Map({ME: PEERS[:1], GroupId("g2"): PEERS[1:]}))
)


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (None, "connecting to the log"),
        (GroupState(ME, Replica()), "joining the cluster"),
        (replace(JOINED, connected=False), "joining the cluster: 1 of 2 peers take part"),
        (replace(JOINED, leaving=True), "leaving the cluster"),
        (JOINED, "joining the cluster: 1 of 2 peers take part"),
        (replace(JOINED, replica=replace(JOINED.replica, groups_index=Map({ME: PEERS}))), ""),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_keeps_a_group_from_taking_part_is_told(state: GroupState | None, why: str) -> None:
    assert obstacle(state, PEERS) == why


def test_a_group_takes_part_while_it_has_the_lease_whatever_the_connection_seems_to_be() -> None:
    whole = replace(JOINED, replica=replace(JOINED.replica, groups_index=Map({ME: PEERS})))
    assert obstacle(replace(whole, connected=False), PEERS) == ""
    assert obstacle(whole, PEERS, silent_s=7.2) == "paused: the log has not answered for 7 s"
    assert obstacle(None, PEERS, silent_s=7.2) == "connecting to the log"
