"""One ZooKeeper session over kazoo: connecting, its states, and calls that survive a break.

The session of a *group* ends with its first expiry, as the incarnation does. A *client* may replace
an expired session. Kazoo's own retries are not used for calls: they repeat what must not be
repeated, and continue under a new session. While disconnected, kazoo stores requests and sends them
on the next connection; callers must allow for that.

Invariant of `confirmed_s`: the server cannot have expired the session before this moment plus the
session timeout. So it is the moment at which the last answered request was *sent*: the server may
have handled it at any time since then.

Many nodes are read in one request (`read_nodes`, ZooKeeper 3.6 and later), which kazoo does not
offer. One request for each entry costs this process 130 us, so a worker that joins a cluster with a
long log would be seconds late; in one request it is a few microseconds. The request is added to
kazoo from outside, in the form of kazoo's own (`type`, `serialize`, `deserialize`).

Kazoo calls listeners on the thread that reads its socket and watchers on another one; a blocking
call inside either stops the client. So those only put a call on the `Loop` of the log.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    EXCEPTIONS,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NoNodeError,
    OperationTimeoutError,
    SessionExpiredError,
)
from kazoo.protocol.serialization import (
    GetData,
    MultiHeader,
    int_struct,
    multiheader_struct,
    read_buffer,
    stat_struct,
)
from kazoo.protocol.states import KazooState

from onyx.errors import Fenced, Unavailable, UserError
from onyx.log.interface import Session
from onyx.log.loop import Loop
from onyx.log.zookeeper.dialler import TELL_AFTER_S, Dialler, Start, socket_of, stop
from onyx.log.zookeeper.lost_servers import LOOKS_PER_SESSION, Look, Silence, TransactionComparison
from onyx.reports.measures import ZooKeeperMeasures
from onyx.settings import ZooKeeperSettings
from onyx.telemetry.catalog import ZOOKEEPER_LATENCIES_S
from onyx.telemetry.tallies import Tally
from onyx.tls.files import CertificateFiles

REPLY_LOST = (ConnectionLoss, SessionExpiredError, ConnectionClosedError, OperationTimeoutError)
"""The request may have been performed or not."""
HEARTBEATS_PER_SESSION = 6
_WAIT_S = 0.05
NODES_MAX = 64
"""Nodes of one request; with the largest entries its answer has 16 MiB."""
_ERROR = -1


class Denied(UserError):
    """A node belongs to another user."""


class ReplyLost(Exception):
    """The connection broke before the reply; used inside `onyx.log` only."""


class ZooKeeperSession:
    """A connected session.

    Raises:
        Unavailable: nothing answered within `connect_timeout_s`.
        SettingsError: the address cannot be understood, or files for TLS or the password are wrong.
    """

    def __init__(
        self,
        settings: ZooKeeperSettings,
        name: str,
        survives_expiry: bool,
        certificates: CertificateFiles | None = None,
        tenancy: str = "",
    ) -> None:
        self.address = settings.address
        self.session_timeout_s = settings.session_timeout_s
        """The time-out as negotiated with the server."""
        self._dialler = Dialler(settings, certificates, tenancy)
        self.access = self._dialler.access
        self._timeout_s = settings.connect_timeout_s
        self._survives_expiry = survives_expiry
        self._listeners: list[Callable[[Session], None]] = []
        self._live = threading.Event()
        self._closing = False
        self._lost = False
        self._failure: Exception | None = None
        self._confirmed_s = time.monotonic()
        self.traffic = Traffic()
        self._expired = False
        """The session of a group is over; set on kazoo's thread."""
        self.loop = Loop(name)
        try:
            self._client = self._dialler.connected(self._tell, self._granted)
        except BaseException:
            self.loop.stop()
            raise
        client = self._client
        self.traffic.count(client)
        self._silence = Silence(self.address, time.monotonic(), lambda: socket_of(client))
        self._comparison = TransactionComparison(client, self._dialler.new, settings)
        self.loop.every(self.session_timeout_s / HEARTBEATS_PER_SESSION, self._beat)
        self.loop.every(self.session_timeout_s / LOOKS_PER_SESSION, self._listen)
        self.loop.every(self.session_timeout_s, self._compare_if_refused)

    @property
    def id(self) -> int:
        """The server's number of the session."""
        client_id = self._client.client_id
        return int(client_id[0]) if client_id else 0

    @property
    def chroot(self) -> str:
        """The path with which the address ends; empty for none."""
        return str(self._client.chroot or "")

    def on_session(self, listener: Callable[[Session], None]) -> Callable[[], None]:
        """Tell `listener`, on the loop, what happens to the session, until the returned function
        is called."""
        self.loop.call(lambda: self._listeners.append(listener))
        return lambda: self.loop.call(lambda: self._listeners.remove(listener))

    def confirmed_s(self) -> float:
        """Monotonic time at which the session was alive for certain."""
        return self._confirmed_s

    def fail(self, error: Exception) -> None:
        """End the session's use for good: all further calls raise `error`."""
        self._failure = self._failure or error
        self._tell(KazooState.LOST)

    def check(self) -> None:
        """Raises:
        Fenced: the session of a group has expired.
        Unavailable: the log was closed.
        UserError: as given to `fail`.
        """
        if self._failure is not None:
            raise self._failure
        if self._lost:
            raise Fenced("the ZooKeeper session has expired; start again as a new incarnation")
        if self._closing:
            raise Unavailable("the log was closed")

    def send(self, start: Start, done: Callable[[Any], None]) -> None:
        """Start a request; `done` gets its result or its exception, on the loop. Never blocks."""
        # Taken before the request is handed over: the session is confirmed from when it was sent.
        sent_s = time.monotonic()

        def finished(result: Any) -> None:
            # A refusal is an answer too: the server that gave it knows the session.
            if result.exception is None or not isinstance(result.exception, REPLY_LOST):
                self._answered(sent_s)
            value = result.exception if result.exception is not None else result.value
            self.loop.call(lambda: done(value))

        start(self._client).rawlink(finished)

    def attempt(self, start: Start) -> Any:
        """Perform a request once.

        Raises:
            ReplyLost: it may have been performed or not.
            KazooException: what the server answered.
            Denied: the node belongs to another user.
            Fenced, Unavailable: as `check`; also when there is no answer in time.
        """
        assert not self.loop.is_current_thread(), "a callback of the log must not wait for it"
        self.check()
        sent_s = time.monotonic()
        try:
            value = start(self._client).get(timeout=self._timeout_s)
        except REPLY_LOST as error:
            raise ReplyLost from error
        except self._client.handler.timeout_exception as error:
            self.check()
            raise self.silent() from error
        except NoAuthError as error:
            raise self.denied() from error
        except KazooException:
            self._answered(sent_s)
            raise
        self._answered(sent_s)
        return value

    def perform(self, start: Start) -> Any:
        """Perform a request that may be repeated, until there is an answer.

        Raises:
            KazooException: what the server answered.
            Denied, Fenced, Unavailable: as `attempt`.
        """
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            try:
                return self.attempt(start)
            except ReplyLost as error:
                if time.monotonic() > deadline_s:
                    raise self.silent() from error
            if not self._live.wait(TELL_AFTER_S):
                self._dialler.tell_wait()
                self._live.wait(self._timeout_s)
            self._pause()

    def ensure_path(self, path: str) -> None:
        """Create a node of the tenancy and those above it where they are missing; raises as
        `perform`."""
        self.perform(lambda client: client.ensure_path_async(path, self.access.own))

    def close(self) -> None:
        """End the session on the server too, so that its pulse is gone at once."""
        self._closing = True
        self._stop_client()
        self.loop.stop()

    def _granted(self, sent_s: float, timeout_s: float) -> None:
        """A server has answered the handshake that was sent then, and grants this time-out."""
        self.session_timeout_s = timeout_s
        self._confirm(sent_s)

    def _compare_if_refused(self) -> None:
        """Every session timeout: who is not connected may be refused for what it has seen."""
        if not (self._live.is_set() or self._lost or self._closing):
            self._comparison.start()

    def _tell(self, state: str) -> None:
        """Kazoo's listener, on its connection thread: only enqueues."""
        if state == KazooState.CONNECTED:
            self._live.set()
            self.loop.call(lambda: self._changed(Session.CONNECTED))
        else:
            self._live.clear()
            lost = state == KazooState.LOST
            # Here and not on the loop: kazoo's thread goes on to open another session, and answers
            # of that one must not confirm this incarnation meanwhile.
            self._expired = self._expired or (lost and not self._survives_expiry)
            self.loop.call(lambda: self._changed(Session.LOST if lost else Session.SUSPENDED))

    def _changed(self, session: Session) -> None:
        if self._lost or self._closing:
            return
        if session is Session.LOST and (self._failure or not self._survives_expiry):
            # In this order: who waits in `perform` wakes up, and must find the session lost.
            self._lost = True
            self._live.set()
            threading.Thread(target=self._stop_client, name="onyx-log-stop", daemon=True).start()
        for listener in tuple(self._listeners):
            listener(session)

    def _beat(self) -> None:
        if self._live.is_set() and not self._lost and not self._closing:
            self.send(lambda client: client.exists_async("/"), lambda _: None)

    def _listen(self) -> None:
        if not (self._lost or self._closing):
            now_s, connected = time.monotonic(), self._live.is_set()
            self._silence.look(Look(now_s, self._confirmed_s, self.session_timeout_s, connected))

    def _answered(self, sent_s: float) -> None:
        self.traffic.answered(time.monotonic() - sent_s)
        self._confirm(sent_s)

    def _confirm(self, sent_s: float) -> None:
        # Never backward: answers come in any order of the moments at which requests were sent.
        if not self._expired:
            self._confirmed_s = max(self._confirmed_s, sent_s)

    def silent(self) -> Unavailable:
        """What to tell when there is no answer in time."""
        return Unavailable(
            f"ZooKeeper at {self.address} has not answered for {self._timeout_s:g} s; "
            "is it running and can it be reached?"
        )

    def denied(self) -> Denied:
        """What to tell when the server refuses access to a node."""
        shown = "this process shows no user" if not self.access.auth_data else "it is not ours"
        return Denied(
            f"ZooKeeper at {self.address} refuses access: the nodes of this tenancy belong to a "
            f"user, and {shown}. Set ONYX_ZOOKEEPER_AUTH_USER and "
            "ONYX_ZOOKEEPER_AUTH_PASSWORD_FILE as for the other processes of the tenancy"
        )

    def _pause(self) -> None:
        """Between the expiry and the next connection kazoo refuses at once: do not spin."""
        threading.Event().wait(_WAIT_S)

    def _stop_client(self) -> None:
        stop(self._client)


class Traffic:
    """What has passed on one session. Requests are counted where they are answered, on several
    threads, and bytes where kazoo writes and reads them: counts may miss one now and then."""

    def __init__(self) -> None:
        self.requests = Tally(ZOOKEEPER_LATENCIES_S)
        self._bytes = [0, 0]
        self._client: KazooClient | None = None

    def answered(self, seconds: float) -> None:
        """A request has its answer."""
        self.requests.observe(seconds)

    def count(self, client: KazooClient) -> None:
        """Count the bytes of a client."""
        self._client = client
        connection, total = client._connection, self._bytes
        write, read = connection._write, connection._read

        def counted_write(message: bytes, timeout: float) -> Any:
            total[0] += len(message)
            return write(message, timeout)

        def counted_read(length: int, timeout: float) -> Any:
            total[1] += length
            return read(length, timeout)

        connection._write, connection._read = counted_write, counted_read

    def measures(self) -> ZooKeeperMeasures:
        """The totals now; from any thread."""
        client = self._client
        watches = 0
        if client is not None:
            watches = sum(len(each) for each in (client._data_watchers, client._child_watchers))
        sent, received = self._bytes
        return ZooKeeperMeasures(self.requests.durations(), sent, received, watches)


class AllOf:
    """Several started requests as one; a node that is not there answers None."""

    def __init__(self, results: Sequence[Any]) -> None:
        self._results = results

    def get(self, timeout: float) -> list[Any]:
        """Their answers in order; kazoo's exceptions as they come."""
        return [self._one(result, timeout) for result in self._results]

    @staticmethod
    def _one(result: Any, timeout: float) -> Any:
        try:
            return result.get(timeout=timeout)
        except NoNodeError:
            return None


def read_nodes(client: KazooClient, paths: Sequence[str]) -> Any:
    """Kazoo's asynchronous result of the data of each node, or None where there is no node."""
    assert 0 < len(paths) <= NODES_MAX
    result = client.handler.async_result()
    client._call(_MultiRead(paths), result)
    return result


class _MultiRead:
    type = 22

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = tuple(paths)

    def serialize(self) -> bytes:
        parts = bytearray()
        for path in self._paths:
            parts += MultiHeader(GetData.type, False, _ERROR).serialize()
            parts += GetData(path, None).serialize()
        return bytes(parts + multiheader_struct.pack(_ERROR, True, _ERROR))

    def deserialize(self, answer: bytes, offset: int) -> list[bytes | None]:
        nodes: list[bytes | None] = []
        header, offset = MultiHeader.deserialize(answer, offset)
        while not header.done:
            if header.type == GetData.type:
                data, offset = read_buffer(answer, offset)
                offset += stat_struct.size
                nodes.append(bytes(data or b""))
            else:
                error = EXCEPTIONS[int_struct.unpack_from(answer, offset)[0]]()
                offset += int_struct.size
                if not isinstance(error, NoNodeError):
                    raise error
                nodes.append(None)
            header, offset = MultiHeader.deserialize(answer, offset)
        assert len(nodes) == len(self._paths), "an answer for each node"
        return nodes
