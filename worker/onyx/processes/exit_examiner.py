"""How a worker process has died: what it was doing, what the kernel and the exit code say of it,
who hears of it.

A death by SIGKILL is one for want of memory if the kernel has counted such a kill
(`ContainerMemory`) for which there is no other death yet. A kill that nobody of ours has died of,
some time later, was of another process of the container, mostly a JVM of Spark's.

Deaths for want of memory in quick succession end the supervisor, but for those over one segment,
which is not tried for ever. What has too little memory goes on
having too little; as long as the supervisor starts it again, its container looks healthy. With the
end of the container there are restarts, the reason OOMKilled, back-off and alerts.

**Reports.** The segments over which a process has died are replayed to others when its session has
expired. They have to know by then that these are suspects, or the next process dies over a whole
batch as well. The successor of the dead process comes too late for that: it waits for its turn,
starts, loads what the user names and connects. The supervisor has seen the death at once, and to
write an entry takes it some tenths of a second.

A report that could not be written is made by the successor. It makes all others again as well,
because only who reads the log knows that they are there: a report that comes twice counts once.

Rejected: the session of the dead process, taken over to hold the replay back. Who connects in time
for that can as well write the entry in time.

**Containers.** Where the kernel ends a whole container, supervisor included, the next supervisor in
its place reads the recorders that are left. All processes have died at once, so one segment is
guilty for certain only if nobody else was in user code in any of them.

**Segments.** The flight recorder of a process says what it was doing. A process that others have
ended (SIGTERM) says nothing, and neither does one that has ended in an orderly way. Other ends are
its own: an exit code, or a signal that a process brings about itself. Then whoever was in user code
is to blame: one task with one segment for certain, several only perhaps; tasks of one job over no
segments are all its own. SIGKILL is in between: the kernel sends it for want of memory, mostly to
the guilty one, and others may have sent it. It is reported as a kill (`ReportLoss.killed`), over
no segments only if the kernel has counted it. Segments without positions (at-most-once) do not come
again, so they are named in the log and no more.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import secrets
import signal
import socket
import threading
from collections import deque
from collections.abc import Sequence

import msgspec

from onyx.base.seams import Clock, SystemClock
from onyx.errors import OnyxError
from onyx.ids import JobId, TaskName
from onyx.peer.loss_reports import pending
from onyx.processes.child import SupervisedWorker
from onyx.processes.programs import how
from onyx.replica.commands import ReportLoss
from onyx.reports.deaths import Death, DeathCause, mebibytes
from onyx.settings import Settings, SupervisorSettings
from onyx.telemetry.container import ContainerMemory
from onyx.telemetry.recorder import LOSSES_BYTES_MAX, Inside, Recorder, left_in, runs

logger = logging.getLogger("onyx.supervisor")
OTHERS_AFTER_S = 10.0
"""A process of ours that was killed has died by then: it takes time to free its memory."""


class ExitExaminer:
    """Examines the ends of worker processes under one supervisor, by whose thread alone it is used,
    except for `close`."""

    def __init__(self, settings: Settings) -> None:
        self._reporter = DeathReporter(settings)
        self._folder = settings.supervisor.recorder_folder
        self._deaths = DeathWatch(
            ContainerMemory(), SystemClock(), settings.supervisor, socket.gethostname()
        )

    def close(self) -> None:
        """Report what is not reported yet, and end."""
        self._reporter.close()

    def left_behind(self) -> list[ReportLoss]:
        """What to report of processes that were ended together with the supervisor before this
        one; `report` does."""
        lost, inside = list[ReportLoss](), list[Inside]()
        try:
            for descriptor in left_in(self._folder) if self._folder else ():
                former = Recorder(descriptor, SystemClock())
                lost += left(former)
                if former.orderly() is None:
                    inside += [each for each in former.deaths() if each.over_segments]
        except OSError as error:
            logger.warning("what is left in %s cannot be read: %s", self._folder, error)
        if inside:
            logger.warning(
                "the worker was ended with its supervisor, as for want of memory in its container, "
                "inside user code: %s",
                described(inside),
            )
        return lost + reports(inside, 0.0, killed=True)

    def report(self, child: SupervisedWorker, lost: Sequence[ReportLoss]) -> None:
        """Report losses, which are left to the next process as well."""
        hand_over(child.recorder, lost)
        self._reporter.publish(lost)

    def look_at_others(self) -> str:
        """Report deaths in this container that were of no worker; why it has been too many deaths,
        or empty."""
        for death in self._deaths.others():
            logger.warning(
                "a process of this container was killed that is no worker process, such as a JVM "
                "of Spark: %s",
                self._deaths.explained(death),
            )
            self._reporter.announce(death)
        return self._deaths.too_many() or ""

    def examine(self, child: SupervisedWorker, code: int, memory_bytes: int, lived_s: float) -> str:
        """How a process ended, in words, reported to the cluster. What it was doing when it died by
        itself is left to the next one to report as well, which is there as long as nobody has heard
        of it."""
        inside, orderly = child.recorder.deaths(), child.recorder.orderly() == code
        own, killed = by_itself(code, child.recorder), code == -signal.SIGKILL
        child.recorder.clear()
        jobs = child.recorder.jobs()
        death = self._deaths.died(child.number, code, memory_bytes, inside, jobs)
        if not orderly:
            self._reporter.announce(death)
        if killed and death.cause is not DeathCause.MEMORY:
            inside = [each for each in inside if each.over_segments]
        if (own or killed) and inside:
            self.report(child, reports(inside, lived_s, killed))
        where = f" inside user code: {death.inside}" if death.inside and not orderly else ""
        return f"{self._deaths.explained(death)}{where}"


class DeathWatch:
    """The deaths of all processes of one supervisor. Used by its thread alone.

    Args:
        kills: what the kernel counts.
        clock: of this process.
        settings: when it is too much.
        host: name of this machine, or pod.
    """

    def __init__(
        self, kills: ContainerMemory, clock: Clock, settings: SupervisorSettings, host: str
    ) -> None:
        self._kills = kills
        self._clock = clock
        self._settings = settings
        self._host = host
        self._counted = kills.count() or 0
        self._unexplained: deque[float] = deque()
        """When kills were seen that no process of ours has died of yet."""
        self._ours: deque[float] = deque()
        """When processes of ours have died of such, over more than one segment."""

    def died(
        self,
        process: int,
        code: int,
        memory_bytes: int,
        inside: Sequence[Inside] = (),
        jobs: Sequence[JobId] = (),
    ) -> Death:
        """A process of ours has died.

        Args:
            process: its number.
            code: its exit code, negative for a signal.
            memory_bytes: most memory that it held.
            inside: which user code was running.
            jobs: whose user code it has run.
        """
        self._look()
        cause = DeathCause.EXIT if code >= 0 else DeathCause.SIGNAL
        if code == -signal.SIGKILL and self._unexplained:
            self._unexplained.popleft()
            if not _is_certain(inside):
                self._ours.append(self._clock.monotonic_s())
            cause = DeathCause.MEMORY
        words, blamed = described(inside), tuple(dict.fromkeys(each.job for each in inside))
        return msgspec.structs.replace(
            self._death(process, cause, how(code)),
            memory_bytes=memory_bytes,
            inside=words,
            jobs=tuple(jobs),
            blamed=blamed,
        )

    def others(self) -> list[Death]:
        """Deaths for want of memory in the container that were of none of our processes."""
        self._look()
        found: list[Death] = []
        before_s = self._clock.monotonic_s() - OTHERS_AFTER_S
        while self._unexplained and self._unexplained[0] <= before_s:
            self._unexplained.popleft()
            if self._kills.of_container:
                found.append(self._death(-1, DeathCause.MEMORY, "SIGKILL"))
        return found

    def too_many(self) -> str:
        """Why the supervisor gives up; empty while it does not."""
        most, within_s = self._settings.memory_kills_max, self._settings.memory_kills_within_s
        while self._ours and self._clock.monotonic_s() - self._ours[0] > within_s:
            self._ours.popleft()
        if not most or len(self._ours) < most:
            return ""
        limit = self._kills.limit_bytes()
        has = f", whose container has {mebibytes(limit)}" if limit else ""
        return (
            f"the kernel has killed {len(self._ours)} processes of this worker for want of memory "
            f"within {within_s:g} s{has}: give it more memory (in an OnyxCluster "
            "resources.limits.memory), fewer peers or processes, or its tasks a smaller batchSize"
        )

    def explained(self, death: Death) -> str:
        """A death in words, for the log."""
        held = f"it held {mebibytes(death.memory_bytes)} of memory at most"
        if death.cause is not DeathCause.MEMORY:
            return f"{death.how} ({held})"
        limit = f" with a limit of {mebibytes(death.limit_bytes)}" if death.limit_bytes else ""
        where = f"this container{limit}" if self._kills.of_container else "this machine"
        return f"{death.how}: the kernel killed it because {where} was out of memory ({held})"

    def _death(self, process: int, cause: DeathCause, by: str) -> Death:
        limit = self._kills.limit_bytes() or 0
        return Death(self._host, process, self._clock.wall_ms(), cause, by, limit_bytes=limit)

    def _look(self) -> None:
        count = self._kills.count()
        if count is not None and count > self._counted:
            self._unexplained.extend([self._clock.monotonic_s()] * (count - self._counted))
            self._counted = count


WAITING_MAX = 1_000
"""Reports; those beyond are left to the successors."""
CLOSE_TIMEOUT_S = 5.0
"""Longest wait for the last reports: what ends a supervisor is often the last death."""


class DeathReporter:
    """Writes the reports of one supervisor, on a thread that is there once there are any."""

    def __init__(self, settings: Settings) -> None:
        """`settings`: where ZooKeeper is."""
        self._settings = settings
        self._waiting: queue.Queue[ReportLoss | Death | None] = queue.Queue(WAITING_MAX)
        """None is the end."""
        self._thread: threading.Thread | None = None

    def publish(self, lost: Sequence[ReportLoss]) -> None:
        """Write these soon; returns at once."""
        self._queue(lost)

    def announce(self, death: Death) -> None:
        """Let everybody know soon that a process has died; returns at once."""
        self._queue([death])

    def close(self) -> None:
        """Write what waits, as far as ZooKeeper takes it in time."""
        if self._thread is None:
            return
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)
            self._thread.join(CLOSE_TIMEOUT_S)

    def _queue(self, reports: Sequence[ReportLoss | Death]) -> None:
        for each in reports:
            try:
                self._waiting.put_nowait(each)
            except queue.Full:
                return
        if reports and self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="onyx-death-reporter", daemon=True
            )
            self._thread.start()

    def _run(self) -> None:
        while (first := self._waiting.get()) is not None:
            try:
                if self._write(first):
                    return
            except OnyxError as error:
                logger.info("how a process has died could not be reported: %s", error)

    def _write(self, first: ReportLoss | Death) -> bool:
        """Write this one and all that wait; True at the end of all."""
        # Most supervisors never need the log, and are small without.
        from onyx.client.deaths import report_death
        from onyx.log.opening import open_log

        def write(report: ReportLoss | Death) -> None:
            if isinstance(report, Death):
                report_death(log, report)
            else:
                log.append(report)

        log = open_log(self._settings)
        try:
            write(first)
            while not self._waiting.empty():
                following = self._waiting.get()
                if following is None:
                    return True
                write(following)
            return False
        finally:
            log.close()


RUNS_MAX = 64
"""Runs of positions, of one batch: those that are close are joined."""
BY_ITSELF = frozenset(
    {
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGSEGV,
        signal.SIGSYS,
        signal.SIGTRAP,
    }
)
LIVED_LONG_S = 60.0
"""A process that has lived as long does not die again and again."""
_PARTITION_SHIFT, _POSITION_MASK = 48, (1 << 40) - 1


def by_itself(code: int, recorder: Recorder) -> bool:
    """Whether a process with this exit code (negative: the signal) was ended by its own code."""
    if code < 0:
        return -code in BY_ITSELF
    return recorder.orderly() != code


def _is_certain(deaths: Sequence[Inside]) -> bool:
    """Whether the process has died over one segment, and nobody else was in user code."""
    return len(deaths) == 1 and len(deaths[0].roots) == 1


def reports(deaths: Sequence[Inside], lived_s: float, killed: bool = False) -> list[ReportLoss]:
    """What to report of user code that was running at one death."""
    made = []
    over_nothing = not any(each.over_segments for each in deaths)
    of_one_job = over_nothing and len({each.job for each in deaths}) == 1
    for each in deaths:
        named = _positions(each.roots)
        if not named and not of_one_job:
            continue
        made.append(
            ReportLoss(
                job=JobId(each.job),
                task=TaskName(each.task),
                loss=secrets.token_hex(8),
                runs=tuple(named),
                id=f"{each.id:x}" if _is_certain(deaths) else "",
                afresh=lived_s >= LIVED_LONG_S,
                killed=killed,
            )
        )
    return made


def hand_over(recorder: Recorder, lost: Sequence[ReportLoss]) -> None:
    """Leave reports to the next process, beside those that are still there; the newest stay."""
    all_of_them = [*left(recorder), *lost]
    while len(data := msgspec.json.encode(all_of_them)) > LOSSES_BYTES_MAX:
        all_of_them.pop(0)
    recorder.keep(data)


def left(recorder: Recorder) -> list[ReportLoss]:
    """Reports that no process has made yet."""
    return list(pending(recorder))


def described(deaths: Sequence[Inside]) -> str:
    """What was running at a death, in words for the log; empty when nobody was in user code."""
    return "; or ".join(_described(each) for each in deaths)


def _described(each: Inside) -> str:
    where = f"in {each.phase} of task {each.task} of job {each.job}"
    if not each.over_segments:
        return where
    if not each.roots:
        return f"{where}, over segments that are lost (at-most-once)"
    named = _positions(each.roots)
    segments = ", ".join(
        f"{each.place(partition)} at position {first}" + (f" to {last}" if last > first else "")
        for partition, first, last in named[:4]
    )
    more = f" and {len(named) - 4} more runs" if len(named) > 4 else ""
    many = "one segment" if len(each.roots) == 1 else f"{len(each.roots)} segments"
    return f"{where}, over {many} ({segments}{more})"


def _positions(roots: Sequence[int]) -> list[tuple[int, int, int]]:
    """Partition, first and last position."""
    by_partition: dict[int, list[int]] = {}
    for root in roots:
        by_partition.setdefault(root >> _PARTITION_SHIFT, []).append(root & _POSITION_MASK)
    each_max = max(1, RUNS_MAX // max(1, len(by_partition)))
    return [
        (partition, first, last)
        for partition, positions in sorted(by_partition.items())[:RUNS_MAX]
        for first, last in runs(positions, each_max)
    ]
