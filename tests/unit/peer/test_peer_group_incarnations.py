"""One process over several incarnations: what it offered stays its own, and the log must be the
same. Real threads, a log in memory."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator

import pytest
from tests.support.log.memory_log import MemoryLog
from tests.support.patience import WAIT_S

from onyx.base.seams import SystemClock
from onyx.errors import UserError
from onyx.ids import NO_POSITION, GroupId, Position
from onyx.log.interface import GroupLog, Origin
from onyx.peer.context import new_context
from onyx.peer.membership import PeerGroup
from onyx.peer.router.router import NOT_A_MEMBER
from onyx.replica import machine
from onyx.replica.command import Entry
from onyx.replica.state import Replica
from onyx.requests.request import Answer, Append, Caller, Form, Payload, RequestTarget, Status
from onyx.settings import LogSettings, Settings
from onyx.transport.interface import Handlers
from onyx.transport.local import LocalTransport
from onyx.user_code.resolve import Resolver


class FastClock(SystemClock):
    """The machine's time, which the test can let run ahead."""

    ahead_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.ahead_s


class Process:
    """A peer group on a log in memory, and a reader of that log."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.known: list[int | None] = []
        self.wiped = False
        settings = Settings(log=LogSettings(join_back_off_s=0.01))
        self.clock = FastClock()
        self.context = new_context(settings, Resolver(()), clock=self.clock)
        self.group = PeerGroup(self.context, self._open, self._transport)
        self.handlers: Handlers | None = None
        self.early: list[Answer | RequestTarget] = []
        """What clients are answered before the log is read."""
        self._replica = Replica()
        self._items: queue.Queue[Entry | Origin] = queue.Queue()
        self.log.client().subscribe(NO_POSITION, self._items.put)

    def _open(self, group: GroupId, identity: int | None) -> GroupLog:
        self.known.append(identity)
        if self.wiped:
            raise UserError("the log was made anew")
        log = self.log.group(group)
        origin = log.origin

        def asked_meanwhile(above: Position = NO_POSITION) -> Origin:
            self.early += self.answers()
            return origin(above)

        vars(log)["origin"] = asked_meanwhile
        return log

    def _transport(self) -> LocalTransport:
        transport = LocalTransport()
        start = transport.start

        def started(group: GroupId, handlers: Handlers) -> None:
            self.handlers = handlers
            start(group, handlers)

        vars(transport)["start"] = started
        return transport

    def answers(self) -> list[Answer | RequestTarget]:
        """What a client is answered over gRPC, and over HTTP."""
        assert self.handlers is not None
        append = Append("orders", "in", Payload(Form.JSON_LINES, b"{}"))
        found = asyncio.run(self.context.current_router.find("orders", "in", True, Caller()))
        return [self.handlers.on_append(append).result(WAIT_S), found]

    def until(self, reached: Callable[[Replica], bool]) -> Replica:
        """Read the log until the replica is as wanted."""
        while not reached(self._replica):
            item = self._items.get(timeout=WAIT_S)
            assert isinstance(item, Entry)
            self._replica = machine.apply(self._replica, item)
        return self._replica

    def lose_session(self) -> GroupId:
        assert self.group.group is not None
        lost = self.group.group
        self.log.expire(lost)
        return lost


@pytest.fixture
def process() -> Iterator[Process]:
    process = Process()
    process.group.start()
    yield process
    process.group.stop()


def test_a_peer_is_taken_back_under_its_first_id_after_a_new_incarnation(process: Process) -> None:
    first, second = process.group.add_peers(2)
    process.until(lambda replica: set(replica.peers) == {first, second})
    lost = process.lose_session()
    replica = process.until(lambda replica: lost not in replica.groups and len(replica.peers) == 2)
    assert not {first, second}.intersection(replica.peers), "ids are never used again"
    process.group.remove_peer(first)
    process.until(lambda replica: len(replica.peers) == 1)
    process.group.remove_peer(first)
    process.group.remove_peer(second)
    process.until(lambda replica: not replica.peers)


def test_a_peer_is_taken_back_under_the_id_that_it_has_now(process: Process) -> None:
    (first,) = process.group.add_peers(1)
    process.until(lambda replica: replica.peers == (first,))
    process.lose_session()
    replica = process.until(lambda replica: replica.peers not in ((), (first,)))
    process.group.remove_peer(replica.peers[0])
    process.until(lambda replica: not replica.peers)


def test_the_next_incarnation_asks_for_the_log_that_the_last_one_knew(process: Process) -> None:
    (first,) = process.group.add_peers(1)
    process.until(lambda replica: replica.peers == (first,))
    process.wiped = True
    process.lose_session()
    assert process.group.wait(WAIT_S)
    assert process.known[0] is None
    assert process.known[1] is not None
    assert isinstance(process.group.failure, UserError)


def test_until_a_worker_has_read_the_log_clients_come_again(process: Process) -> None:
    process.group.add_peers(2)
    process.until(lambda replica: len(replica.peers) == 2)
    pause = threading.Event()
    while any(
        isinstance(each, Answer) and each.status is Status.UNAVAILABLE for each in process.answers()
    ):
        pause.wait(0.001)
    read = [
        f"{each.status}: {each.reason}" for each in process.answers() if isinstance(each, Answer)
    ]
    assert read == ["unknown: there is no job 'orders'"] * 2
    assert process.early == [NOT_A_MEMBER] * 2
    process.lose_session()
    process.until(lambda replica: len(process.early) == 4)
    assert process.early == [NOT_A_MEMBER] * 4, "so it is in the next incarnation"


def test_what_keeps_the_group_from_taking_part_is_told_as_it_changes(process: Process) -> None:
    def becomes(wanted: str) -> None:
        pause = threading.Event()
        for _ in range(int(WAIT_S / 0.001)):
            found = process.group.obstacle()
            if found == wanted or (wanted and found.startswith(wanted)):
                return
            pause.wait(0.001)
        assert process.group.obstacle() == wanted

    process.group.add_peers(2)
    becomes("")
    assert process.group.stalled() == ""
    group = process.group.group
    assert group is not None
    process.log.suspend(group)
    assert process.group.obstacle() == "", "it works on while it has the lease"
    process.clock.ahead_s = 3_600.0
    becomes("paused: the log has not answered for 36")
    process.clock.ahead_s = 0.0
    process.log.resume(group)
    becomes("")
    process.group.stop()
    assert process.group.obstacle() == "leaving the cluster"
