"""All traffic of one process: handed over inside it, and one gRPC stream to each other group.

`local` does the former, `links` the latter. The methods of `Transport` may be called from any
thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future

from onyx.base.runs import Numbers
from onyx.base.seams import Clock, Randomness, SystemClock, system_randomness
from onyx.errors import InvariantViolated
from onyx.ids import AllocationVersion, GroupId, JobId, PeerId
from onyx.ledger.returns import Trees
from onyx.requests.request import Answer, Append
from onyx.requests.tokens import Tokens
from onyx.settings import TransportSettings
from onyx.tls.files import CertificateFiles
from onyx.transport.appends.streams import AppendStreams
from onyx.transport.counters import Counters
from onyx.transport.frames.compression import check_compression, this_machine
from onyx.transport.frames.encoder import lookup_packet
from onyx.transport.frames.packets import Acks, Completions, Held
from onyx.transport.grpc_server import GrpcServer
from onyx.transport.hello import Surroundings
from onyx.transport.inbox import BoundedInbox
from onyx.transport.interface import Bounds, Channel, Control, Handlers, Load, Lookup, Sendable
from onyx.transport.links import Links
from onyx.transport.local import LocalTransport
from onyx.transport.pieces import acks_packets, completions_packets, held_packets, returns_packets


class GrpcTransport:
    """Implements `Transport`. Listens from construction on; `start` once, `stop` once."""

    def __init__(
        self,
        settings: TransportSettings,
        tenancy: str,
        certificates: CertificateFiles | None = None,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
        state_tokens: Tokens | None = None,
        machine: int | None = None,
    ) -> None:
        """Without certificates streams are not encrypted, and whoever reaches the port may speak.

        Args:
            state_tokens: those that open states to clients.
            machine: the one on which this process is, if not the real one.

        Raises:
            SettingsError: the address cannot be listened on, clients would count as workers, or
                there is no such compression here.
        """
        check_compression(settings.compression)
        self._machine = this_machine() if machine is None else machine
        self._settings = settings
        self._certificates = certificates
        self._tenancy = tenancy
        self._clock = clock or SystemClock()
        self._randomness = randomness or system_randomness()
        self._local = LocalTransport(settings.short_circuit)
        tokens = state_tokens or Tokens(self._clock)
        self._server = GrpcServer(settings, tenancy, certificates, self._clock, tokens)
        self._group: GroupId | None = None
        self._links: Links | None = None
        self._appends = AppendStreams(settings, certificates, tenancy=tenancy)
        self._stopped = False

    @property
    def address(self) -> str:
        """`host:port` that other groups dial."""
        host = self._settings.advertise_host or self._settings.bind_host
        return f"{host}:{self._server.port}"

    def start(self, group: GroupId, handlers: Handlers) -> None:
        """Take part as this group; `handlers` are called from now on."""
        self._local.start(group, handlers)
        self._group = group
        around = Surroundings(
            self._settings,
            self._local.inboxes,
            handlers,
            self._local.room,
            self._clock,
            self._randomness,
            self._machine,
        )
        self._links = Links(self._tenancy, group, around, self._certificates)
        self._local.inboxes.listen(self._links.inbox_opened, self._links.inbox_closed)
        self._server.start(group, self._links.find, handlers.on_query, handlers.on_append)
        self._links.start()

    def connect(self, groups: Mapping[GroupId, str]) -> None:
        """The groups (and their addresses) with which this one shares a job now: links to others
        are closed, new ones opened."""
        if self._links is None:
            raise InvariantViolated("connect was called before start")
        self._links.connect(groups)
        self._local.room()

    def open_inbox(
        self,
        job: JobId,
        version: AllocationVersion,
        target: PeerId,
        bounds: Bounds,
        wake: Callable[[], None],
    ) -> BoundedInbox:
        """`wake` is called (on any thread) whenever something arrives in an empty inbox."""
        return self._local.open_inbox(job, version, target, bounds, wake)

    def send(self, group: GroupId, channel: Channel, item: Sendable, more: bool = False) -> bool:
        """Queue a batch or control item. One thread at a time for each channel.

        Raises:
            SegmentError: a segment cannot be encoded, or one alone does not fit in a frame.
        """
        if group == self._group:
            return self._local.send(group, channel, item)
        link = None if self._links is None else self._links.get(group)
        if link is None:
            return False
        if not isinstance(item, Control) and not len(item):
            return True
        return link.send(channel, item, more)

    def load(self, group: GroupId, channel: Channel) -> Load:
        """What a peer has to do, here or there."""
        if group == self._group:
            return self._local.load(group, channel)
        link = None if self._links is None else self._links.get(group)
        return Load.HUNGRY if link is not None and link.is_hungry(channel) else Load.BEHIND

    def send_acks(
        self,
        group: GroupId,
        job: JobId,
        version: AllocationVersion,
        acker: PeerId,
        roots: Numbers,
        values: Numbers,
        urgent: bool = False,
    ) -> bool:
        """`urgent`: not to wait for company on the wire."""
        if group == self._group:
            return self._local.send_acks(group, job, version, acker, roots, values)
        link = None if self._links is None else self._links.get(group)
        if link is None:
            return False
        return link.send_packets(
            acks_packets(Acks(job, version, acker, roots, values), self._settings.frame_bytes_max),
            urgent,
        )

    def send_completions(
        self,
        group: GroupId,
        job: JobId,
        version: AllocationVersion,
        target: PeerId,
        roots: Numbers,
        retries_max: int,
    ) -> bool:
        """Queue completions for an input."""
        if group == self._group:
            return self._local.send_completions(group, job, version, target, roots, retries_max)
        link = None if self._links is None else self._links.get(group)
        if link is None:
            return False
        return link.send_packets(
            completions_packets(
                Completions(job, version, target, roots, retries_max),
                self._settings.frame_bytes_max,
            ),
            urgent=True,
        )

    def send_returns(
        self,
        group: GroupId,
        job: JobId,
        version: AllocationVersion,
        target: PeerId,
        trees: Trees,
        to_acker: bool,
    ) -> bool:
        """Queue what functions give back for trees."""
        if group == self._group:
            return self._local.send_returns(group, job, version, target, trees, to_acker)
        link = None if self._links is None else self._links.get(group)
        if link is None:
            return False
        packets = returns_packets(job, version, target, trees, to_acker)
        return link.send_packets(packets, urgent=not to_acker)

    def send_held(
        self,
        group: GroupId,
        job: JobId,
        version: AllocationVersion,
        target: PeerId,
        roots: Numbers,
    ) -> bool:
        """Say that somebody works on these trees."""
        if group == self._group:
            return self._local.send_held(group, job, version, target, roots)
        link = None if self._links is None else self._links.get(group)
        if link is None:
            return False
        return link.send_packets(
            held_packets(Held(job, version, target, roots), self._settings.frame_bytes_max),
            urgent=True,
        )

    def send_lookup(self, group: GroupId, message: Lookup) -> None:
        """Ask for states, or answer."""
        if group == self._group:
            self._local.send_lookup(group, message)
            return
        link = None if self._links is None else self._links.get(group)
        if link is not None:
            link.send_packets([lookup_packet(message)], urgent=True, bounded=False)

    def forward(self, address: str, append: Append) -> Future[Answer]:
        """Hand a request over to the group at an address; the future always gets an answer, unless
        the group keeps it."""
        return self._appends.send(address, append)

    def on_room(self, wake: Callable[[], None]) -> None:
        """Call `wake` when a send that was refused may succeed now."""
        self._local.on_room(wake)

    def counters(self) -> Counters:
        """Totals since `start`."""
        total = self._local.counters()
        total.refused_calls += self._server.gate.refused()
        if self._links is not None:
            total.add(self._links.counters())
        return total

    def silent_s(self) -> dict[GroupId, float]:
        """Seconds since each connected group was last heard from."""
        return {} if self._links is None else self._links.silent_s()

    def stop(self) -> None:
        """Close everything. Returns within a few seconds, whatever the network does."""
        if self._stopped:
            return
        self._stopped = True
        self._appends.close()
        if self._links is not None:
            self._links.stop()
            self._local.room()
        self._server.stop()
        self._local.stop()
