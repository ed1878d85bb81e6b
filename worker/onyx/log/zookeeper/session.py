"""One ZooKeeper session over kazoo: connecting, its states, and calls that survive a break.

The session of a *group* ends with its first expiry, as the incarnation does. A *client* may replace
an expired session. Kazoo's own retries are not used for calls: they repeat what must not be
repeated, and continue under a new session. While disconnected, kazoo stores requests and sends them
on the next connection; callers must allow for that.

Invariant of `confirmed_s`: the server cannot have expired the session before this moment plus the
session timeout. So it is the moment at which the last answered request was *sent*: the server may
have handled it at any time since then.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    OperationTimeoutError,
    SessionExpiredError,
)
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from onyx.errors import Fenced, SettingsError, Unavailable, UserError
from onyx.log.callback_loop import Loop
from onyx.log.interface import Session
from onyx.log.zookeeper.access import read_access
from onyx.log.zookeeper.rollback import has_gone_back
from onyx.log.zookeeper.silence import LOOKS_PER_SESSION, Look, Silence
from onyx.log.zookeeper.tls_handler import HANDSHAKE_PER_SESSION, PatientHandler, TlsHandler
from onyx.settings import ZooKeeperSettings
from onyx.tls.diagnosis import diagnose
from onyx.tls.files import ZOOKEEPER, CertificateFiles

logger = logging.getLogger("onyx.log")

REPLY_LOST = (ConnectionLoss, SessionExpiredError, ConnectionClosedError, OperationTimeoutError)
"""The request may have been performed or not."""
HEARTBEATS_PER_SESSION = 6
TELL_AFTER_S = 2.0
"""Silence of a server after which it is said what is waited for."""
_WAIT_S = 0.05
_RECONNECT_DELAY_S = 0.05
_RECONNECT_DELAY_MAX_S = 0.5

Start = Callable[[KazooClient], Any]
"""Starts a request and gives kazoo's asynchronous result."""


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
    ) -> None:
        self.address = settings.address
        self.session_timeout_s = settings.session_timeout_s
        """The time-out as negotiated with the server."""
        self.access = read_access(settings)
        self._certificates = certificates or zookeeper_certificates(settings)
        self._timeout_s = settings.connect_timeout_s
        self._survives_expiry = survives_expiry
        self._listeners: list[Callable[[Session], None]] = []
        self._live = threading.Event()
        self._closing = False
        self._lost = False
        self._failure: Exception | None = None
        self._confirmed_s = time.monotonic()
        self._expired = False
        """The state of a group; set on kazoo's thread, before it opens another session: what that
        one answers says nothing about this incarnation."""
        self._comparing = False
        self._settings = settings
        self.loop = Loop(name)
        self._client = self._connect()
        self._silence = Silence(self.address, time.monotonic(), self._socket)
        self.loop.every(self.session_timeout_s / HEARTBEATS_PER_SESSION, self._beat)
        self.loop.every(self.session_timeout_s / LOOKS_PER_SESSION, self._listen)
        self.loop.every(self.session_timeout_s, self._compare_if_refused)

    @property
    def id(self) -> int:
        """The server's number of the session."""
        client_id = self._client.client_id
        return int(client_id[0]) if client_id else 0

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
        sent_s = time.monotonic()

        def finished(result: Any) -> None:
            if result.exception is None or not isinstance(result.exception, REPLY_LOST):
                self._confirm(sent_s)
            value = result.exception if result.exception is not None else result.value
            self.loop.call(lambda: done(value))

        start(self._client).rawlink(finished)

    def attempt(self, start: Start) -> Any:
        """Perform a request once.

        Raises:
            ReplyLost: it may have been performed or not.
            KazooException: what the server answered.
            UserError: the node belongs to another user.
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
            self._confirm(sent_s)
            raise
        self._confirm(sent_s)
        return value

    def perform(self, start: Start) -> Any:
        """Perform a request that may be repeated, until there is an answer.

        Raises:
            KazooException: what the server answered.
            UserError, Fenced, Unavailable: as `attempt`.
        """
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            try:
                return self.attempt(start)
            except ReplyLost as error:
                if time.monotonic() > deadline_s:
                    raise self.silent() from error
            if not self._live.wait(TELL_AFTER_S):
                self._tell_wait()
                self._live.wait(self._timeout_s)
            self._pause()

    def ensure_path(self, path: str, shared: bool = False) -> None:
        """Create a node and those above it where they are missing; raises as `perform`.

        Args:
            shared: the nodes are not of this tenancy alone.
        """
        acl = self.access.shared if shared else self.access.own
        self.perform(lambda client: client.ensure_path_async(path, acl))

    def close(self) -> None:
        """End the session on the server too, so that its pulse is gone at once."""
        self._closing = True
        self._stop_client()
        self.loop.stop()

    def _connect(self) -> KazooClient:
        settings = self._settings
        try:
            client = self._new_client()
        except ValueError as error:
            self.loop.stop()
            raise SettingsError(
                f"zookeeper.address {settings.address!r}: expected host:port, separated by commas"
            ) from error
        self._look_at_handshake(client)
        client.add_listener(self._tell)
        waiting = threading.Timer(TELL_AFTER_S, self._tell_wait)
        waiting.daemon = True
        waiting.start()
        try:
            client.start(timeout=settings.connect_timeout_s)
        except client.handler.timeout_exception as error:
            self.loop.stop()
            raise Unavailable(
                f"no ZooKeeper answered at {settings.address} within "
                f"{settings.connect_timeout_s:g} s; {self._why(client.hosts)}"
            ) from error
        finally:
            waiting.cancel()
        return client

    def _tell_wait(self) -> None:
        """A person who waits should know for what, before it is given up."""
        logger.warning(
            "waiting for ZooKeeper at %s, for up to %g s (onyx zookeeper starts one)",
            self.address,
            self._timeout_s,
        )

    def _why(self, servers: Sequence[tuple[str, int]]) -> str:
        """What to do when nothing answers."""
        for host, port in servers:
            problem = diagnose(host, port, self._certificates, ZOOKEEPER)
            if problem is not None:
                return f"of {host}:{port}: {problem}"
        return "start one with `onyx zookeeper` or set ONYX_ZOOKEEPER_ADDRESS to where one runs"

    def _new_client(self) -> KazooClient:
        return KazooClient(
            hosts=self._settings.address,
            timeout=self._settings.session_timeout_s,
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=_RECONNECT_DELAY_S,
                max_delay=_RECONNECT_DELAY_MAX_S,
                ignore_expire=False,
            ),
            command_retry=KazooRetry(max_tries=1, ignore_expire=False),
            handler=TlsHandler(self._certificates) if self._certificates else PatientHandler(),
            auth_data=list(self.access.auth_data),
            default_acl=self.access.own,
            logger=_quiet_logger(),
        )

    def _compare_if_refused(self) -> None:
        """Every session timeout: who is not connected may be refused for what it has seen."""
        if not (self._live.is_set() or self._lost or self._closing or self._comparing):
            self._comparing = True
            threading.Thread(target=self._compare, name="onyx-log-compare", daemon=True).start()

    def _compare(self) -> None:
        """When the servers have gone back, let them tell that they do not know the session."""
        client = self._client
        try:
            if has_gone_back(client.last_zxid, self._new_client, self._timeout_s):
                logger.error(
                    "ZooKeeper at %s has lost transactions that it had confirmed: its data was "
                    "wiped, or restored from a backup",
                    self.address,
                )
                client.last_zxid = 0
        finally:
            self._comparing = False

    def _look_at_handshake(self, client: KazooClient) -> None:
        """Learn which session timeout the server granted, which kazoo keeps to itself, and do not
        wait so long for the handshake that the session expires meanwhile: a server that is just
        starting may accept a connection and never answer on it. Kazoo then dials again."""
        connection = client._connection
        invoke = connection._invoke

        def looking(timeout_s: float, *args: Any, **kwargs: Any) -> Any:
            sent_s = time.monotonic()
            answer = invoke(timeout_s * HANDSHAKE_PER_SESSION, *args, **kwargs)
            granted_ms = getattr(answer[0], "time_out", 0) if isinstance(answer, tuple) else 0
            if granted_ms > 0:
                self.session_timeout_s = granted_ms / 1000
                self._confirm(sent_s)
            return answer

        connection._invoke = looking

    def _tell(self, state: str) -> None:
        """Kazoo's listener, on its connection thread: only enqueues."""
        if state == KazooState.CONNECTED:
            self._live.set()
            self.loop.call(lambda: self._changed(Session.CONNECTED))
        else:
            self._live.clear()
            lost = state == KazooState.LOST
            self._expired = self._expired or (lost and not self._survives_expiry)
            self.loop.call(lambda: self._changed(Session.LOST if lost else Session.SUSPENDED))

    def _changed(self, session: Session) -> None:
        if self._lost or self._closing:
            return
        if session is Session.LOST and (self._failure or not self._survives_expiry):
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

    def _socket(self) -> socket.socket | None:
        found: socket.socket | None = self._client._connection._socket
        return found

    def _confirm(self, sent_s: float) -> None:
        if not self._expired:
            self._confirmed_s = max(self._confirmed_s, sent_s)

    def silent(self) -> Unavailable:
        """What to tell when there is no answer in time."""
        return Unavailable(
            f"ZooKeeper at {self.address} has not answered for {self._timeout_s:g} s; "
            "is it running and can it be reached?"
        )

    def denied(self) -> UserError:
        """What to tell when the server refuses access to a node."""
        shown = "this process shows no user" if not self.access.auth_data else "it is not ours"
        return UserError(
            f"ZooKeeper at {self.address} refuses access: the nodes of this tenancy belong to a "
            f"user, and {shown}. Set ONYX_ZOOKEEPER_AUTH_USER and "
            "ONYX_ZOOKEEPER_AUTH_PASSWORD_FILE as for the other processes of the tenancy"
        )

    def _pause(self) -> None:
        """Between the expiry and the next connection kazoo refuses at once: do not spin."""
        threading.Event().wait(_WAIT_S)

    def _stop_client(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except Exception as error:
            _quiet_logger().debug("closing the ZooKeeper client: %s", error)


def zookeeper_certificates(settings: ZooKeeperSettings) -> CertificateFiles | None:
    """The files for TLS that the settings name, if they do. A process with several sessions makes
    them once: what was good stays in use when files turn bad, also for the next incarnation.

    Raises:
        SettingsError: a file is wrong.
    """
    return CertificateFiles.named_by(settings.tls, ZOOKEEPER, serves=False)


def _quiet_logger() -> logging.Logger:
    """Kazoo's remarks about each reconnect; a user who wants them sets the level of this logger."""
    logger = logging.getLogger("onyx.log.kazoo")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)
    return logger
