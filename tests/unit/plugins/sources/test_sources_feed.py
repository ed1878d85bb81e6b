"""From a live source into a journal: each message once, and acked only when it is there."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.clocks import ManualClock
from tests.support.examples import examples
from tests.support.jobs.memory_queue import MemoryQueue

from onyx.errors import SegmentError, Unavailable, UserError
from onyx.flow.batch import as_dicts
from onyx.journal.journal import Journal
from onyx.journal.logs import PartitionFolder
from onyx.plugins.sources.journalled_input import SourceFeed
from onyx.plugins.sources.messages import messages_of
from onyx.plugins.sources.protocol import LiveSource, Portion
from onyx.storage.interface import MemoryBlobStore
from onyx.telemetry.catalog import SOURCE_ACKED, SOURCE_REDELIVERED, Metric
from onyx.telemetry.interface import TaskMetrics

FOLDER = PartitionFolder("job", "in", 0)


class Crash(BaseException):
    """The process is gone."""


class Counted(TaskMetrics):
    def __init__(self) -> None:
        self.counts: dict[Metric, float] = {}

    def add(self, metric: Metric, amount: float = 1) -> None:
        self.counts[metric] = self.counts.get(metric, 0) + amount


def feed_of(opener: Callable[[], LiveSource], journal: Journal | None = None) -> SourceFeed:
    return SourceFeed(opener, ManualClock(), journal.restored if journal else (), examine=True)


def journalled(journal: Journal, position: int = 0) -> list[int]:
    """The numbers from a position on."""
    found: list[int] = []
    while position < journal.end:
        first, runs = journal.read(position)
        segments = [each for run in runs for each in as_dicts(run)][position - first :]
        found += [each["n"] for each in segments]
        position += len(segments)
    return found


def step(feed: SourceFeed, journal: Journal, crash: str = "") -> bool:
    content = feed.take(journal.end, 0.0)
    if content is None:
        return False
    if crash == "before":
        raise Crash
    journal.append(content)
    if crash == "between":
        raise Crash
    feed.appended(content)
    return True


@settings(max_examples=examples(60))
@given(st.lists(st.sampled_from(["", "", "before", "between", "collect"]), max_size=30), st.data())
def test_whatever_dies_a_message_is_in_the_journal_once_and_no_ack_comes_before(
    steps: list[str], data: st.DataObject
) -> None:
    store, queue, version = MemoryBlobStore(), MemoryQueue(list(range(20))), 0
    lost = data.draw(st.lists(st.sampled_from(["receive", "ack", "answer", ""]), max_size=20))
    queue.down = lambda what: bool(lost) and what == lost.pop()
    journal, feed = Journal(store, FOLDER, 0, "g"), feed_of(queue.open)
    before: list[int] = []
    for crash in [*steps, *[""] * 60]:
        try:
            if crash == "collect":  # and with it goes what is processed, but not its ids
                before += journalled(journal, len(before))
                journal.collect(journal.end, feed.remembered, all_of_it=True)
            else:
                step(feed, journal, crash)
        except Unavailable:
            continue
        except Crash:
            version += 1
            journal = Journal(store, FOLDER, version, f"g{version}")
            feed = feed_of(queue.open, journal)
        there = before + journalled(journal, len(before))
        assert set(queue.acked) <= set(there), "acked, and not durable"
    assert before + journalled(journal, len(before)) == list(range(20))
    assert sorted(queue.acked) == list(range(20))


def test_what_is_given_again_is_acked_and_counted() -> None:
    store, queue = MemoryBlobStore(), MemoryQueue([1, 2])
    journal = Journal(store, FOLDER, 0, "g")
    with pytest.raises(Crash):
        step(feed_of(queue.open), journal, "between")
    journal = Journal(store, FOLDER, 1, "h")
    feed, metrics = feed_of(queue.open, journal), Counted()
    assert feed.take(journal.end, 0.0) is None
    feed.report(metrics)
    assert queue.acked == [1, 2]
    assert metrics.counts == {SOURCE_ACKED: 2, SOURCE_REDELIVERED: 2}


def test_an_ack_that_did_not_arrive_is_sent_before_anything_is_taken() -> None:
    queue, journal = MemoryQueue([1, 2, 3, 4]), Journal(MemoryBlobStore(), FOLDER, 0, "g")
    feed = feed_of(queue.open)
    queue.down = lambda what: what == "ack"
    assert step(feed, journal), "it is durable, whether the queue hears of it or not"
    with pytest.raises(Unavailable):
        feed.take(journal.end, 0.0)
    assert not queue.acked
    queue.down = lambda what: False
    assert step(feed, journal)
    assert queue.acked == [1, 2, 3, 4]


def test_a_partition_that_was_given_away_takes_nothing_and_gives_back_what_came() -> None:
    queue = MemoryQueue([1])
    source = queue.open()
    feed = feed_of(lambda: source)
    receive = source.receive

    def received(wait_s: float) -> Portion | None:
        feed.close(None)  # while it waits
        return receive(wait_s)

    source.receive = received  # type: ignore[method-assign]
    assert feed.take(0, 0.0) is None
    assert queue.failed == [1]
    feed.release()
    assert source.closed


def test_ids_of_before_count_as_new_when_the_journal_is_opened() -> None:
    """The queue may not have been asked for hours."""
    queue, store, clock = MemoryQueue([1, 2]), MemoryBlobStore(), ManualClock()
    journal = Journal(store, FOLDER, 0, "g")
    with pytest.raises(Crash):
        step(SourceFeed(queue.open, clock), journal, "between")
    clock.advance(1_000_000)
    journal = Journal(store, FOLDER, 1, "h")
    feed = SourceFeed(queue.open, clock, journal.restored, remember_ms=1_000)
    feed.remembered()
    assert feed.take(journal.end, 0.0) is None


def test_messages_of_several_segments_are_left_out_whole() -> None:
    batch = pa.RecordBatch.from_pydict({"n": [1, 2, 3, 4]})
    portions = [
        Portion(batch.slice(0, 3), ["a", "b"], ["a", "b"], [2, 1]),
        Portion(batch, ["b", "c", "c"], ["b", "c", "c"], [1, 2, 1]),
    ]
    source = MemoryQueue().open()
    source.receive = lambda wait_s: portions.pop(0) if portions else None  # type: ignore[method-assign]
    journal = Journal(MemoryBlobStore(), FOLDER, 0, "g")
    feed = feed_of(lambda: source)
    while step(feed, journal):
        pass
    assert journalled(journal) == [1, 2, 3, 2, 3]
    assert [(each.id, each.first) for each in feed.remembered()] == [("a", 0), ("b", 2), ("c", 3)]


@pytest.mark.parametrize(
    ("portion", "what"),
    [
        (Portion([{"n": 1}], handles=[1, 2]), "1 messages has 2 handles"),
        (Portion([{"n": 1}], counts=[2]), "1 segments has messages of 2"),
        (Portion([], cursor={1: 2}), "would come back as something else"),
        (Portion("text"), "not a list or a record batch"),  # type: ignore[arg-type]
    ],
)
def test_a_portion_that_is_wrong_is_refused(portion: Portion, what: str) -> None:
    with pytest.raises(UserError, match=what):
        messages_of(portion, examine=True)


def test_a_segment_that_cannot_travel_is_refused_by_its_key() -> None:
    with pytest.raises(SegmentError, match="'n' holds"):
        messages_of(Portion([{"n": object()}]), examine=True)
