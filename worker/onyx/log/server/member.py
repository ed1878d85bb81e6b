"""One server of an ensemble, from an empty folder until it serves.

A server whose folder records that it was allowed to vote before starts at once. A server whose
folder is empty, or has the data of a server that stood alone, first asks every other server what it
holds, and repeats that until `decide`, which is pure, can decide. All the time it answers the same
question of the others, on a port of its own: each connection gets one line of JSON, and nothing is
read from it. So a stranger can neither send nor break anything. With TLS both ends show
certificates, as on every other port of the server.

ZooKeeper by itself treats an empty folder as that of a new server and lets it vote. Two empty
servers beside one that has all the data are then a majority: they elect one of themselves, and the
third deletes its data. So our servers never create a database by themselves
(`zookeeper.db.autocreate=false`): an empty server joins a leader that others elected, and receives
the data before it votes. Only formation lets an empty server vote:

* **A new ensemble** is formed when every server is there and holds nothing.
* **An ensemble that has served** lets no empty server vote. A server that lost its volume joins the
  others; when most have lost theirs, a person has to decide.
* **Growing**: one server stood alone and holds all the data. Just as many empty servers may vote as
  it needs for a majority, so that no majority exists without it. The others join.

Rejected: a marker outside of the volumes (a ConfigMap, an annotation), which somebody must write at
the right moment, and neither Helm's templates nor GitOps can; ZooKeeper's dynamic reconfiguration,
which has the list of servers twice and needs a superuser.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum

import msgspec

from onyx.base.structs import UNREADABLE, prepared
from onyx.errors import Unavailable
from onyx.log.server import data_folder
from onyx.log.server.config import Ensemble
from onyx.log.server.data_folder import Holding
from onyx.log.server.process import ZooKeeperServer
from onyx.tls.files import CertificateFiles

logger = logging.getLogger("onyx.log")
ASK_INTERVAL_S = 1.0
ANSWER_TIMEOUT_S = 3.0
ANSWER_BYTES_MAX = 4_096
CONNECTIONS_MAX = 16
THREADS_MAX = 4


class Holds(StrEnum):
    """What the folder of a server holds, as the server answers."""

    NOTHING = "nothing"
    ALONE = "alone"
    """All the data of a server that stood alone."""
    SHARED = "shared"
    """Data of an ensemble that has served."""


class Unknown(msgspec.Struct, frozen=True):
    """A server without a valid answer."""

    why: str


class Vote(msgspec.Struct, frozen=True):
    """Start, and vote even if the folder is empty."""


class Join(msgspec.Struct, frozen=True):
    """Start, and receive the data from a leader before voting."""


class Wait(msgspec.Struct, frozen=True):
    """Do not start yet."""

    reason: str


Decision = Vote | Join | Wait
_ANSWERS = {
    Holding.NOTHING: Holds.NOTHING,
    Holding.BEGUN: Holds.NOTHING,
    Holding.ALONE: Holds.ALONE,
    Holding.FOUNDING: Holds.ALONE,
    Holding.SHARED: Holds.SHARED,
}


class Member:
    """A context manager that answers the others; `start` starts the server.

    Args:
        server: not started yet.
        ensemble: its number there.
        host: interface to listen on.
        say: gets what somebody who waits wants to know, once for each change.

    Raises:
        SettingsError: the folder is another server's, or one of a larger ensemble.
        Unavailable: its port is taken.
    """

    def __init__(
        self, server: ZooKeeperServer, ensemble: Ensemble, host: str, say: Callable[[str], None]
    ) -> None:
        self._server = server
        self._ensemble = ensemble
        self._say = say
        self._folder = server.claim()
        self._obstacle, self._complaint = "", ""
        self._port = FormationPort(ensemble, host, self._answer, server.certificates)

    def close(self) -> None:
        """Close the port; the server goes on."""
        self._port.close()

    @property
    def obstacle(self) -> str:
        """Why the server has not been started; empty when it has."""
        return self._obstacle

    def start(self, stop: threading.Event) -> bool:
        """Start the server when it may; False when `stop` was set before.

        Raises:
            SettingsError, Unavailable: as `ZooKeeperServer.launch`.
        """
        found = data_folder.read_holding(self._folder)
        if found not in (Holding.NOTHING, Holding.ALONE):
            self._server.launch()
            return True
        while isinstance(decision := self._decide(), Wait):
            self._obstacle = decision.reason
            self._complain(decision.reason)
            if stop.wait(ASK_INTERVAL_S):
                return False
        self._obstacle = ""
        self._go(decision, found)
        return True

    def serves(self) -> bool:
        """The server serves: from now on its folder counts as one of this ensemble. False when that
        could not be written, as on a full disk; to be tried again."""
        try:
            data_folder.serves(self._folder, len(self._ensemble.servers))
        except OSError as error:
            self._complain(f"{self._folder} cannot be written: {error.strerror}")
            return False
        return True

    def _decide(self) -> Decision:
        me, certificates = self._ensemble.id, self._server.certificates
        others = (id for id in range(1, len(self._ensemble.servers) + 1) if id != me)
        asked = {id: ask(self._ensemble, id, certificates) for id in others}
        return decide(me, {me: self._answer(), **asked})

    def _go(self, decision: Vote | Join, found: Holding) -> None:
        match decision, found:
            case Vote(), Holding.ALONE:
                self._say(f"{len(self._ensemble.servers)} servers form around the data of this one")
                data_folder.found(self._folder, len(self._ensemble.servers))
                self._server.launch()
            case Vote(), _:
                self._say(
                    "all servers have been asked: this one may vote although it holds no data"
                )
                self._server.launch(empty_may_vote=True)
            case _:
                self._say("other servers hold the data: this one receives it before it votes")
                self._server.launch()

    def _answer(self) -> Holds:
        return _ANSWERS[data_folder.read_holding(self._folder)]

    def _complain(self, what: str) -> None:
        """Log it once."""
        if what != self._complaint:
            self._complaint = what
            self._say(what)


def decide(me: int, answers: Mapping[int, Holds | Unknown]) -> Decision:
    """Decide for a server whose folder is empty, or that stood alone.

    Invariant: a server with all the data is never outvoted by empty ones. Empty servers vote only
    when all servers have answered and none holds data, or as just as many as the server that stood
    alone needs for a majority.

    Args:
        me: id of this server.
        answers: of every server by id, this one included.
    """
    alone = [id for id, answer in sorted(answers.items()) if answer is Holds.ALONE]
    shared = [id for id, answer in sorted(answers.items()) if answer is Holds.SHARED]
    if len(alone) > 1 or (me in alone and shared):
        return Wait(_conflict(sorted({*alone, *shared})))
    if shared:
        return Join()
    unknown = {id: each for id, each in sorted(answers.items()) if isinstance(each, Unknown)}
    if unknown:
        return Wait(_missing(unknown))
    if not alone or me in alone:
        return Vote()
    newcomers = [id for id in sorted(answers) if id not in alone]
    return Vote() if me in newcomers[: len(answers) // 2] else Join()


def _conflict(ids: list[int]) -> str:
    named = ", ".join(map(str, ids))
    return (
        f"the ZooKeeper servers {named} hold data of different ensembles: keep that of one, and "
        "empty the folders of the others"
    )


def _missing(unknown: Mapping[int, Unknown]) -> str:
    why = "; ".join(f"server {id}: {each.why}" for id, each in unknown.items())
    return (
        "waiting for the other ZooKeeper servers, because one of them may hold the data: an "
        f"ensemble is formed only when all of them have been asked ({why})"
    )


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
