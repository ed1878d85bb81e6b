"""What the console knows, read once for all who look: the log as it comes, and from time to time
what workers have reported beside it.

The log is followed by one subscription. The replica after each of the newest entries is kept: it is
a persistent value, so it costs what its entry has changed, and any of these moments is there at
once. What is beside the log is read only while somebody looks. A listing of each folder says for
which jobs there is anything, so that jobs without reports cost nothing; a manifest, which never
changes, is read once.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import msgspec

from onyx.base.structs import prepared, stored
from onyx.client.deaths import read_deaths
from onyx.client.reader import JobReader, completed_positions
from onyx.client.reports import code_began, exception, outcomes, stalls
from onyx.client.statuses import JobReports, JobStatus, changed_options, status_of
from onyx.console.measured import Measured, measured_of
from onyx.errors import OnyxError, Unavailable, UserError
from onyx.history.replicas import Change
from onyx.ids import JobId, Position
from onyx.log import documents
from onyx.log.interface import Origin
from onyx.model.job import Job
from onyx.model.parsing.mapping import stored_job
from onyx.replica import machine
from onyx.replica.command import Entry
from onyx.replica.commands import SubmitJob
from onyx.replica.jobs import has_completed, listed_jobs
from onyx.replica.state import JobRecord, Replica
from onyx.reports.deaths import Death
from onyx.reports.measures import Measures

T = TypeVar("T")
logger = logging.getLogger("onyx.console")
CHANGES_MAX = 5_000
"""Replicas that are kept, some KiB each."""
MANIFESTS_MAX = 64
AT_ONCE = 8
REST = 5.0
"""For so many times as long as it took to read nothing is read: of large clusters less often."""
SETTLED_AFTER_S = 60.0
"""Workers report within this time what they have counted of a job that has ended."""
READING_MAX = 64
"""Things beside the board that are read at once."""
PATIENCE_S, FIRST_PATIENCE_S = 2.0, 20.0
"""How long a page waits for what is read beside the log, and the first one."""
SLOW = "What is beside the log is still being read."


class Beginning(msgspec.Struct, frozen=True):
    """Where a job began, as far as the log still says it."""

    position: Position
    at_ms: int
    by: str


class Board(msgspec.Struct, frozen=True):
    """What all pages are made of."""

    replica: Replica = msgspec.field(default_factory=Replica)
    now_ms: int = 0
    """When what is beside the log was read."""
    jobs: tuple[JobStatus, ...] = ()
    """All that the replica knows, in the order of submission."""
    beginnings: Mapping[JobId, Beginning] = msgspec.field(default_factory=dict)
    deaths: tuple[Death, ...] = ()
    measured: Measured = Measured()
    trouble: str = ""
    """Why it is not of now."""

    def status(self, job: str) -> JobStatus | None:
        """The status of a job; None: there is no such job."""
        return next((each for each in self.jobs if each.id == job), None)


class Past:
    """The newest entries of the log, each with the replicas before and after it. For any thread."""

    def __init__(self, first: Replica) -> None:
        """`first`: the replica that the log starts from."""
        self._lock = threading.Lock()
        self._changes: deque[Change] = deque(maxlen=CHANGES_MAX)
        self._begun: dict[JobId, Beginning] = {}
        self.replica = first

    def take(self, item: Entry | Origin, replica: Replica) -> None:
        """Add what the log gives."""
        with self._lock:
            if isinstance(item, Origin):
                self._changes.clear()
            else:
                self._changes.append(Change(self.replica, item, replica))
                if isinstance(item.command, SubmitJob):
                    its = Beginning(item.position, item.at_ms, item.by)
                    self._begun.setdefault(item.command.id, its)
            self.replica = replica

    def changes(self) -> Sequence[Change]:
        """All that are kept, in order."""
        with self._lock:
            return tuple(self._changes)

    def replica_at(self, position: int) -> Replica | None:
        """The replica after an entry; None: it is not kept, or has not come yet."""
        with self._lock:
            if self.replica.version == position:
                return self.replica
            first = self._changes[0].entry.position if self._changes else position + 1
            number = position - first
            if not 0 <= number < len(self._changes):
                return None
            found = self._changes[number].new
        return found if found.version == position else None

    def beginnings(self) -> Mapping[JobId, Beginning]:
        """Where the jobs began that are not forgotten."""
        with self._lock:
            records = self.replica.records
            self._begun = {job: its for job, its in self._begun.items() if job in records}
            return dict(self._begun)


@prepared
class _Head(msgspec.Struct):
    name: str


@prepared
class _Named(msgspec.Struct):
    metadata: _Head


class _Listed:
    """The log as its readers see it, with listings of one moment in place of a question for each
    job."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self._folders = {name: set(log.list_folders(name)) for name in ("stall", "outcome")}
        self._documents = {
            name: set(log.list_documents(name)) for name in ("exception", "code", "query")
        }

    def list_documents(self, folder: str) -> Sequence[str]:
        kind, _, job = folder.partition("/")
        if job and kind in self._folders and job not in self._folders[kind]:
            return ()
        found: Sequence[str] = self._log.list_documents(folder)
        return found

    def get_document(self, path: str) -> Any:
        kind, _, job = path.partition("/")
        if kind in self._documents and job not in self._documents[kind]:
            return None
        return self._log.get_document(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


class Manifests:
    """The manifests of jobs by their digests. For any thread."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self._names: dict[str, str] = {}
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._lock = threading.Lock()

    def name(self, digest: str, job: JobId) -> tuple[str, str]:
        """The name of a job, and why it cannot be read.

        Raises:
            Unavailable: the log cannot be reached.
        """
        if digest not in self._names:
            try:
                data = self._log.get_chunk(digest)
                found = stored(data, _Named, f"the manifest of job {job}", "submit the job again")
            except OnyxError as error:
                return "", f"its manifest cannot be read: {error}"
            self._names[digest] = found.metadata.name
        return self._names[digest], ""

    def keep(self, digests: Set[str | None]) -> None:
        """Forget the names in other manifests than these."""
        self._names = {digest: name for digest, name in self._names.items() if digest in digests}

    def job(self, digest: str, job: JobId) -> Job:
        """A job as it was submitted. Raises as `stored_job`, and as `name`."""
        with self._lock:
            if digest in self._jobs:
                self._jobs.move_to_end(digest)
                return self._jobs[digest]
        found = stored_job(self._log.get_chunk(digest), job)
        with self._lock:
            self._jobs[digest] = found
            if len(self._jobs) > MANIFESTS_MAX:
                self._jobs.popitem(last=False)
        return found

    def text(self, digest: str) -> bytes:
        """A manifest as it was stored, as JSON. Raises as `name`."""
        found: bytes = self._log.get_chunk(digest)
        return found


class Renewed(Generic[T]):
    """A value that is read anew if it is too old when somebody asks. One thread reads for all, and
    nobody waits longer than he has patience. For any thread.

    Args:
        value: as long as nothing was read.
        fresh_s: how old it may be; older where it takes long to read.
    """

    def __init__(self, value: T, monotonic_s: Callable[[], float], fresh_s: float) -> None:
        self.value = value
        self._monotonic_s, self._fresh_s = monotonic_s, fresh_s
        self._lock = threading.Lock()
        self._stale_s = float("-inf")
        """When it is to be read again."""
        self._reading: threading.Event | None = None

    def renew(self, read: Callable[[], T], old: Callable[[T, str], T], patience_s: float) -> bool:
        """Read the value, or wait until somebody has; False: that takes too long.

        Args:
            old: makes of the value, and of why it cannot be read, what it is then.
        """
        with self._lock:
            if self._monotonic_s() < self._stale_s:
                return True
            done = self._reading
            if done is None:
                done = self._reading = threading.Event()
                threading.Thread(target=self._read, args=(read, old, done), daemon=True).start()
        return done.wait(patience_s)

    def _read(
        self, read: Callable[[], T], old: Callable[[T, str], T], done: threading.Event
    ) -> None:
        begun_s, rest = self._monotonic_s(), REST
        try:
            value = read()
        except Unavailable as error:
            value, rest = old(self.value, f"the log does not answer: {error}"), 0.0
        except Exception as error:
            if not isinstance(error, OnyxError):
                logger.exception("a bug in the console: it cannot read what is beside the log")
            value, rest = old(self.value, f"What is beside the log cannot be read: {error}"), 0.0
        with self._lock:
            now_s = self._monotonic_s()
            self.value, self._reading = value, None
            self._stale_s = now_s + max(self._fresh_s, rest * (now_s - begun_s))
        done.set()


class Patient:
    """Reads what a page shows and a board has not, each thing once for all who wait for it, and
    holds up nobody for longer than he has patience. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[object, Future[Any]] = {}

    def read(self, key: object, work: Callable[[], T], patience_s: float) -> T:
        """What `work` gives, which is the same for equal keys.

        Raises:
            Unavailable: that takes too long, or too much is being read.
            OnyxError: as `work` does.
        """
        with self._lock:
            found = self._running.get(key)
            if found is None:
                if len(self._running) >= READING_MAX:
                    raise Unavailable("so much is being read that this has to wait: load it again")
                found = self._running[key] = Future()
                threading.Thread(target=self._read, args=(key, work, found), daemon=True).start()
        done, _ = wait((found,), patience_s)
        if not done:
            raise Unavailable(f"it has not come within {patience_s:g} s: load the page again")
        value: T = found.result()
        return value

    def _read(self, key: object, work: Callable[[], object], found: Future[Any]) -> None:
        value, failure = None, None
        try:
            value = work()
        except Exception as error:
            failure = error
        with self._lock:
            del self._running[key]
        if failure is None:
            found.set_result(value)
        else:
            found.set_exception(failure)


class Reporter:
    """Reads what is beside the log, for all who look at the same time. For any thread.

    Args:
        client: is asked.
        ask: asks the workers what they measure; who does not answer in time is named.
        now_ms: says the time.
        fresh_s: how old a board may be; older where it takes long to read.
    """

    def __init__(
        self,
        client: JobReader,
        past: Past,
        now_ms: Callable[[], int],
        monotonic_s: Callable[[], float],
        fresh_s: float,
        ask: Callable[[Replica], Measures] = lambda _: Measures(),
    ) -> None:
        self._client, self._past = client, past
        self._now_ms, self._monotonic_s, self._fresh_s = now_ms, monotonic_s, fresh_s
        self._ask = ask
        self.manifests = Manifests(client.log)
        self._patient = Patient()
        self._boards = Renewed(Board(), monotonic_s, fresh_s)
        self._completed: dict[JobId, Renewed[Mapping[str, int]]] = {}
        self._settled: dict[JobId, tuple[JobRecord, float, JobReports]] = {}
        """Jobs that have ended: their records, since when that is known, what was read last."""

    def board(self) -> Board:
        """What is known, read anew if it is too old; or what there is, and why it is not of now."""
        patience_s = PATIENCE_S if self._boards.value.now_ms else FIRST_PATIENCE_S
        is_new = self._boards.renew(self._read, self._old, patience_s)
        board = self._boards.value
        return board if is_new else self._old(board, board.trouble or SLOW)

    def read(self, key: object, work: Callable[[], T], patience_s: float | None = None) -> T:
        """What a page needs besides. See `Patient.read`."""
        return self._patient.read(key, work, PATIENCE_S if patience_s is None else patience_s)

    def completed(self, manifest: Job, job: JobId) -> Mapping[str, int]:
        """How many positions each input of a job has completed, as far as that is known now."""
        none: Mapping[str, int] = {}
        its = self._completed.setdefault(job, Renewed(none, self._monotonic_s, self._fresh_s))

        def read() -> Mapping[str, int]:
            replica = self._past.replica
            if job not in replica.jobs:
                return none
            return completed_positions(self._client.log, replica, manifest, job)

        its.renew(read, lambda *_: none, PATIENCE_S)
        return its.value

    @staticmethod
    def _old(board: Board, trouble: str) -> Board:
        return msgspec.structs.replace(board, trouble=trouble)

    def _read(self) -> Board:
        replica, now_ms = self._past.replica, self._now_ms()
        log = _Listed(self._client.log)
        deaths = tuple(read_deaths(log))
        known = listed_jobs(replica)
        with ThreadPoolExecutor(AT_ONCE) as threads:
            found = threads.map(lambda job: self._reports(log, replica, job, deaths), known)
            reports = list(zip(known, found, strict=True))
        self.manifests.keep({replica.digest_of(job) for job in known})
        self._completed = {
            job: its for job, its in self._completed.copy().items() if job in replica.jobs
        }
        self._settled = {job: its for job, its in self._settled.items() if job in replica.records}
        statuses = tuple(status_of(replica, job, its, now_ms) for job, its in reports)
        beginnings = self._past.beginnings()
        measured = measured_of(self._ask(replica))
        return Board(replica, now_ms, statuses, beginnings, deaths, measured)

    def _reports(
        self, log: Any, replica: Replica, job: JobId, deaths: tuple[Death, ...]
    ) -> JobReports:
        """What is said of one job. Of one that has ended nothing is said any more after a while."""
        record, now_s = replica.records.get(job), self._monotonic_s()
        settled = self._settled.get(job)
        if record is None or record.run is not None:
            return self._read_of(log, replica, job, deaths)
        if settled is None or settled[0] is not record or now_s < settled[1] + SETTLED_AFTER_S:
            since_s = settled[1] if settled is not None and settled[0] is record else now_s
            settled = (record, since_s, self._read_of(log, replica, job, ()))
            self._settled[job] = settled
        return settled[2]

    def _read_of(
        self, log: Any, replica: Replica, job: JobId, deaths: tuple[Death, ...]
    ) -> JobReports:
        digest = replica.digest_of(job)
        name, unreadable = self.manifests.name(digest, job) if digest else ("", "")
        run = replica.run(job)
        lines: tuple[str, ...] = ()
        options: dict[str, dict[str, int | None]] = {}
        if digest and not unreadable and (run.options or run.declared or self._counted(log, job)):
            try:
                manifest = self.manifests.job(digest, job)
            except UserError as error:  # one damaged manifest must not hide other jobs
                unreadable = f"its manifest cannot be read: {error}"
            else:
                options = changed_options(replica, job, manifest)
                lines = outcomes(log, replica, manifest, job)
        runs = job in replica.jobs
        return JobReports(
            name,
            unreadable,
            exception(log, job) if has_completed(replica, job) is False else None,
            tuple(stalls(log, replica, job)) if runs else (),
            deaths if runs else (),
            lines,
            code_began(log, replica, job),
            options,
        )

    def _counted(self, log: Any, job: JobId) -> bool:
        on_spark = documents.committed_query(job)
        return bool(log.list_documents(documents.outcomes(job)) or log.get_document(on_spark))


@contextmanager
def followed(client: JobReader, failed: Callable[[], None]) -> Iterator[Past]:
    """The past of a log, which is followed for the time of the block. `failed` is called when it
    cannot be followed any more, and the end of the block raises why."""
    past = Past(client.first_replica())
    for entry in client.entries(past.replica.version):
        past.take(entry, machine.apply(past.replica, entry))
    with client.follow(past.take, past.replica, failed):
        yield past


def change_at(past: Past, client: JobReader, position: Position) -> Change | None:
    """What an entry has changed, read from the log or its archive if it is older than what is kept;
    None: there is none.

    Raises:
        OnyxError: it cannot be read.
    """
    kept = past.changes()
    if kept and kept[0].entry.position <= position <= kept[-1].entry.position:
        found = kept[position - kept[0].entry.position]
        return found if found.entry.position == position else None
    if position < 0 or (kept and position > kept[-1].entry.position):
        return None
    entry = next(iter(client.entries(Position(position - 1))), None)
    if entry is None or entry.position != position:
        return None
    old = client.replica(Position(position - 1)) if position else client.first_replica()
    new = client.replica(position)
    return Change(old, entry, new) if new.version == position else None
