"""Takes requests of clients to the partitions that they belong to, wherever these are owned.

A client may ask any worker. This one finds the input, looks at the segments, and hands them to the
mailbox of their partition here, or to the worker that owns it. While a job is allocated anew a
partition has no owner for a moment; the router asks again until there is one or the time of the
request is over. Each attempt is under the same id, so the segments are taken once. A request that
comes while its input waits for peers is not begun: its client is asked to come again.

A request with a key may fall into parts. Its home, the partition of its id, gets the first part and
knows the digest of the whole: when that is a conflict, nothing is taken.

Most requests are small, and most of what they cost was the event loop: a task, timers and three
futures each (0.5 of 3.9 ms of CPU, measured). A request that has one partition, owned here, goes
*directly* to its mailbox. Whatever is not as plain runs on the event loop of the process: an input
that was not seen before, a refusal, a partition that moves, a large body, a caller to whom the
input is closed. Nothing there takes long (large bodies are decoded on threads), and a request that
waits costs no thread.

The gateway listens as long as the process lives, and the router knows the cluster as long as its
incarnation does. Between two incarnations, and until the next one has read the log and joined,
there is no router: clients come again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from onyx.base.event_loop import EventLoop
from onyx.base.seams import Clock, Randomness
from onyx.errors import OnyxError, contained
from onyx.flow.batch import Segments
from onyx.ids import GroupId
from onyx.peer.router.answered import AnsweredRequests
from onyx.peer.router.answers import (
    LoopAnswers,
    Resolve,
    WaitingAnswers,
    needs_user_code,
    timed_out,
    together,
    with_values,
)
from onyx.peer.router.held_writes import HeldWrites
from onyx.peer.router.inputs import InputAccess, InputTokens, RequestInput, RequestInputs
from onyx.requests.content import (
    Decoding,
    Portion,
    Refused,
    digest_of,
    is_large,
    partition_of,
    parts_of,
    payload_of,
    segments_of,
)
from onyx.requests.mailboxes import MOVES, Address, Mailbox, MailboxRegistry
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
    answered,
    not_final,
)
from onyx.storage.interface import BlobStore
from onyx.telemetry.labels import RequestTransport
from onyx.transport.interface import Transport

logger = logging.getLogger("onyx.peer")

AGAIN_FIRST_S = 0.02
AGAIN_MAX_S = 0.5
"""Between two attempts to find the owner of a partition."""
OWNER_SOONER_S = 0.5
STOP_TIMEOUT_S = 2.0
REJOIN_S = 1.0
ID_BITS = 128
_ENDS = Answer(Status.UNAVAILABLE, "this worker leaves the cluster", AGAIN_MAX_S)
NOT_A_MEMBER = Answer(Status.UNAVAILABLE, "this worker is not in the cluster now", REJOIN_S)
"""The answer of a worker that has just started too: it has not read yet which jobs there are."""


class CurrentRouter:
    """The router of a process, over all incarnations of its group, for the gateway
    (`gateway.app.Requests`). `open` and `close` are called on any thread, the rest on that of the
    loop."""

    def __init__(self) -> None:
        self.loop = EventLoop("onyx-requests")
        self._router: RequestRouter | None = None

    def open(self, router: RequestRouter) -> None:
        """An incarnation takes requests by this router."""
        self._router = router

    def close(self, router: RequestRouter) -> None:
        """It takes none any more."""
        if self._router is router:
            self._router = None

    async def find(
        self, job: str, task: str, is_new: bool, caller: Caller
    ) -> RequestTarget | Answer:
        """An input, or the answer that there is none for the caller."""
        router = self._router
        if router is None:
            return NOT_A_MEMBER
        found = await router.find(job, task, is_new, caller)
        return found if isinstance(found, Answer) else RequestTarget(found.job, found.task)

    async def append(self, append: Append) -> Answer:
        """The answer to a request."""
        router = self._router
        return NOT_A_MEMBER if router is None else await router.answer(append)


class RequestRouter:
    """The requests that come to one process. `append` is safe from any thread."""

    def __init__(
        self,
        inputs: RequestInputs,
        mailboxes: MailboxRegistry,
        transport: Transport,
        background: Callable[[Callable[[], Any]], Future[Any]],
        randomness: Randomness,
        group: GroupId,
        loop: EventLoop,
        resolve: Resolve,
        store: Callable[[], BlobStore],
        clock: Clock,
        tokens: InputTokens,
        answered: AnsweredRequests,
    ) -> None:
        """`store` opens where the state of the cluster is kept."""
        self._inputs = inputs
        self._access = InputAccess(inputs, tokens, background)
        self._mailboxes = mailboxes
        self._transport = transport
        self._background = background
        self._randomness = randomness
        self._group = group
        self._loop = loop
        self._resolve = resolve
        self._answered = answered
        self._stopped = False
        self._clock = clock
        self._active: set[asyncio.Task[Any]] = set()
        """Answer a request."""
        self._ended: set[asyncio.Task[Any]] = set()
        """What `stop` ends is here too; whoever else cancels one has gone."""
        self._decoding = Decoding()
        self._writes = HeldWrites(inputs, store, clock, self._answer, self._decoding)
        self._waiting = WaitingAnswers(loop, clock)
        self._on_the_loop = LoopAnswers()

    def append(self, append: Append) -> Future[Answer]:
        """The answer to a request, at the latest after the time that it gives."""
        count = self._counting(append, RequestTransport.GRPC)
        future = self._directly(append) or self._by_loop(append)
        future.add_done_callback(lambda done: None if done.cancelled() else count(done.result()))
        return future

    def _by_loop(self, append: Append) -> Future[Answer]:
        """The answer by the loop. From any thread."""
        loop = self._loop.running()
        if loop is None:
            return answered(_ENDS)
        return asyncio.run_coroutine_threadsafe(self._on_loop(append), loop)

    def stop(self) -> None:
        """Answer nothing any more: whoever waits is told so."""
        self._stopped = True
        self._waiting.end(_ENDS)
        loop = self._loop.running() if self._active else None
        if loop is not None:
            with contextlib.suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(self._end(), loop).result(STOP_TIMEOUT_S)
        self._writes.stop()
        self._decoding.stop()

    # --- what both ways use: directly, and on the loop ------------------------------------------

    def _counting(self, append: Append, way: RequestTransport) -> Callable[[Answer], None]:
        """What counts the answer to a request that has just come. Parts are counted by the worker
        that has got the whole."""
        begun_s, before = self._clock.monotonic_s(), self._inputs.known(append.job, append.task)

        def count(answer: Answer) -> None:
            found = before or self._inputs.known(append.job, append.task)
            if append.part is None:
                took_s = self._clock.monotonic_s() - begun_s
                self._answered.count(found, way, append.level, answer.status, took_s, append.id)

        return count

    def _takes_nothing(self, found: RequestInput) -> Answer | None:
        """Why an input takes nothing now; None: it does."""
        return self._inputs.stopped(found) or self._inputs.waits(found)

    def _mailbox(self, found: RequestInput, partition: int) -> Mailbox | None:
        """The mailbox of a partition of this process, which takes nothing new once the job drains;
        None: it is elsewhere."""
        mailbox = self._mailboxes.find(Address(found.job, found.task, partition))
        if mailbox is not None and self._inputs.drains(found) is not None:
            # Its task may hear of that much later: while a function waits, it does nothing else.
            mailbox.refuse()
        return mailbox

    def _finished(self, found: RequestInput, answer: Answer) -> Future[Answer]:
        """The answer with values; it takes a while where user code puts them together."""
        finish = partial(with_values, answer, found.ack_returns, self._resolve)
        return self._background(finish) if needs_user_code(answer.parts) else answered(finish())

    def _new_id(self) -> str:
        return f"{self._randomness.getrandbits(ID_BITS):032x}"

    # --- directly: without the loop -------------------------------------------------------------

    def _directly(self, append: Append) -> Future[Answer] | None:
        """The answer to a request, at the latest after the time that it gives; None: it is not
        plain, and nothing was done. From any thread."""
        found = self._inputs.known(append.job, append.task)
        if found is None or append.write is not None or is_large(append.payload):
            return None
        if not self._access.opens(found, append.caller):
            return None
        here = self._here(found, append)
        if here is None:
            return None
        mailbox, whole = here
        try:
            segments = segments_of(append.payload)
        except Refused:
            return None
        future = self._waiting.open(append.timeout_s, partial(mailbox.obstacle, whole.id))
        if future is None:
            return None
        ends_s = self._clock.monotonic_s() + append.timeout_s
        offered = mailbox.offer(whole.request(segments))
        future.add_done_callback(lambda _: offered.cancel())
        offered.add_done_callback(partial(self._offered, future, whole, ends_s))
        return future

    def _here(self, found: RequestInput, append: Append) -> tuple[Mailbox, _Whole] | None:
        """The mailbox that a request goes to as a whole, if it is in this process."""
        part, id = append.part, append.id
        if part is not None:
            if not append.payload.data or found.job != append.job:
                return None  # a part without segments registers an id; another job takes no part
            partition = part.partition
        else:
            count = None if self._takes_nothing(found) else self._inputs.partitions(found)
            if count is None or (found.partition_key is not None and count > 1):
                return None
            id = id or self._new_id()
            partition = partition_of(id, count)
            if self._inputs.owner(found, partition).group != self._group:
                return None
        mailbox = self._mailbox(found, partition)
        if mailbox is None:
            return None
        digest = digest_of(append.payload) if part is None else part.digest
        return mailbox, _Whole(found, id, digest, append)

    def _offered(
        self, future: Future[Answer], whole: _Whole, ends_s: float, offered: Future[Answer]
    ) -> None:
        """Pass the answer of a mailbox on. Another worker gets it as it is for a part; of a whole
        request, values are put together, and a partition that has moved is looked for."""
        try:
            answer = offered.result()
        except CancelledError:
            return
        is_whole = whole.append.part is None
        if is_whole and answer.status is Status.UNAVAILABLE:
            left_s = ends_s - self._clock.monotonic_s()
            if left_s > 0 and not future.done():
                found = whole.input
                there = replace(
                    whole.append,
                    job=found.job, task=found.task, id=whole.id, fresh=False, timeout_s=left_s,
                )  # fmt: skip
                self._by_loop(there).add_done_callback(partial(self._pass_on, future))
        elif is_whole and (answer.parts or answer.values_lost):
            finished = self._finished(whole.input, answer)
            finished.add_done_callback(partial(self._pass_on, future))
        else:
            self._waiting.settle(future, answer)

    def _pass_on(self, future: Future[Answer], answered: Future[Answer]) -> None:
        if not answered.cancelled():
            self._waiting.settle(future, answered.result())

    # --- on the loop ----------------------------------------------------------------------------

    async def find(
        self, job: str, task: str, is_new: bool, caller: Caller
    ) -> RequestInput | Answer:
        """The input that a caller names, or the answer that there is none for it. `is_new`: no
        journal can have the request."""
        return _ENDS if self._stopped else await self._access.find(job, task, is_new, caller)

    async def answer(self, append: Append) -> Answer:
        """The answer to a request, at the latest after the time that it gives."""
        count, direct = self._counting(append, RequestTransport.HTTP), self._directly(append)
        if direct is None:
            found = await self._on_loop(append)
        else:
            found = await self._on_the_loop.of(direct)
        count(found)
        return found

    async def _on_loop(self, append: Append) -> Answer:
        """The answer to a request, or that of a worker that ends: `stop` cancels what runs here."""
        if self._stopped:
            return _ENDS
        task = asyncio.current_task()
        assert task is not None, "runs on the loop"
        self._active.add(task)
        try:
            return await self._answer(append)
        except asyncio.CancelledError:
            if task not in self._ended:
                raise
            task.uncancel()
            return _ENDS
        finally:
            self._active.discard(task)
            self._ended.discard(task)

    async def _end(self) -> None:
        self._ended |= self._active
        for task in self._ended:
            task.cancel()
        if self._ended:
            await asyncio.wait(list(self._ended))

    async def _answer(self, append: Append) -> Answer:
        """The answer in time: whatever is raised becomes one."""
        last = _LastAnswer(self._clock.monotonic_s() + append.timeout_s)
        try:
            async with asyncio.timeout(append.timeout_s):
                return await self._route(append, last)
        except TimeoutError:
            return timed_out(append.timeout_s, last.why())
        except Refused as error:
            refused = Answer(Status.INVALID, str(error), refused=error.rows)
            return not_final(refused) if last.of_a_job_that_ended else refused
        except OnyxError as error:
            return Answer(Status.UNAVAILABLE, str(error), AGAIN_MAX_S)
        except Exception as error:
            logger.exception("a bug in Onyx: please report it")
            return Answer(Status.UNAVAILABLE, f"a bug in Onyx: {contained(error)}", AGAIN_MAX_S)

    async def _route(self, append: Append, last: _LastAnswer) -> Answer:
        """The answer to a part, to a request of a write, or to a whole request: that goes on to the
        job that has come in the place of one that ends."""
        if append.part is not None:
            return await self._deliver(append, append.part, last)
        found = await self.find(append.job, append.task, append.is_new, append.caller)
        if append.write is not None and not isinstance(found, Answer):
            return await self._writes.answer(found, append, append.write)
        id = append.id or self._new_id()
        while not isinstance(found, Answer):
            answer = await self._asked(found, append, id, last)
            if answer is not None:
                return answer
            # What the job has taken of it is in its journals, which another one goes on with.
            last.of_a_job_that_ended = True
            found = await self.find(found.job, found.task, False, append.caller)
        return not_final(found) if last.of_a_job_that_ended else found

    async def _asked(
        self, found: RequestInput, append: Append, id: str, last: _LastAnswer
    ) -> Answer | None:
        """The answer of an input to a whole request; None: its job has ended before."""
        # Not to be waited for, as `_part` does: nothing of it is taken yet, and how many partitions
        # there are may not be known.
        stopped = self._takes_nothing(found)
        if stopped is not None:
            return None if self._inputs.ended(found) else stopped
        segments, digest = await self._decoding.decoded(append.payload)
        count = self._inputs.partitions(found)
        home = partition_of(id, count)
        parts = parts_of(segments, found.partition_key, home, count)
        whole = _Whole(found, id, digest, append, len(parts) > 1)
        if append.id and (whole.split or home not in parts):
            taken = await self._registered(whole, home, parts, last)
            if taken is None or not taken.status.reached:
                return taken
        sent = [self._part(whole, number, part.segments, last) for number, part in parts.items()]
        answers = await asyncio.gather(*sent)
        of_all = [
            replace(each, outcomes=part.numbered(each.outcomes))
            for each, part in zip(answers, parts.values(), strict=True)
            if each is not None
        ]
        if len(of_all) < len(answers):
            return None
        answer = together(of_all)
        if count == 1:
            answer = replace(answer, owner=self._elsewhere(found))
        if answer.parts or answer.values_lost:
            answer = await asyncio.wrap_future(self._finished(found, answer))
        return answer

    def _elsewhere(self, found: RequestInput) -> str:
        """The worker that owns an input with one partition, if it is another one."""
        if self._inputs.waits(found) is not None:
            return ""
        owner = self._inputs.owner(found, 0)
        return "" if owner.group == self._group else owner.address

    async def _registered(
        self, whole: _Whole, home: int, parts: Mapping[int, Portion], last: _LastAnswer
    ) -> Answer | None:
        """Have the home of a request in parts know its id, before any other part is taken."""
        first = replace(whole, append=replace(whole.append, level=Level.JOURNAL))
        own = parts.get(home)
        return await self._part(first, home, [] if own is None else own.segments, last)

    async def _part(
        self, whole: _Whole, partition: int, segments: Segments, last: _LastAnswer
    ) -> Answer | None:
        """The answer of whoever takes a part, which is asked until somebody does; None: the job has
        ended before."""
        wait_s = AGAIN_FIRST_S
        while not self._inputs.ended(whole.input):
            stopped = self._inputs.stopped(whole.input)
            if stopped is not None:
                return stopped
            waits = self._inputs.waits(whole.input)
            answer = waits or await self._once(whole, partition, segments, last)
            if answer.status is not Status.UNAVAILABLE or self._inputs.drains(whole.input):
                return answer
            last.answer = answer
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, AGAIN_MAX_S)
        return None

    async def _once(
        self, whole: _Whole, partition: int, segments: Segments, last: _LastAnswer
    ) -> Answer:
        """The answer of the present owner, this worker or another one."""
        owner = self._inputs.owner(whole.input, partition)
        if owner.group == self._group:
            return await self._hand_over(whole, partition, segments, last)
        append = replace(
            whole.append,
            timeout_s=self._time_of_owner(last),
            job=whole.input.job,
            task=whole.input.task,
            id=whole.id,
            payload=_payload(whole, segments),
            part=PartOfRequest(partition, whole.digest),
        )
        return await asyncio.wrap_future(self._transport.forward(owner.address, append))

    def _time_of_owner(self, last: _LastAnswer) -> float:
        """The owner of a partition knows best why there is no answer, so its time ends sooner."""
        left_s = max(0.001, last.ends_s - self._clock.monotonic_s())
        return max(left_s - OWNER_SOONER_S, left_s / 2)

    async def _deliver(self, append: Append, part: PartOfRequest, last: _LastAnswer) -> Answer:
        """A part that another worker has handed over, to this very job: whether it has ended, and
        which job comes in its place, is for that worker to find."""
        found = await self.find(append.job, append.task, False, append.caller)
        if isinstance(found, Answer) and found.status is Status.UNAUTHENTICATED:
            return found
        if isinstance(found, Answer) or found.job != append.job:
            return Answer(Status.UNAVAILABLE, MOVES, AGAIN_MAX_S)
        segments: Segments = []
        if append.payload.data:
            segments, _ = await self._decoding.decoded(append.payload)
        whole = _Whole(found, append.id, part.digest, append)
        return await self._hand_over(whole, part.partition, segments, last)

    async def _hand_over(
        self, whole: _Whole, partition: int, segments: Segments, last: _LastAnswer
    ) -> Answer:
        mailbox = self._mailbox(whole.input, partition)
        if mailbox is None:
            return Answer(Status.UNAVAILABLE, MOVES)
        last.obstacles.append(partial(mailbox.obstacle, whole.id))
        return await asyncio.wrap_future(mailbox.offer(whole.request(segments)))


# --- one request --------------------------------------------------------------------------------


class _Whole(msgspec.Struct, frozen=True):
    """A whole request, and what all of its parts have in common."""

    input: RequestInput
    id: str
    digest: bytes
    append: Append
    split: bool = False
    """Whether it falls into parts."""

    def request(self, segments: Segments) -> Request:
        """These segments of it, for one partition."""
        append = self.append
        return Request(self.id, self.digest, segments, append.level, len(append.payload.data))


class _LastAnswer:
    """What the last attempt was answered, and who may know more: why a request has timed out."""

    def __init__(self, ends_s: float) -> None:
        self.ends_s = ends_s
        self.answer: Answer | None = None
        self.of_a_job_that_ended = False
        """Whether a job was asked that has ended since: its journals may have the request."""
        self.obstacles: list[Callable[[], str]] = []

    def why(self) -> str:
        """Why there is no answer; empty: that is not known."""
        known = next(filter(None, (each() for each in self.obstacles)), "")
        return known or ("" if self.answer is None else self.answer.reason)


def _payload(whole: _Whole, segments: Segments) -> Payload:
    """The segments of a part; those of a whole request are encoded already."""
    if not len(segments):
        return Payload(Form.MSGPACK, b"")
    return payload_of(segments) if whole.split else whole.append.payload
