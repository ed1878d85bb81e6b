"""Several worker processes under one parent: Python has one interpreter lock, so CPU parallelism
comes from processes. A worker that dies is started again, with a growing wait if it keeps dying,
unless it says that this cannot help. Workers die with the supervisor, even if it is killed. The
system ties them to the thread that started them, so one thread starts, watches and ends them.

Each process writes a flight recorder that the supervisor holds. When one has died by itself inside
user code, what that worked on is logged and reported to the cluster at once (`exit_examiner`),
while the other processes are looked after as before: nobody waits for one that is started again
later. How each has ended is logged and reported too, with the memory that it held.

At a metrics port that was chosen the supervisor answers for several (`telemetry.processes`); each
listens on a socket that the supervisor opens and keeps, so that it is where it was after a restart.
A single one takes the port itself. At port 0, on a laptop, each takes a port of its own and
announces it.
"""

from __future__ import annotations

import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from onyx.base.on_demand import OnDemand
from onyx.errors import (
    InvariantViolated,
    LogReplaced,
    OnyxError,
    OutOfMemory,
    SettingsError,
    describe,
)
from onyx.ids import JobId, TaskName
from onyx.processes import exit_examiner
from onyx.processes.child import (
    RESTART_BACK_OFF_S,
    Listeners,
    SupervisedWorker,
    worker_environment,
    worker_launcher,
)
from onyx.processes.ends import FINAL, ExitCode
from onyx.processes.exit_examiner import ExitExaminer
from onyx.processes.forking import Launcher
from onyx.processes.programs import Process
from onyx.processes.running import STOP_MARGIN_S
from onyx.reports.outcomes import TaskTotals
from onyx.serving.listening import OF_WORKERS, listener_at
from onyx.settings import Settings, TelemetrySettings
from onyx.telemetry.kept_counts import summed
from onyx.transport.ports import check_enough

if TYPE_CHECKING:
    from onyx.telemetry.collectors import MemoryKillsCollector
    from onyx.telemetry.http_server import TelemetryServer
    from onyx.telemetry.processes import ProcessPages


logger = logging.getLogger("onyx.supervisor")

RESTART_BACK_OFF_MAX_S = 10.0
THAWING_S = 1.0
"""SIGCONT is repeated to workers for so long: one may be about to freeze."""
SAID_AFTER_S = 1.0


class Supervisor:
    """One child a number of peers in `peers`."""

    def __init__(
        self, settings: Settings, peers: Sequence[int], launcher: Launcher | None = None
    ) -> None:
        """
        Args:
            settings: of the processes.
            peers: of each.
            launcher: what starts them; None: one of its own.
        """
        self._settings = settings
        self._peers = peers
        self._launcher = launcher
        self._own_launcher: Launcher | None = None
        self._children: list[SupervisedWorker] = []
        self._examiner = ExitExaminer(settings)
        self._pages = Pages(settings.telemetry, len(peers), self._is_running)
        self._http: socket.socket | None = None
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
            Unavailable: the endpoint's port is taken, or that for requests.
            SettingsError: there are fewer ports than processes.
        """
        check_enough(self._settings.transport, len(self._peers))
        self._pages.open()
        http = self._settings.http
        if http.port is not None:
            # All processes accept from it, and a client finds it open while one starts again.
            self._http = listener_at(http.bind_host, http.port, OF_WORKERS)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGCONT, lambda *_: self._thaw())
        self._thread.start()
        self._started.wait()

    @property
    def peers(self) -> int:
        """How many peers the processes offer."""
        return sum(self._peers)

    @property
    def http_port(self) -> int | None:
        """Where requests over HTTP are taken; None: nowhere."""
        return None if self._http is None else int(self._http.getsockname()[1])

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

    @property
    def pids(self) -> list[int]:
        """Numbers of the processes that run now."""
        return [each.process.pid for each in self._children if each.process and each.is_running]

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
        self._examiner.close()
        self._pages.close()
        if self._http is not None:
            self._http.close()
        return self._left

    def _thaw(self) -> None:
        """Whoever has frozen this process has frozen its workers (`worker_process`)."""
        self._thawing_until_s = time.monotonic() + THAWING_S

    def _is_running(self, number: int) -> bool:
        # Whether it has ended is asked by one thread, which learns how much memory it held.
        return number < len(self._children) and self._children[number].is_running

    def _end(self) -> None:
        for process in self._processes:
            process.terminate()
        now_s = time.monotonic()
        says_s, ends_s = now_s + SAID_AFTER_S, now_s + self._patience_s
        while (left := self._running()) and time.monotonic() < ends_s:
            if time.monotonic() >= says_s:
                says_s = ends_s
                self._say(_waits_for(left, ends_s - time.monotonic()))
            left[0].pause(0.02)
        for process in self._processes:
            process.kill()
            self._left &= process.wait() == ExitCode.SUCCESS
        for child in self._children:
            child.forget()
        if self._own_launcher is not None:
            self._own_launcher.close()

    def _running(self) -> list[SupervisedWorker]:
        return [each for each in self._children if each.process and each.process.poll() is None]

    @property
    def _processes(self) -> list[Process]:
        return [each.process for each in self._children if each.process is not None]

    def _watch(self) -> None:
        try:
            self._look_after_all()
        except Exception as error:
            logger.exception("a bug in Onyx: please report it")
            self._failure = InvariantViolated(f"the supervisor has ended: {describe(error)}")
            self._started.set()
            self._end()

    def _look_after_all(self) -> None:
        environment = worker_environment(self._settings)
        launcher = self._launcher
        if launcher is None:
            launcher = self._own_launcher = worker_launcher(self._settings)
        lost = self._examiner.left_behind()
        for number, peers in enumerate(self._peers):
            listener = self._pages.listeners[number]
            self._children.append(
                SupervisedWorker(
                    number,
                    peers,
                    Listeners(listener, self._http),
                    environment,
                    launcher,
                    self._settings.supervisor.recorder_folder,
                )
            )
        if lost:
            self._examiner.report(self._children[0], lost)
        self._started.set()
        for child in self._children:
            child.start()
        while self.failure is None and not self._stopping.wait(0.1):
            for child in self._children:
                if child.process and time.monotonic() < self._thawing_until_s:
                    child.process.send_signal(signal.SIGCONT)
                self._look_after(child)
            self._look_after_memory()
        self._end()

    def _look_after_memory(self) -> None:
        too_many = self._examiner.look_at_others()
        if too_many:
            self._failure = OutOfMemory(too_many)

    def _look_after(self, child: SupervisedWorker) -> None:
        if child.restart_s is not None:
            if time.monotonic() >= child.restart_s:
                child.start()
            return
        if child.process is None or child.process.poll() is None:
            return
        assert child.process.ended is not None
        code, memory_bytes = child.process.ended
        if code in FINAL and child.recorder.orderly() == code:
            self._final = code
            return
        lived_s = time.monotonic() - child.started_s
        if lived_s >= exit_examiner.LIVED_LONG_S:
            child.back_off_s = RESTART_BACK_OFF_S
        logger.warning(
            "worker process %d ended with %s; it is started again in %.1f s",
            child.number,
            self._examiner.examine(child, code, memory_bytes, lived_s),
            child.back_off_s,
        )
        child.restart_s = time.monotonic() + child.back_off_s
        child.back_off_s = min(child.back_off_s * 2, RESTART_BACK_OFF_MAX_S)


def dealt(peers: int, processes: int) -> list[int]:
    """How many peers each process offers, as evenly as possible; one without any is left out."""
    each, more = divmod(peers, processes)
    return [count for index in range(processes) if (count := each + (index < more))]


def _waits_for(children: Sequence[SupervisedWorker], patience_s: float) -> str:
    """What keeps workers from leaving."""
    inside = [each for child in children for each in child.recorder.deaths()]
    what = f": {exit_examiner.described(inside)} has not come back" if inside else ""
    workers = "a worker process" if len(children) == 1 else f"{len(children)} worker processes"
    return f"waiting for {workers} to leave{what}; killed in {patience_s:.0f} s"


_SERVER: OnDemand[type[TelemetryServer]] = OnDemand("onyx.telemetry.http_server:TelemetryServer")
_PAGES: OnDemand[type[ProcessPages]] = OnDemand("onyx.telemetry.processes:ProcessPages")
_KILLS: OnDemand[type[MemoryKillsCollector]] = OnDemand(
    "onyx.telemetry.collectors:MemoryKillsCollector"
)


class Pages:
    """The endpoint of so many processes; `is_running` says whether one of them runs."""

    def __init__(
        self, settings: TelemetrySettings, processes: int, is_running: Callable[[int], bool]
    ) -> None:
        self.listeners: Sequence[socket.socket | None] = [None] * processes
        """Where each process listens; None: it chooses."""
        self._settings = settings
        self._is_running = is_running
        self._server: TelemetryServer | None = None

    def open(self) -> None:
        """Serve, if there is something to serve.

        Raises:
            Unavailable: the port is taken.
        """
        settings = self._settings
        if not settings.metrics_port or len(self.listeners) < 2:
            return
        opened = [socket.create_server(("127.0.0.1", 0)) for _ in self.listeners]
        ports = [each.getsockname()[1] for each in opened]
        pages = _PAGES.load()(ports, self._is_running, _KILLS.load()())
        self._server = _SERVER.load()(
            settings.metrics_host,
            settings.metrics_port,
            pages.registry,
            pages.healthy,
            pages.ready,
            lag=pages.lag,
        )
        self.listeners = opened

    def close(self) -> None:
        """Close the endpoint."""
        if self._server is not None:
            self._server.close()
