"""Several worker processes under one parent: Python has one interpreter lock, so CPU parallelism
comes from processes. A worker that dies is started again, with a growing wait if it keeps dying,
unless it says that this cannot help. Workers die with the supervisor, even if it is killed. The
system ties them to the thread that started them, so one thread starts, watches and ends them.

At a metrics port that was chosen the supervisor answers for several (`telemetry.processes`); each
listens on a socket that the supervisor opens and keeps, so that it is where it was after a restart.
A single one takes the port itself. At port 0, on a laptop, each takes a port of its own and
announces it.

Each process writes a flight recorder that the supervisor holds. When one has died by itself inside
user code, what that worked on is logged and reported to the cluster at once (`obituaries`), while
the other processes are looked after as before: nobody waits for one that is started again later.
How each has ended is logged and reported too, with the memory that it held (`deaths`).
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onyx import recorder
from onyx.cli.exit_codes import FINAL, ExitCode
from onyx.cli.processes import losses
from onyx.cli.processes.deaths import DeathWatch
from onyx.cli.processes.obituaries import Obituaries
from onyx.errors import (
    InvariantViolated,
    LogReplaced,
    OnyxError,
    OutOfMemory,
    SettingsError,
    describe,
)
from onyx.ids import JobId, TaskName
from onyx.log.server.parent import end_with_parent
from onyx.outcomes import TaskTotals
from onyx.recorder import Recorder
from onyx.seams import SystemClock
from onyx.settings import Settings, to_environment
from onyx.telemetry.http_server import TelemetryServer
from onyx.telemetry.kept_counts import summed
from onyx.telemetry.memory_kills import MemoryKills, MemoryKillsCollector
from onyx.telemetry.processes import ProcessPages

logger = logging.getLogger("onyx.supervisor")

RESTART_BACK_OFF_S = 0.5
RESTART_BACK_OFF_MAX_S = 10.0
THAWING_S = 1.0
"""SIGCONT is repeated to workers for so long: one may be about to freeze."""
_RSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1_024
SAID_AFTER_S = 1.0
STOP_MARGIN_S = 5.0
"""Beyond the time that a worker has for leaving."""


@dataclass(slots=True)
class _Child:
    number: int
    peers: int
    listener: socket.socket | None
    recorder_fd: int
    recorder: Recorder
    process: subprocess.Popen[bytes]
    started_s: float
    back_off_s: float = RESTART_BACK_OFF_S
    restart_s: float | None = None
    """When it is started again; None while it runs."""


class Supervisor:
    """One child a number of peers in `peers`."""

    def __init__(self, settings: Settings, peers: Sequence[int]) -> None:
        self._settings = settings
        self._environment = {**os.environ, **to_environment(settings)}
        self._environment.setdefault("OPENBLAS_NUM_THREADS", "1")
        self._environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        self._peers = peers
        self._children: list[_Child] = []
        self._obituaries = Obituaries(settings)
        self._deaths = DeathWatch(
            MemoryKills(), SystemClock(), settings.supervisor, socket.gethostname()
        )
        self._listeners: list[socket.socket | None] = [None] * len(peers)
        self._pages: TelemetryServer | None = None
        self._final: int | None = None
        self._failure: OnyxError | None = None
        self._left = True
        self._patience_s = settings.leave_timeout_s + STOP_MARGIN_S
        self._say: Callable[[str], None] = logger.info
        self._thawing_until_s = 0.0
        self._started = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="onyx-supervisor", daemon=True)

    def start(self) -> None:
        """Start the processes and the endpoint.

        Raises:
            Unavailable: the endpoint's port is taken.
        """
        telemetry = self._settings.telemetry
        if telemetry.metrics_port and len(self._peers) > 1:
            opened = [socket.create_server(("127.0.0.1", 0)) for _ in self._peers]
            ports = [each.getsockname()[1] for each in opened]
            pages = ProcessPages(ports, self._is_running, MemoryKillsCollector())
            self._pages = TelemetryServer(
                telemetry.metrics_host,
                telemetry.metrics_port,
                pages.registry,
                pages.healthy,
                pages.ready,
            )
            self._listeners = [*opened]
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGCONT, lambda *_: self._thaw())
        self._thread.start()
        self._started.wait()

    @property
    def failure(self) -> OnyxError | None:
        """Why no process runs any more; None while they run or are started again."""
        if self._final is None:
            return self._failure
        kind = LogReplaced if self._final == ExitCode.LOG_REPLACED else SettingsError
        return kind(
            f"a worker process ended with code {self._final}, which starting it again does not "
            "mend; its message is above"
        )

    def totals(self, job: JobId, tasks: Sequence[str]) -> dict[str, TaskTotals]:
        """What the tasks of a job have done in all processes, those that have ended included."""
        keys = [(job, TaskName(task)) for task in tasks]
        found = summed([child.recorder.counts for child in self._children], keys)
        return {task: totals for (_, task), totals in found.items()}

    def stop(
        self, patience_s: float | None = None, say: Callable[[str], None] | None = None
    ) -> bool:
        """Ask every child to leave the cluster; kill what does not in time. False when one did not
        leave in an orderly way.

        Args:
            patience_s: how long to wait; what a worker may take for leaving, if None.
            say: is told what this waits for, if it takes more than a second.
        """
        if patience_s is not None:
            self._patience_s = patience_s
        if say is not None:
            self._say = say
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._obituaries.close()
        if self._pages is not None:
            self._pages.close()
        return self._left

    def _thaw(self) -> None:
        """Whoever has frozen this process has frozen its workers (`freezing`)."""
        self._thawing_until_s = time.monotonic() + THAWING_S

    def _is_running(self, number: int) -> bool:
        # Whether it has ended is asked by one thread, which learns how much memory it held.
        return number < len(self._children) and self._children[number].process.returncode is None

    def _end(self) -> None:
        for child in self._children:
            child.process.terminate()
        now_s = time.monotonic()
        says_s, ends_s = now_s + SAID_AFTER_S, now_s + self._patience_s
        while (left := self._running()) and time.monotonic() < ends_s:
            if time.monotonic() >= says_s:
                says_s = ends_s
                self._say(_waits_for(left, ends_s - time.monotonic()))
            time.sleep(0.02)
        for child in self._children:
            if child.process.poll() is None:
                child.process.kill()
            self._left &= child.process.wait() == ExitCode.SUCCESS

    def _running(self) -> list[_Child]:
        return [child for child in self._children if child.process.poll() is None]

    def _spawn(
        self, peers: int, listener: socket.socket | None, recorder_fd: int
    ) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "onyx.cli", "worker"]
        command += ["--peers", str(peers), "--processes", "1"]
        command += ["--recorder", str(recorder_fd)]
        handed_over: tuple[int, ...] = (recorder_fd,)
        if listener is not None:
            handed_over += (listener.fileno(),)
            command += ["--telemetry-socket", str(listener.fileno())]
        return subprocess.Popen(
            command,
            env=self._environment,
            start_new_session=True,
            pass_fds=handed_over,
            preexec_fn=end_with_parent(),
        )

    def _watch(self) -> None:
        try:
            self._look_after_all()
        except Exception as error:
            logger.exception("a bug in Onyx: please report it")
            self._failure = InvariantViolated(f"the supervisor has ended: {describe(error)}")
            self._started.set()
            self._end()

    def _look_after_all(self) -> None:
        for number, peers in enumerate(self._peers):
            listener = self._listeners[number]
            descriptor = recorder.create()
            process = self._spawn(peers, listener, descriptor)
            made = Recorder(descriptor, SystemClock())
            now_s = time.monotonic()
            self._children.append(_Child(number, peers, listener, descriptor, made, process, now_s))
        self._started.set()
        while self.failure is None and not self._stopping.wait(0.1):
            for child in self._children:
                if time.monotonic() < self._thawing_until_s:
                    child.process.send_signal(signal.SIGCONT)
                self._look_after(child)
            self._look_after_memory()
        self._end()

    def _look_after_memory(self) -> None:
        for death in self._deaths.others():
            logger.warning(
                "a process of this container was killed that is no worker process, such as a JVM "
                "of Spark: %s",
                self._deaths.explained(death),
            )
            self._obituaries.announce(death)
        too_many = self._deaths.too_many()
        if too_many:
            self._failure = OutOfMemory(too_many)

    def _look_after(self, child: _Child) -> None:
        if child.restart_s is not None:
            if time.monotonic() >= child.restart_s:
                child.process = self._spawn(child.peers, child.listener, child.recorder_fd)
                child.started_s, child.restart_s = time.monotonic(), None
            return
        ended = _ended(child.process)
        if ended is None:
            return
        code, memory_bytes = ended
        if code in FINAL and child.recorder.orderly() == code:
            self._final = code
            return
        lived_s = time.monotonic() - child.started_s
        if lived_s >= losses.LIVED_LONG_S:
            child.back_off_s = RESTART_BACK_OFF_S
        logger.warning(
            "worker process %d ended with %s; it is started again in %.1f s",
            child.number,
            self._examine(child, code, memory_bytes, lived_s),
            child.back_off_s,
        )
        child.restart_s = time.monotonic() + child.back_off_s
        child.back_off_s = min(child.back_off_s * 2, RESTART_BACK_OFF_MAX_S)

    def _examine(self, child: _Child, code: int, memory_bytes: int, lived_s: float) -> str:
        """How a process ended, in words, reported to the cluster. What it was doing when it died by
        itself is left to the next one to report as well, which is there as long as nobody has heard
        of it."""
        inside, orderly = child.recorder.deaths(), child.recorder.orderly() == code
        by_itself = losses.by_itself(code, child.recorder)
        child.recorder.clear()
        words = losses.described(inside)
        jobs = child.recorder.jobs()
        death = self._deaths.died(child.number, code, memory_bytes, words, jobs)
        if not orderly:
            self._obituaries.announce(death)
        if by_itself and inside:
            lost = losses.reports(inside, lived_s)
            losses.hand_over(child.recorder, lost)
            self._obituaries.publish(lost)
        where = f" inside user code: {words}" if inside and not orderly else ""
        return f"{self._deaths.explained(death)}{where}"


def _ended(process: subprocess.Popen[bytes]) -> tuple[int, int] | None:
    """Exit code, and most memory that it held in bytes; None while it runs."""
    if process.returncode is None:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid == 0:
            return None
        process.returncode = os.waitstatus_to_exitcode(status)
        return process.returncode, usage.ru_maxrss * _RSS_UNIT_BYTES
    return process.returncode, 0


def _waits_for(children: Sequence[_Child], patience_s: float) -> str:
    """What keeps workers from leaving."""
    inside = [each for child in children for each in child.recorder.deaths()]
    what = f": {losses.described(inside)} has not come back" if inside else ""
    workers = "a worker process" if len(children) == 1 else f"{len(children)} worker processes"
    return f"waiting for {workers} to leave{what}; killed in {patience_s:.0f} s"
