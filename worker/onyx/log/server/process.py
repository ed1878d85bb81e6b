"""A real ZooKeeper server in a child process, from the jars inside the PySpark package.

For `onyx run`, `onyx zookeeper` and tests, on machines that have no ZooKeeper. A cluster relies on
sessions, expiry and recovery, so a substitute of our own was rejected. Five jars are enough (no
netty, log4j or web server), which halves memory and start-up to about half a second. A server that
people operate also writes a log, with three more jars.

A server that stands alone listens on the loopback interface by default. It ends with this process,
also when this process is killed. So it must be started on a thread that lives as long as the server
is needed.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib.util
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from onyx.errors import SettingsError, Unavailable
from onyx.java import find_java
from onyx.log.server import data_folder
from onyx.log.server.config import Ensemble, ServerConfig
from onyx.log.server.tls import ServerTls
from onyx.settings import TlsSettings
from onyx.tls.files import CertificateFiles

JARS = ("zookeeper", "zookeeper-jute", "slf4j-api", "metrics-core", "snappy-java")
"""Without metrics-core it does not start; without snappy-java it starts and never serves."""
TLS_JARS = (
    "netty-handler",
    "netty-transport",
    "netty-transport-classes-epoll",
    "netty-transport-native-unix-common",
    "netty-common",
    "netty-buffer",
    "netty-codec-base",
)
"""ZooKeeper's own network code has no TLS for clients; that over Netty has."""
LOG_JARS = ("log4j-api", "log4j-core", "log4j-slf4j2-impl")
LOG_LEVEL = "WARN"
PRIVATE_FOLDER, PRIVATE_UMASK = 0o700, 0o077
"""What a tenancy keeps there may be read with the password of its user only."""
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 5.0
HEAP_MIB = 256
_POLL_S = 0.01
_PROBE_MIN_S, _PROBE_MAX_S = 0.05, 1.0
"""A server that is still starting takes a question and never answers it, so early ones are given up
soon. A busy machine gets longer: a quarter of what it has taken so far."""
_HANDSHAKE_S = 1.0
"""The first handshake of a virtual machine that has just started takes a third of a second."""
_PR_SET_PDEATHSIG = 1
_MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
_MAIN_OF_ENSEMBLE = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_JVM_FLAGS = (
    "-Xshare:auto",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Dsun.net.inetaddr.ttl=5",  # a pod that comes back has another address
    "-Dzookeeper.preAllocSize=4096",
    f"-Dorg.apache.logging.log4j.level={LOG_LEVEL}",
)
_ENSEMBLE_FLAGS = ("-Dzookeeper.db.autocreate=false",)
"""A server without data does not vote (`formation` says when it may)."""


class ZooKeeperServer:
    """One server; also a context manager that starts and stops it.

    Args:
        data_dir: Folder for its data, configuration and log; made if missing. A server started
            again in the same folder goes on where the former one was, sessions included.
        port: Port to listen on; 0 takes a free one, which stays the same over restarts.
        tick_ms: Its unit of time; the shortest session is two ticks.
        host: Interface to listen on.
        ensemble: Its number among others; None: it stands alone.
        heap_mib: Memory of the Java virtual machine.
        verbose: Write what it has to say to standard error, and not just what the virtual machine
            says to a file in the folder.
        tls: Files for TLS on all its ports; there is none without it then.

    Raises:
        SettingsError: a file for TLS is wrong.
    """

    def __init__(
        self,
        data_dir: Path | str,
        port: int = 0,
        tick_ms: int = 500,
        host: str = "127.0.0.1",
        ensemble: Ensemble | None = None,
        heap_mib: int = HEAP_MIB,
        verbose: bool = False,
        tls: TlsSettings | None = None,
    ) -> None:
        self.data_dir = Path(data_dir)
        self.port = port
        self._host = host
        self._tick_ms = tick_ms
        self._ensemble = ensemble
        self._heap_mib = heap_mib
        self._verbose = verbose
        self._tls = ServerTls.of(tls or TlsSettings())
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """`host:port` for clients on this machine."""
        return f"{self._near_host}:{self.port}"

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self._process else None

    @property
    def exit_code(self) -> int | None:
        """The exit code of a server that has ended by itself; None while it runs."""
        return self._process.poll() if self._process else None

    def serves(self) -> bool:
        """Whether it answers clients: in an ensemble, whether it has a leader."""
        return self._answers(1.0)

    def start(self) -> None:
        """Start and wait until it serves.

        Raises:
            SettingsError, Unavailable: as `launch`; or the server did not come up.
        """
        self.launch()
        self._wait_until_ready()

    @property
    def certificates(self) -> CertificateFiles | None:
        """The certificates of all its ports; None without TLS."""
        return self._tls.files if self._tls else None

    def claim(self) -> Path:
        """Make its folder its own; the absolute path.

        Raises:
            SettingsError: it cannot be written, is that of another server, or of more servers.
        """
        try:
            self.data_dir.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
            folder = self.data_dir.resolve()
            data_folder.claim(folder, self._ensemble)
        except OSError as error:
            raise self._not_writable(error) from error
        return folder

    def launch(self, empty_may_vote: bool = False) -> None:
        """Start and do not wait: a server of an ensemble serves when most of the others are there.

        Args:
            empty_may_vote: whether it votes in an ensemble even if its folder is empty; else it
                receives the data of the others first (`formation`).

        Raises:
            SettingsError: its folder cannot be written or is that of another server.
            Unavailable: no Java, no PySpark, or the port is in use; says what to do.
        """
        assert self._process is None, "already started"
        self.port = self.port or _free_port(self._host)
        if _is_listening(self._near_host, self.port):
            raise Unavailable(
                f"{self.address} is in use; another ZooKeeper may run already, "
                "or choose another port"
            )
        try:
            command = self._command(self._write_files(empty_may_vote))
            with self._output() as log:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.data_dir,
                    preexec_fn=end_with_parent(),
                    start_new_session=True,
                    umask=PRIVATE_UMASK,
                )
        except BaseException:
            self.kill()
            raise
        atexit.register(self.kill)

    def stop(self) -> None:
        """End it in an orderly way; harmless when it does not run."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """End it at once, as a crash would (SIGKILL); harmless when it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._tls:
            self._tls.stop()
        atexit.unregister(self.kill)

    def __enter__(self) -> ZooKeeperServer:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def _log_path(self) -> Path:
        return self.data_dir / "zookeeper.log"

    @property
    def _output_path(self) -> str:
        return "above" if self._verbose else str(self._log_path)

    def _output(self) -> contextlib.AbstractContextManager[BinaryIO | None]:
        """Where what it says goes; None is where this process' own goes."""
        return contextlib.nullcontext() if self._verbose else self._open_log()

    def _open_log(self) -> BinaryIO:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        return os.fdopen(os.open(self._log_path, flags, 0o600), "ab")

    @property
    def _near_host(self) -> str:
        """Where this machine finds it."""
        return "127.0.0.1" if self._host == "0.0.0.0" else self._host  # noqa: S104

    def _command(self, configuration: Path) -> list[str]:
        more = (*(LOG_JARS if self._verbose else ()), *(TLS_JARS if self._tls else ()))
        jars = find_jars((*JARS, *more))
        return [
            str(find_java().executable),
            *_JVM_FLAGS,
            *(() if self._ensemble is None else _ENSEMBLE_FLAGS),
            f"-Xmx{self._heap_mib}m",
            "-cp",
            os.pathsep.join(map(str, jars)),
            _MAIN if self._ensemble is None else _MAIN_OF_ENSEMBLE,
            str(configuration),
        ]

    def _write_files(self, empty_may_vote: bool) -> Path:
        """Its folder and configuration; the path of the latter."""
        folder = self.claim()
        try:
            stores = self._tls.start() if self._tls else None
            config = ServerConfig(
                folder, self._host, self.port, self._tick_ms, self._ensemble, stores
            )
            data_folder.allow_empty(folder, empty_may_vote)
            data_folder.forget_no_epoch(folder)
            path = folder / "zoo.cfg"
            path.write_text(config.text(), encoding="utf-8")
        except OSError as error:
            raise self._not_writable(error) from error
        return path

    def _not_writable(self, error: OSError) -> SettingsError:
        return SettingsError(
            f"ZooKeeper's folder {self.data_dir} cannot be written: {error.strerror}; choose "
            "another by ONYX_ZOOKEEPER_SERVER_DATA_DIR, or give this user the right to it"
        )

    def _answers(self, timeout_s: float) -> bool:
        if self._tls is None:
            return is_serving(self._near_host, self.port, timeout_s)
        patience_s = max(_HANDSHAKE_S, timeout_s)
        return is_serving(self._near_host, self.port, patience_s, self._tls.client)

    def _wait_until_ready(self) -> None:
        process = self._process
        assert process is not None
        started_s = time.monotonic()
        while (waited_s := time.monotonic() - started_s) < START_TIMEOUT_S:
            if process.poll() is not None:
                code = process.returncode
                self.kill()
                raise Unavailable(
                    f"ZooKeeper on {self.address} ended with code {code} while starting; is the "
                    f"port taken? Its output: {self._output_path}"
                )
            probe_s = min(_PROBE_MAX_S, max(_PROBE_MIN_S, waited_s / 4))
            if self._answers(probe_s):
                return
            time.sleep(_POLL_S)
        self.kill()
        raise Unavailable(
            f"ZooKeeper on {self.address} did not serve within {START_TIMEOUT_S:.0f} s; "
            f"its output: {self._output_path}"
        )


def find_jars(names: Sequence[str] = JARS) -> list[Path]:
    """The jars of these names, inside the installed PySpark (which is not imported).

    Raises:
        Unavailable: PySpark is not installed or lacks a jar.
    """
    package = importlib.util.find_spec("pyspark")
    folders = list(package.submodule_search_locations or ()) if package else []
    if not folders:
        raise Unavailable(
            "the embedded ZooKeeper comes with PySpark, which is not installed: "
            "pip install 'onyx-on-kubernetes[spark]', or set ONYX_ZOOKEEPER_ADDRESS to a server"
        )
    jars: list[Path] = []
    for name in names:
        found = sorted(Path(folders[0], "jars").glob(f"{name}-[0-9]*.jar"))
        if not found:
            raise Unavailable(f"PySpark in {folders[0]} has no {name} jar; install it again")
        jars.append(found[-1])
    return jars


def is_serving(
    host: str, port: int, timeout_s: float = 1.0, tls: ssl.SSLContext | None = None
) -> bool:
    """Whether a ZooKeeper at this address serves clients (`ruok` also answers when it does not)."""
    try:
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(socket.create_connection((host, port), timeout_s))
            if tls is not None:
                connection = stack.enter_context(tls.wrap_socket(connection))
            connection.sendall(b"srvr")
            answer = b""
            while piece := connection.recv(4096):
                answer += piece
    except OSError:
        return False
    return b"Mode:" in answer


def _is_listening(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return False
    return True


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def end_with_parent() -> Callable[[], None] | None:
    """What the child runs before it becomes the server, so that it dies with this process.

    The library is loaded before the fork: after it, only system calls are safe.
    """
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def arrange() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return arrange
