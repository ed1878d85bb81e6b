"""Requests of a partition: joined by their ids, answered when what they ask for is reached."""

from __future__ import annotations

import time
from concurrent.futures import Future
from threading import Thread

import numpy as np
import pyarrow as pa
import pytest
from tests.support.clocks import ManualClock
from tests.support.patience import WAIT_S

from onyx.errors import UserError
from onyx.flow.columns.record_batch import Columns
from onyx.journal.logs import RememberedRequest
from onyx.ledger.outcomes import FailedSegment, Outcomes, retried_part
from onyx.ledger.returns import OUTCOMES, RETRIED, ReturnPart
from onyx.plugins.journalled.id_memory import PIECE
from onyx.plugins.requests import request_queue as module
from onyx.plugins.requests.request_queue import RequestQueue
from onyx.requests.request import Answer, Level, Request, Status


def request(id: str, *values: int, level: Level = Level.ACK, digest: bytes = b"d") -> Request:
    return Request(id, digest, [{"n": value} for value in values], level, 100 * len(values))


def new(**options: object) -> RequestQueue:
    return RequestQueue(ManualClock(), **options)  # type: ignore[arg-type]


def journalled(mailbox: RequestQueue, first: int = 0) -> None:
    content = mailbox.take(first, 0.0)
    assert content is not None
    mailbox.appended(content)


def status(future: Future[Answer]) -> Status | None:
    return future.result().status if future.done() else None


def positions(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.uint64)


def test_a_request_is_answered_at_the_level_that_it_asks_for() -> None:
    mailbox = new()
    ack = mailbox.offer(request("a", 1, 2))
    journal = mailbox.offer(request("b", 3, level=Level.JOURNAL))
    none = mailbox.offer(request("c", 4, level=Level.NONE))
    assert [status(each) for each in (ack, journal, none)] == [None, None, Status.ACCEPTED]
    content = mailbox.take(0, 0.0)
    assert content is not None
    assert [status(each) for each in (ack, journal)] == [None, None], "it is only on its way"
    mailbox.appended(content)
    assert [status(each) for each in (ack, journal)] == [None, Status.JOURNALLED]
    mailbox.acked(positions(1, 2))
    assert status(ack) is None
    mailbox.acked(positions(0))
    assert ack.result() == Answer(Status.PROCESSED, segments=2)


@pytest.mark.parametrize(
    ("complete", "answered"),
    [
        ([0, 1, 2, 3, 4, 5], "abc"),
        ([0, 1, 3], "a"),
        ([2], "b"),
        ([1, 2, 4, 9], "b"),
        ([3, 4, 5], "c"),
        ([9], ""),
        ([], ""),
    ],
)
def test_each_open_request_is_answered_by_its_own_positions(
    complete: list[int], answered: str
) -> None:
    mailbox = new()
    sizes = {"a": 2, "b": 1, "c": 3}
    waiting = {id: mailbox.offer(request(id, *range(size))) for id, size in sizes.items()}
    journalled(mailbox)
    mailbox.acked(positions(*complete))
    assert "".join(id for id, future in waiting.items() if future.done()) == answered
    mailbox.acked(positions(*(each for each in range(6) if each not in complete)))
    assert all(future.done() for future in waiting.values())


def test_small_requests_go_into_one_chunk_at_positions_that_follow() -> None:
    mailbox = new()
    for id, values in (("a", (1, 2)), ("b", (3,))):
        mailbox.offer(request(id, *values))
    content = mailbox.take(10, 0.0)
    assert content is not None
    assert content.runs == [[{"n": 1}, {"n": 2}, {"n": 3}]]
    assert [(each.id, each.first, each.count) for each in content.requests] == [
        ("a", 10, 2),
        ("b", 12, 1),
    ]


def test_columns_and_dicts_keep_their_order() -> None:
    mailbox = new()
    columns = Columns(pa.RecordBatch.from_pylist([{"n": 2}]))
    mailbox.offer(request("a", 1))
    mailbox.offer(Request("b", b"d", columns, Level.ACK, 8))
    mailbox.offer(request("c", 3))
    content = mailbox.take(0, 0.0)
    assert content is not None
    assert [type(run).__name__ for run in content.runs] == ["list", "Columns", "list"]


def test_a_repeated_request_joins_the_first_one() -> None:
    mailbox = new()
    waiting = [mailbox.offer(request("a", 1)) for _ in range(2)]
    journalled(mailbox)
    waiting.append(mailbox.offer(request("a", 1)))
    assert mailbox.take(1, 0.0) is None, "it is taken once"
    mailbox.acked(positions(0))
    waiting.append(mailbox.offer(request("a", 1)))
    assert {status(each) for each in waiting} == {Status.PROCESSED}


def test_an_id_that_comes_again_with_other_segments_is_a_conflict() -> None:
    mailbox = new()
    mailbox.offer(request("a", 1))
    assert status(mailbox.offer(request("a", 2, digest=b"other"))) is Status.CONFLICT
    journalled(mailbox)
    assert status(mailbox.offer(request("a", 2, digest=b"other"))) is Status.CONFLICT


def test_requests_of_before_a_restart_are_known() -> None:
    done, pending = (
        RememberedRequest("done", b"d", 0, 2, 0),
        RememberedRequest("pending", b"d", 2, 1, 0),
    )
    mailbox = new(remembered=[done, pending])
    mailbox.passed(2)
    assert status(mailbox.offer(request("done", 1, 2))) is Status.PROCESSED
    again = mailbox.offer(request("pending", 3))
    assert status(again) is None
    mailbox.acked(positions(2))
    assert status(again) is Status.PROCESSED


def test_ids_are_forgotten_by_number_and_by_age_but_not_before_they_are_processed() -> None:
    clock = ManualClock()
    mailbox = RequestQueue(clock, remember_requests_max=2, remember_ms=1_000)
    for id in "abc":
        mailbox.offer(request(id, 1))
    journalled(mailbox)
    assert [each.id for each in mailbox.remembered()] == ["a", "b", "c"]
    mailbox.passed(2)
    assert [each.id for each in mailbox.remembered()] == ["b", "c"]
    clock.advance(2.0)
    assert [each.id for each in mailbox.remembered()] == ["c"], "not processed yet"


def test_requests_are_taken_while_many_ids_are_written_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = [RememberedRequest(str(n), b"", n, 1, 0) for n in range(2 * PIECE + 1)]
    mailbox = RequestQueue(ManualClock(), known)
    offered: list[Future[Answer]] = []

    def rest(_: float) -> None:
        other = Thread(target=lambda: offered.append(mailbox.offer(request(f"new {len(offered)}"))))
        other.start()
        other.join(WAIT_S)

    monkeypatch.setattr(time, "sleep", rest)
    assert mailbox.remembered() == known
    assert len(offered) == 2


def test_without_room_a_request_is_refused_with_a_time_to_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "WAITING_REQUESTS_MAX", 1)
    mailbox = new()
    mailbox.offer(request("a", 1))
    answer = mailbox.offer(request("b", 1)).result()
    assert answer.status is Status.BUSY
    assert answer.retry_after_s == module.BUSY_RETRY_S
    mailbox.hold("the disk is full")
    journalled(mailbox)
    assert "disk is full" in mailbox.offer(request("b", 1)).result().reason
    mailbox.hold("")
    assert status(mailbox.offer(request("b", 1))) is None


def test_whoever_waits_when_the_partition_goes_is_to_come_again() -> None:
    mailbox = new()
    waiting = [mailbox.offer(request("a", 1)), mailbox.offer(request("b", 2, level=Level.JOURNAL))]
    mailbox.close(None)
    assert {status(each) for each in waiting} == {Status.UNAVAILABLE}
    assert status(mailbox.offer(request("c", 1))) is Status.UNAVAILABLE


def test_the_reason_of_an_input_that_failed_is_said() -> None:
    mailbox = new()
    mailbox.close(UserError("the folder is gone"))
    assert "the folder is gone" in mailbox.offer(request("a", 1)).result().reason


def test_an_input_without_accounts_answers_no_acks() -> None:
    mailbox = new(tracked=False)
    assert status(mailbox.offer(request("a", 1))) is Status.INVALID
    kept = mailbox.offer(request("a", 1, level=Level.JOURNAL))
    journalled(mailbox)
    assert status(kept) is Status.JOURNALLED


def test_outputs_hear_once_that_somebody_waits_for_what_was_sent() -> None:
    mailbox = new()
    mailbox.offer(request("a", 1, level=Level.JOURNAL))
    journalled(mailbox)
    assert not mailbox.awaited(1), "nobody waits for its tree"
    mailbox.offer(request("a", 1))
    mailbox.offer(request("b", 2))
    journalled(mailbox, 1)
    assert mailbox.awaited(1)
    assert not mailbox.awaited(1), "the other one was not sent yet"
    assert mailbox.awaited(2)


def test_outputs_hear_of_a_request_when_all_of_it_was_sent() -> None:
    mailbox = new()
    mailbox.offer(request("a", 1, 2, 3))
    journalled(mailbox)
    assert [mailbox.awaited(position) for position in (1, 2, 3)] == [False, False, True]


def test_a_client_that_has_gone_does_not_hold_up_others() -> None:
    mailbox = new()
    gone, other = mailbox.offer(request("a", 1)), mailbox.offer(request("b", 2))
    assert gone.cancel()
    journalled(mailbox)
    mailbox.acked(positions(0, 1))
    assert status(other) is Status.PROCESSED


def test_a_mailbox_that_drains_answers_for_what_it_has_and_takes_nothing_new() -> None:
    mailbox = new()
    acked, on_its_way = mailbox.offer(request("a", 1)), None
    journalled(mailbox)
    on_its_way = mailbox.offer(request("b", 2, level=Level.JOURNAL))
    content = mailbox.take(1, 0.0)
    left = mailbox.offer(request("c", 3))
    mailbox.refuse()
    assert [status(each) for each in (acked, on_its_way)] == [None, None]
    assert status(left) is Status.UNAVAILABLE
    for id in ("c", "d"):
        assert (
            mailbox.offer(request(id, 3)).result().reason == "the job drains: it takes nothing new"
        )
    assert content is not None
    mailbox.appended(content)
    assert status(on_its_way) is Status.JOURNALLED
    again = mailbox.offer(request("a", 1))
    mailbox.acked(positions(0, 1))
    assert [status(each) for each in (acked, again)] == [Status.PROCESSED] * 2


def test_a_mailbox_that_has_drained_sends_whoever_waits_to_the_next_owner() -> None:
    mailbox = new()
    waiting = mailbox.offer(request("a", 1))
    journalled(mailbox)
    mailbox.refuse()
    mailbox.close(None)
    assert waiting.result().reason == "the partition moves to another worker"
    assert status(mailbox.offer(request("a", 1))) is Status.UNAVAILABLE


def test_values_of_trees_that_were_complete_at_an_owner_of_before_are_lost() -> None:
    before = [RememberedRequest("a", b"d", 0, 2, 0), RememberedRequest("b", b"d", 2, 1, 0)]
    mailbox = new(remembered=before)
    mailbox.passed(1)
    waiting = [mailbox.offer(request("a", 1, 2)), mailbox.offer(request("b", 3))]
    for position in (1, 2):
        mailbox.returned(position, {"total": ReturnPart("sum", 50, 8)})
        mailbox.acked(positions(position))
    mailbox.passed(3)
    found = [each.result() for each in waiting]
    assert [each.values_lost for each in found] == [True, False]
    assert found[1].parts == {"total": ReturnPart("sum", 50, 8)}
    assert mailbox.offer(request("a", 1, 2)).result().values_lost


def failed(task: str = "f", error: str = "KeyError: 'who'") -> dict[str, ReturnPart]:
    one = Outcomes(failed=1, first_error=error, failures=(FailedSegment(task, error),))
    return {OUTCOMES: one.part()}


def judged(mailbox: RequestQueue) -> tuple[RememberedRequest, ...]:
    """What the writer takes of requests that have failed, made durable."""
    content = mailbox.judged(0.0)
    assert content is not None
    mailbox.appended(content)
    return tuple(content.requests)


def test_a_failure_is_answered_when_the_journal_has_it() -> None:
    mailbox = new()
    future = mailbox.offer(request("a", 1, 2, 3))
    journalled(mailbox, 10)
    mailbox.returned(11, failed())
    mailbox.acked(positions(10, 11, 12))
    assert not future.done(), "whoever takes over would know nothing of it"
    assert mailbox.settled(13) == 11
    [remembered] = judged(mailbox)
    answer = future.result()
    assert (answer.status, answer.segments) == (Status.FAILED, 3)
    assert answer.outcomes.failures == (FailedSegment("f", "KeyError: 'who'", 1),)
    assert answer.reason == "segment 1 of the request failed in task f: KeyError: 'who'"
    assert mailbox.settled(13) == 13
    next_owner = new(remembered=[remembered])
    again = next_owner.offer(request("a", 1, 2, 3)).result()
    assert (again.status, again.outcomes) == (answer.status, answer.outcomes)
    assert next_owner.remembered() == [remembered]


def test_what_is_read_again_behind_a_failure_counts_for_nobody_else() -> None:
    one = RememberedRequest("a", b"d", 0, 2, 0)
    two = RememberedRequest("b", b"d", 2, 2, 0, failed()[OUTCOMES].value)
    mailbox = new(remembered=[one, two])
    future = mailbox.offer(request("a", 1, 2))
    mailbox.acked(positions(2, 3))
    assert not future.done()
    mailbox.acked(positions(0, 1))
    assert status(future) is Status.PROCESSED


def test_who_waits_for_a_failure_is_told_when_the_partition_moves() -> None:
    mailbox = new()
    future = mailbox.offer(request("a", 1))
    journalled(mailbox)
    mailbox.returned(0, failed())
    mailbox.acked(positions(0))
    mailbox.close(None)
    assert status(future) is Status.UNAVAILABLE
    assert status(mailbox.offer(request("a", 1))) is Status.UNAVAILABLE


def test_what_is_given_up_has_failed_for_the_last_reason() -> None:
    mailbox = new()
    future = mailbox.offer(request("a", 1, 2))
    journalled(mailbox)
    mailbox.returned(0, {RETRIED: retried_part("f: Retry: not now")})
    assert mailbox.obstacle("a") == "a segment of it is read again because of f: Retry: not now"
    mailbox.given_up(positions(0))
    mailbox.acked(positions(1))
    judged(mailbox)
    assert future.result().outcomes.given_up == 1
    assert future.result().outcomes.first_error == "f: Retry: not now"


def test_outputs_are_asked_again_for_what_is_sent_again_and_waited_for() -> None:
    mailbox = new()
    mailbox.offer(request("a", 1))
    mailbox.offer(request("b", 2, level=Level.JOURNAL))
    journalled(mailbox)
    assert mailbox.awaited(2)
    assert not mailbox.awaited(2)
    mailbox.sent_again(positions(1))
    assert not mailbox.awaited(2), "nobody waits for it"
    mailbox.sent_again(positions(0))
    assert mailbox.awaited(2)


def test_a_failure_is_answered_while_the_job_drains() -> None:
    mailbox = new()
    futures = [mailbox.offer(request(id, 1)) for id in "ab"]
    journalled(mailbox)
    mailbox.returned(0, failed())
    mailbox.acked(positions(0))
    mailbox.refuse()
    mailbox.returned(1, failed())
    mailbox.acked(positions(1))
    assert mailbox.settled(2) == 0
    assert [status(each) for each in futures] == [None] * 2
    judged(mailbox)
    assert mailbox.settled(2) == 2
    assert [status(each) for each in futures] == [Status.FAILED] * 2
