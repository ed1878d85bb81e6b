"""What a stage in the middle reads: its inbox and its own result in turn, frames apart."""

from __future__ import annotations

from collections import deque

from tests.support.clocks import ManualClock

from onyx.flow.batch import Batch
from onyx.ids import AllocationVersion, JobId, PeerId, TaskName
from onyx.task.batching import BatchTimer
from onyx.task.parts import Work
from onyx.task.phases.read import read_either
from onyx.transport.interface import FLUSH, Channel, Control, Delivery

UPSTREAM = {PeerId("r1"): TaskName("read"), PeerId("r2"): TaskName("read"), PeerId("s"): "sum"}


def delivery(peer: str, item: Batch | Control) -> Delivery:
    channel = Channel(JobId("j"), AllocationVersion(1), PeerId(peer), PeerId("me"))
    return Delivery(channel, item)


class Stage:
    """Its work, and both of what it may read."""

    def __init__(self, *results: int) -> None:
        self.work = Work(timer=BatchTimer(ManualClock()))
        self.inbox: deque[list[Delivery]] = deque()
        self.results = deque(Batch([{"n": n}]) for n in results)

    def receive(self, *deliveries: Delivery) -> None:
        self.inbox.append(list(deliveries))

    def read(self) -> tuple[str | None, list[int], int] | None:
        """Where the batch is from, what is in it, and the control items behind it."""
        found = read_either(
            self.work,
            UPSTREAM,
            lambda: self.inbox.popleft() if self.inbox else [],
            lambda: [self.results.popleft()] if self.results else [],
        )
        if not found:
            return None
        work = self.work
        controls, work.controls = len(work.controls), []
        numbers = [] if work.batch is None else [each["n"] for each in work.batch.segments]
        upstream = None if work.batch is None else work.batch.upstream
        return None if work.own else upstream, numbers, controls


def batch(*numbers: int) -> Batch:
    return Batch([{"n": number} for number in numbers])


def test_segments_of_a_task_are_one_batch_and_those_of_another_the_next() -> None:
    stage = Stage()
    stage.receive(
        delivery("r1", batch(1)),
        delivery("s", batch(2)),
        delivery("s", FLUSH),
        delivery("r2", batch(3)),
    )
    assert stage.read() == ("read", [1, 3], 0)
    assert stage.read() == ("sum", [2], 1), "what follows from a batch goes behind it"
    assert stage.read() is None


def test_control_items_alone_are_something_to_read() -> None:
    stage = Stage()
    stage.receive(delivery("s", FLUSH))
    found = stage.read()
    assert found is not None
    assert found[1:] == ([], 1)


def test_the_inbox_and_the_result_take_turns() -> None:
    stage = Stage(10, 11, 12)
    stage.receive(delivery("r1", batch(1)))
    stage.receive(delivery("r1", batch(2)))
    found = [stage.read() for _ in range(6)]
    assert [each and each[:2] for each in found] == [
        (None, [10]), ("read", [1]), (None, [11]), ("read", [2]), (None, [12]), None,
    ]  # fmt: skip
