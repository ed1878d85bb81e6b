"""How the log of every place is written to: the entry of a client, and what drives the append queue
of a group. Its commands come from any thread, answers on the loop of the log, and whoever listens
to the session hears of its end once, whoever finds it out.

Where the entries are written is the log's own: it is given a transaction, and says what became of
it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from onyx.base.seams import SystemClock
from onyx.codec.entries import encode_entry
from onyx.ids import GroupId, Position
from onyx.log.append_queue import Append, AppendQueue, Reply, check_size
from onyx.log.interface import Session
from onyx.log.loop import Loop
from onyx.replica.command import Command
from onyx.settings import LogSettings

CLOSE_FLUSH_S = 2.0
"""Longest wait at `close` for entries that were enqueued."""
_FLUSH_POLL_S = 0.005


def entry_of_client(command: Command, by: str, settings: LogSettings) -> bytes:
    """What a client writes for a command, without a number; with the time, where it says by whom.

    Raises:
        UserError: it is too large or cannot be encoded.
    """
    payload = encode_entry(command, by=by, at_ms=SystemClock().wall_ms() if by else 0)
    check_size(command, payload, settings.entry_bytes_max)
    return payload


class GroupAppends:
    """The entries of one incarnation on their way, and who listens to its session."""

    def __init__(
        self,
        group: GroupId,
        settings: LogSettings,
        loop: Loop,
        start: Callable[[Append, Callable[[Reply], None]], None],
    ) -> None:
        """`start`: begins a transaction without waiting for it; what it is given with that is to be
        called on the loop, once."""
        self._queue = AppendQueue(group, settings)
        self._lock = threading.Lock()
        self._loop = loop
        self._start = start
        self._listeners: list[Callable[[Session], None]] = []
        self._told_lost = False

    def append(self, commands: Sequence[Command], parent: Position | None) -> None:
        """Enqueue for writing; raises as `AppendQueue.enqueue`."""
        with self._lock:
            self._transmit(self._queue.enqueue(commands, parent, SystemClock().wall_ms()))

    def listen(self, listener: Callable[[Session], None]) -> None:
        """Call this at every change of the session, on the loop."""
        self._loop.call(lambda: self._listeners.append(listener))

    def on_session(self, session: Session) -> None:
        """The session has changed; on the loop."""
        self.send_again(session)
        self._tell(session)

    def send_again(self, session: Session = Session.CONNECTED) -> None:
        """Send what waits, if it was not sent to who writes now."""
        with self._lock:
            self._transmit(self._queue.on_session(session))

    def flush(self) -> None:
        """Wait until all that was enqueued is written, or so long that it will not be."""
        deadline_s = time.monotonic() + CLOSE_FLUSH_S
        while len(self._queue) and time.monotonic() < deadline_s:
            time.sleep(_FLUSH_POLL_S)

    def _transmit(self, request: Append | None) -> None:
        if request is not None:
            attempt = request.attempt
            self._start(request, lambda reply: self._on_reply(attempt, reply))

    def _on_reply(self, attempt: int, reply: Reply) -> None:
        with self._lock:
            self._transmit(self._queue.on_reply(attempt, reply))
        if reply is Reply.PULSE_GONE:
            self._tell(Session.LOST)

    def _tell(self, session: Session) -> None:
        if self._told_lost:
            return
        self._told_lost = session is Session.LOST
        for listener in tuple(self._listeners):
            listener(session)
