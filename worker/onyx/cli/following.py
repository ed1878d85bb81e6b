"""Submits a job and follows it to its end, with what a person sees meanwhile and what became of it.

How the job is, is asked for beside its progress: when the log does not answer for a while, the
command says that and goes on.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.live import Live
from rich.table import Table

from onyx.base.on_demand import OnDemand
from onyx.cli.progress import JobProgress
from onyx.cli.status_table import print_stacks
from onyx.client import failure_text
from onyx.client.client import Client
from onyx.client.reader import JobReader
from onyx.client.statuses import JobStatus, in_a_sentence
from onyx.errors import OnyxError
from onyx.ids import JobId
from onyx.model.job import Job
from onyx.model.workflow import topological_order
from onyx.processes.supervisor import Supervisor
from onyx.replica.jobs import has_completed
from onyx.replica.state import Replica
from onyx.reports.measures import done_in_words, of_jobs
from onyx.settings import Settings
from onyx.submission.here import PublishedRows, published
from onyx.user_code.breakpoints import TerminalLoan

if TYPE_CHECKING:
    from onyx.client.measures import MeasureReader

SAMPLE_INTERVAL_S = 0.5
PLAIN_INTERVAL_S = 5.0
"""Between two lines where nobody watches. Nothing is asked of the log in between: a question is a
dozen requests, a third of what an idle job costs."""
SILENT_AFTER_S = 15.0
"""An answer for which the log needs longer does not come."""
REPEATED_AFTER_S = 60.0
ASK_INTERVAL_S = 0.5
MEASURE_INTERVAL_S = 4.0
"""Between two questions to workers, and before the first one: a short job needs none."""
_DISPLAY: OnDemand[Callable[..., Any]] = OnDemand("IPython.display:display")
_READER = OnDemand[Callable[[JobReader, Settings], "MeasureReader"]](
    "onyx.client.measures:measure_reader"
)


class JobTimedOut(OnyxError):
    """The job took longer than --timeout allows."""


def follow(
    client: Client,
    workers: Supervisor,
    job: Job,
    as_json: bool,
    timeout_s: float | None,
    ways_in: str = "",
    going: JobId | None = None,
    stays: bool = False,
    loan: TerminalLoan | None = None,
    there: Settings | None = None,
) -> tuple[JobStatus, JobProgress]:
    """Submit, show progress until the end, and print what became of it.

    Args:
        ways_in: is printed when all workers take requests, and the job does.
        going: the job, if it was submitted before.
        stays: whether the job stays in the log, to go on, when the user interrupts it.
        loan: of the terminal, to debuggers in workers.
        there: what leads to workers, which are asked how much is done; None: they are not.
    """
    console = Console(stderr=as_json)
    followed = client.submit(job).job if going is None else going
    tasks = topological_order(job.workflow)
    progress = JobProgress(job, lambda: workers.totals(followed, tasks))
    watcher, drawing = Watcher(client, job, followed, there), LiveTable(console)
    with closing(drawing):
        try:
            running = _watch(client, workers, watcher, progress, drawing, timeout_s, ways_in, loan)
        except BaseException as error:
            if stays and isinstance(error, KeyboardInterrupt):
                what = "the job stays in its log: --resume lets it go on"
                print(what, file=sys.stderr, flush=True)
            else:
                client.kill(followed)
                some = [str(each) for each in _left(job, there, followed) if each.parts]
                if some:
                    what = f"{', '.join(some)}; --replace begins anew"
                    print(what, file=sys.stderr, flush=True)
            raise
        status = client.status(followed)
        progress.sample(client.completed_positions(running, job, followed))
        if status.state == "completed" and not job.loses_track:
            progress.settle()
        drawn = drawing.is_there
        drawing.draw(progress.table("done", average=True))
    left = _left(job, there, followed) if status.state != "completed" else []
    _print_end(job, status, progress, console, as_json, drawn, left)
    return status, progress


def _left(job: Job, there: Settings | None, id: JobId) -> list[PublishedRows]:
    return [] if there is None else published(job, there, id)


def _watch(
    client: Client,
    workers: Supervisor,
    watcher: Watcher,
    progress: JobProgress,
    drawing: LiveTable,
    timeout_s: float | None,
    ways_in: str,
    loan: TerminalLoan | None,
) -> Replica:
    """Show progress until the job has ended; the last replica in which its inputs are known."""
    job = watcher.job
    latest: list[Replica] = [client.replica()]
    running = latest[0]
    ended = threading.Event()

    def look(_: object, replica: Replica) -> None:
        nonlocal running
        latest[0] = replica
        if replica.partitions(job):
            running = replica
        if has_completed(replica, job) is not None:
            ended.set()

    waited_s, shown_s = 0.0, 0.0
    with client.follow(look, failed=ended.set):
        while not ended.wait(SAMPLE_INTERVAL_S):
            if (failure := workers.failure) is not None:
                raise failure
            if loan is not None and loan.look(drawing.close):
                continue  # somebody debugs: nothing is said meanwhile, and no time passes
            waited_s += SAMPLE_INTERVAL_S
            progress.sample(watcher.completed)
            if ways_in and is_ready(latest[0], job, workers.peers):
                print(ways_in, end="", file=sys.stderr, flush=True)
                ways_in = ""
            if drawing.is_there or waited_s - shown_s >= PLAIN_INTERVAL_S:
                shown_s = waited_s
                _show(watcher.title(latest[0], waited_s), watcher, progress, drawing)
            if timeout_s is not None and waited_s >= timeout_s:
                raise JobTimedOut(f"the job had not ended after {timeout_s:g} s and was killed")
    return running


class LiveTable:
    """The figures of a job, drawn in the same place again and again: at a terminal, or below the
    cell of a notebook. Elsewhere nothing is drawn."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._show = _DISPLAY.load() if console.is_jupyter else None
        self._shown: Any = None
        self.is_there = bool(self._live or self._show)
        if self._live is not None:
            self._live.start()

    def draw(self, table: Table) -> None:
        """Draw it in the place of the one before."""
        if not self.is_there:
            return
        if self._live is not None:
            self._live.update(table, refresh=True)
        elif self._shown is not None:
            self._shown.update(table)
        elif self._show is not None:
            self._shown = self._show(table, display_id=True)

    def close(self) -> None:
        """Leave what is drawn where it is, and draw no more."""
        self.is_there = False
        if self._live is not None:
            self._live.stop()


def _show(title: str, watcher: Watcher, progress: JobProgress, drawing: LiveTable) -> None:
    """Show how far the job is, and what is new."""
    if drawing.is_there:
        drawing.draw(progress.table(", ".join(filter(None, (title, watcher.done)))))
    else:
        line = ", ".join(filter(None, (progress.line(), watcher.done)))
        drawing.console.print(f"{title}: {line}", markup=False, soft_wrap=True)
    for line in watcher.news():
        drawing.console.print(line, markup=False, highlight=False, soft_wrap=True)


def _print_end(
    job: Job,
    status: JobStatus,
    progress: JobProgress,
    console: Console,
    as_json: bool,
    drawn: bool,
    left: Sequence[PublishedRows],
) -> None:
    """Print what became of a job: JSON to standard output, text to the console, with the figures
    of its tasks unless they are drawn already; `left` is what one that has failed has published."""
    # A job on Spark commits its counts with its result; workers count each attempt.
    unwritten = [each.task for each in left if not each.parts]
    exact = job.engine == "spark" and status.state == "completed"
    outcomes = list(status.outcomes) if exact else progress.remarks(unwritten)
    outcomes += [f"{each.task} has published {each}" for each in left]
    if as_json:
        rows = [msgspec.to_builtins(row) for row in progress.rows(average=True)]
        print(json.dumps({**msgspec.to_builtins(status), "tasks": rows, "outcomes": outcomes}))
    else:
        if not drawn:
            console.print(progress.table(f"job {job.name}", average=True))
        console.print(in_a_sentence(status, job.name), markup=False, soft_wrap=True)
        print_stacks(status, console)
        for line in outcomes:
            console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


def is_ready(replica: Replica, job: JobId, peers: int) -> bool:
    """Whether so many peers take part in the cluster, and those that work on the job are ready."""
    run = replica.run(job)
    working = {peer for peers in run.allocation.values() for peer in peers}
    return len(replica.peers) >= peers and bool(working) and working.issubset(run.ready)


class _SeenStatus(msgspec.Struct, frozen=True):
    """How the job was when the log answered last."""

    status: JobStatus | None
    trouble: str
    at_s: float


class Watcher:
    """Asks on a thread of its own, one question at a time."""

    def __init__(
        self, client: Client, manifest: Job, job: JobId, there: Settings | None = None
    ) -> None:
        """`there`: as of `follow`."""
        self._client = client
        self._there = there
        self._reader: MeasureReader | None = None
        self._measure_s = time.monotonic() + MEASURE_INTERVAL_S
        self._manifest = manifest
        self.job = job
        self.completed: Mapping[str, int] = {}
        """Positions that its inputs have completed."""
        self.done = ""
        """How much of its inputs is done and when the rest will be, in words, if that is known."""
        self._answer = _SeenStatus(None, "", time.monotonic())
        self._asking: threading.Thread | None = None
        self._printed = ""
        self._printed_s = 0.0

    def title(self, replica: Replica, waited_s: float) -> str:
        """How the job was when the log answered last."""
        if self._asking is None or not self._asking.is_alive():
            self._asking = threading.Thread(target=self._ask, args=(replica,), daemon=True)
            self._asking.start()
            self._asking.join(ASK_INTERVAL_S)
        status = self._answer.status
        if status is None:
            return f"job {self.job} ({waited_s:.0f} s)"
        note = status.waiting_for or self._stalled()
        why = f": {note}" if note else ""
        return f"{status.name} {status.state}{why} ({status.peers} peers, {waited_s:.0f} s)"

    def news(self) -> list[str]:
        """Lines to print: why the job does not advance, once in a while as long as it does not."""
        found, now_s = self._stalled(), time.monotonic()
        kind = found.partition(":")[0].partition(", for ")[0]
        if not found or (kind == self._printed and now_s < self._printed_s + REPEATED_AFTER_S):
            self._printed = kind if found else ""
            return []
        self._printed, self._printed_s = kind, now_s
        status = self._answer.status
        stalls = status.stalls if status is not None else ()
        stacks = (failure_text.stack(each) for each in stalls if each.stack)
        return [f"job {found}", *next(stacks, [])]

    def _stalled(self) -> str:
        answer = self._answer
        silent_s = time.monotonic() - answer.at_s
        if silent_s >= SILENT_AFTER_S or answer.trouble:
            why = f" ({answer.trouble})" if answer.trouble else ""
            return f"does not advance: the log has not answered for {silent_s:.0f} s{why}"
        return answer.status.stalled if answer.status is not None else ""

    def _ask(self, replica: Replica) -> None:
        try:
            status = self._client.status_at(replica, self.job)
            self.completed = self._client.completed_positions(replica, self._manifest, self.job)
            self._answer = _SeenStatus(status, "", time.monotonic())
            if self._there is not None and time.monotonic() >= self._measure_s:
                self._measure(replica, self._there)
        except OnyxError as error:
            last = self._answer
            self._answer = _SeenStatus(last.status, str(error), last.at_s)

    def _measure(self, replica: Replica, there: Settings) -> None:
        self._reader = self._reader or _READER.load()(self._client, there)
        measured = self._reader.read(self.job, replica=replica)
        its = of_jobs(measured.tasks).get(self.job)
        self.done = "" if its is None or measured.silent else done_in_words(its)
        self._measure_s = time.monotonic() + MEASURE_INTERVAL_S
