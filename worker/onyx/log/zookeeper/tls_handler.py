"""Kazoo's connections over TLS, with SSL contexts of ours.

Kazoo's own TLS trusts the authorities of the machine as well as ours, and does not check names by
default. It also waits for a socket to become readable while TLS has already read the bytes: an
answer that comes in one record with another one is then noticed at the next heartbeat.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Sequence
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from onyx.tls.diagnosis import explain
from onyx.tls.files import CertificateFiles

logger = logging.getLogger("onyx.log")

HANDSHAKE_PER_SESSION = 1 / 3
"""Longest wait for the answer to a handshake, as a part of the session timeout: a server that is
just starting may accept a connection and never answer on it, and the session must outlive that."""


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
