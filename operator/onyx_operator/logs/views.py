"""The logs that are followed: one view a cluster, shared by all its OnyxJobs."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence

from onyx.errors import OnyxError
from onyx.ids import JobId
from onyx.log.room import Usage
from onyx.reports.deaths import Death
from onyx.settings import Settings
from onyx_operator.logs.follower import Connect, Heir
from onyx_operator.logs.state import Trouble
from onyx_operator.logs.view import Changed, LogView
from onyx_operator.metrics import OperatorMetrics
from onyx_operator.settings import JobSettings

THREADS_MAX = 4
"""Threads that read and write the log of one cluster, in addition to its subscription."""


class LogViews:
    """Opens a view when a cluster is first asked for, closes those that nobody wants any more."""

    def __init__(
        self,
        settings: JobSettings,
        connect: Connect,
        changed: Changed,
        metrics: OperatorMetrics,
        heir: Heir,
        mark: str = "",
    ) -> None:
        self._heir = heir
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
            settings, self._connect, self._on_change, THREADS_MAX, self._heir, self._mark
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
        views = self._views.values()
        answers = await asyncio.gather(
            *(view.learn_progress() for view in views), return_exceptions=True
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
