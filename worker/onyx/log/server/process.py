"""A real ZooKeeper server in a child process, from the jars inside the PySpark package.

For `onyx run`, `onyx zookeeper` and tests, on machines that have no ZooKeeper. A cluster relies on
sessions, expiry and recovery, so a substitute of our own was rejected.

A server that stands alone listens on the loopback interface by default. It ends with this process,
also when this process is killed. So it must be started on a thread that lives as long as the server
is needed.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import socket
import ssl
import subprocess
import time
from pathlib import Path
from typing import BinaryIO

from onyx.base.parent import end_with_parent
from onyx.errors import SettingsError, Unavailable
from onyx.java import find_java
from onyx.log.server import data_folder
from onyx.log.server.config import Ensemble, ServerConfig
from onyx.log.server.java_command import ClassArchive, find_jars, jars_needed, java_command
from onyx.log.server.tls import ServerTls
from onyx.settings import TlsSettings
from onyx.tls.files import CertificateFiles

PRIVATE_FOLDER, PRIVATE_UMASK = 0o700, 0o077
"""What a tenancy keeps there may be read with the password of its user only."""
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 5.0
HEAP_MIB = 256
PORTS_MAX = 3
"""Free ports that are tried."""
_TERMINATED = 143
"""Exit code of a virtual machine that has followed SIGTERM."""
_POLL_S = 0.01
_PROBE_MIN_S, _PROBE_MAX_S = 0.05, 1.0
"""A server that is still starting takes a question and never answers it, so early ones are given up
soon. A busy machine gets longer: a quarter of what it has taken so far."""
_FIGURE = re.compile(rb"^zk_(\w+)\t([0-9.]+)$", re.MULTILINE)
DISK_FULL_BYTES = 1 << 20
"""With less room ZooKeeper's next file, which it makes in one piece, has no place."""
_HANDSHAKE_S = 1.0
"""The first handshake of a virtual machine that has just started takes a third of a second."""


class _PortTaken(Unavailable):
    """Somebody has the port, or may have it."""


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
        self._archive: ClassArchive | None = None
        self._takes_any_port = not port
        self._has_served = False

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

    @property
    def heap_bytes(self) -> int:
        """The largest heap of its virtual machine."""
        return self._heap_mib << 20

    def figures(self) -> dict[str, float]:
        """What it says of itself, by names of `mntr`; empty when it does not answer."""
        tls = self._tls.client if self._tls else None
        said = _asked(b"mntr", self._near_host, self.port, 1.0, tls)
        return {name.decode(): float(value) for name, value in _FIGURE.findall(said)}

    def disk_bytes(self) -> tuple[int, int]:
        """The room that is left where its data lies, and all that there is.

        Raises:
            OSError: there is no such folder.
        """
        found = os.statvfs(self.data_dir)
        return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize

    def full_disk(self) -> str:
        """That its disk is full, in words; empty while there is room."""
        with contextlib.suppress(OSError):
            free_bytes, all_bytes = self.disk_bytes()
            if free_bytes < DISK_FULL_BYTES:
                return f"disk full: {free_bytes:,} of {all_bytes:,} bytes are free for its data"
        return ""

    def start(self) -> None:
        """Start, unless `launch` has, and wait until it serves. A port that was free may be
        somebody else's when the server wants it: then another free one is taken.

        Raises:
            SettingsError, Unavailable: as `launch`; or the server did not come up.
        """
        for left in reversed(range(PORTS_MAX if self._takes_any_port else 1)):
            try:
                if self._process is None:
                    self.launch()
                self._wait_until_ready()
                self._takes_any_port, self._has_served = False, True
                return
            except _PortTaken:
                if not left:
                    raise
                self.port = 0

    @property
    def certificates(self) -> CertificateFiles | None:
        """The certificates of all its ports; None without TLS."""
        return self._tls.files if self._tls else None

    @property
    def near_certificates(self) -> CertificateFiles | None:
        """With which this process dials it at `address`; None without TLS."""
        return self._tls.near if self._tls else None

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
        self.port = self.port or free_port(self._host)
        if is_listening(self._near_host, self.port):
            raise _PortTaken(
                f"{self.address} is in use; another ZooKeeper may run already, "
                "or choose another port"
            )
        try:
            configuration = self._write_files(empty_may_vote)
            java, jars = find_java(), find_jars(jars_needed(self._verbose, self._tls is not None))
            if not self._verbose:  # else it lives for long
                self._archive = ClassArchive.of(java, jars)
            command = java_command(
                java,
                jars,
                configuration,
                self._heap_mib,
                self._ensemble is not None,
                self._archive.flags() if self._archive is not None else (),
            )
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
            archive = self._archive
            if archive is not None and archive.missing and self._process.poll() == _TERMINATED:
                archive.keep()
        self.kill()

    def discard(self) -> None:
        """End it when nothing of it is read again: at once, unless it is to write an archive of its
        classes first, which one that has not served has not loaded."""
        if self._has_served and self._archive is not None and self._archive.missing:
            self.stop()
        else:
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

    def __exit__(self, *_: object) -> None:
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
                raise _PortTaken(
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


def is_serving(
    host: str, port: int, timeout_s: float = 1.0, tls: ssl.SSLContext | None = None
) -> bool:
    """Whether a ZooKeeper at this address serves clients (`ruok` also answers when it does not)."""
    return b"Mode:" in _asked(b"srvr", host, port, timeout_s, tls)


def _asked(
    word: bytes, host: str, port: int, timeout_s: float, tls: ssl.SSLContext | None
) -> bytes:
    """The answer to a four-letter command; empty when there is none."""
    answer = b""
    try:
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(socket.create_connection((host, port), timeout_s))
            if tls is not None:
                connection = stack.enter_context(tls.wrap_socket(connection))
            connection.sendall(word)
            while piece := connection.recv(4096):
                answer += piece
    except OSError:
        return b""
    return answer


def is_listening(host: str, port: int) -> bool:
    """Whether somebody takes connections there."""
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return False
    return True


def free_port(host: str) -> int:
    """A port that nobody has now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
