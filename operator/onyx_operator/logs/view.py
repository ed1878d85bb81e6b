"""The logs of clusters as controllers see them, and written to: one view a cluster, shared by all
of its OnyxJobs.

One subscription a cluster, however many jobs: the log folds into one replica here as at every peer
(`follower`). What stands beside the log is read now and then (`documents`). Methods belong to the
event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from onyx.errors import OnyxError
from onyx.ids import JobId
from onyx.log.acts import Act
from onyx.log.tenancy import Usage
from onyx.model.job import Job
from onyx.replica.command import Command
from onyx.replica.state import Replica
from onyx.reports.deaths import Death
from onyx.settings import Settings
from onyx_operator.logs.documents import JobDocuments
from onyx_operator.logs.follower import Connect, Follower, Heir, Listener, Servers
from onyx_operator.logs.jobs import by_owner, changed_jobs, jobs_that_wait, stage_of
from onyx_operator.logs.lags import JobLags, Workers
from onyx_operator.logs.state import Log, Stage, Trouble, UpgradeVerdict
from onyx_operator.logs.upgrading import Checks, UpgradeJudge
from onyx_operator.metrics import OperatorMetrics
from onyx_operator.owners import JobOwner
from onyx_operator.settings import JobSettings
from onyx_operator.work_queue import ObjectKey

Changed = Callable[[Collection[JobId] | None], None]
"""Called with the jobs that have changed; None: all, because the log was found or lost."""

WAITING_INTERVAL_S = 5.0
"""Jobs that wait for peers are looked at again at most once in this time."""
THREADS_MAX = 4
"""Threads that read and write the log of one cluster, in addition to its subscription."""


class LogView:
    """A log as controllers see it. `connect` opens a log; `changed` is called on the event loop."""

    def __init__(
        self,
        settings: Settings,
        connect: Connect,
        changed: Changed,
        threads_max: int,
        heir: Heir,
        workers: Workers,
        servers: Servers,
        mark: str = "",
    ) -> None:
        self._changed = changed
        self._mark = mark
        self._owned: tuple[Any, Mapping[ObjectKey, Mapping[str, list[JobId]]]] = (None, {})
        self._looks_at_waiting = False
        self._checks = Checks()
        listener = Listener(self._checks.hear, self._moved, lambda: changed(None))
        self._log = Follower(settings, connect, threads_max, listener, heir, servers)
        self._documents = JobDocuments(self._log, changed)
        self._lags = JobLags(self._log, partial(workers, settings), changed, settings.tenancy_id)
        self._upgrade_judge = UpgradeJudge(self._log, self._checks, self.append)

    @property
    def trouble(self) -> Trouble | None:
        """Why the log cannot be used now; None while it can."""
        return self._log.trouble

    @property
    def usage(self) -> Usage | None:
        """What the tenancy held some seconds ago; None before that is known."""
        return self._log.usage

    @property
    def deaths(self) -> Sequence[Death]:
        """Worker processes that have died in the last minutes."""
        return self._documents.deaths

    def seen(self, jobs: Iterable[JobId], owner: JobOwner) -> Log | Trouble:
        """What is known of some jobs, and of whoever had their owner's name, or why nothing is."""
        if self.trouble is not None:
            return self.trouble
        found = {job: replace(self._documents.shown(job), lag=self._lags.of(job)) for job in jobs}
        others = self.owned(owner.key).items()
        orphans = tuple(job for uid, jobs in others if uid != owner.uid for job in jobs)
        return Log(self._log.replica.version, found, orphans)

    def owned(self, key: ObjectKey) -> Mapping[str, Collection[JobId]]:
        """The jobs that have not ended of an object called so, and of others before it that were
        called so, by its uid."""
        return self._by_owner().get(key, {})

    def owners(self) -> list[JobOwner]:
        """Every object of this API server that has a job which has not ended."""
        found = self._by_owner().items()
        return [
            JobOwner(self._mark, key.namespace, key.name, uid)
            for key, jobs in found
            for uid in jobs
        ]

    def _by_owner(self) -> Mapping[ObjectKey, Mapping[str, list[JobId]]]:
        jobs = self._log.replica.jobs
        if self._owned[0] is not jobs:
            self._owned = jobs, by_owner(self._log.replica, self._mark)
        return self._owned[1]

    def stage_of(self, job: JobId) -> Stage:
        """The stage of a job now, without the rest of `seen`."""
        return stage_of(self._log.replica, job)

    async def upgrade(self, job: Job, old: JobId) -> UpgradeVerdict:
        """Whether a job can upgrade the job `old`.

        Raises:
            Unavailable: the log cannot be reached.
        """
        return await self._upgrade_judge.judged(job, old)

    async def begins(self, job_id: JobId, job: Job) -> UpgradeVerdict:
        """Whether a job can begin with its savepoint. Raises like `upgrade`."""
        return await self._upgrade_judge.begins(job_id, job)

    async def learn(self, job: JobId) -> None:
        """Find out what killed a job, and how far one that has ended came, if that is not known.

        Raises:
            Unavailable: the log cannot be reached.
        """
        await self._documents.job(job)

    async def learn_progress(self) -> None:
        """Look how far the jobs with peers are, and what keeps those that do not advance: so many
        documents at a time, in turn."""
        await self._documents.progress()

    async def learn_lags(self) -> None:
        """Ask the workers how far the jobs with peers are behind."""
        await self._lags.look()

    async def submit(self, job_id: JobId, job: Job, owner: str, by: str) -> None:
        """Write the submission of a job, that somebody wishes, and wait until it is seen in the
        log.

        Raises:
            NoRoom: the tenancy would hold too much.
            Unavailable: it may have been written or not; a repeat does no harm.
        """
        client = self._log.opened()
        replica = self._log.replica
        await self._log.arrived(
            await self._log.ask(client.hand_in, job_id, job, owner, replica, by)
        )

    async def act(self, command: Act, by: str) -> None:
        """Write what somebody wishes for a job, and wait until it is seen in the log. Raises as
        `append`."""
        await self._log.arrived(await self._log.ask(self._log.opened().act, command, by))

    async def append(self, command: Command) -> None:
        """Write a command and wait until it is seen in the log.

        Raises:
            Unavailable: it may have been written or not; a repeat does no harm.
        """
        await self._log.arrived(await self._log.ask(self._log.opened().log.append, command))

    async def close(self) -> None:
        """Stop following; the session ends in the background."""
        await self._log.close()

    def _moved(self, old: Replica, new: Replica) -> None:
        """Report the jobs that have changed."""
        changed = changed_jobs(old, new)
        changed |= set(self._checks.answered())
        if changed:
            self._changed(changed)
        moved = (job for job in changed if old.run(job).allocation is not new.run(job).allocation)
        if old.peers != new.peers or any(moved):
            self._look_at_waiting()

    def _look_at_waiting(self) -> None:
        if not self._looks_at_waiting:
            self._looks_at_waiting = True
            asyncio.get_running_loop().call_later(WAITING_INTERVAL_S, self._tell_waiting)

    def _tell_waiting(self) -> None:
        self._looks_at_waiting = False
        self._changed(list(jobs_that_wait(self._log.replica)))


class LogViews:
    """Opens a view when a cluster is first asked for, closes those that nobody wants any more."""

    def __init__(
        self,
        settings: JobSettings,
        connect: Connect,
        changed: Changed,
        metrics: OperatorMetrics,
        heir: Heir,
        workers: Workers,
        servers: Servers,
        mark: str = "",
    ) -> None:
        self._heir, self._servers = heir, servers
        self._workers = workers
        self._mark = mark
        self._settings = settings
        self._connect = connect
        self._changed = changed
        self._metrics = metrics
        self._views: dict[Settings, LogView] = {}

    def view(self, settings: Settings) -> LogView | Trouble:
        """The view of the log that these settings lead to."""
        found = self._views.get(settings)
        if found is not None:
            return found
        if len(self._views) >= self._settings.logs_max:
            message = (
                f"{len(self._views)} logs are followed already: raise ONYX_OPERATOR_JOBS_LOGS_MAX"
            )
            return Trouble("TooManyClusters", message)
        made = LogView(
            settings,
            self._connect,
            self._on_change,
            THREADS_MAX,
            self._heir,
            self._workers,
            self._servers,
            self._mark,
        )
        self._views[settings] = made
        return made

    def items(self) -> list[tuple[Settings, LogView]]:
        """Every log that is followed."""
        return list(self._views.items())

    def deaths(self, settings: Settings) -> Sequence[Death]:
        """Worker processes of a cluster that have died in the last minutes, as far as its log has
        been read."""
        view = self._views.get(settings)
        return () if view is None else view.deaths

    def trouble(self, settings: Settings) -> Trouble | None:
        """Why the log of a cluster cannot be used, if it cannot be."""
        found = self.view(settings)
        return found if isinstance(found, Trouble) else found.trouble

    def usage(self, settings: Settings) -> Usage | None:
        """What the tenancy of a cluster held some seconds ago, if that is known."""
        view = self._views.get(settings)
        return None if view is None else view.usage

    async def keep(self, wanted: Iterable[Settings]) -> None:
        """Close all views but these."""
        keep = set(wanted)
        gone = [settings for settings in self._views if settings not in keep]
        await asyncio.gather(*(self._views.pop(settings).close() for settings in gone))
        self._count()

    async def learn_progress(self) -> None:
        """Ask every log how far its jobs are, all at the same time."""
        await self._of_all(LogView.learn_progress)

    async def learn_lags(self) -> None:
        """Ask the workers of every log how far its jobs are behind, all at the same time."""
        await self._of_all(LogView.learn_lags)

    async def _of_all(self, learn: Callable[[LogView], Awaitable[None]]) -> None:
        answers = await asyncio.gather(
            *(learn(view) for view in self._views.values()), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, OnyxError):
                raise answer

    def _on_change(self, jobs: Collection[JobId] | None) -> None:
        self._count()
        self._changed(jobs)

    def _count(self) -> None:
        unreachable = sum(view.trouble is not None for view in self._views.values())
        self._metrics.clusters(len(self._views) - unreachable, unreachable)
