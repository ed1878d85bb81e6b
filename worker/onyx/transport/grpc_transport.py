"""All traffic of one process: handed over inside it, and one gRPC stream to each other group.

Of two groups that share a job, the one with the smaller id dials. So there is one connection for
each pair, whichever group reads of the job first.

Threads. The methods of `Transport` may be called from any thread. `_lock` guards the table of
links and is never held while a link, an inbox or a handler is called.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from onyx.errors import InvariantViolated
from onyx.flow.batch import U64, Batch
from onyx.ids import AllocationVersion, GroupId, JobId, PeerId
from onyx.seams import Clock, Randomness, SystemClock, system_randomness
from onyx.settings import TransportSettings
from onyx.tls.files import CertificateFiles
from onyx.transport.counters import Counters
from onyx.transport.frames import encoder
from onyx.transport.frames.packets import Acks, Completions, Held
from onyx.transport.grpc_client import STOP_TIMEOUT_S, Dialler
from onyx.transport.grpc_server import Server
from onyx.transport.inbox import BoundedInbox
from onyx.transport.interface import Channel, Control, Handlers
from onyx.transport.link import Ends, Link, Surroundings
from onyx.transport.local import LocalTransport
from onyx.transport.pieces import column_slices


@dataclass(frozen=True, slots=True)
class _Connection:
    link: Link
    dialler: Dialler | None


class GrpcTransport:
    """Implements `Transport`. Listens from construction on; `start` once, `stop` once."""

    def __init__(
        self,
        settings: TransportSettings,
        tenancy: str,
        certificates: CertificateFiles | None = None,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        """Without certificates streams are not encrypted, and whoever reaches the port may speak.

        Raises:
            SettingsError: the address cannot be listened on.
        """
        self._settings = settings
        self._certificates = certificates
        self._tenancy = tenancy
        self._clock = clock or SystemClock()
        self._randomness = randomness or system_randomness()
        self._local = LocalTransport(settings.short_circuit)
        self._server = Server(settings, tenancy, certificates, self._clock)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._connections: dict[GroupId, _Connection] = {}
        self._past = Counters()
        self._group: GroupId | None = None
        self._around: Surroundings | None = None
        self._stopped = threading.Event()
        self._monitor = threading.Thread(target=self._watch, name="onyx-heartbeats", daemon=True)

    @property
    def address(self) -> str:
        """`host:port` that other groups dial."""
        host = self._settings.advertise_host or self._settings.bind_host
        return f"{host}:{self._server.port}"

    def start(self, group: GroupId, handlers: Handlers) -> None:
        """Take part as this group; `handlers` are called from now on."""
        self._local.start(group, handlers)
        self._group = group
        self._around = Surroundings(
            self._settings,
            self._local.inboxes,
            handlers,
            self._local.room,
            self._clock,
            self._randomness,
        )
        self._local.inboxes.listen(self._inbox_opened, self._inbox_closed)
        self._server.start(group, self._find, handlers.on_query)
        self._monitor.start()

    def connect(self, groups: Mapping[GroupId, str]) -> None:
        """The groups (and their addresses) with which this one shares a job now: links to others
        are closed, new ones opened."""
        if self._around is None or self._group is None:
            raise InvariantViolated("connect was called before start")
        opened: list[_Connection] = []
        with self._lock:
            wanted = {} if self._stopped.is_set() else groups
            parted = [group for group in self._connections if group not in wanted]
            closed = [self._connections.pop(group) for group in parted]
            for group, address in wanted.items():
                if group != self._group and group not in self._connections:
                    connection = self._connection(self._around, self._group, group, address)
                    self._connections[group] = connection
                    opened.append(connection)
            self._changed.notify_all()
        self._close(closed)
        for connection in opened:
            if connection.dialler is not None:
                connection.dialler.start()
        self._local.room()

    def _connection(
        self, around: Surroundings, here: GroupId, there: GroupId, address: str
    ) -> _Connection:
        link = Link(Ends(self._tenancy, here, there), around)
        if there < here:
            return _Connection(link, None)
        dialler = Dialler(link, address, self._settings, self._certificates, self._randomness)
        return _Connection(link, dialler)

    def open_inbox(
        self,
        job: JobId,
        version: AllocationVersion,
        target: PeerId,
        segments_max: int,
        wake: Callable[[], None],
    ) -> BoundedInbox:
        """`wake` is called (on any thread) whenever something arrives in an empty inbox."""
        return self._local.open_inbox(job, version, target, segments_max, wake)

    def send(
        self, group: GroupId, channel: Channel, item: Batch | Control, more: bool = False
    ) -> bool:
        """Queue a batch or control item. One thread at a time for each channel.

        Raises:
            SegmentError: a segment cannot be encoded, or one alone does not fit in a frame.
        """
        if group == self._group:
            return self._local.send(group, channel, item)
        connection = self._connections.get(group)
        if connection is None:
            return False
        if isinstance(item, Batch) and not len(item):
            return True
        return connection.link.send(channel, item, more)

    def send_acks(
        self,
        group: GroupId,
        job: JobId,
        version: AllocationVersion,
        acker: PeerId,
        roots: U64,
        values: U64,
        urgent: bool = False,
    ) -> bool:
        """`urgent`: not to wait for company on the wire."""
        if group == self._group:
            return self._local.send_acks(group, job, version, acker, roots, values)
        connection = self._connections.get(group)
        if connection is None:
            return False
        return connection.link.send_packets(
            [
                encoder.acks_packet(Acks(job, version, acker, roots[part], values[part]))
                for part in column_slices(roots, self._settings.frame_bytes_max)
            ],
            urgent,
        )

    def send_completions(
        self,
        group: GroupId,
        job: JobId,
        version: AllocationVersion,
        target: PeerId,
        roots: U64,
        retries_max: int,
    ) -> bool:
        """Queue completions for an input."""
        if group == self._group:
            return self._local.send_completions(group, job, version, target, roots, retries_max)
        connection = self._connections.get(group)
        if connection is None:
            return False
        return connection.link.send_packets(
            [
                encoder.completions_packet(
                    Completions(job, version, target, roots[part], retries_max)
                )
                for part in column_slices(roots, self._settings.frame_bytes_max)
            ],
            urgent=True,
        )

    def send_held(
        self,
        group: GroupId,
        job: JobId,
        version: AllocationVersion,
        target: PeerId,
        roots: U64,
    ) -> bool:
        """Say that somebody works on these trees."""
        if group == self._group:
            return self._local.send_held(group, job, version, target, roots)
        connection = self._connections.get(group)
        if connection is None:
            return False
        return connection.link.send_packets(
            [
                encoder.held_packet(Held(job, version, target, roots[part]))
                for part in column_slices(roots, self._settings.frame_bytes_max)
            ],
            urgent=True,
        )

    def on_room(self, wake: Callable[[], None]) -> None:
        """Call `wake` when a send that was refused may succeed now."""
        self._local.on_room(wake)

    def counters(self) -> Counters:
        """Totals since `start`."""
        total = self._local.counters()
        with self._lock:
            total.add(self._past)
            total.refused_calls += self._server.refused()
            for connection in self._connections.values():
                total.add(connection.link.counters)
        return total

    def silent_s(self) -> dict[GroupId, float]:
        """Seconds since each connected group was last heard from."""
        with self._lock:
            links = list(self._connections.items())
        return {group: connection.link.silent_s() for group, connection in links}

    def stop(self) -> None:
        """Close everything. Returns within a few seconds, whatever the network does."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        if self._around is not None:
            self.connect({})
            self._monitor.join(STOP_TIMEOUT_S)
        self._server.stop()
        self._local.stop()

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

    def _find(self, group: GroupId, timeout_s: float) -> Link | None:
        with self._lock:
            self._changed.wait_for(
                lambda: group in self._connections or self._stopped.is_set(), timeout_s
            )
            connection = self._connections.get(group)
        return connection.link if connection is not None else None

    def _links(self) -> list[Link]:
        with self._lock:
            return [connection.link for connection in self._connections.values()]

    def _inbox_opened(self, inbox: BoundedInbox) -> None:
        for link in self._links():
            link.inbox_opened(inbox)

    def _inbox_closed(self, inbox: BoundedInbox) -> None:
        for link in self._links():
            link.inbox_closed(inbox)

    def _watch(self) -> None:
        while not self._stopped.wait(self._settings.heartbeat_interval_s / 2):
            for link in self._links():
                link.break_if_silent()
