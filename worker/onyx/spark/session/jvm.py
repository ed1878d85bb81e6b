"""The JVM of a classic session, started by us and not by PySpark, for two reasons.

*It ends with this process at every moment.* A JVM that PySpark has started ends when its standard
input does, but begins to look at it after it has said how to reach it. If this process is killed
before that, and the folder for the answer goes with its scratch folder, the JVM stays for ever.

*It says why it does not start.* PySpark reports only that it has ended; the line that names the
setting is among those that it has printed.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import IO, Any, NamedTuple

from onyx.errors import FailsAgain, Unavailable, UserFunctionError
from onyx.spark.processes import dying_with_us

START_TIMEOUT_S = 300.0
"""Longest wait for a JVM to answer. A machine under load needs a minute."""
POLL_INTERVAL_S = 0.02
TAIL_LINES_MAX = 200
"""Last lines of the JVM that are kept."""
DRAIN_WAIT_S = 5.0
"""Longest wait for the last lines of a JVM that has ended."""
GONE_WAIT_S = 1.0
"""A process that dies loses its connections first, and whoever looks then still finds it."""
_ANSWER = "_PYSPARK_DRIVER_CONN_INFO_PATH"
"""Names the file in which a JVM that Spark starts says how to reach it."""
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
"""With these PySpark takes a JVM that runs."""
_SAYS_NOTHING = (
    "Error occurred during initialization of VM", "Error: A JNI error", "Error: A fatal exception",
    "Error: Could not create", "Picked up ", "Setting default log level", "To adjust logging level",
    "Using Spark's default", "WARNING: ", "Warning: ", "::",
)  # fmt: skip
"""Lines of a JVM that does not start, beside the one that says why."""
_IN_MAIN = re.compile(r'Exception in thread "main" (?P<what>.*)')
_NO_MEMORY = re.compile(r"OutOfMemory|reserve enough space|insufficient memory|native thread")
_AWAY = re.compile(r"unresolved dependenc|java\.net\.|java\.io\.IOException|Connection|timed out")


class JvmAddress(NamedTuple):
    """Where a JVM is reached by this machine."""

    port: int
    secret: str


class Jvm:
    """A JVM that starts, and what it prints."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Start it; raises OSError. `settings`: of Spark."""
        self._folder = Path(tempfile.mkdtemp(prefix="gateway-"))
        self._answer = self._folder / "answer"
        self._tail: deque[str] = deque(maxlen=TAIL_LINES_MAX)
        home = _spark_home()
        self.process = subprocess.Popen(
            [str(home / "bin" / "spark-submit"), *_arguments(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=dying_with_us(),
            env={
                **os.environ,
                "SPARK_HOME": str(home),
                "SPARK_CONNECT_MODE": "0",
                _ANSWER: str(self._answer),
            },
        )
        self._reader = Thread(target=self._read, args=(self.process.stdout,), daemon=True)
        self._reader.start()

    def address(self) -> JvmAddress:
        """Wait until it says where it is.

        Raises:
            FailsAgain: it does not start with these settings.
            UserFunctionError: it does not start with these settings now.
            Unavailable: it has ended for a reason that may go away, or says nothing.
        """
        until_s = time.monotonic() + START_TIMEOUT_S
        try:
            while not self._answer.exists():
                if (code := self.process.poll()) is not None:
                    self._reader.join(DRAIN_WAIT_S)
                    raise not_started(code, self._tail)
                if time.monotonic() > until_s:
                    raise Unavailable(f"it has said nothing for {START_TIMEOUT_S:g} s")
                time.sleep(POLL_INTERVAL_S)
            return _read_address(self._answer)
        except BaseException:
            self.process.kill()
            self.process.wait()
            assert self.process.stdin
            self.process.stdin.close()
            raise
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                text = line.decode("utf-8", "replace").rstrip()
                self._tail.append(text)
                sys.stderr.write(text + "\n")
                sys.stderr.flush()


_begun: list[Jvm] = []
"""One at most, which has not been launched yet. PySpark too has one a process."""


def begin(settings: Mapping[str, str]) -> None:
    """Start a JVM for `launch`; raises OSError."""
    assert not _begun, "a process has one JVM"
    _begun.append(Jvm(settings))


def launch(settings: Mapping[str, str]) -> None:
    """Have PySpark use the JVM that has begun, else a new one; not if this process has one already.

    Args:
        settings: of a new one.

    Raises:
        FailsAgain, UserFunctionError, Unavailable: as `Jvm.address`.
    """
    from pyspark import SparkContext

    if SparkContext._gateway is not None:
        return
    jvm = _begun.pop() if _begun else Jvm(settings)
    address = jvm.address()
    os.environ |= {_PORT: str(address.port), _SECRET: address.secret}
    try:
        SparkContext._ensure_initialized()
    finally:
        del os.environ[_PORT], os.environ[_SECRET]
    gateway: Any = SparkContext._gateway
    gateway.proc = jvm.process


def how_ended(gateway: Any = None) -> str:
    """How a JVM has ended, for messages; empty if it runs, or there is none. Blocks for a second if
    it runs.

    Args:
        gateway: of PySpark; without it, that of this process.
    """
    if gateway is None and "pyspark" in sys.modules:
        from pyspark import SparkContext

        gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if process is None:
        return ""
    try:
        code: int = process.wait(GONE_WAIT_S)
    except subprocess.TimeoutExpired:
        return ""
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return "was killed (SIGKILL): by somebody, or by the system for want of memory"
    if code < 0:
        return f"was killed ({signal.Signals(-code).name})"
    return f"has ended with code {code}"


def not_started(code: int, lines: Sequence[str]) -> Exception:
    """Why a JVM has not started.

    Args:
        code: with which it has ended; negative: the signal.
        lines: what it has printed.
    """
    why = _why(lines) or f"it has ended with code {code}"
    if code < 0 or code > 128 or _AWAY.search(why):
        return Unavailable(why)
    return UserFunctionError(why) if _NO_MEMORY.search(why) else FailsAgain(why)


def _why(lines: Sequence[str]) -> str:
    """The line that says why."""
    for line in lines:
        if (found := _IN_MAIN.match(line)) is not None:
            return found["what"]
    said = [each for each in lines if each.strip() and not each.startswith(_SAYS_NOTHING)]
    return said[0] if said else ""


def _arguments(settings: Mapping[str, str]) -> list[str]:
    """The arguments of `spark-submit`."""
    given = [f"--conf={key}={value}" for key, value in settings.items()]
    return given + shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))


def _spark_home() -> Path:
    if named := os.environ.get("SPARK_HOME"):
        return Path(named)
    import pyspark

    return Path(pyspark.__file__).parent


def _read_address(answer: Path) -> JvmAddress:
    """A port and a text with its length, as the JVM writes them."""
    data = answer.read_bytes()
    port, length = struct.unpack_from("!ii", data)
    return JvmAddress(port, data[8 : 8 + length].decode())
