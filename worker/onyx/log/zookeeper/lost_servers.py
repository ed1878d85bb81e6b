"""Detects two servers that kazoo would wait for without end: one that is silent, because packets
are lost and the connection does not break, and one whose data was wiped or restored from an old
backup.

*Silent*: kazoo counts every request that it sends as a ping. Requests that pile up, such as our
heartbeats, keep it from ever asking for an answer, and the kernel repeats lost packets for a
quarter of an hour. So behind a firewall or a broken link, a client would stay connected to a server
that never answers. Here a connection on which nothing was heard for half of the session timeout is
closed, and kazoo dials again. The lease (`peer/life`) is longer than that: a group that reaches
another server of the ensemble does not even pause. A process that did not run (stopped, or starved
of CPU) has answers waiting that it has not read: it looks once more before it closes anything.
`step` is pure; `Silence` carries out what it decides.

*Gone back*: a server refuses a client that has seen a later transaction than the server has, by
closing the connection: it looks like a server that is starting. The client would dial for ever,
suspended. So a client that has been refused for a while opens a new session, which the servers
accept, and compares their last transaction with its own. It asks behind a `sync`, since a single
server of an ensemble may lag; after that, every transaction that any client has seen is known to
that server.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from enum import Enum, auto

import msgspec
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from msgspec.structs import replace

from onyx.settings import ZooKeeperSettings

logger = logging.getLogger("onyx.log")

SILENT_PART = 1 / 2
"""Part of the session timeout after which a connection without answers is given up. A handshake
with one more server that does not answer (`HANDSHAKE_PER_SESSION`) still fits into the rest."""
LOOKS_PER_SESSION = 24
_LATE_LOOKS = 3
"""A look that comes so many periods late says that this process did not run."""
_GRACE_PART = 1 / 6
"""Part of the time-out for which a process that did not run reads what has come meanwhile."""


class Judgement(Enum):
    """What to do with a connection."""

    NONE = auto()
    SILENT = auto()
    """Nothing is heard over a connection that seems to live."""
    OVER = auto()
    """The server has answered again after that."""


class Look(msgspec.Struct, frozen=True):
    """What one look found; times are monotonic."""

    now_s: float
    confirmed_s: float
    """When the last answered request was sent."""
    timeout_s: float
    """The time-out of the session."""
    connected: bool
    """Whether kazoo takes the connection for alive."""


class ServerSilence(msgspec.Struct, frozen=True):
    """What is remembered between two looks."""

    looked_s: float
    patient_until_s: float
    """Nothing is judged before."""
    since_s: float | None = None
    """From when on the server has been silent; None while it answers."""


def step(state: ServerSilence, look: Look) -> tuple[ServerSilence, Judgement]:
    """Judge what was found."""
    period_s = look.timeout_s / LOOKS_PER_SESSION
    if look.now_s - state.looked_s > _LATE_LOOKS * period_s:
        state = replace(state, patient_until_s=look.now_s + _GRACE_PART * look.timeout_s)
    state = replace(state, looked_s=look.now_s)
    if look.now_s < look.confirmed_s + SILENT_PART * look.timeout_s:
        over = state.since_s is not None
        return replace(state, since_s=None), Judgement.OVER if over else Judgement.NONE
    if look.connected and look.now_s >= state.patient_until_s:
        return replace(state, since_s=state.since_s or look.confirmed_s), Judgement.SILENT
    return state, Judgement.NONE


class Silence:
    """Watches one session; `look` is called `LOOKS_PER_SESSION` times in its time-out.

    Args:
        address: of ZooKeeper, for the log.
        now_s: monotonic time of the first look.
        connection: the socket of the moment; None while there is none.
    """

    def __init__(
        self, address: str, now_s: float, connection: Callable[[], socket.socket | None]
    ) -> None:
        self._address = address
        self._connection = connection
        self._state = ServerSilence(now_s, now_s)

    def look(self, look: Look) -> None:
        """Judge, say it, and close a connection over which nothing is heard."""
        since_s = self._state.since_s
        self._state, judgement = step(self._state, look)
        if judgement is Judgement.SILENT:
            logger.warning(
                "ZooKeeper at %s has not answered for %.1f s though the connection stands: packets "
                "are lost. It is closed; connecting again",
                self._address,
                look.now_s - look.confirmed_s,
            )
            self._close()
        elif judgement is Judgement.OVER and since_s is not None:
            logger.warning(
                "ZooKeeper at %s answers again after %.1f s",
                self._address,
                look.now_s - since_s,
            )

    def _close(self) -> None:
        """End both directions: kazoo's thread wakes up, whatever it waits for on the socket."""
        connection = self._connection()
        if connection is None:
            return
        try:
            # That of the plain socket: TLS would take its own state away under kazoo's thread.
            socket.socket.shutdown(connection, socket.SHUT_RDWR)
        except OSError:
            logger.debug("the connection to ZooKeeper at %s has ended by itself", self._address)


def has_gone_back(seen: int, new_client: Callable[[], KazooClient], timeout_s: float) -> bool:
    """Whether the servers' last transaction is before `seen`; False when none answers.

    Args:
        seen: number of the last transaction that a client has seen.
        new_client: makes a client of the same servers that has seen nothing.
        timeout_s: longest wait for an answer.
    """
    client = new_client()
    try:
        client.start(timeout=timeout_s)
        client.sync_async("/").get(timeout=timeout_s)
        return bool(client.last_zxid < seen)
    except (KazooException, client.handler.timeout_exception):
        return False
    finally:
        client.stop()
        client.close()


class TransactionComparison:
    """Compares, on a thread of its own, one at a time."""

    def __init__(
        self, client: KazooClient, new: Callable[[], KazooClient], settings: ZooKeeperSettings
    ) -> None:
        """`client` may be refused; `new` makes others, which have seen nothing."""
        self._client = client
        self._new = new
        self._settings = settings
        self._under_way = False

    def start(self) -> None:
        """Begin, unless one is under way. Only on the thread of the loop."""
        if not self._under_way:
            self._under_way = True
            threading.Thread(target=self._compare, name="onyx-log-compare", daemon=True).start()

    def _compare(self) -> None:
        """When the servers have gone back, let them tell that they do not know the session."""
        client = self._client
        try:
            if has_gone_back(client.last_zxid, self._new, self._settings.connect_timeout_s):
                logger.error(
                    "ZooKeeper at %s has lost transactions that it had confirmed: its data was "
                    "wiped, or restored from a backup",
                    self._settings.address,
                )
                # A client that says that it has seen nothing is let in again, and then learns from
                # the server that its session is not known there: it ends as one that has expired.
                client.last_zxid = 0
        finally:
            self._under_way = False
