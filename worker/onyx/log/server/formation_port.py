"""The port on which the servers of an ensemble answer what their data folders hold.

Each connection gets one line of JSON, and nothing is read from it. So a stranger can neither send
nor break anything. With TLS both ends show certificates, as on every other port of the server.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from onyx.base.structs import UNREADABLE, prepared
from onyx.errors import Unavailable
from onyx.log.server.config import Ensemble
from onyx.log.server.formation import Holds, Unknown
from onyx.tls.files import CertificateFiles

logger = logging.getLogger("onyx.log")

ANSWER_TIMEOUT_S = 3.0
ANSWER_BYTES_MAX = 4_096
CONNECTIONS_MAX = 16
THREADS_MAX = 4


@prepared
class _Answer(msgspec.Struct, forbid_unknown_fields=True):
    id: int
    servers: tuple[str, ...]
    holds: str


class FormationPort:
    """Answers until `close`; also a context manager.

    Args:
        ensemble: this server's number.
        host: interface to listen on.
        holds: what the folder holds now.
        certificates: None without TLS.

    Raises:
        Unavailable: the port is taken.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        host: str,
        holds: Callable[[], Holds],
        certificates: CertificateFiles | None,
    ) -> None:
        self._ensemble = ensemble
        self._holds = holds
        self._certificates = certificates
        port = ensemble.formation[ensemble.id - 1][1]
        try:
            self._listener = socket.create_server((host, port), backlog=CONNECTIONS_MAX)
        except OSError as error:
            raise Unavailable(
                f"the ZooKeeper server cannot listen on {host}:{port}, where the others ask it: "
                f"{error.strerror}"
            ) from error
        self._connections = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._pool = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="onyx-formation")
        self._thread = threading.Thread(target=self._accept, name="onyx-formation", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening and end the threads."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if self._connections.acquire(blocking=False):
                self._pool.submit(self._answer, connection)
            else:
                connection.close()

    def _answer(self, connection: socket.socket) -> None:
        try:
            with contextlib.suppress(OSError), connection:
                connection.settimeout(ANSWER_TIMEOUT_S)
                answer = _Answer(self._ensemble.id, self._ensemble.servers, self._holds())
                data = msgspec.json.encode(answer)
                if self._certificates is None:
                    connection.sendall(data)
                    return
                context = self._certificates.current().server
                assert context is not None
                with context.wrap_socket(connection, server_side=True) as wrapped:
                    wrapped.sendall(data)
                    with contextlib.suppress(OSError):
                        wrapped.unwrap()
        finally:
            self._connections.release()


def ask(ensemble: Ensemble, id: int, certificates: CertificateFiles | None) -> Holds | Unknown:
    """What another server says that it holds; never raises for what the other one does.

    Args:
        ensemble: this server's number.
        id: of the server to be asked.
        certificates: None without TLS.
    """
    host, port = ensemble.formation[id - 1]
    try:
        data = _receive(host, port, certificates)
        answer = msgspec.json.decode(data, type=_Answer)
        holds = Holds(answer.holds)
    except ssl.SSLError as error:
        return Unknown(f"{host}:{port} and this one refuse each other's certificates: {error}")
    except OSError as error:
        why = error.strerror or str(error)
        return Unknown(
            f"{host}:{port} does not answer ({why}): not started, or it still stands alone and "
            "has to be started again"
        )
    except UNREADABLE:
        return Unknown(f"{host}:{port} answers with something else")
    if answer.id != id or answer.servers != ensemble.servers:
        return Unknown(f"{host}:{port} is server {answer.id} of another list of servers")
    return holds


def _receive(host: str, port: int, certificates: CertificateFiles | None) -> bytes:
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(socket.create_connection((host, port), ANSWER_TIMEOUT_S))
        if certificates is not None:
            context = certificates.current().client
            connection = stack.enter_context(context.wrap_socket(connection, server_hostname=host))
        data = b""
        while len(data) < ANSWER_BYTES_MAX and (piece := connection.recv(ANSWER_BYTES_MAX)):
            data += piece
        return data
