"""Spark's own servers, as PySpark's scripts start them: Spark Connect, a master and its workers."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyspark
from tests.support.servers.ports import free_port
from tests.support.servers.spark_archive import jvm_options

from onyx.java import java_home_for_spark

START_WAIT_S = 300.0
_LIBC, _PR_SET_PDEATHSIG = ctypes.CDLL(None), 1
HOME = Path(pyspark.__file__).parent


class SparkServer:
    """One process that listens on a port of this machine, with all that it starts."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        port: int,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """`variables`: of its environment, beside those of this process."""
        self.port = port
        self._variables = variables or {}
        self._folder = folder
        self._command = command
        self.start()

    def start(self) -> None:
        """Start it, again if it was killed, and wait until its port is open."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._log = self._folder / "log.txt"
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env={**_environment(self._folder), **self._variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=lambda: _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),
            )
        until_s = time.monotonic() + START_WAIT_S
        while not _is_open(self.port):
            ended = self._process.poll() is not None
            if ended or time.monotonic() > until_s:
                self.kill()
                raise AssertionError(
                    f"no port after all; its log:\n{self._log.read_text()[-4000:]}"
                )
            time.sleep(0.2)

    def executors(self) -> list[int]:
        """Process ids of its executors that are processes of their own."""
        found: list[int] = []
        for each in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                ours = os.getpgid(int(each.name)) == self._process.pid
                if ours and b"CoarseGrainedExecutorBackend" in (each / "cmdline").read_bytes():
                    found.append(int(each.name))
        return found

    def kill(self) -> None:
        """At once, and wait until it is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def connect_server(folder: Path, runs_at: str = "local[1]", **variables: str) -> SparkServer:
    """What `sbin/start-connect-server.sh` starts.

    Args:
        runs_at: its own master.
        variables: see `SparkServer`.
    """
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": jvm_options(),
    }
    options = [each for key, value in settings.items() for each in ("--conf", f"{key}={value}")]
    home = Path(variables.get("SPARK_HOME", HOME))
    script = str(home / "sbin" / "start-connect-server.sh")
    memory = ["--master", runs_at, "--driver-memory", "600m"]
    return SparkServer([script, *memory, *options], folder, port, variables)


def connect_server_with_executors(folder: Path, **variables: str) -> SparkServer:
    """The same with two executors, which are processes with folders of their own. They would make
    these in Spark's home, so that is another one."""
    home = folder / "home"
    home.mkdir(parents=True)
    for each in HOME.iterdir():
        (home / each.name).symlink_to(each)
    return connect_server(folder, "local-cluster[2,1,512]", SPARK_HOME=str(home), **variables)


def master(folder: Path) -> SparkServer:
    port = free_port()
    arguments = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port())]
    return SparkServer(_spark_class("master.Master", arguments), folder, port)


def worker(folder: Path, of: SparkServer) -> SparkServer:
    """A worker of a master, with one core."""
    port = free_port()
    arguments = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port())]
    arguments += ["--cores", "1", "--memory", "600m", "--work-dir", str(folder / "work")]
    command = _spark_class("worker.Worker", [*arguments, f"spark://127.0.0.1:{of.port}"])
    return SparkServer(command, folder, port)


def _spark_class(name: str, arguments: Sequence[str]) -> list[str]:
    small = ["env", "SPARK_DAEMON_MEMORY=256m", f"SPARK_DAEMON_JAVA_OPTS={jvm_options()}"]
    return [
        *small,
        str(HOME / "bin" / "spark-class"),
        f"org.apache.spark.deploy.{name}",
        *arguments,
    ]


def _environment(folder: Path) -> Mapping[str, str]:
    return {
        **{key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        "JAVA_HOME": str(java_home_for_spark()),
        "SPARK_HOME": str(HOME),
        "SPARK_LOG_DIR": str(folder),
        "SPARK_PID_DIR": str(folder),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "PYSPARK_PYTHON": sys.executable,
    }


def _is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True
