"""Whether a job can upgrade an old one, by its log, its manifest and the answers of workers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from onyx.ids import JobId
from onyx.log.interface import ChunkGone
from onyx.model.job import Job
from onyx.replica.command import Command
from onyx.upgrade.plan import upgrading
from onyx_operator.logs.follower import Follower
from onyx_operator.logs.state import Upgrade
from onyx_operator.logs.upgrades import upgrade
from onyx_operator.logs.worker_checks import Checks


class Upgrading:
    """The upgrades of one log. Belongs to the event loop."""

    def __init__(
        self, log: Follower, checks: Checks, append: Callable[[Command], Awaitable[None]]
    ) -> None:
        """`append` writes a command and waits until it is seen in the log."""
        self._log = log
        self._checks = checks
        self._append = append

    async def judged(self, job: Job, old: JobId) -> Upgrade:
        """Whether a job can upgrade the job `old`.

        Raises:
            Unavailable: the log cannot be reached.
        """
        client = self._log.opened()
        found = await self._log.ask(upgrade, client.log, self._log.replica, job, old)
        if found.refusal or found.waits or old not in self._log.replica.jobs:
            return found
        assert found.upgrades is not None
        wanted = upgrading(job, found.upgrades)
        entry = self._checks.prepared(old, wanted)
        if entry is None:
            entry = await self._log.ask(client.prepare, JobId("new"), wanted)
            self._checks.remember(old, wanted, entry)
        now_s = asyncio.get_running_loop().time()
        found, question = self._checks.judge(found, old, entry, self._log.replica, now_s)
        if question is not None:
            try:
                await self._append(question)
            except ChunkGone:
                self._checks.forget(old)
                raise
        return found
