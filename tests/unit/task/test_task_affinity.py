"""Which peer of a child gets a batch that any may have: one of the same process, if it can."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.log.replica_log import ReplicaLog

from onyx.flow.batch import Batch
from onyx.ids import GroupId, JobId, PeerId, TaskName
from onyx.model.parsing.job import parse_mapping
from onyx.task.channels.outbox import Outbox
from onyx.task.channels.wiring import wire
from onyx.transport.interface import Channel, Load

JOB = {
    "apiVersion": "onyx.dev/v1beta1",
    "kind": "OnyxJob",
    "metadata": {"name": "j"},
    "spec": {
        "workflow": [["read", "parse"], ["parse", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "generator", "options": {"segments": 1}},
            {"name": "parse", "type": "function", "fn": "m:f"},
            {"name": "write", "type": "output", "plugin": "blackhole"},
        ],
    },
}


class Peers:
    """A transport to peers: some are hungry, some busy, some have room. It knows who got what."""

    def __init__(self, hungry: str, busy: str, room: str = "a b c d") -> None:
        self.hungry, self.busy, self.room = hungry.split(), busy.split(), room.split()
        self.got: list[str] = []

    def load(self, group: GroupId, channel: Channel) -> Load:
        busy = Load.BUSY if str(group) in self.busy else Load.BEHIND
        return Load.HUNGRY if str(group) in self.hungry else busy

    def send(self, group: GroupId, channel: Channel, item: Any, more: bool = False) -> bool:
        if str(group) in self.room:
            self.got.append(str(group))
        return str(group) in self.room


def sent(
    log: ReplicaLog, peers: Peers, batches: int = 2, manifest: dict[str, Any] = JOB
) -> tuple[list[str], int]:
    """To which processes a task in process b sends, and how many batches wait."""
    log.submit("j")
    job, read = JobId("j"), TaskName("read")
    peer = next(each for each in log.new.run(job).allocation[read] if each.startswith("b"))
    wiring = wire(log.new, job, parse_mapping(manifest), PeerId(peer), read)
    outbox = Outbox(peers, wiring)  # type: ignore[arg-type]
    for number in range(batches):
        outbox.put(wiring.children[0], Batch([{"n": number}]))
    outbox.drain()
    return peers.got, len(outbox)


@pytest.mark.parametrize(
    ("hungry", "busy", "room", "expected"),
    [
        ("a b c", "", "a b c", (["b", "b"], 0)),
        ("a c", "b", "a b c", (["c", "a"], 0)),
        ("a", "b c", "a b c", (["a", "a"], 0)),
        ("", "a b c", "a b c", (["b", "b"], 0)),
        ("", "a c", "a b c", ([], 2)),
        ("a c", "", "a b c", (["c", "a"], 0)),
        ("b", "a", "a c", ([], 2)),
    ],
)
def test_a_batch_leaves_the_process_only_for_one_that_is_hungry_while_this_one_is_not(
    hungry: str, busy: str, room: str, expected: tuple[list[str], int]
) -> None:
    log = ReplicaLog().join("a", "b", "c", peers=3)
    assert sent(log, Peers(hungry, busy, room)) == expected


def test_a_job_that_is_not_local_only_sends_to_all_in_turn() -> None:
    log = ReplicaLog().join("a", "b", "c", peers=3)
    log.submit("j", task_scheduler="colocated")
    spec = JOB["spec"] | {"taskScheduler": "colocated", "localOnly": False}  # type: ignore[operator]
    assert sorted(sent(log, Peers("a b c", ""), 3, JOB | {"spec": spec})[0]) == ["a", "b", "c"]


def test_processes_take_turns_where_this_one_has_no_peer_of_the_child() -> None:
    log = ReplicaLog().join("a", "b", "c", "d", "e", peers=1)
    assert sent(log, Peers("", "", "c d"), 3) == (["d", "c", "d"], 0)
