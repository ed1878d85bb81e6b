"""Requests exactly once, towards a server that honours their keys.

Requests are gathered in a unit. The state log commits it, requests and keys, and only then they are
sent. One unit after the other, as `rolling` demands: the next is committed when all requests of the
one before are settled.

A refusal of which there are no dead letters ends the job, also where requests have brought the
segments: these count as written by then, so whoever takes over would answer that they are.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Sequence

import msgspec
from msgspec import field

from onyx.errors import Unavailable
from onyx.flow.batch import Segments
from onyx.plugins.http.deliveries import Deliveries
from onyx.plugins.http.dispatch import WAIT_S_MAX, Dispatch
from onyx.plugins.http.sender import Request
from onyx.plugins.protocol import Commit, Token
from onyx.plugins.roll_limits import roll_limits
from onyx.plugins.rolling import RollingWriter

REMEMBERED_UNITS = 1_000
FINISH_WAIT_S_MAX = 10.0
"""Longest wait of `finish`, which runs in the background: whoever calls it again reads the state
log again."""


class _Unit(msgspec.Struct):
    """A unit of `rolling`."""

    name: str
    opened_s: float
    requests: list[Request] = field(default_factory=list)
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
        self._sent: dict[str, Deliveries] = {}
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
            requests = [Request(*each) for each in token["requests"]]
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

    def _put(self, unit: _Unit, requests: Sequence[Request]) -> None:
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

    def _require_settled(self, name: str, requests: Sequence[Request], wait_s_max: float) -> None:
        """Raises Unavailable when requests of a unit are not settled within this time."""

        def is_over() -> bool:
            self._dispatch.flush()
            return self._is_settled(name, requests)

        self._dispatch.await_answers(is_over, wait_s_max)
        if not is_over():
            raise self._dispatch.unavailable()

    def _is_settled(self, name: str, requests: Sequence[Request], first: int | None = None) -> bool:
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
