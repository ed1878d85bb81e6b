"""Output `http`: requests to an endpoint, at least once or exactly once.

The first call decides: only a job under exactly-once calls `begin`, or `finish` before it. An
endpoint has no fence. At least once, a request is sent as soon as it is full, or old enough, and
what a dead writer has on its way may still arrive.

Exactly once, requests are gathered in a unit. The state log commits it, requests and keys, and only
then they are sent. One unit after the other, as `rolling` demands: the next is committed when all
requests of the one before are settled. So whoever takes over sends what is committed again byte for
byte, under the same keys: a server that takes a key once has each segment once.

A refusal of which there are no dead letters ends the job, also where requests have brought the
segments: these count as written by then, so whoever takes over would answer that they are.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256

import msgspec
import pyarrow as pa
from msgspec import field

from onyx.errors import Unavailable
from onyx.flow.batch import Segments
from onyx.flow.columns.record_batch import Columns
from onyx.flow.segment import Segment
from onyx.ids import GroupId
from onyx.plugins.http.bodies import RequestBody, bodies_of
from onyx.plugins.http.deliveries import Letters, OrderedDeliveries
from onyx.plugins.http.endpoint import JobEndpoint
from onyx.plugins.http.options import HttpOptions
from onyx.plugins.http.sender import HttpRequest, Sender
from onyx.plugins.protocol import Commit, PluginContext, RefusedSegments, Token
from onyx.plugins.rolling import ROLL_LIMITS, RollingWriter, roll_limits
from onyx.telemetry.catalog import HTTP_REFUSALS, HTTP_REQUESTS, HTTP_RETRIES

WAIT_S_MAX = 1.0
"""Longest wait of one call for answers: a task that waits longer could not be allocated anew."""
UNSETTLED_MAX = 100_000
"""Requests, of which all may be answered but the first."""
_POLL_S = 0.05
_METRICS = {"delivered": HTTP_REQUESTS, "again": HTTP_RETRIES, "refused": HTTP_REFUSALS}
_numbers = itertools.count()
"""Numbers of outputs within this process: with the incarnation, they make keys unique."""
REMEMBERED_UNITS = 1_000
FINISH_WAIT_S_MAX = 10.0
"""Longest wait of `finish`, which runs in the background: whoever calls it again reads the state
log again."""


class HttpOutput:
    """Delegates to the writer of the job's guarantee."""

    cooperative = False
    """A commit waits for a disk, and a flush for answers."""

    def __init__(self, context: PluginContext, options: HttpOptions) -> None:
        self._dispatch = Dispatch(context, options)
        self._writer: StreamingWriter | CommittingWriter = StreamingWriter(self._dispatch)

    def begin(self, commit: Commit) -> None:
        """Commit requests before they are sent, from now on."""
        self._committing().begin(commit)

    def finish(self, token: Token) -> None:
        """Send what was committed."""
        self._committing().finish(token)

    def write(self, segments: list[Segment]) -> None:
        """Hand the segments to the writer."""
        self._take(segments)

    def write_columns(self, columns: pa.RecordBatch) -> None:
        """Hand the rows to the writer."""
        self._take(Columns(columns))

    def durable(self) -> int:
        """Segments whose requests were answered with 2xx, whose dead letters are durable, or whose
        refusal was reported, up to the first that is not."""
        return self._writer.durable()

    def take_refused(self) -> list[RefusedSegments]:
        """What the server has refused since the last call: see `protocol.RefusingOutput`."""
        return self._dispatch.take_refused()

    def flush(self) -> None:
        """Flush the writer."""
        self._writer.flush()

    def tick(self) -> None:
        """Let the writer go on."""
        self._writer.tick()

    def fence(self, live: Sequence[GroupId]) -> None:
        """Fence off those who write dead letters. An endpoint has no fence."""
        if self._dispatch.letters is not None:
            self._dispatch.letters.fence(live)

    def seal(self) -> None:
        """Flush; an endpoint needs nothing else at the end of a job."""
        self.flush()

    def close(self) -> None:
        """Drop what is not settled: it is replayed, or sent by whoever reads its commit."""
        self._dispatch.close()

    def _take(self, segments: Segments) -> None:
        if len(segments):
            self._writer.take(segments)

    def _committing(self) -> CommittingWriter:
        if not isinstance(self._writer, CommittingWriter):
            self._writer = CommittingWriter(self._dispatch)
        return self._writer


class Dispatch:
    """The requests of one output. Used by the task's thread."""

    def __init__(self, context: PluginContext, options: HttpOptions) -> None:
        self.context = context
        self.options = options
        self.writer = f"{context.incarnation}.{next(_numbers)}"
        """Unique for ever."""
        self.bodies = bodies_of(context, options)
        self._endpoint = endpoint = JobEndpoint(context, options)
        path = options.dead_letter_path
        self.letters = None if path is None else Letters(context, options, path, endpoint.shown)
        self._sender = Sender(
            context,
            endpoint.connect,
            endpoint.exchange,
            options.concurrency,
            options.retries_max,
            options.retry_seconds_max,
        )
        self._requests = itertools.count()
        self._refused: list[RefusedSegments] = []

    def requests(self, bodies: Sequence[RequestBody]) -> list[HttpRequest]:
        """Bodies with their keys."""
        return [HttpRequest(self._key(each), each.data, each.segments) for each in bodies]

    def deliveries(self, first: int | None, raises: bool) -> OrderedDeliveries:
        """New ones, without requests.

        Args:
            first: segments written before them, in the order of writing; None: it is not known.
            raises: a refusal of which there are no letters ends the job.
        """
        report = None if first is None else partial(self._report, first)
        doing = self._endpoint.doing
        return OrderedDeliveries(self.context, self._sender, self.letters, doing, report, raises)

    def take_refused(self) -> list[RefusedSegments]:
        """What was refused since the last call."""
        refused, self._refused = self._refused, []
        return refused

    def require_room(self, unsettled: int) -> None:
        """Raises Unavailable while too much is on its way, or so many requests are not settled."""
        if unsettled >= UNSETTLED_MAX or not self._sender.has_room:
            raise self.unavailable()

    def unavailable(self) -> Unavailable:
        """What is waited for."""
        trouble = self._sender.trouble
        what = f"waits for answers{f', the last one was {trouble}' if trouble else ''}"
        return Unavailable(f"task {self.context.task!r}: {self._endpoint.doing}: {what}")

    def await_answers(self, over: Callable[[], bool], wait_s_max: float = WAIT_S_MAX) -> None:
        """Wait until it is over, for a limited time."""
        ends_s = time.monotonic() + wait_s_max
        while not over() and time.monotonic() < ends_s and self.context.wanted():
            self._sender.await_change(_POLL_S)

    def tick(self) -> None:
        """Publish dead letters that are due, and count what has happened."""
        for what, count in self._sender.take_counts().items():
            self.context.metrics.add(_METRICS[what], count)
        if self.letters is not None:
            self.letters.tick()

    def flush(self) -> None:
        """Publish dead letters now."""
        if self.letters is not None:
            self.letters.flush()

    def close(self) -> None:
        """Send nothing any more."""
        self._sender.close()
        if self.letters is not None:
            self.letters.close()

    def _report(self, first: int, refused: RefusedSegments) -> None:
        self._refused.append(refused._replace(first=first + refused.first))

    def _key(self, body: RequestBody) -> str:
        if body.key is not None:
            return body.key
        if self.options.idempotency == "content":
            return sha256(body.data).hexdigest()
        return f"{self.writer}-{next(self._requests)}"


class _Unit(msgspec.Struct):
    """A unit of `rolling`."""

    name: str
    opened_s: float
    requests: list[HttpRequest] = field(default_factory=list)
    segments: int = 0
    whole_bytes: int = 0
    """The size of the requests."""
    size_bytes: int = 0
    """The size with segments that are in no request yet."""
    token: Token | None = None
    committed: bool = False

    def make_token(self) -> Token:
        return {"unit": self.name, "requests": [list(each) for each in self.requests]}


class CommittingWriter(RollingWriter):
    """The writer of an exactly-once job (`protocol.TransactionalOutput`)."""

    def __init__(self, dispatch: Dispatch) -> None:
        super().__init__(dispatch.context, roll_limits(dispatch.options))
        self._dispatch = dispatch
        self._bodies = dispatch.bodies
        self._numbers = itertools.count(1)
        self._open: _Unit | None = None
        self._full: _Unit | None = None
        """To be settled before another is committed."""
        self._sent: dict[str, OrderedDeliveries] = {}
        """What is on its way, by the names of units."""
        self._settled: deque[str] = deque(maxlen=REMEMBERED_UNITS)
        """Units that this output has settled, and need not send again."""

    def begin(self, commit: Commit) -> None:
        """A new allocation version: see `protocol.TransactionalOutput`.

        A unit in doubt is left to whoever recovers the state log, which knows the outcome.
        """
        with self._guarded():
            if self._full is not None and self._full.committed:
                self._require_settled(self._full.name, self._full.requests, WAIT_S_MAX)
                self._durable += self._full.segments
        self._open = self._full = None
        self._bodies.clear()
        self._begin(commit)

    def finish(self, token: Token) -> None:
        """Send what was committed, until it is settled: see `protocol.TransactionalOutput`."""
        with self._guarded():
            requests = [HttpRequest(*each) for each in token["requests"]]
            self._require_settled(token["unit"], requests, FINISH_WAIT_S_MAX)

    def take(self, segments: Segments) -> None:
        """Add segments to the open unit. Raises like `Output.write`."""
        with self._guarded():
            if self._full is not None:
                self._publish()
            if self._full is not None and self._is_due(self._open):
                raise self._dispatch.unavailable()
        full = self._bodies.add(segments)  # what it refuses is not taken, and breaks nothing
        with self._guarded():
            unit = self._opened()
            self._put(unit, self._dispatch.requests(full))
            unit.segments += len(segments)
            unit.size_bytes = unit.whole_bytes + self._bodies.waiting_bytes
            # These segments are taken, so it is the next call that raises.
            with contextlib.suppress(Unavailable):
                if self._is_due(unit):
                    self._publish()

    def tick(self) -> None:
        """Commit and send what is due, and look what is settled."""
        with self._guarded():
            self._dispatch.tick()
            if self._flushing or self._full is not None or self._is_due(self._open):
                self._publish()

    def flush(self) -> None:
        """Commit and send what there is, and wait a limited time for the answers."""
        super().flush()
        self._dispatch.await_answers(self._is_done)

    def _is_done(self) -> bool:
        """Whether all that was written is settled."""
        if self._full is not None:
            with self._guarded():
                self._dispatch.flush()
                self._publish()
        return self._full is None

    def _opened(self) -> _Unit:
        if self._open is None:
            name = f"{self._dispatch.writer}.{next(self._numbers)}"
            self._open = _Unit(name, self._context.clock.monotonic_s())
        return self._open

    def _put(self, unit: _Unit, requests: Sequence[HttpRequest]) -> None:
        unit.requests += requests
        unit.whole_bytes += sum(len(each.body) for each in requests)

    def _publish(self) -> None:
        """Commit and send one unit after the other, as far as they are due."""
        while self._context.permitted():
            if self._full is None:
                if self._open is None or not (self._flushing or self._is_due(self._open)):
                    self._flushing = self._flushing and self._open is not None
                    return
                self._put(self._open, self._dispatch.requests(self._bodies.finish()))
                self._full, self._open = self._open, None
            self._commit_once(self._full)
            if not self._is_settled(self._full.name, self._full.requests, first=self._durable):
                return
            self._durable += self._full.segments
            self._full = None

    def _require_settled(
        self, name: str, requests: Sequence[HttpRequest], wait_s_max: float
    ) -> None:
        """Raises Unavailable when requests of a unit are not settled within this time."""

        def is_over() -> bool:
            self._dispatch.flush()
            return self._is_settled(name, requests)

        self._dispatch.await_answers(is_over, wait_s_max)
        if not is_over():
            raise self._dispatch.unavailable()

    def _is_settled(
        self, name: str, requests: Sequence[HttpRequest], first: int | None = None
    ) -> bool:
        """Send the requests of a unit, once; whether all are settled.

        Args:
            first: segments that this writer has written before them; None: another one may have
                written and sent them.
        """
        if name in self._settled:
            return True
        deliveries = self._sent.get(name)
        if deliveries is None:
            deliveries = self._sent[name] = self._dispatch.deliveries(first, raises=True)
            for each in requests:
                deliveries.add(each, in_doubt=first is None)
        deliveries.settle()
        if deliveries:
            return False
        del self._sent[name]
        self._settled.append(name)
        return True


class StreamingWriter(RollingWriter):
    """The writer of a job that is not exactly-once."""

    def __init__(self, dispatch: Dispatch) -> None:
        super().__init__(dispatch.context, ROLL_LIMITS)
        self._dispatch = dispatch
        self._bodies = dispatch.bodies
        self._deliveries = dispatch.deliveries(first=0, raises=not dispatch.context.answers)
        self._opened_s = 0.0
        """Since when segments wait for their body to be full."""

    def take(self, segments: Segments) -> None:
        """Add segments. Raises like `Output.write`."""
        with self._guarded():
            self._settle()
            self._dispatch.require_room(len(self._deliveries))
        was_empty = not self._bodies.waiting
        full = self._bodies.add(segments)  # what it refuses is not taken, and breaks nothing
        with self._guarded():
            if was_empty or full:
                self._opened_s = self._context.clock.monotonic_s()
            self._send(full)

    def tick(self) -> None:
        """Send what has waited long enough, and look what is settled."""
        with self._guarded():
            age_s = self._context.clock.monotonic_s() - self._opened_s
            is_due = age_s >= self._dispatch.options.request_seconds
            if self._bodies.waiting and (self._flushing or is_due):
                self._send(self._bodies.finish())
            self._dispatch.tick()
            self._settle()
            self._flushing = self._flushing and bool(len(self._deliveries))

    def flush(self) -> None:
        """Send what there is, and wait a limited time for the answers."""
        super().flush()
        self._dispatch.await_answers(self._is_done)

    def _is_done(self) -> bool:
        """Whether all that was sent is settled."""
        if self._deliveries:
            with self._guarded():
                self._dispatch.flush()
                self._settle()
        return not self._deliveries

    def _send(self, bodies: list[RequestBody]) -> None:
        for request in self._dispatch.requests(bodies):
            self._deliveries.add(request)

    def _settle(self) -> None:
        self._durable += self._deliveries.settle()
