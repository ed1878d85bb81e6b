"""Who is let in of those that call: members of this tenancy that share a job with this group.
Clients are let in to requests and states only, with the rights of the token that they show.

Anybody who reaches the port can call. So a call gets nothing that members need before its hello has
been checked, and calls that wait for a shared job are bounded too.

A member sends its hello with the call, so a call whose hello does not come is not from a member.
When a new call finds all places of such calls taken, the oldest one is cancelled. So a flood of
calls shortens the time that each caller has for its hello, and locks no member out. Refusing the
newest call was rejected: a few silent callers would then keep all members out.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator

import grpc

from onyx.base.seams import Clock
from onyx.ids import GroupId
from onyx.requests.request import Caller
from onyx.requests.tokens import KEY, bearer
from onyx.telemetry.labels import Refusal
from onyx.tls.files import CertificateFiles
from onyx.transport.grpc_channel import check_client_name, is_client, stranger
from onyx.transport.hello import CallRefused, Stream, read_hello
from onyx.transport.link import Link

logger = logging.getLogger("onyx.transport")
EXPECTED_MAX = 32
"""Groups that wait until this one has learned that they share a job."""
COMPLAINT_INTERVAL_S = 60.0
"""Refusals of one kind are logged once in so long; all are counted."""
FindLink = Callable[[GroupId, float], Link | None]
"""The link with a group; waits up to so many seconds for there to be one."""
PENDING_MAX = 32
"""Calls at once; the first message of each may take as much memory as a frame."""
CALLERS_MAX = PENDING_MAX + EXPECTED_MAX
"""Calls that have not been let in yet, at most."""
CANCELLED = "its hello did not come while others were waiting"


class Gate:
    """The gate of one process. Safe from any thread; nobody is let in before `open`."""

    def __init__(
        self,
        tenancy: str,
        certificates: CertificateFiles | None,
        clock: Clock,
        expect_timeout_s: float,
        client_name: str = "",
    ) -> None:
        """
        Args:
            expect_timeout_s: how long a member may wait until a job is known to be shared.
            client_name: that certificates of clients carry.

        Raises:
            SettingsError: workers would carry it too.
        """
        check_client_name(client_name, certificates)
        self._client_name = client_name
        self.tenancy = tenancy
        self.group = GroupId("")
        self.pending = PendingHellos()
        self._certificates = certificates
        self._clock = clock
        self._expect_timeout_s = expect_timeout_s
        self._find: FindLink = lambda group, timeout_s: None
        self._complaints: dict[Refusal, float] = {}
        self._expected = threading.BoundedSemaphore(EXPECTED_MAX)

    def open(self, group: GroupId, find: FindLink) -> None:
        """Let members in, as this group."""
        self.group, self._find = group, find

    def turn_away_strangers(self, context: grpc.ServicerContext) -> None:
        """End a call whose certificate is not that of a member, by an exception of gRPC."""
        problem = stranger(context, self._certificates)
        if problem is not None:
            self.refuse(context.peer(), CallRefused(Refusal.CERTIFICATE, problem))
            known = is_client(context, self._client_name)
            code = grpc.StatusCode
            context.abort(code.PERMISSION_DENIED if known else code.UNAUTHENTICATED, problem)

    def caller(self, context: grpc.ServicerContext) -> Caller:
        """Who has called, a client or a worker. Others are turned away as strangers are."""
        if not is_client(context, self._client_name):
            self.turn_away_strangers(context)
        worker = self.knows_workers and stranger(context, self._certificates) is None
        return Caller(_token_of(context), worker)

    @property
    def knows_workers(self) -> bool:
        """Whether it is known who is a worker: by certificates."""
        return self._certificates is not None

    def admit(
        self, stream: Stream, requests: Iterator[bytes], send_away: Callable[[], None]
    ) -> Link:
        """The link for which a stream has come, attached to it.

        Args:
            send_away: ends the call, when its first frame has not come and others wait.

        Raises:
            CallRefused: the first frame is not a hello that this group can accept.
        """
        with self.pending.waiting(send_away):
            first = next(requests)
        hello = read_hello(first, self.tenancy, self.group)
        link = self._find(hello.group, 0.0) or self._expect(hello.group)
        if link is None:
            raise CallRefused(
                Refusal.GROUP, f"group {self.group} shares no job with group {hello.group}"
            )
        link.attach(stream, hello)
        return link

    def _expect(self, group: GroupId) -> Link | None:
        if not self._expected.acquire(blocking=False):
            raise CallRefused(
                Refusal.BUSY, f"{EXPECTED_MAX} groups wait already for a job to be shared"
            )
        try:
            return self._find(group, self._expect_timeout_s)
        finally:
            self._expected.release()

    def refuse(self, peer: str, refused: CallRefused) -> None:
        """Count a call that is not let in, and log it if none of its kind was logged lately."""
        number, now_s = self.pending.count(refused.reason), self._clock.monotonic_s()
        last_s = self._complaints.get(refused.reason)
        if last_s is None or now_s - last_s >= COMPLAINT_INTERVAL_S:
            self._complaints[refused.reason] = now_s
            logger.warning(
                "refused a call from %s: %s (%d by now for this reason: %s)",
                peer,
                refused,
                number,
                refused.reason,
            )

    def refused(self) -> Counter[Refusal]:
        """Calls that were not let in."""
        return self.pending.refused()


def _token_of(context: grpc.ServicerContext) -> bytes:
    """The token of a call; empty if there is none, or more than one."""
    found = [value for key, value in context.invocation_metadata() or () if key == KEY]
    if len(found) != 1:
        return b""
    (value,) = found
    return bearer(value.encode() if isinstance(value, str) else value)


class PendingHellos:
    """The calls, and how many were refused. Safe to use from any thread."""

    def __init__(self, calls_max: int = PENDING_MAX) -> None:
        self._calls_max = calls_max
        self._lock = threading.Lock()
        self._waiting: OrderedDict[object, Callable[[], object]] = OrderedDict()
        self._refused: Counter[Refusal] = Counter()

    @contextlib.contextmanager
    def waiting(self, cancel: Callable[[], object]) -> Iterator[None]:
        """While the hello of a call has not come, or the request of a client that sends one.
        `cancel` ends the call, from another thread."""
        me, oldest = object(), None
        with self._lock:
            if len(self._waiting) >= self._calls_max:
                _, oldest = self._waiting.popitem(last=False)
            self._waiting[me] = cancel
        if oldest is not None:
            oldest()
        try:
            yield
        finally:
            with self._lock:
                self._waiting.pop(me, None)

    def count(self, refusal: Refusal) -> int:
        """One more call was refused for this reason; how many that makes."""
        with self._lock:
            self._refused[refusal] += 1
            return self._refused[refusal]

    def refused(self) -> Counter[Refusal]:
        """Calls refused since the start."""
        with self._lock:
            return self._refused.copy()
