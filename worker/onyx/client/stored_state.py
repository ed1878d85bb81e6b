"""A state of a job, read where it is stored, because no peer can be asked.

A job that nobody works on has it in the state log. One that was killed keeps its state until it is
forgotten (`onyx gc`), one that is suspended or waits for peers until it goes on. Nothing is written
or fenced: peers may begin to work on the job at any moment. A window that peers have Spark
aggregate is in files that the state log names (`spark.windows.answers`).

A job on Spark has it in the chunks of the last commit, whether it runs or not. The commit of a
micro-batch names the chunks that are its state, so what they say is durable. They never change; but
the next commit may do without some of them, and its worker removes these. Whoever finds one gone
reads the commit again. A chunk that is read stays read, so each time is shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from msgspec.structs import replace

from onyx.client.reader import JobReader
from onyx.client.states.state import Restored, State
from onyx.client.window_view import Question, asked_of
from onyx.errors import Unavailable, UserError
from onyx.ids import JobId
from onyx.keystate.selection import Answer, merge
from onyx.log.interface import LogReader
from onyx.model.job import Job
from onyx.settings import Settings
from onyx.spark.driver.committed import committed
from onyx.spark.windows.spool import spool_of
from onyx.state.buckets import ChunkShards, read_bucket, shards_of
from onyx.state.location import is_shared, open_store, state_location
from onyx.state.names import TaskFolder
from onyx.state.reading import THREADS
from onyx.state.recovery import read_state
from onyx.state.shard_states import ShardState
from onyx.storage.fenced_log import Missing
from onyx.storage.interface import BlobStore, Location
from onyx.user_code.resolve import Resolver

KeptShards = Mapping[int, ShardState]
"""By their numbers."""
Kept = Callable[[Question], Answer]
"""Answers questions about what was read; raises like `KeptStates`."""
COMMITS_MAX = 8
"""So many commits are tried."""


def store_of(settings: Settings, log: LogReader, job: Job, job_id: JobId) -> Location:
    """The location that settings name, if it is that of the workers. Nothing is written.

    Raises:
        UserError: the state of the job is not there.
        Unavailable: log or store does not answer.
    """
    if job.guarantee == "at-most-once" and job.engine != "spark":
        raise UserError(
            f"no peer works on job {job_id}, and a job that is at most once keeps its state in the "
            "memory of peers"
        )
    location = state_location(settings)
    store = open_store(location, settings.state.group_access)
    if not is_shared(store, log, job_id):
        raise UserError(
            f"the state of job {job_id} is not in {location}: it was never written, or is removed, "
            "because the job has completed or `onyx gc` forgot it, or ONYX_STATE_URL is not that "
            "of the workers"
        )
    return store


class KeptStates:
    """The states in the store that settings name. Implements `state_reader.ReadKept`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._last: tuple[object, Kept] | None = None
        """What was read last: the pages behind the first one are of the same moment."""

    def __call__(self, client: JobReader, job: Job, question: Question) -> Answer:
        """The answer to a question.

        Raises:
            UserError: the state is not kept, or not where the settings say; or what is asked for is
                more than is read at once.
            StateError: a chunk is damaged.
            Unavailable: the store does not answer, or what is there has just been replaced.
        """
        state = asked_of(job, question)
        shards = state.shards(question.select.key)
        what, last = (question.job, state.name, shards), self._last
        if question.select.after is None or last is None or last[0] != what:
            last = self._last = what, self._kept(client, job, question, state, shards)
        try:
            answer = last[1](question)
        except Unavailable:
            self._last = None  # files may have gone that it names
            raise
        return replace(answer, extents=question.select.inside.parts_of(answer.extents))

    def _kept(
        self, client: JobReader, job: Job, question: Question, state: State, shards: Sequence[int]
    ) -> Kept:
        """Read what is kept of some shards."""
        store = partial(store_of, self._settings, client.log, job, question.job)
        empty = state.empty(self._resolve, lambda: spool_of(store(), question.job, state.task))
        log, task = client.log, state.task
        if job.engine == "spark":
            # A bucket of Spark is not a shard where there are no groups.
            wanted = shards if state.grouped else None
            old = client.replica().upgrades(question.job)
            if old is not None and committed(log, question.job) is None:
                raise Unavailable(f"job {question.job} has not carried over the state of {old} yet")
            found = committed_state(log, store(), question.job, task, wanted)
        else:
            ready = client.replica().ready_version(question.job)
            read = partial(read_state, store(), question.job, task, shards, fences=False)
            found = read(ready=ready).shards
        return asked_together(empty(), found) if state.by_files else asked_by_shard(empty, found)

    def _resolve(self, name: str) -> Callable[..., Any]:
        """A function that aggregates; with none, no module of the user is imported."""
        return Resolver(self._settings.modules).resolve(name)


def asked_by_shard(make: Callable[[], Restored], shards: KeptShards) -> Kept:
    """Shard by shard is decoded, asked and dropped again.

    Args:
        make: gives the state with nothing in it.
    """

    def answers(question: Question) -> Iterator[Answer]:
        for number, state in shards.items():
            one = make()
            _restore(one, number, state)
            yield _answer(one, question)

    return lambda question: merge(answers(question), question.extents_max)


def asked_together(one: Restored, shards: KeptShards) -> Kept:
    """All shards are asked at once, because each file has rows of many."""
    for number, state in shards.items():
        _restore(one, number, state)
    return lambda question: _answer(one, question)


def _restore(one: Restored, number: int, state: ShardState) -> None:
    for records in state.records():
        one.restore(number, records)


def _answer(one: Restored, question: Question) -> Answer:
    """The first extents."""
    found = one.query(question.select, question.extents_max + 1)
    return Answer.of(found, question.extents_max)


def committed_state(
    log: LogReader, store: BlobStore, job: JobId, task: str, shards: Collection[int] | None
) -> Mapping[int, ShardState]:
    """The state of shards of a windowed task, all as of one commit; shards without any are left
    out.

    Args:
        shards: None: the only one of a task that is not grouped, whichever bucket has it.

    Raises:
        StateError: a chunk is damaged.
        Unavailable: a chunk is gone each time, or log or store does not answer.
    """
    wanted = {0} if shards is None else set(shards)
    known: dict[str, ChunkShards] = {}
    read = partial(_read, known, store, TaskFolder(job, task), wanted)
    gone = ""
    with ThreadPoolExecutor(THREADS, "onyx-state") as threads:
        for _ in range(COMMITS_MAX):
            found = committed(log, job)
            if found is None:
                return {}
            buckets = found[0].held.of(task, shards)
            names = [name for bucket in buckets for name, _ in bucket.files]
            try:
                return shards_of(threads.map(read, names))
            except Missing as error:
                gone = str(error)
    raise Unavailable(
        f"state chunk {gone} is gone: micro-batches of the job follow each other faster than their "
        "state is read, or it is lost"
    )


def _read(
    known: dict[str, ChunkShards], store: BlobStore, folder: TaskFolder, shards: set[int], name: str
) -> ChunkShards:
    """What a chunk says, read once."""
    if name not in known:
        known[name] = read_bucket(store, folder, name, shards)
    return known[name]
