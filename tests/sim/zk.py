"""ZooKeeper as the measurements know it, in memory and virtual time.

What is modelled, because each of these has cost somebody data: a session outlives its connection
and expires by the *server's* clock, which starts again when the server does (Z11); ephemeral nodes
go with the session; watches fire once and are lost with the connection (Z6); requests are
pipelined, and a cut leaves a prefix of them applied with no reply (Z2, Z3); a transaction burns no
sequence number when its check fails (Z8); deletes leave no gap in the numbering (Z9).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.sim.world import World


class Status(enum.Enum):
    """How a request ended."""

    OK = "ok"
    NO_NODE = "no node"
    NODE_EXISTS = "node exists"
    BAD_VERSION = "bad version"
    CONNECTION_LOSS = "connection loss"


@dataclass(frozen=True, slots=True)
class Reply:
    status: Status
    value: Any = None


class Observer(Protocol):
    """The checker's eyes inside the server."""

    def created(self, position: int, payload: bytes, session: int | None) -> None: ...
    def origin_replaced(self, position: int, replica: Any) -> None: ...
    def deleted(self, position: int) -> None: ...


@dataclass(slots=True)
class Session:
    number: int
    timeout_s: float
    generation: int = 0
    """Counts signs of life: an expiry timer of an older one is void."""
    connection: Connection | None = None


@dataclass(slots=True)
class Connection:
    """One TCP connection: FIFO in both directions, until it is cut."""

    session: Session
    deliver: Callable[[Any], None]
    """Called at the client for every reply and watch event, in order."""
    closed: Callable[[Connection], None]
    """Called at the client when it notices that the connection is broken."""
    up: bool = True
    watches: dict[tuple[str, str], None] = field(default_factory=dict)
    in_flight: list[tuple[int, str, tuple[Any, ...]]] = field(default_factory=list)
    """Requests sent and not yet arrived at the server."""
    request_due_s: float = 0.0
    reply_due_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Delays:
    least_s: float
    most_s: float


class Server:
    """The state of the ensemble and its side of all connections."""

    def __init__(self, world: World, delays: Delays, observer: Observer) -> None:
        self.world = world
        self.delays = delays
        self.observer = observer
        self.network = world.stream("network")
        self.up = True
        self.sessions: dict[int, Session] = {}
        self.session_count = 0
        self.pulses: dict[str, int] = {}
        self.entries: dict[int, bytes] = {}
        self.next_position = 0
        self.origin: tuple[int, Any] = (-1, None)
        self.origin_version = 0

    # --- sessions and connections ---------------------------------------------------------------

    def open_session(self, timeout_s: float) -> Session:
        self.session_count += 1
        session = Session(self.session_count, timeout_s)
        self.sessions[session.number] = session
        return session

    def connect(
        self,
        session: Session,
        deliver: Callable[[Any], None],
        closed: Callable[[Connection], None],
    ) -> Connection:
        """A new connection of a session that has not expired."""
        assert session.number in self.sessions
        assert session.connection is None
        session.connection = Connection(session, deliver, closed)
        self.heard(session)
        return session.connection

    def alive(self, session: Session | None) -> bool:
        return session is not None and session.number in self.sessions

    def heard(self, session: Session) -> None:
        session.generation += 1

    def silent(self, session: Session, heard_s: float) -> None:
        """The client was last heard at `heard_s`: expire the session if it stays silent."""
        if self.alive(session):
            session.generation += 1
            deadline = heard_s + session.timeout_s * self.network.uniform(1.0, 1.2)
            delay = max(0.0, deadline - self.world.now_s)
            self.world.after(delay, self._expire_if_silent, session, session.generation)

    def _expire_if_silent(self, session: Session, generation: int) -> None:
        if self.up and session.generation == generation:
            self.expire(session)

    def expire(self, session: Session) -> None:
        """End a session: its ephemerals go, its connection is closed."""
        if self.sessions.pop(session.number, None) is None:
            return
        self.world.log("zk: session", session.number, "ends")
        for group in [g for g, owner in self.pulses.items() if owner == session.number]:
            del self.pulses[group]
            self._trigger(("pulse", group))
        if session.connection is not None:
            self.cut(session.connection, applied=0)

    def cut(self, connection: Connection, applied: int, noticed_after_s: float = 0.0) -> None:
        """Break a connection: of the requests in flight the first `applied` still take effect."""
        if not connection.up:
            return
        waiting, connection.in_flight = connection.in_flight, []
        connection.up = False
        connection.watches.clear()
        if connection.session.connection is connection:
            connection.session.connection = None
        self.world.after(noticed_after_s, connection.closed, connection)
        for _, operation, args in waiting[:applied]:
            self.execute(connection, operation, args)

    def stop(self) -> None:
        """The server dies; what it had committed stays."""
        self.up = False
        for session in list(self.sessions.values()):
            if session.connection is not None:
                self.cut(session.connection, applied=0)

    def restart(self) -> None:
        """Sessions survive, and their clocks start again (Z11)."""
        self.up = True
        for session in self.sessions.values():
            if session.connection is None:
                self.silent(session, self.world.now_s)

    # --- requests -------------------------------------------------------------------------------

    def send(self, connection: Connection, number: int, operation: str, args: Any) -> None:
        """A request leaves the client."""
        assert connection.up
        connection.in_flight.append((number, operation, args))
        due = max(connection.request_due_s, self.world.now_s + self._delay())
        connection.request_due_s = due
        self.world.after(due - self.world.now_s, self._arrive, connection, number)

    def _arrive(self, connection: Connection, number: int) -> None:
        if not connection.up:
            return
        first, operation, args = connection.in_flight.pop(0)
        assert first == number, "a connection is first in, first out"
        reply = self.execute(connection, operation, args)
        if connection.up:
            self._push(connection, (number, reply))

    def _push(self, connection: Connection, message: Any) -> None:
        due = max(connection.reply_due_s, self.world.now_s + self._delay())
        connection.reply_due_s = due
        self.world.after(due - self.world.now_s, self._deliver, connection, message)

    def _deliver(self, connection: Connection, message: Any) -> None:
        if connection.up:
            connection.deliver(message)

    def _delay(self) -> float:
        return self.network.uniform(self.delays.least_s, self.delays.most_s)

    # --- operations -----------------------------------------------------------------------------

    def execute(self, connection: Connection | None, operation: str, args: Any) -> Reply:
        """One operation takes effect; a client that is not modelled has no connection."""
        return getattr(self, f"_do_{operation}")(connection, *args)

    def _do_append(self, connection: Connection, pulse: str | None, payloads: Any) -> Reply:
        """`check(pulse) + create(sequence) ...` in one transaction; no check without a pulse."""
        if pulse is not None and pulse not in self.pulses:
            return Reply(Status.NO_NODE)
        for payload in payloads:
            self.create_entry(payload, connection.session.number)
        return Reply(Status.OK)

    def create_entry(self, payload: bytes, session: int | None = None) -> int:
        """Append one entry; of a client, which is not modelled further, without a session."""
        position = self.next_position
        self.next_position += 1
        self.entries[position] = payload
        self.observer.created(position, payload, session)
        self._trigger(("log", ""))
        self._trigger(("entry", str(position)))
        return position

    def _do_create_pulse(self, connection: Connection, group: str) -> Reply:
        if group in self.pulses:
            return Reply(Status.NODE_EXISTS)
        self.pulses[group] = connection.session.number
        return Reply(Status.OK)

    def _do_exists(self, connection: Connection, group: str, watch: bool) -> Reply:
        if watch:
            connection.watches[("pulse", group)] = None
        return Reply(Status.OK, group in self.pulses)

    def _do_children(self, connection: Connection, watch: bool) -> Reply:
        if watch:
            connection.watches[("log", "")] = None
        return Reply(Status.OK, tuple(self.entries))

    def _do_status(self, connection: Connection) -> Reply:
        """How many entries were ever created, which is the number of the next one."""
        return Reply(Status.OK, self.next_position)

    def _do_entry_exists(self, connection: Connection, position: int) -> Reply:
        """With a watch on its creation or deletion."""
        connection.watches[("entry", str(position))] = None
        return Reply(Status.OK, position in self.entries)

    def _do_get(self, connection: Connection, positions: tuple[int, ...]) -> Reply:
        """Several entries in one request; None for each that is not there."""
        return Reply(Status.OK, tuple(self.entries.get(each) for each in positions))

    def _do_origin(self, connection: Connection | None) -> Reply:
        return Reply(Status.OK, (*self.origin, self.origin_version))

    def _do_put_origin(self, connection: Connection | None, value: Any, version: int) -> Reply:
        if version != self.origin_version:
            return Reply(Status.BAD_VERSION)
        self.origin = value
        self.origin_version += 1
        self.observer.origin_replaced(*value)
        return Reply(Status.OK)

    def _do_delete(self, connection: Connection | None, positions: tuple[int, ...]) -> Reply:
        """One transaction of deletes."""
        for position in positions:
            if self.entries.pop(position, None) is not None:
                self.observer.deleted(position)
                self._trigger(("entry", str(position)))
        self._trigger(("log", ""))
        return Reply(Status.OK)

    def _do_close(self, connection: Connection) -> Reply:
        self.expire(connection.session)
        return Reply(Status.OK)

    def _trigger(self, path: tuple[str, str]) -> None:
        """A watched node changed: every watch on it fires once."""
        for session in self.sessions.values():
            connection = session.connection
            if connection is not None and path in connection.watches:
                del connection.watches[path]
                self._push(connection, ("watch", path))
