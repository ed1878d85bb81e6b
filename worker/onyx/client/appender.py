"""Hands segments to an input of a running job, and learns what became of them.

    appender = Appender("worker:5555", job="orders", task="in", client=ClientSettings("token-file"))
    appender.append({"order": 7})                # returns when all that follows is durable
    appender.append(rows, ack="journal", id="upload-17")
    answers = [appender.send(each) for each in batches]  # futures

Any worker takes any request. The appender sends to one of those that it knows, and goes on with the
one that owns the input, if an answer names it. When that one is gone it goes on with the next, and
sends what has no answer again under the same id. So a segment is taken once, whatever happens on
the way, until `timeout_s` is over.

This module needs no ZooKeeper and no engine: grpcio, protobuf, msgspec, NumPy and pyarrow.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Self, TypeAlias

import pyarrow as pa
from msgspec.structs import replace

from onyx.base.seams import Clock, SystemClock
from onyx.errors import SegmentError, Unavailable, UserError
from onyx.flow.columns.record_batch import Columns
from onyx.flow.segment import Segment
from onyx.requests.content import payload_of
from onyx.requests.request import (
    ID_CHARACTERS_MAX,
    SEGMENTS_MAX,
    TIMEOUT_S,
    TIMEOUT_S_MAX,
    Answer,
    Append,
    Commit,
    Form,
    HeldRequest,
    Level,
    Payload,
    Status,
    answered,
)
from onyx.requests.tokens import ClientToken
from onyx.settings import ClientSettings, TlsSettings, TransportSettings
from onyx.tls.files import GROUPS, CertificateFiles
from onyx.transport.appends.streams import AppendStreams

Segments: TypeAlias = "Segment | Sequence[Segment] | pa.RecordBatch"
NO_TLS = TlsSettings()
NO_TOKEN = ClientSettings()
HOW_TO_SHOW_ONE = (
    "give this client the token in a file or a variable (--token-file, ClientSettings)"
)
AGAIN_FIRST_S = 0.05
AGAIN_MAX_S = 1.0


class NotTaken(UserError):
    """A request was not taken, and never will be as it is; `answer` says why."""

    def __init__(self, answer: Answer) -> None:
        how = f": {HOW_TO_SHOW_ONE}" if answer.status is Status.UNAUTHENTICATED else ""
        super().__init__(answer.reason + how)
        self.answer = answer


class RequestFailed(UserError):
    """A request was taken, and segments of it have failed for good; `answer.outcomes` says which.
    The others are processed."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.reason)
        self.answer = answer


class NotYetTaken(Unavailable):
    """It is not known whether a request was taken in time. Sent again under the same id, it is
    taken once."""

    def __init__(self, answer: Answer, id: str) -> None:
        super().__init__(f"request {id}: {answer.reason}")
        self.answer = answer
        self.id = id


class Appender:
    """Requests to one input. Safe from any thread; a context manager, or call `close`."""

    def __init__(
        self,
        workers: str | Sequence[str] | Callable[[], Sequence[str]],
        job: str,
        task: str = "",
        tls: TlsSettings = NO_TLS,
        clock: Clock | None = None,
        on_close: Callable[[], None] = lambda: None,
        client: ClientSettings = NO_TOKEN,
        tenancy: str = "",
    ) -> None:
        """Nothing is connected yet.

        Args:
            workers: addresses of workers, `host:port` (`ONYX_TRANSPORT_PORT`), or a function that
                gives those that there are now. Any of them will do.
            job: id of a job, or its name if only one job of this name runs.
            task: the input, with `plugin: requests` or `http`; empty if the job has only one.
            tls: the certificates, where workers have them.
            on_close: called when the appender is closed.
            client: where the token is that opens the input, if it wants one.
            tenancy: of the job. A worker of another one, which may have been given the address of
                one that has died, takes nothing then. Empty: whichever it is.

        Raises:
            SettingsError: the certificates are not good.
            UserError: an address is none, or there are two places for a token.
        """
        self._find = workers if callable(workers) else _given(workers)
        self._workers: list[str] = []
        files = CertificateFiles.named_by(tls, GROUPS, serves=False)
        self._clock = clock or SystemClock()
        token = ClientToken(client, self._clock)
        self._streams = AppendStreams(TransportSettings(), files, token, tenancy)
        self._job = job
        self._task = task
        self._turn = 0
        self._on_close = on_close
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(
        self,
        segments: Segments,
        ack: str = Level.ACK,
        id: str = "",
        timeout_s: float = TIMEOUT_S,
    ) -> Answer:
        """Hand segments over and wait.

        Args:
            segments: a dict, a list of dicts or a record batch; at most 100,000 and 4 MB.
            ack: `ack`: all that follows from them is durable in all outputs; `journal`: they are
                durable in the journal of the input; `none`: a worker has them.
            id: the same segments are taken once under one id; a new one without.
            timeout_s: how long to try.

        Raises:
            NotTaken: the request is wrong, its id was used for other segments, or there is no such
                job or input.
            RequestFailed: segments of the request have failed for good.
            NotYetTaken: `timeout_s` is over; the message says what kept it.
            SegmentError: a segment cannot travel.
        """
        return self._until_taken(self.request(segments, ack, id, timeout_s))

    def hold(self, segments: Segments, held: HeldRequest, timeout_s: float = TIMEOUT_S) -> Answer:
        """Hand segments over, to be taken when their batch is committed. The answer comes when they
        are durable. Raises like `append`."""
        return self._until_taken(
            replace(self.request(segments, Level.JOURNAL, "", timeout_s), write=held)
        )

    def commit(
        self, commit: Commit, ack: str = Level.JOURNAL, timeout_s: float = TIMEOUT_S
    ) -> Answer:
        """Have all that some writers hold of a batch taken, once: a batch that was committed before
        stays what it was then. Its answer comes as `ack` says. Raises like `append`; the same
        commit may be sent again after `NotYetTaken`.
        """
        nothing = Payload(Form.MSGPACK, b"")
        append = self._of(nothing, ack, uuid.uuid4().hex, timeout_s)
        return self._until_taken(replace(append, write=commit))

    def _until_taken(self, append: Append) -> Answer:
        again = replace(append, fresh=False)
        timeout_s = append.timeout_s
        ends_s = self._clock.monotonic_s() + timeout_s
        wait_s = AGAIN_FIRST_S
        while True:
            answer, append = self._once(append, ends_s), again
            if answer.status.reached:
                return answer
            if not answer.status.again:
                raise _final(answer)
            wait_s = max(wait_s, answer.retry_after_s or 0.0)
            left_s = ends_s - self._clock.monotonic_s()
            if left_s <= wait_s or self._closed.wait(wait_s):
                raise NotYetTaken(answer, append.id)
            wait_s = min(2 * wait_s, AGAIN_MAX_S)

    def call(self, segments: Segments, id: str = "", timeout_s: float = TIMEOUT_S) -> Any:
        """Hand segments over and wait for what functions of the job return with `ack_return`: the
        values by key. Raises like `append`."""
        return self.append(segments, Level.ACK, id, timeout_s).values

    def send(
        self,
        segments: Segments,
        ack: str = Level.ACK,
        id: str = "",
        timeout_s: float = TIMEOUT_S,
    ) -> Future[Answer]:
        """Hand segments over without waiting, once. The answer may be BUSY, UNAVAILABLE or
        TIMED_OUT: send them again then, under the same id. Raises SegmentError like `append`."""
        return self.begin(self.request(segments, ack, id, timeout_s))

    def close(self) -> None:
        """End the connections; whoever waits gives up."""
        self._closed.set()
        self._streams.close()
        self._on_close()

    def request(self, segments: Segments, ack: str, id: str, timeout_s: float) -> Append:
        """What is sent for `append`. Raises SegmentError, UserError."""
        if len(id) > ID_CHARACTERS_MAX:
            raise UserError(f"an id has at most {ID_CHARACTERS_MAX} characters, not {len(id)}")
        payload = payload_of(_checked(segments))
        append = self._of(payload, ack, id or uuid.uuid4().hex, timeout_s)
        return replace(append, fresh=not id)

    def _of(self, payload: Payload, ack: str, id: str, timeout_s: float) -> Append:
        if ack not in set(Level):
            raise UserError(f"ack is {', '.join(Level)}, and not {ack!r}")
        if not 0 < timeout_s <= TIMEOUT_S_MAX:
            raise UserError(f"timeout_s is above 0, at most {TIMEOUT_S_MAX:g}, not {timeout_s}")
        return Append(self._job, self._task, payload, id, Level(ack), timeout_s)

    def next_worker(self) -> None:
        """Go on with another worker of those that there are now."""
        self._workers = []
        self._turn += 1

    def _once(self, append: Append, ends_s: float) -> Answer:
        left_s = max(0.001, ends_s - self._clock.monotonic_s())
        future = self.begin(replace(append, timeout_s=left_s))
        try:
            answer = future.result(left_s + AGAIN_MAX_S)
        except TimeoutError:
            future.cancel()
            answer = Answer(Status.TIMED_OUT, "the worker that was asked does not answer")
        if answer.status.again:
            self.next_worker()
        return answer

    def begin(self, append: Append) -> Future[Answer]:
        """Send a request once."""
        try:
            if not self._workers:
                self._workers = list(self._find())
        except Unavailable as error:
            return answered(Answer(Status.UNAVAILABLE, str(error), AGAIN_FIRST_S))
        sent = self._streams.send(self._workers[self._turn % len(self._workers)], append)
        sent.add_done_callback(self._learn)
        return sent

    def _learn(self, answered: Future[Answer]) -> None:
        """Go on with the worker that owns the input, if it is one of those that were given: others
        need not be reachable from here."""
        owner = "" if answered.cancelled() else answered.result().owner
        workers = self._workers
        if owner in workers:
            self._turn = workers.index(owner)


class AsyncAppender:
    """An appender for programs with an event loop."""

    def __init__(self, appender: Appender) -> None:
        self._appender = appender

    async def append(
        self,
        segments: Segments,
        ack: str = Level.ACK,
        id: str = "",
        timeout_s: float = TIMEOUT_S,
    ) -> Answer:
        """Hand segments over as `Appender.append`, without a thread that waits."""
        append, wait_s = self._appender.request(segments, ack, id, timeout_s), AGAIN_FIRST_S
        answer = Answer(Status.TIMED_OUT, "no worker has answered")
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    answer = await asyncio.wrap_future(self._appender.begin(append))
                    append = replace(append, fresh=False)
                    if answer.status.reached:
                        return answer
                    if not answer.status.again:
                        raise _final(answer)
                    self._appender.next_worker()
                    await asyncio.sleep(max(wait_s, answer.retry_after_s or 0.0))
                    wait_s = min(2 * wait_s, AGAIN_MAX_S)
        except TimeoutError:
            raise NotYetTaken(answer, append.id) from None


def _final(answer: Answer) -> UserError:
    return RequestFailed(answer) if answer.status is Status.FAILED else NotTaken(answer)


def _given(workers: str | Sequence[str]) -> Callable[[], Sequence[str]]:
    """Gives the same workers each time."""
    found = [workers] if isinstance(workers, str) else list(workers)
    if not found or not all(":" in each for each in found):
        raise UserError(f"workers are given as host:port, and not as {workers!r}")
    return lambda: found


def _checked(segments: Segments) -> list[Segment] | Columns:
    if isinstance(segments, pa.RecordBatch):
        found: list[Segment] | Columns = Columns.of(segments)
    elif isinstance(segments, dict):
        found = [segments]
    else:
        found = list(segments)
    if not 0 < len(found) <= SEGMENTS_MAX:
        raise SegmentError(f"{len(found):,} segments; 1 to {SEGMENTS_MAX:,} go into a request")
    return found
