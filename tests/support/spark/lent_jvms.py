"""JVMs of Spark that are lent, one after the other, to whatever processes of a run of tests ask.

A JVM takes 4 s of CPU until it has a session, and as much again until it has loaded and compiled
what a first query needs. Nearly all tests use Spark and do not test how a JVM starts or dies. So
`SPARK_HOME` of a run names a folder whose `spark-submit` borrows a JVM that runs: it gets the
settings, the environment and the place for the answer that the real one would get, and its
`SparkContext` is a new one. When the borrower ends or is killed, the context is stopped at once;
and if a job of Spark runs then, the JVM is killed, as one that is not lent would be.

Each JVM has a *lender*: a process that has started it, listens at a socket in the folder, and ends
with the run, however that ends, because it reads a pipe that only processes of pytest hold open.
Beside it is a process that forks Spark's Python workers: `python_workers`.

What a JVM that runs cannot have is asked of the real `spark-submit`: another master than a local
one, another heap, jars, flags, another folder to run in. Tests that look at the process of a JVM
have the fixture `own_jvms`.

Rejected: one session for each process of pytest. Children of workers and queries have sessions of
their own, and there are more of these. A pool of JVMs that have not been used yet: they save time,
and no CPU.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import selectors
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

LIFE = "life"
"""The pipe that processes of pytest hold open."""
LENT_MAX = 60
"""Times that a JVM is lent: what contexts leave in its heap is bounded."""
REQUEST_BYTES_MAX = 1 << 20
ROOT = Path(__file__).parents[3]
BORROW = Path(__file__).with_name("borrow_jvm.py")
WORKERS = Path(__file__).with_name("python_workers.py")
DAEMON = Path(__file__).parent / "daemon" / "forked_daemon.py"
PLACE = "ONYX_TEST_PYTHON_WORKERS"
"""Variable with the socket of what forks Python workers."""
_SETTINGS = {
    "spark.master": "local[1]",
    "spark.app.name": "lent",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_OF_ONE_USE = ("TMPDIR", "PYTHONPATH", "_PYSPARK_DRIVER_CONN_INFO_PATH", "SPARK_LOCAL_DIRS")
_OBJECT = re.compile(r"o\d+")
"""The name that Py4J gives to an object."""
_PROPERTY = re.compile(r"-D([^=]+)=(.*)")


_folder: Path | None = None
"""Of this run."""


@contextlib.contextmanager
def lending(folder: Path) -> Iterator[Path]:
    """A home of Spark that lends JVMs as long as this lasts, here or in another process; no JVM
    starts before one is asked for.

    Args:
        folder: shared by all processes of the run.
    """
    global _folder
    _folder = folder
    folder.mkdir(exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkfifo(folder / LIFE)
    life = os.open(folder / LIFE, os.O_RDWR)  # which, unlike to write, waits for nobody
    yield _home(folder)
    os.close(life)


def used_s() -> float:
    """CPU seconds that JVMs have used for this process of pytest and those that it has started."""
    if _folder is None:
        return 0.0
    return sum(float(each.read_text()) for each in _folder.glob(f"*.{_worker(os.environ)}.cpu"))


def _worker(environment: Mapping[str, str]) -> str:
    return environment.get("PYTEST_XDIST_WORKER", "alone")


def _home(folder: Path) -> Path:
    """As PySpark's own, with another `spark-submit`."""
    found = importlib.util.find_spec("pyspark")  # which takes a second to import
    assert found is not None
    real = Path(str(found.origin)).parent
    home = folder / f"spark-{os.getpid()}"
    (home / "bin").mkdir(parents=True)
    for each in real.iterdir():
        if each.name != "bin":
            (home / each.name).symlink_to(each)
    for each in (real / "bin").iterdir():
        if each.name != "spark-submit":
            (home / "bin" / each.name).symlink_to(each)
    submit = home / "bin" / "spark-submit"
    submit.write_text(
        f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -IS {shlex.quote(str(BORROW))} "
        f'{shlex.quote(str(folder))} {shlex.quote(str(real))} "$@"\n'
    )
    submit.chmod(0o700)
    return home


class Lender:
    """Starts one JVM and lends it."""

    def __init__(self, place: Path, real: Path) -> None:
        """
        Args:
            place: of its socket, beside which its log is.
            real: home of Spark.
        """
        self._place = place
        self._real = real
        self._events = selectors.DefaultSelector()
        self._borrower: socket.socket | None = None
        self._lent = 0
        self._charged_s = 0.0
        self._environment = {k: v for k, v in os.environ.items() if k not in _OF_ONE_USE}

    def serve(self) -> None:
        """Until the run ends, or the JVM does."""
        ends = os.open(self._place.with_name(LIFE), os.O_RDONLY | os.O_NONBLOCK)
        with contextlib.suppress(BlockingIOError):  # as long as somebody holds it
            os.read(ends, 1)
            return  # it has ended already, of which nobody would be told
        self._start()
        try:
            listener = socket.socket(socket.AF_UNIX)
            new = self._place.with_suffix(".new")
            listener.bind(str(new))
            listener.listen()
            new.rename(self._place)
            watched = (listener, ends, os.pidfd_open(self._jvm.pid))
            for each in watched:
                self._events.register(each, selectors.EVENT_READ)
            while self._lent < LENT_MAX or self._borrower is not None:
                ready = [key.fileobj for key, _ in self._events.select()]
                if any(each in ready for each in watched[1:]):
                    return
                if self._borrower in ready and not self._taken_back():
                    return
                if listener in ready:
                    self._answer(listener.accept()[0])
        finally:
            self._place.unlink(missing_ok=True)
            self._jvm.kill()
            self._workers.kill()

    def _start(self) -> None:
        from py4j.java_gateway import GatewayParameters, JavaGateway

        from onyx.base.parent import end_with_parent
        from onyx.spark.session.jvm import Jvm

        os.environ.clear()
        os.environ.update(self._environment | {"SPARK_HOME": str(self._real)})
        workers = self._place.with_suffix(".py")
        self._workers = subprocess.Popen(
            [sys.executable, WORKERS, workers],
            preexec_fn=end_with_parent(),
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # else it has threads
        )
        jvm = Jvm(_SETTINGS)
        self._jvm, (self._port, self._secret) = jvm.process, jvm.address()
        self._gateway: Any = JavaGateway(
            gateway_parameters=GatewayParameters(port=self._port, auth_token=self._secret)
        )
        java = self._gateway.jvm.java.lang
        self._properties = dict(java.System.getProperties()) | {
            "spark.python.daemon.module": DAEMON.stem
        }
        while not workers.exists():
            assert self._workers.poll() is None
            time.sleep(0.05)

    def _answer(self, borrower: socket.socket) -> None:
        if self._borrower is not None:
            borrower.close()
            return
        with contextlib.suppress(OSError, ValueError):  # whoever asked may be gone
            asked = json.loads(_line(borrower))
            environment = asked["environment"] | {PLACE: str(self._place.with_suffix(".py"))}
            environment["PYTHONPATH"] += f"{os.pathsep}{DAEMON.parent}"
            self._prepare(environment, asked["settings"])
            borrower.sendall(json.dumps([self._port, self._secret]).encode() + b"\n")
        self._lent += 1
        self._borrower = borrower
        self._events.register(borrower, selectors.EVENT_READ)

    def _taken_back(self) -> bool:
        """Whether the JVM is as new: its borrower has left no job of Spark in it."""
        assert self._borrower is not None
        self._events.unregister(self._borrower)
        self._borrower.close()
        self._borrower = None
        jvm = self._gateway.jvm
        companion = jvm.java.lang.Class.forName("org.apache.spark.SparkContext$")
        active = companion.getField("MODULE$").get(None).getActive()
        if active.isDefined():
            if len(active.get().statusTracker().getActiveJobIds()):
                self._charge()
                return False
            active.get().stop()
        self._charge()
        sessions = jvm.org.apache.spark.sql.classic.SparkSession
        sessions.clearActiveSession()
        sessions.clearDefaultSession()
        # Spark keeps where the first context of a JVM had its files, and that folder may be gone.
        utils = jvm.java.lang.Class.forName("org.apache.spark.util.Utils$")
        utils = utils.getField("MODULE$").get(None)
        utils.clearLocalRootDirs()
        getattr(utils, "cachedLocalDir_$eq")("")
        # What the borrower had references to stays otherwise: it had no time to give them back.
        objects = self._gateway.java_gateway_server.getGateway().getBindings().keySet()
        kept = jvm.java.util.HashSet()
        for name in str(objects.toString()).strip("[]").split(", "):
            if not _OBJECT.fullmatch(name):
                kept.add(name)
        objects.retainAll(kept)
        return True

    def _charge(self) -> None:
        """Note what was used since the last time, for whoever adds up costs."""
        used_s = _cpu_s(self._jvm.pid) + _cpu_s(self._workers.pid)
        target = self._place.with_suffix(f".{_worker(self._environment)}.cpu")
        before_s = float(target.read_text()) if target.exists() else 0.0
        target.with_suffix(".new").write_text(f"{before_s + used_s - self._charged_s}")
        target.with_suffix(".new").rename(target)
        self._charged_s = used_s

    def _prepare(self, environment: Mapping[str, str], settings: Mapping[str, str]) -> None:
        """As a JVM that begins with an environment, and with settings by `spark-submit`."""
        jvm = self._gateway.jvm
        variables = _modifiable(jvm)
        for name in self._environment.keys() - environment.keys():
            variables.remove(name)
        for name, value in environment.items():
            if self._environment.get(name) != value:
                variables.put(name, value)
        self._environment = dict(environment)
        properties = jvm.java.lang.System.getProperties()
        wanted = self._properties | settings | dict(_properties_of(settings))
        for name in [each for each in properties if each not in wanted]:
            properties.remove(name)
        for name, value in wanted.items():
            if properties.get(name) != value:
                properties.put(name, value)


def _cpu_s(pid: int) -> float:
    """Of a process that runs, and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _modifiable(jvm: Any) -> Any:
    """The environment of a JVM, of which `getenv` shows a view that cannot be modified."""
    field = jvm.java.lang.Class.forName("java.util.Collections$UnmodifiableMap")
    field = field.getDeclaredField("m")
    field.setAccessible(True)
    return field.get(jvm.java.lang.System.getenv())


def _properties_of(settings: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for option in shlex.split(settings.get("spark.driver.extraJavaOptions", "")):
        if (found := _PROPERTY.fullmatch(option)) is not None:
            yield found[1], found[2]


def _line(connection: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n") and len(data) < REQUEST_BYTES_MAX:
        if not (more := connection.recv(65_536)):
            break
        data += more
    return data


def main(folder: Path, real: Path, name: str) -> None:
    Lender(folder / f"{name}.jvm", real).serve()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
