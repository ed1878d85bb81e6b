"""Reports deaths of worker processes to the cluster, by the process that outlives them.

The segments over which a process has died are replayed to others when its session has expired. They
have to know by then that these are suspects, or the next process dies over a whole batch as well.
The successor of the dead process comes too late for that: it waits for its turn, starts, loads
what the user names and connects. The supervisor has seen the death at once, and to write an entry
takes it some tenths of a second.

A report that could not be written is made by the successor. It makes all others again as well,
because only who reads the log knows that they are there: a report that comes twice counts once.

Rejected: the session of the dead process, taken over to hold the replay back. Who connects in time
for that can as well write the entry in time.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Sequence

from onyx.errors import OnyxError
from onyx.replica.commands import ReportLoss
from onyx.reports.deaths import Death
from onyx.settings import Settings

logger = logging.getLogger("onyx.supervisor")

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
        # Most supervisors never need the client of ZooKeeper, and are small without.
        from onyx.client.deaths import report_death
        from onyx.log.zookeeper.log import ZooKeeperClientLog

        def write(report: ReportLoss | Death) -> None:
            if isinstance(report, Death):
                report_death(log, report)
            else:
                log.append(report)

        log = ZooKeeperClientLog(self._settings)
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
