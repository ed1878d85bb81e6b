"""A ZooKeeper client that behaves as kazoo was measured to behave.

SUSPENDED as soon as the broken connection is noticed, every pending request failed with
CONNECTION_LOSS in order, every watch callback fired once with NONE; then attempts to reconnect:
CONNECTED with the same session, or LOST, which only the server can tell (Z5). The next session
follows by itself, and the process hears of all this a moment later, on another thread: until then
it may write under a session that is not its own.

Pings are not events. A connected client that runs was heard at the last multiple of a third of the
session timeout; that is computed when somebody asks, which keeps an idle cluster free of events.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.sim.world import World
from tests.sim.zk import Connection, Reply, Server, Session, Status

from onyx.log.interface import Session as SessionEvent

Callback = Callable[[Reply], None]
RECONNECT_S = 0.1
HOP_S = 0.3
"""Longest time until a change of the session is noticed by the thread that acts on it."""


class Client:
    """One handle on the server. The process gives it up when it hears of a second session."""

    def __init__(
        self,
        world: World,
        server: Server,
        name: str,
        timeout_s: float,
        run: Callable[..., None],
        listener: Callable[[SessionEvent], None],
    ) -> None:
        self.world = world
        self.server = server
        self.timeout_s = timeout_s
        self.listener = listener
        self.connection: Connection | None = None
        self.session: Session | None = None
        self.closed = False
        self.partitioned_until_s = 0.0
        self._run = run
        """How the process runs something: at once, or later when it is frozen."""
        self._pending: deque[tuple[int, float, Callback]] = deque()
        self._watches: dict[tuple[str, str], Callable[[str], None]] = {}
        self._count = 0
        self._confirmed_s = 0.0
        self._running_since_s = 0.0
        self._frozen = False
        self._expired = False
        """What is answered under the next session does not confirm the first."""
        self._hops = world.stream(f"hops/{name}")
        self._told_s = 0.0

    # --- what the process uses ------------------------------------------------------------------

    def open(self, opened: Callable[[], None]) -> None:
        """Try until a session is there; then call back."""
        if self.closed:
            return
        if not self._reachable():
            self.world.after(RECONNECT_S, self.open, opened)
            return
        self.session = self.server.open_session(self.timeout_s)
        self._attach()
        self._run(opened)

    def call(self, operation: str, args: tuple[Any, ...], callback: Callback) -> None:
        if self.connection is None:
            callback(Reply(Status.CONNECTION_LOSS))
            return
        self._count += 1
        self._pending.append((self._count, self.world.now_s, callback))
        if self.connection.up:
            self.server.send(self.connection, self._count, operation, args)

    def watch(self, path: tuple[str, str], fired: Callable[[str], None]) -> None:
        """Local side of a watch; the request that sets it is the caller's."""
        self._watches[path] = fired

    def confirmed_s(self) -> float:
        """When the last request was sent that the server is known to have heard."""
        if self.connection is None or not self.connection.up or self._frozen or self._expired:
            return self._confirmed_s
        period = self.timeout_s / 3
        round_trip = 2 * self.server.delays.most_s
        running = max(0.0, self.world.now_s - round_trip - self._running_since_s)
        pinged = self._running_since_s + math.floor(running / period) * period
        return max(self._confirmed_s, min(pinged, self.world.now_s))

    def close(self) -> None:
        self.closed = True
        if self.connection is not None and self.connection.up:
            self.server.send(self.connection, self._count + 1, "close", ())

    # --- what happens to it ---------------------------------------------------------------------

    def break_connection(self, applied: int, noticed_after_s: float = 0.0) -> None:
        """The network cuts this client off, silently when `noticed_after_s` is positive."""
        connection = self.connection
        if connection is None or not connection.up or self.session is None:
            return
        self._confirmed_s = self.confirmed_s()
        self.server.cut(connection, applied, noticed_after_s)
        self.server.silent(self.session, self._confirmed_s)

    def die(self) -> None:
        """The process is gone: the server only notices the silence."""
        self.closed = True
        self.break_connection(applied=len(self.connection.in_flight) if self.connection else 0)

    def freeze(self) -> None:
        self._confirmed_s = self.confirmed_s()
        self._frozen = True
        if self.session is not None and self.connection is not None and self.connection.up:
            self.server.silent(self.session, self._confirmed_s)

    def thaw(self) -> None:
        self._frozen = False
        if self.session is not None and self.connection is not None and self.connection.up:
            self._running_since_s = self.world.now_s
            self.server.heard(self.session)

    def _attach(self) -> None:
        assert self.session is not None
        if not self._expired:
            self._running_since_s = self._confirmed_s = self.world.now_s
        self.connection = self.server.connect(
            self.session,
            lambda message: self._run(self._receive, message),
            lambda connection: self._run(self._disconnected, connection),
        )

    def _reachable(self) -> bool:
        return self.server.up and self.world.now_s >= self.partitioned_until_s

    def _receive(self, message: tuple[Any, Any]) -> None:
        if self.closed:
            return
        number, content = message
        if number == "watch":
            fired = self._watches.pop(content, None)
            if fired is not None:
                fired("changed")
            return
        if not self._pending or self._pending[0][0] != number:
            return
        _, sent_s, callback = self._pending.popleft()
        if not self._expired:
            self._confirmed_s = max(self._confirmed_s, sent_s)
        callback(content)

    def _disconnected(self, connection: Connection) -> None:
        if self.closed or connection is not self.connection:
            return
        self.connection = None
        self._tell(SessionEvent.SUSPENDED)
        pending, self._pending = self._pending, deque()
        watches, self._watches = self._watches, {}
        for _, _, callback in pending:
            callback(Reply(Status.CONNECTION_LOSS))
        for fired in list(watches.values()):
            fired("none")
        self.world.after(RECONNECT_S, self._run, self._reconnect)

    def _reconnect(self) -> None:
        if self.closed:
            return
        if not self._reachable():
            self.world.after(RECONNECT_S, self._run, self._reconnect)
        elif self.server.alive(self.session):
            self._attach()
            self._tell(SessionEvent.CONNECTED)
        else:
            self._expired = True
            self.session = self.server.open_session(self.timeout_s)
            self._attach()
            self._tell(SessionEvent.LOST)

    def _tell(self, event: SessionEvent) -> None:
        """In order, but late."""
        self._told_s = max(self._told_s, self.world.now_s + self._hops.uniform(0, HOP_S))
        self.world.after(self._told_s - self.world.now_s, self._run, self._listen, event)

    def _listen(self, event: SessionEvent) -> None:
        if not self.closed:
            self.listener(event)
