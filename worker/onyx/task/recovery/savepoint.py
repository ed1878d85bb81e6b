"""A job begins with a savepoint: one of its peers loads it, before any task of the job begins.

What is in it becomes a job that was killed (`replica.commands.load_job`), with files, frontiers and
journals where this cluster keeps them. From then on the job upgrades that one, by the same rules as
any other: what may change, what is refused, what counts once.

Workers load it, and neither clients nor the operator, because they have the state's location and
what leads to buckets. Each step may be repeated, by the next peer if this one dies: the same bytes
get the same names. What is damaged is found before the loaded job counts as whole, so nobody ever
begins with a half.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec
from msgspec.structs import replace

from onyx.base.structs import UNREADABLE
from onyx.codec.sealed import FileFormat
from onyx.errors import StateError, UserError
from onyx.ids import NO_POSITION, JobId
from onyx.journal import depot
from onyx.journal import logs as journals
from onyx.log import documents
from onyx.model.job import Job
from onyx.plugins.journalled.partitions import in_journal_of
from onyx.replica.commands import LoadJob
from onyx.replica.commands.load_job import LoadedPartitions, loaded_for
from onyx.replica.jobs import is_known
from onyx.replica.state import Replica
from onyx.rights import rights_of
from onyx.settings import Settings
from onyx.spark.driver.committed import Committed, commit
from onyx.state import chunks
from onyx.state.location import check_shared, state_location
from onyx.state.reading import THREADS
from onyx.state.savepoint import Savepoint
from onyx.storage.interface import BlobStore
from onyx.storage.opening import is_remote
from onyx.storage.sealed_folders import SavedFile
from onyx.task.parts import Assignment
from onyx.task.source.frontier import Frontier
from onyx.upgrade.plan import compare

LOOK_S = 0.05
"""How often whoever loads looks for an entry of its own."""
_FORMATS = (chunks.FORMAT, journals.FORMAT, journals.SUMMARY_FORMAT, depot.FORMAT)
LAYOUTS: Mapping[str, int] = {each.what: each.version for each in _FORMATS}
"""The formats of files in a savepoint that this version writes and reads."""
_RENAMED: Mapping[FileFormat, Callable[[bytes, str, str], bytes]] = {
    chunks.FORMAT: chunks.of_job,
    journals.FORMAT: journals.of_job,
}
"""Files that say of which job they are."""


def savepoint_problems(job: Job, settings: Settings) -> list[str]:
    """Why the job cannot begin with its savepoint, as far as this worker sees. Blocks."""
    if job.upgrade is None or job.upgrade.savepoint is None:
        return []
    place = job.upgrade.savepoint
    saved = _opened(place, settings).job()
    return [str(each) for each in compare(saved, job, job.upgrade).problems]


def savepoint_loaded(assignment: Assignment, job: Job) -> bool:
    """Whether the savepoint with which the job begins is there as a job. If not, one of the peers
    loads it, in the background.

    Raises:
        UserError: it is not there, damaged, or does not fit; or the loaded job has been collected.
        Unavailable: something does not answer.
    """
    if job.upgrade is None or job.upgrade.savepoint is None:
        return True
    replica, job_id = assignment.services.replica(), assignment.job_id
    if replica.ready_version(job_id) != NO_POSITION:
        return True  # it has begun, and may need the loaded job no more
    old = replica.upgrades(job_id)
    if old is None:
        return True
    loaded = replica.loaded(old)
    if loaded is None and is_known(replica, old):
        raise UserError(
            f"job {job_id} cannot begin: the savepoint that was loaded for it as job {old} has "
            "been collected meanwhile; submit the job again under another id"
        )
    if loaded is not None and loaded.whole:
        return True
    if _loads(replica, assignment):
        loading = _Loading(assignment, old, job.upgrade.savepoint)
        assignment.background.poll("savepoint", loading.run)
    return False


def _loads(replica: Replica, assignment: Assignment) -> bool:
    """Whether this peer is the one that loads."""
    allocation = replica.run(assignment.job_id).allocation
    peers = (peer for task in sorted(allocation) for peer in allocation[task])
    return next(peers, None) == assignment.peer


def _opened(place: str, settings: Settings) -> Savepoint:
    """
    Raises:
        UserError: it is not there, damaged, of another version, or jobs may not name it.
    """
    why = None if is_remote(place) else rights_of(settings).why_not_path(place)
    if why is not None:
        raise UserError(f"spec.upgrade.savepoint: {why}")
    found = Savepoint(place)
    other = [
        f"{what} of format {version}"
        for what, version in sorted(found.manifest.layouts.items())
        if LAYOUTS.get(what) != version
    ]
    if other:
        raise StateError(
            f"savepoint {place} was made by Onyx {found.manifest.onyx} and has {', '.join(other)}, "
            "which this version does not read: take another one with this version"
        )
    return found


class _Loading:
    """One peer that loads a savepoint. Everything blocks, and may be repeated."""

    def __init__(self, assignment: Assignment, job: JobId, place: str) -> None:
        """`job`: the id of the loaded job."""
        self._assignment = assignment
        self._services = assignment.services
        self._job = job
        self._place = place

    def run(self) -> bool:
        """Load it; False: this peer is not wanted any more."""
        services, job = self._services, self._job
        found = _opened(self._place, services.settings)
        first = self._first_entry(found)
        self._assignment.propose(first)
        if not self._awaits(lambda replica: replica.loaded(job) is not None):
            return False
        store, location = services.state_store(durable=True), state_location(services.settings)
        check_shared(store, services.log, job, self._assignment.peer, location)
        with ThreadPoolExecutor(THREADS, "onyx-savepoint") as threads:
            for _ in threads.map(partial(self._copy, found, store), found.manifest.files):
                pass
        self._put_documents(found)
        self._assignment.propose(replace(first, whole=True))
        return self._awaits(lambda replica: _is_whole(replica, job))

    def _first_entry(self, found: Savepoint) -> LoadJob:
        manifest = found.manifest
        for each in manifest.chunks:
            if self._services.log.put_chunk(found.blob(each), if_room=True) != each.name:
                raise StateError(f"savepoint {self._place}: chunk {each.name} is another one")
        entry = LoadJob(
            id=self._job,
            spec=manifest.spec,
            place=self._place,
            origin=manifest.job,
            publishes=manifest.publishes,
            partitions={
                task: LoadedPartitions(each.first, each.count, each.digest)
                for task, each in manifest.partitions.items()
            },
            ready_version=manifest.ready_version,
        )
        try:  # as readers of the log do, who refuse it without a word
            return msgspec.convert(msgspec.to_builtins(entry), type(entry))
        except UNREADABLE as error:
            raise StateError(f"savepoint {self._place} holds no job: {error}") from error

    def _awaits(self, seen: Callable[[Replica], bool]) -> bool:
        while not seen(self._services.replica()):
            if not self._assignment.wanted():
                return False
            threading.Event().wait(LOOK_S)
        return True

    def _copy(self, found: Savepoint, store: BlobStore, file: SavedFile) -> None:
        name, data = f"{self._job}/{file.name}", found.blob(file)
        assert len(data) == file.size_bytes, "what is damaged is not read"
        for kind, renamed in _RENAMED.items():
            if data.startswith(kind.magic):
                data = renamed(data, self._job, f"{file.name} of savepoint {self._place}")
        if not store.create(name, data):
            raise StateError(
                f"{name} in the location of state has other bytes than savepoint {self._place}: "
                "somebody has made another one there meanwhile; submit the job under another id"
            )

    def _put_documents(self, found: Savepoint) -> None:
        log, job = self._services.log, self._job
        assert job == loaded_for(self._assignment.job_id), "each job loads its own"
        for number, data in found.manifest.frontiers.items():
            path = documents.frontier(job, number)
            stored: Frontier = documents.decoded(job, path, data, Frontier)
            cursor = replace(stored.cursor, state=in_journal_of(stored.cursor.state, job))
            wanted = msgspec.json.encode(replace(stored, cursor=cursor))
            if log.put_document(path, wanted, None) is None:
                there = log.get_document(path)
                if there is None or there.data != wanted:
                    raise StateError(f"document {path} is another one than in {self._place}")
        if found.manifest.query is not None:
            path = documents.committed_query(job)
            query: Committed = documents.decoded(job, path, found.manifest.query, Committed)
            positions = tuple(
                replace(each, state=in_journal_of(each.state, job)) for each in query.positions
            )
            commit(log, job, replace(query, positions=positions, upgraded_by=""), None)


def _is_whole(replica: Replica, job: JobId) -> bool:
    loaded = replica.loaded(job)
    return loaded is not None and loaded.whole
