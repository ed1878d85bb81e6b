"""The state of a window or of a function, read where it is kept, because no peer can be asked.

A job that nobody works on has it in the state log. One that was killed keeps its state until it is
forgotten (`onyx gc`), one that is suspended or waits for peers until it goes on. Nothing is written
or fenced: peers may begin to work on the job at any moment. A job on Spark has it in the chunks of
the last commit, whether it runs or not; a window that peers have Spark aggregate in files that the
state log names (`spark.answers`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from onyx.client.committed_state import committed_state
from onyx.client.kept_shards import Kept, asked_by_shard, asked_together
from onyx.client.kept_store import store_of
from onyx.client.one_window import one_by_spark, one_window
from onyx.client.reader import JobReader
from onyx.client.window_view import Asked, Question, asked_of
from onyx.errors import Unavailable
from onyx.flow.groups.keys import SHARDS, shard_of
from onyx.ids import JobId
from onyx.keyed.answers import OneState
from onyx.model.job import Job
from onyx.model.state_types import StateType
from onyx.resolve import Resolver
from onyx.settings import Settings
from onyx.spark.windows.spool import spool_of
from onyx.state.recovery import look
from onyx.task.channels.wiring import has_one_owner
from onyx.windows.answers import Answer
from onyx.windows.firing import ALL
from onyx.windows.groups import Shards


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
        asked = asked_of(job, question)
        shards = _shards(job, asked, question)
        what, last = (question.job, asked.name, shards), self._last
        if question.select.after is None or last is None or last[0] != what:
            last = self._last = what, self._read(client, job, question.job, asked, shards)
        try:
            return last[1](question)
        except Unavailable:
            self._last = None  # files may have gone that it names
            raise

    def _read(
        self, client: JobReader, job: Job, job_id: JobId, asked: Asked, shards: list[int] | None
    ) -> Kept:
        """Read what is kept of some shards."""
        store = store_of(self._settings, client.log, job, job_id)
        by, name = _only_shard if shards is None else shard_of, asked.in_records
        if job.engine == "spark":
            found = committed_state(client.log, store, job_id, asked.task, shards)
        else:
            found = look(store, job_id, asked.task, shards or [0]).shards
        if isinstance(asked.of, StateType):
            return asked_by_shard(name, partial(OneState, name, asked.of, Shards(by)), found)
        if job.engine != "spark" and asked.by_spark:
            folder = spool_of(store, job_id, asked.task)
            return asked_together(
                name, one_by_spark(job, asked.of, self._resolve, by, folder), found
            )
        return asked_by_shard(name, one_window(job, asked.of, self._resolve, by), found)

    def _resolve(self, name: str) -> Callable[..., Any]:
        """A function that aggregates; with none, no module of the user is imported."""
        return Resolver(self._settings.modules).resolve(name)


def _shards(job: Job, asked: Asked, question: Question) -> list[int] | None:
    """The shards that may have what is asked for; None: the only one of a task without groups."""
    if has_one_owner(job, asked.task):
        return None
    key = question.select.key
    return list(range(SHARDS)) if key is ALL else [shard_of(key)]


def _only_shard(_: Any) -> int:
    return 0
