"""The router of requests: whoever waits is answered, also at the end, and whoever has gone costs
nothing."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, cast

import pytest
from msgspec.structs import replace
from tests.support.clocks import ManualClock
from tests.support.patience import WAIT_S

from onyx.base.event_loop import EventLoop
from onyx.functions.returning import LOST
from onyx.ids import GroupId, JobId, TaskName
from onyx.ledger.returns import ReturnPart
from onyx.model.job import CatalogEntry
from onyx.peer.router.answered import AnsweredRequests
from onyx.peer.router.answers import LoopAnswers
from onyx.peer.router.inputs import InputTokens, PartitionOwner, RequestInput, RequestInputs
from onyx.peer.router.router import CurrentRouter, RequestRouter
from onyx.requests.mailboxes import Address, MailboxRegistry
from onyx.requests.request import (
    Answer,
    Append,
    Caller,
    Form,
    Level,
    PartOfRequest,
    Payload,
    Request,
    RequestTarget,
    Status,
    not_final,
)
from onyx.settings import Settings
from onyx.storage.interface import MemoryBlobStore
from onyx.telemetry.catalog import Metric
from onyx.telemetry.interface import NO_EXAMPLE, GroupMetrics
from onyx.telemetry.labels import RequestTransport
from onyx.transport.interface import Transport

ME = GroupId("me")
ENTRY = CatalogEntry(
    name="in", type="input", plugin="http", options={"tokenEnv": "T", "partitionKey": "n"}
)
INPUT = RequestInput(JobId("job"), ENTRY, ("best", "total"))
CALLER = Caller(b"sesame")
APPEND = Append("job", "in", Payload(Form.JSON_LINES, b'{"n": 1}'), caller=CALLER)
TURNS_MAX = int(WAIT_S / 0.01)


def no_function(name: str) -> Callable[..., Any]:
    raise AssertionError(f"{name} is asked for")


class Inputs:
    """Implements `RequestInputs` for one input with one partition, which is owned here."""

    def __init__(self) -> None:
        self.running = ["job"]
        """Ids of the jobs of which each upgrades the one before; the last one runs."""
        self.counts = 1
        self.draining = False

    def known(self, job: str, task: str) -> RequestInput | None:
        return replace(INPUT, job=JobId(job)) if job in self.running[-1:] else None

    def find(self, job: str, task: str, is_new: bool) -> RequestInput | Answer:
        found = self.running[-1:] if job in self.running else []
        unknown = Answer(Status.UNKNOWN, "no such job")
        none = unknown if is_new else not_final(unknown)
        return replace(INPUT, job=JobId(found[0])) if found else none

    def of(self, job: str) -> list[RequestInput]:
        return [replace(INPUT, job=JobId(job))]

    def ended(self, found: RequestInput) -> bool:
        return found.job not in self.running[-1:]

    def stopped(self, found: RequestInput) -> Answer | None:
        return None

    waits = stopped

    def drains(self, found: RequestInput) -> Answer | None:
        return Answer(Status.UNAVAILABLE, "drains") if self.draining else None

    def partitions(self, found: RequestInput) -> int:
        return self.counts

    def owner(self, found: RequestInput, partition: int) -> PartitionOwner:
        return PartitionOwner(ME, "")


class Mailbox:
    """Implements `mailboxes.Mailbox`; keeps requests until a test answers them."""

    def __init__(self) -> None:
        self.offered: list[Future[Answer]] = []
        self.why = ""
        self.ids: list[str] = []
        self.refusing: list[bool] = []
        """At each request, whether nothing new was to be taken any more."""
        self._refuses = False

    def offer(self, request: Request) -> Future[Answer]:
        self.ids.append(request.id)
        self.refusing.append(self._refuses)
        self.offered.append(Future())
        return self.offered[-1]

    def refuse(self) -> None:
        self._refuses = True

    def obstacle(self, id: str) -> str:
        return self.why


class Series(GroupMetrics):
    """Values by labels, in the order in which they came."""

    def __init__(self, found: dict[tuple[str, ...], list[float]]) -> None:
        self.found = found
        self.examples: list[Mapping[str, str]] = []

    def observe(
        self, metric: Metric, value: float, *labels: str, example: Mapping[str, str] = NO_EXAMPLE
    ) -> None:
        self.found.setdefault(labels, []).append(value)
        self.examples.append(example)

    def remove(self, metric: Metric, *labels: str) -> None:
        del self.found[labels]


class World:
    def __init__(self) -> None:
        self.current_router, self.mailbox = CurrentRouter(), Mailbox()
        self.mailboxes = mailboxes = MailboxRegistry()
        self.clock, self.inputs = ManualClock(), Inputs()
        self.series: dict[tuple[str, ...], list[float]] = {}
        self.answered = AnsweredRequests(Series(self.series))
        self.successor = Mailbox()
        mailboxes.open(Address(JobId("job"), TaskName("in"), 0), self.mailbox)
        mailboxes.open(Address(JobId("new"), TaskName("in"), 0), self.successor)
        self.router = RequestRouter(
            cast(RequestInputs, self.inputs),
            mailboxes,
            cast(Transport, None),
            self.in_background,
            random.Random(1),
            ME,
            self.current_router.loop,
            no_function,
            MemoryBlobStore,
            self.clock,
            InputTokens(Settings(job_variables=("T",)), self.clock, {"T": "sesame"}),
            self.answered,
        )

    def in_background(self, run: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(run())
        return future

    def waiting(self) -> Future[Answer]:
        """The answer of a request that has come to the mailbox."""
        count = len(self.mailbox.offered)
        future = self.router.append(APPEND)
        until(lambda: len(self.mailbox.offered) > count)
        return future


def until(done: Callable[[], bool]) -> None:
    waiter = threading.Event()
    for _ in range(TURNS_MAX):
        if done():
            return
        waiter.wait(0.01)
    raise AssertionError("it did not come to pass")


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.current_router.loop.close()


def test_a_request_is_answered_by_its_mailbox(world: World) -> None:
    future = world.waiting()
    world.mailbox.offered[0].set_result(Answer(Status.PROCESSED, segments=1))
    assert future.result(WAIT_S).status is Status.PROCESSED


def test_a_request_whose_time_is_over_is_answered_and_costs_no_more(world: World) -> None:
    future = world.waiting()
    world.clock.advance(APPEND.timeout_s + 1)
    answer = future.result(WAIT_S)
    assert (answer.status, answer.reason) == (Status.TIMED_OUT, "no answer within 30 s")
    until(lambda: world.mailbox.offered[0].cancelled())


def test_who_waits_in_vain_is_told_what_the_owner_knows(world: World) -> None:
    world.mailbox.why = "a segment of it is read again because of work: Retry: not now"
    future = world.waiting()
    world.clock.advance(APPEND.timeout_s + 1)
    assert future.result(WAIT_S).reason == f"no answer within 30 s: {world.mailbox.why}"


def test_the_mailbox_of_a_job_that_drains_refuses_what_is_new_before_its_task_knows(
    world: World,
) -> None:
    future = world.waiting()
    world.mailbox.offered[0].set_result(Answer(Status.PROCESSED, segments=1))
    future.result(WAIT_S)
    world.inputs.draining = True
    future = world.waiting()
    world.mailbox.offered[1].set_result(Answer(Status.UNAVAILABLE, "drains"))
    future.result(WAIT_S)
    first, *others = world.mailbox.refusing
    assert not first
    assert all(others)


def test_a_request_whose_partition_moves_goes_to_its_new_owner(world: World) -> None:
    future = world.waiting()
    world.mailbox.offered[0].set_result(Answer(Status.UNAVAILABLE, "moves"))
    until(lambda: len(world.mailbox.offered) == 2)
    world.mailbox.offered[1].set_result(Answer(Status.JOURNALLED, segments=1))
    assert future.result(WAIT_S).status is Status.JOURNALLED
    assert world.mailbox.ids[0] == world.mailbox.ids[1] != ""


def test_an_answer_is_counted_once_by_level_and_status_with_its_time(world: World) -> None:
    future = world.waiting()
    world.mailbox.offered[0].set_result(Answer(Status.UNAVAILABLE, "moves"))
    until(lambda: len(world.mailbox.offered) == 2)
    world.clock.advance(2.0)
    world.mailbox.offered[1].set_result(Answer(Status.PROCESSED, segments=1))
    future.result(WAIT_S)
    future = world.waiting()
    world.mailbox.offered[-1].set_result(Answer(Status.BUSY, "full"))
    future.result(WAIT_S)
    until(lambda: len(world.series) == 2)
    assert world.series == {
        ("", "job", "in", "grpc", "ack", "processed"): [2.0],
        ("", "job", "in", "grpc", "ack", "busy"): [0.0],
    }
    ((key, its),) = world.answered.measures(None)
    assert key == ("job", "in")
    assert its.answers == {"ack processed": 1, "ack busy": 1}
    assert (its.seconds.count, its.seconds.total_s) == (1, 2.0)


@pytest.mark.parametrize(
    ("id", "example"),
    [
        ("", {}),
        ("upload-17", {"request": "upload-17"}),
        ("7" * 255 + "!", {"request": "7" * 120 + "!"}),
        ('a"b\\c\nd\0', {"request": "abcd"}),
    ],
)
def test_the_id_of_a_request_is_the_example_of_its_time(
    id: str, example: Mapping[str, str]
) -> None:
    series = Series({})
    AnsweredRequests(series).count(
        INPUT, RequestTransport.GRPC, Level.ACK, Status.PROCESSED, 1.0, id
    )
    assert series.examples == [example]


def test_a_request_over_http_is_counted_as_well(world: World) -> None:
    world.current_router.open(world.router)
    loop = world.current_router.loop.running()
    assert loop is not None
    future = asyncio.run_coroutine_threadsafe(world.current_router.append(APPEND), loop)
    until(lambda: bool(world.mailbox.offered))
    world.mailbox.offered[0].set_result(Answer(Status.PROCESSED, segments=1))
    future.result(WAIT_S)
    assert list(world.series) == [("", "job", "in", "http", "ack", "processed")]


def test_parts_are_not_counted_and_what_clients_make_up_is_one_series(world: World) -> None:
    part = replace(APPEND, part=PartOfRequest(0, b"digest"), id="a")
    future = world.router.append(part)
    world.mailbox.offered[0].set_result(Answer(Status.PROCESSED, segments=1))
    future.result(WAIT_S)
    assert world.series == {}
    for number in range(3):
        nowhere = world.router.append(replace(APPEND, job=f"<script>{number}", task=f"a{number}"))
        assert nowhere.result(WAIT_S).status is Status.UNKNOWN
    assert list(world.series) == [("-", "-", "-", "grpc", "ack", "unknown")]
    assert len(world.series["-", "-", "-", "grpc", "ack", "unknown"]) == 3
    assert list(world.answered.measures(None)) == []


def test_counts_are_of_the_last_minute_and_end_with_their_job(world: World) -> None:
    answered, there = world.answered, [JobId("job")]
    for now_s in range(0, 200, 10):
        if now_s == 100:
            answered.count(INPUT, RequestTransport.GRPC, Level.ACK, Status.PROCESSED, 0.5)
        answered.look(float(now_s), there)
        (found,) = [its.answers for _, its in answered.measures(JobId("job"))] or [{}]
        assert found == ({"ack processed": 1} if 100 <= now_s < 160 else {}), now_s
    answered.look(300.0, [])
    assert (list(answered.measures(None)), world.series) == ([], {})
    answered.close(301.0)
    answered.count(INPUT, RequestTransport.GRPC, Level.ACK, Status.PROCESSED, 0.5)
    assert world.series == {}


MOVED = Answer(Status.UNAVAILABLE, "moves")


def test_a_request_whose_job_is_upgraded_goes_to_the_one_in_its_place(world: World) -> None:
    future = world.waiting()
    world.inputs.running.append("new")
    world.mailbox.offered[0].set_result(MOVED)
    until(lambda: bool(world.successor.offered))
    assert world.successor.ids == world.mailbox.ids, "its journal knows it by this id"
    world.successor.offered[0].set_result(Answer(Status.PROCESSED, segments=1))
    assert future.result(WAIT_S).status is Status.PROCESSED


@pytest.mark.parametrize("id", ["", "mine"])
def test_a_request_whose_job_is_killed_is_not_refused_for_good(world: World, id: str) -> None:
    future = world.router.append(replace(APPEND, id=id))
    until(lambda: bool(world.mailbox.offered))
    world.inputs.running.clear()
    world.mailbox.offered[0].set_result(MOVED)
    answer = future.result(WAIT_S)
    assert answer.status is Status.UNAVAILABLE
    assert "whether this request was taken before is not known" in answer.reason


def test_a_part_of_a_request_never_goes_to_another_job_than_it_names(world: World) -> None:
    part = replace(APPEND, id="mine", part=PartOfRequest(0, b"digest"))
    for running in (["job", "new"], []):
        world.inputs.running = running
        answer = world.router.append(part).result(WAIT_S)
        assert answer.status is Status.UNAVAILABLE
    assert world.mailbox.offered == world.successor.offered == []


def test_values_are_put_together_before_a_request_is_answered(world: World) -> None:
    future = world.waiting()
    parts = {"total": ReturnPart("sum", 3, 8), "best": ReturnPart("shop:none", 1, 8)}
    world.mailbox.offered[0].set_result(Answer(Status.PROCESSED, segments=1, parts=parts))
    answer = future.result(WAIT_S)
    assert answer.values == {"total": 3}
    assert "shop:none is asked for" in answer.errors["best"]


def test_values_of_which_a_part_is_lost_are_an_error_for_each_key(world: World) -> None:
    world.inputs.counts = 2
    other = Mailbox()
    world.mailboxes.open(Address(JobId("job"), TaskName("in"), 1), other)
    rows = Payload(Form.JSON_LINES, b"\n".join(b'{"n": %d}' % n for n in range(20)))
    future = world.router.append(replace(APPEND, payload=rows))
    until(lambda: bool(world.mailbox.offered and other.offered))
    known = Answer(Status.PROCESSED, segments=10, parts={"total": ReturnPart("sum", 60, 8)})
    world.mailbox.offered[0].set_result(known)
    other.offered[0].set_result(Answer(Status.PROCESSED, segments=10, values_lost=True))
    answer = future.result(WAIT_S)
    assert (answer.status, answer.segments, answer.values) == (Status.PROCESSED, 20, {})
    assert answer.errors == {"best": LOST, "total": LOST}


def test_lost_values_of_a_whole_request_are_errors(world: World) -> None:
    future = world.waiting()
    world.mailbox.offered[0].set_result(Answer(Status.PROCESSED, values_lost=True))
    assert future.result(WAIT_S).errors == {"best": LOST, "total": LOST}


def test_at_the_end_whoever_waits_is_answered_and_nobody_else_is_taken(world: World) -> None:
    futures = [world.waiting() for _ in range(3)]
    world.router.stop()
    for future in (*futures, world.router.append(APPEND)):
        answer = future.result(WAIT_S)
        assert (answer.status, answer.reason) == (
            Status.UNAVAILABLE,
            "this worker leaves the cluster",
        )
    assert all(each.cancelled() for each in world.mailbox.offered)


def test_a_client_that_goes_away_leaves_its_place(world: World) -> None:
    world.waiting().cancel()
    until(lambda: world.mailbox.offered[0].cancelled())
    world.router.stop()


def test_a_router_that_nobody_has_used_ends_without_a_thread(world: World) -> None:
    world.router.stop()
    assert "onyx-requests" not in {each.name for each in threading.enumerate()}


def test_without_an_incarnation_clients_come_again(world: World) -> None:
    found = asyncio.run(world.current_router.find("job", "in", True, CALLER))
    answer = asyncio.run(world.current_router.append(APPEND))
    assert isinstance(found, Answer)
    assert (found.status, answer.status) == (Status.UNAVAILABLE, Status.UNAVAILABLE)


def test_the_front_learns_the_id_of_a_job_and_its_input(world: World) -> None:
    world.current_router.open(world.router)
    assert asyncio.run(world.current_router.find("job", "in", True, CALLER)) == RequestTarget(
        "job", "in"
    )
    assert isinstance(asyncio.run(world.current_router.find("other", "in", True, CALLER)), Answer)
    world.current_router.close(world.router)
    assert isinstance(asyncio.run(world.current_router.find("job", "in", True, CALLER)), Answer)


def test_a_loop_that_is_closed_takes_nothing(world: World) -> None:
    world.current_router.loop.close()
    assert world.router.append(APPEND).result(WAIT_S).status is Status.UNAVAILABLE
    closed = EventLoop("onyx-requests")
    closed.close()
    assert closed.running() is None


def test_answers_that_come_at_once_wake_the_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def asked() -> tuple[list[int], int]:
        loop, answers, woken = asyncio.get_running_loop(), LoopAnswers(), []
        really = loop.call_soon_threadsafe
        monkeypatch.setattr(
            loop, "call_soon_threadsafe", lambda *its: [woken.append(its), really(*its)]
        )
        futures: list[Future[Answer]] = [Future() for _ in range(5)]
        waiting = [asyncio.create_task(answers.of(each)) for each in futures]
        await asyncio.sleep(0)
        for number, future in enumerate(futures):
            future.set_result(Answer(Status.PROCESSED, segments=number))
        of_before = await answers.of(futures[0])
        found = await asyncio.gather(*waiting)
        return [each.segments for each in (of_before, *found)], len(woken)

    assert asyncio.run(asked()) == ([0, 0, 1, 2, 3, 4], 1)


def test_who_goes_away_has_its_answer_cancelled_and_nobody_elses() -> None:
    async def asked() -> tuple[bool, Status]:
        answers, gone, stays = LoopAnswers(), Future[Answer](), Future[Answer]()
        goes, waits = (asyncio.create_task(answers.of(each)) for each in (gone, stays))
        await asyncio.sleep(0)
        goes.cancel()
        await asyncio.sleep(0)
        stays.set_result(Answer(Status.PROCESSED))
        return gone.cancelled(), (await waits).status

    assert asyncio.run(asked()) == (True, Status.PROCESSED)
