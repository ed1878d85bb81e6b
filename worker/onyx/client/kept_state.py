"""The state of a window or of a function, read where it is kept, because no peer can be asked.

A job that nobody works on has it in the state log. One that was killed keeps its state until it is
forgotten (`onyx gc`), one that is suspended or waits for peers until it goes on. Nothing is written
or fenced: peers may begin to work on the job at any moment. A job on Spark has it in the chunks of
the last commit, whether it runs or not. Shard by shard is decoded, asked and dropped again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from onyx.client.committed_state import committed_state
from onyx.client.one_window import OneWindow, one_window
from onyx.client.reader import JobReader
from onyx.client.window_view import Asked, Question, asked_of
from onyx.errors import UserError
from onyx.flow.groups.keys import SHARDS, shard_of
from onyx.ids import JobId
from onyx.keyed.answers import OneState
from onyx.model.job import Job
from onyx.model.state_types import StateType
from onyx.resolve import Resolver
from onyx.settings import Settings
from onyx.state.opening import open_store, state_location
from onyx.state.recovery import look
from onyx.state.shard_state import ShardState
from onyx.state.sharing import is_shared
from onyx.storage.interface import BlobStore
from onyx.task.channels.wiring import has_one_owner
from onyx.windows.answers import Answer, merge
from onyx.windows.firing import ALL
from onyx.windows.groups import Shards
from onyx.windows.records import Record, WindowRecord


class KeptStates:
    """The states in the store that settings name. Implements `state_reader.ReadKept`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._last: tuple[object, Mapping[int, ShardState]] | None = None
        """What was read last: the pages behind the first one are of the same moment."""

    def __call__(self, client: JobReader, job: Job, question: Question) -> Answer:
        """The answer to a question.

        Raises:
            UserError: the state is not kept, or not where the settings say.
            StateError: a chunk is damaged.
            Unavailable: the store does not answer.
        """
        asked = asked_of(job, question)
        store = self._store_of(client, job, question.job)
        one = has_one_owner(job, asked.task)
        make = self._make(job, asked, _only_shard if one else shard_of)
        found = self._found(client, store, job, asked, question)
        answers = (_answer(make(), asked, question, shard) for shard in found.items())
        return merge(answers, question.extents_max)

    def _store_of(self, client: JobReader, job: Job, job_id: JobId) -> BlobStore:
        """Where the state of a job is kept."""
        if job.guarantee == "at-most-once" and job.engine != "spark":
            raise UserError(
                f"no peer works on job {job_id}, and a job that is at most once keeps its state in "
                "the memory of peers"
            )
        location = state_location(self._settings)
        store = open_store(location, self._settings.state.group_access)
        if not is_shared(store, client.log, job_id):
            raise UserError(
                f"the state of job {job_id} is not in {location}: it was never written, or is "
                "removed, because the job has completed or `onyx gc` forgot it, or ONYX_STATE_URL "
                "is not that of the workers"
            )
        return store

    def _make(
        self, job: Job, asked: Asked, shard_of: Callable[[Any], int]
    ) -> Callable[[], OneState | OneWindow]:
        """What gives the window or state that is asked for, with nothing in it."""
        if isinstance(asked.of, StateType):
            return partial(OneState, asked.in_records, asked.of, Shards(shard_of))
        return one_window(job, asked.of, self._resolve, shard_of)

    def _found(
        self, client: JobReader, store: BlobStore, job: Job, asked: Asked, question: Question
    ) -> Mapping[int, ShardState]:
        """What is kept of the shards that may have what is asked for, by their numbers."""
        shards = _shards(job, asked, question)
        what, last = (question.job, asked.task, shards), self._last
        if question.select.after is not None and last is not None and last[0] == what:
            return last[1]
        found: Mapping[int, ShardState]
        if job.engine == "spark":
            found = committed_state(client.log, store, question.job, asked.task, shards)
        else:
            found = look(store, question.job, asked.task, shards or [0]).shards
        self._last = what, found
        return found

    def _resolve(self, name: str) -> Callable[..., Any]:
        """A function that aggregates; with none, no module of the user is imported."""
        return Resolver(self._settings.modules).resolve(name)


def _answer(
    one: OneState | OneWindow, asked: Asked, question: Question, shard: tuple[int, ShardState]
) -> Answer:
    """The first extents of a shard."""
    number, state = shard
    for records in state.records():
        one.restore(number, [each for each in records if _is_of(each, asked.in_records)])
    found = one.query(question.select, question.extents_max + 1)
    return Answer(found[: question.extents_max], len(found) > question.extents_max)


def _is_of(record: Record, name: str) -> bool:
    return isinstance(record, WindowRecord) and record.window == name


def _shards(job: Job, asked: Asked, question: Question) -> list[int] | None:
    """The shards that may have what is asked for; None: the only one of a task without groups."""
    if has_one_owner(job, asked.task):
        return None
    key = question.select.key
    return list(range(SHARDS)) if key is ALL else [shard_of(key)]


def _only_shard(_: Any) -> int:
    return 0
