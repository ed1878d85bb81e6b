"""The links of this group with the groups that it shares a job with.

Of two groups that share a job, the one with the smaller id dials. So there is one connection for
each pair, whichever group reads of the job first.

Any thread may call. `_lock` guards the table and is never held while a link is called.

One daemon thread a link dials, again and again, and reads; gRPC's own thread takes frames from the
link and writes. The synchronous API was chosen over `grpc.aio` after measuring: for 64 KiB frames
both cost the same CPU (about 105 us a frame, both ends), and aio would add a hop between its event
loop and the threads of the tasks, and one completion queue shared by everything in the process.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping

import grpc
import msgspec

from onyx.base.seams import Randomness
from onyx.ids import GroupId
from onyx.settings import TransportSettings
from onyx.tls.files import CertificateFiles
from onyx.transport.counters import Counters
from onyx.transport.frames.packets import FrameError, Hello
from onyx.transport.grpc_channel import METHOD, channel_options, open_channel, why_not
from onyx.transport.hello import Ends, Stream, Surroundings, read_hello
from onyx.transport.inbox import BoundedInbox
from onyx.transport.link import Link

logger = logging.getLogger("onyx.transport")
BACK_OFF_MAX_S = 2.0
STOP_TIMEOUT_S = 2.0
_ORDINARY = (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)


class _Connection(msgspec.Struct, frozen=True):
    link: Link
    dialler: Dialler | None
    """None where the other side dials."""


class Links:
    """The links of one process, and the thread that breaks those on which nothing comes."""

    def __init__(
        self,
        tenancy: str,
        group: GroupId,
        around: Surroundings,
        certificates: CertificateFiles | None,
    ) -> None:
        self._tenancy = tenancy
        self._group = group
        self._around = around
        self._certificates = certificates
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._connections: dict[GroupId, _Connection] = {}
        self._past = Counters()
        self._stopped = threading.Event()
        self._monitor = threading.Thread(target=self._watch, name="onyx-heartbeats", daemon=True)

    def start(self) -> None:
        """Start to look for links on which nothing comes."""
        self._monitor.start()

    def stop(self) -> None:
        """Close all links, and open none any more."""
        self._stopped.set()
        self.connect({})
        self._monitor.join(STOP_TIMEOUT_S)

    def connect(self, groups: Mapping[GroupId, str]) -> None:
        """The groups (and their addresses) with which this one shares a job now: links to others
        are closed, new ones opened."""
        opened: list[_Connection] = []
        with self._lock:
            wanted = {} if self._stopped.is_set() else groups
            parted = [group for group in self._connections if group not in wanted]
            closed = [self._connections.pop(group) for group in parted]
            for group, address in wanted.items():
                if group != self._group and group not in self._connections:
                    connection = self._connection(group, address)
                    self._connections[group] = connection
                    opened.append(connection)
            self._changed.notify_all()
        self._close(closed)
        for connection in opened:
            if connection.dialler is not None:
                connection.dialler.start()

    def find(self, group: GroupId, timeout_s: float) -> Link | None:
        """The link with a group; waits up to so many seconds for there to be one."""
        with self._lock:
            self._changed.wait_for(
                lambda: group in self._connections or self._stopped.is_set(), timeout_s
            )
            connection = self._connections.get(group)
        return connection.link if connection is not None else None

    def get(self, group: GroupId) -> Link | None:
        """The link with a group, if there is one."""
        connection = self._connections.get(group)
        return None if connection is None else connection.link

    def counters(self) -> Counters:
        """Totals of all links, those that are closed included."""
        total = Counters()
        with self._lock:
            total.add(self._past)
            for connection in self._connections.values():
                total.add(connection.link.counters)
        return total

    def silent_s(self) -> dict[GroupId, float]:
        """Seconds since each connected group was last heard from."""
        with self._lock:
            links = list(self._connections.items())
        return {group: connection.link.silent_s() for group, connection in links}

    def inbox_opened(self, inbox: BoundedInbox) -> None:
        """Grant credit to the senders of other groups that came before this inbox."""
        for link in self._links():
            link.inbox_opened(inbox)

    def inbox_closed(self, inbox: BoundedInbox) -> None:
        """Drop what still arrives for this inbox."""
        for link in self._links():
            link.inbox_closed(inbox)

    def _connection(self, there: GroupId, address: str) -> _Connection:
        link = Link(Ends(self._tenancy, self._group, there), self._around)
        if there < self._group:
            return _Connection(link, None)
        around = self._around
        dialler = Dialler(link, address, around.settings, self._certificates, around.randomness)
        return _Connection(link, dialler)

    def _close(self, connections: list[_Connection]) -> None:
        diallers = [each.dialler for each in connections if each.dialler is not None]
        for connection in connections:
            connection.link.close()
        for dialler in diallers:
            dialler.stop()
        for dialler in diallers:
            dialler.join()
        with self._lock:
            for connection in connections:
                self._past.add(connection.link.counters)

    def _links(self) -> list[Link]:
        with self._lock:
            return [connection.link for connection in self._connections.values()]

    def _watch(self) -> None:
        while not self._stopped.wait(self._around.settings.heartbeat_interval_s / 2):
            for link in self._links():
                link.break_if_silent()


class Dialler:
    """Dials `address` for a link until it is stopped."""

    def __init__(
        self,
        link: Link,
        address: str,
        settings: TransportSettings,
        certificates: CertificateFiles | None,
        randomness: Randomness,
    ) -> None:
        self._certificates = certificates
        self._link = link
        self._address = address
        self._settings = settings
        self._randomness = randomness
        self._stopped = threading.Event()
        self._stream: Stream | None = None
        self._complaint: tuple[int, str] | None = None
        """Severity and text of what went wrong with the last call."""
        self._logged = ""
        name = f"onyx-link-{link.ends.there[:8]}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to dial, on a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """End the call and dial no more. Returns at once; `join` waits."""
        self._stopped.set()
        stream = self._stream
        if stream is not None:
            stream.close()

    def join(self) -> None:
        """Wait until the thread has ended, at most `STOP_TIMEOUT_S`."""
        if self._thread is not threading.current_thread():
            self._thread.join(STOP_TIMEOUT_S)

    def _run(self) -> None:
        wait_s = self._settings.reconnect_back_off_s
        while not self._stopped.is_set():
            if self._dial():
                wait_s = self._settings.reconnect_back_off_s
            # Half of it at random: both ends of a broken network must not knock in step.
            self._stopped.wait(wait_s * (0.5 + 0.5 * self._randomness.random()))
            wait_s = min(BACK_OFF_MAX_S, 2 * wait_s)
            self._log_complaint()

    def _dial(self) -> bool:
        """One call from its beginning to its end; True if the handshake succeeded."""
        options = channel_options(self._settings)
        with open_channel(self._address, options, self._certificates) as channel:
            stream = Stream(channel.close)
            self._stream = stream
            # The time limit of the handshake: the monitor breaks only streams that are attached.
            watchdog = threading.Timer(self._settings.heartbeat_timeout_s, stream.close)
            watchdog.daemon = True
            watchdog.start()
            try:
                if self._stopped.is_set():
                    return False
                call = channel.stream_stream(METHOD)(self._requests(stream))
                return self._converse(stream, call, watchdog)
            except ValueError:
                # gRPC's word for a channel that `stop` or the watchdog has closed meanwhile.
                if not stream.closed.is_set():
                    raise
                return False
            finally:
                watchdog.cancel()
                self._link.detach(stream)

    def _requests(self, stream: Stream) -> Iterator[bytes]:
        yield self._link.hello()
        yield from self._link.outgoing(stream)

    def _converse(self, stream: Stream, call: Iterator[bytes], watchdog: threading.Timer) -> bool:
        attached = False
        try:
            hello = _checked_hello(next(call), self._link)
            watchdog.cancel()
            attached = self._link.attach(stream, hello)
            if attached:
                self._logged = ""
                for data in call:
                    self._link.receive(stream, data)
        except StopIteration:
            self._complaint = logging.INFO, "the other group ended the stream"
        except FrameError as error:
            self._link.note_bad_frame()
            self._complaint = logging.WARNING, str(error)
        except grpc.RpcError as error:
            self._lost(error, stream, attached)
        except Exception:
            logger.exception("the stream to group %s broke on a bug", self._link.ends.there)
        return attached

    def _lost(self, error: grpc.RpcError, stream: Stream, attached: bool) -> None:
        """gRPC reports a refused certificate only as a missing connection: find out more."""
        problem = None
        if not attached and _code(error) in _ORDINARY and not self._stopped.is_set():
            problem = why_not(self._address, self._certificates)
        if problem is not None:
            self._complaint = logging.WARNING, problem
        else:
            self._complaint = _severity(error), stream.reason or _reason(error)

    def _log_complaint(self) -> None:
        """Log what was wrong: once and not at each attempt, and only while the link is wanted. At
        the end of a job one of the two groups hangs up first."""
        complaint, self._complaint = self._complaint, None
        if complaint is not None and complaint[1] != self._logged and not self._stopped.is_set():
            severity, self._logged = complaint
            where = f"{self._link.ends.there} at {self._address}"
            logger.log(severity, "no stream to group %s: %s; dialling again", where, self._logged)


def _checked_hello(data: bytes, link: Link) -> Hello:
    """The hello of the other group. Raises FrameError unless it is for this link."""
    hello = read_hello(data, link.ends.tenancy, link.ends.here)
    if hello.group != link.ends.there:
        raise FrameError(f"group {hello.group} answered where {link.ends.there} was expected")
    return hello


def _severity(error: grpc.RpcError) -> int:
    """A group that leaves or restarts is nothing to worry about; one that refuses us is."""
    return logging.INFO if _code(error) in _ORDINARY else logging.WARNING


def _code(error: grpc.RpcError) -> grpc.StatusCode | None:
    return error.code() if isinstance(error, grpc.Call) else None


def _reason(error: grpc.RpcError) -> str:
    if isinstance(error, grpc.Call):
        return f"{error.code().name}: {error.details()}"
    return str(error)
