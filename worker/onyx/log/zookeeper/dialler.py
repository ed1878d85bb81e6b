"""Makes clients of ZooKeeper as kazoo has them: address, certificates, user, patience. The one
module that knows kazoo from within.

Connections over TLS have SSL contexts of ours. Kazoo's own TLS trusts the authorities of the
machine as well as ours, and does not check names by default. It also waits for a socket to become
readable while TLS has already read the bytes: an answer that comes in one record with another one
is then noticed at the next heartbeat.
"""

from __future__ import annotations

import logging
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from threading import Timer
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.retry import KazooRetry

from onyx.errors import SettingsError, Unavailable
from onyx.log.zookeeper.access import read_access
from onyx.settings import ZooKeeperSettings
from onyx.tls.diagnosis import diagnose, explain
from onyx.tls.files import ZOOKEEPER, CertificateFiles

logger = logging.getLogger("onyx.log")
quiet = logging.getLogger("onyx.log.kazoo")
"""Kazoo's remarks about each reconnect; a user who wants them sets the level of this logger."""
BACK_OFF_MAX_S = 0.5
"""Longest delay before a lost connection is tried again."""
TELL_AFTER_S = 0.5
"""Silence of a server after which it is said what is waited for."""
HANDSHAKE_PER_SESSION = 1 / 3
"""Longest wait for the answer to a handshake, as a part of the session timeout: a server that is
just starting may accept a connection and never answer on it, and the session must outlive that."""


if quiet.level == logging.NOTSET:
    quiet.setLevel(logging.CRITICAL)


Start = Callable[[KazooClient], Any]
"""Starts a request and gives kazoo's asynchronous result."""


class Dialler:
    """The clients of one session.

    Raises:
        SettingsError: files for TLS or the password are wrong.
    """

    def __init__(
        self,
        settings: ZooKeeperSettings,
        certificates: CertificateFiles | None = None,
        tenancy: str = "",
    ) -> None:
        self.access = read_access(settings, tenancy)
        self._settings = settings
        self._certificates = certificates or zookeeper_certificates(settings)

    def connected(
        self, changed: Callable[[str], None], granted: Callable[[float, float], None]
    ) -> KazooClient:
        """A client that is connected.

        Args:
            changed: called with each state of the connection, on kazoo's thread.
            granted: called with the moment at which a handshake was sent and the session timeout
                that the server granted in answer, both in seconds.

        Raises:
            Unavailable: nothing answered within `connect_timeout_s`.
            SettingsError: the address cannot be understood.
        """
        settings = self._settings
        try:
            client = self.new()
        except ValueError as error:
            raise SettingsError(
                f"zookeeper.address {settings.address!r}: expected host:port, separated by commas"
            ) from error
        _look_at_handshake(client, granted)
        client.add_listener(changed)
        waiting = Timer(TELL_AFTER_S, self.tell_wait)
        waiting.daemon = True
        waiting.start()
        try:
            client.start(timeout=settings.connect_timeout_s)
        except client.handler.timeout_exception as error:
            raise Unavailable(
                f"no ZooKeeper answered at {settings.address} within "
                f"{settings.connect_timeout_s:g} s; {self._why(client.hosts)}"
            ) from error
        finally:
            waiting.cancel()
        return client

    def new(self) -> KazooClient:
        """A client that has not been started. Raises ValueError for a wrong address."""
        return KazooClient(
            hosts=self._settings.address,
            timeout=self._settings.session_timeout_s,
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=self._settings.reconnect_back_off_s,
                max_delay=BACK_OFF_MAX_S,
                ignore_expire=False,
            ),
            command_retry=KazooRetry(max_tries=1, ignore_expire=False),
            handler=TlsHandler(self._certificates) if self._certificates else PatientHandler(),
            auth_data=list(self.access.auth_data),
            default_acl=self.access.own,
            logger=quiet,
        )

    def tell_wait(self) -> None:
        """A person who waits should know for what, before it is given up."""
        logger.warning(
            "waiting for ZooKeeper at %s, for up to %g s (onyx zookeeper starts one; --log FOLDER "
            "is a log on this machine)",
            self._settings.address,
            self._settings.connect_timeout_s,
        )

    def _why(self, servers: Sequence[tuple[str, int]]) -> str:
        """What to do when nothing answers."""
        for host, port in servers:
            problem = diagnose(host, port, self._certificates, ZOOKEEPER)
            if problem is not None:
                return f"of {host}:{port}: {problem}"
        return (
            "start one with `onyx zookeeper`, or say where the log of the cluster is: --zookeeper "
            "(ONYX_ZOOKEEPER_ADDRESS), or --log FOLDER (ONYX_LOG_FOLDER) for one on this machine"
        )


def _look_at_handshake(client: KazooClient, granted: Callable[[float, float], None]) -> None:
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
            granted(sent_s, granted_ms / 1000)
        return answer

    connection._invoke = looking


def socket_of(client: KazooClient) -> socket.socket | None:
    """The socket of the connection that a client has now."""
    found: socket.socket | None = client._connection._socket
    return found


def stop(client: KazooClient) -> None:
    """End a client and its session; harmless when it has ended."""
    try:
        client.stop()
        client.close()
    except Exception as error:
        quiet.debug("closing the ZooKeeper client: %s", error)


def zookeeper_certificates(settings: ZooKeeperSettings) -> CertificateFiles | None:
    """The files for TLS that the settings name, if they do. A process with several sessions makes
    them once: what was good stays in use when files turn bad, also for the next incarnation.

    Raises:
        SettingsError: a file is wrong.
    """
    return CertificateFiles.named_by(settings.tls, ZOOKEEPER, serves=False)


class PatientHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Connects without TLS; gives up a server that does not even accept before the session ends."""

    def create_connection(self, *args: Any, timeout: float | None = None, **kwargs: Any) -> Any:
        """Kazoo's seam; `timeout` is that of the session, in seconds.

        Raises:
            OSError: as the plain one.
        """
        patience_s = None if timeout is None else timeout * HANDSHAKE_PER_SESSION
        return super().create_connection(*args, timeout=patience_s, **kwargs)


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Connects with the certificates of the moment."""

    def __init__(self, files: CertificateFiles) -> None:
        super().__init__()
        self._files = files
        self._complaint = ""

    def create_connection(
        self,
        address: tuple[str, int],
        hostname: str | None = None,
        timeout: float | None = None,
        **_: Any,
    ) -> ssl.SSLSocket:
        """Kazoo's seam; `timeout` is that of the session, in seconds.

        Raises:
            OSError: of which `ssl.SSLError` is one.
        """
        name = self._files.settings.server_name or hostname or address[0]
        patience_s = None if timeout is None else timeout * HANDSHAKE_PER_SESSION
        connection = socket.create_connection(address, patience_s)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wrapped = self._files.current().client.wrap_socket(connection, server_hostname=name)
        except ssl.SSLError as error:
            self._complain(f"{address[0]}:{address[1]}: {explain(error, self._files, name)}")
            raise
        finally:
            # Of the wrapped socket now, or of nobody.
            connection.close()
        self._complaint = ""
        return wrapped

    def select(
        self, readers: Sequence[Any], writers: Sequence[Any], others: Sequence[Any], *timeout: Any
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """The ready sockets as `select.select`; a socket whose bytes TLS holds already is ready."""
        held = [each for each in readers if isinstance(each, ssl.SSLSocket) and each.pending()]
        ready, writable, other = super().select(
            readers, writers, others, *((0,) if held else timeout)
        )
        return [*ready, *(each for each in held if each not in ready)], writable, other

    def _complain(self, complaint: str) -> None:
        """Kazoo tries again for ever and says nothing."""
        if complaint != self._complaint:
            self._complaint = complaint
            logger.warning("no connection to ZooKeeper at %s", complaint)
