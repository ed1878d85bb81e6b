"""Sessions of one Spark child: each run has its own, and what is dear is kept between them.

Settings, temporary views, functions and artifacts belong to a session, so no run finds those of the
run before. With a classic master the JVM and its SparkContext are kept, with Spark Connect only the
Python process, because the JVM is the server's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from onyx.errors import Unavailable
from onyx.plugins.protocol import SealProgress
from onyx.spark.session.jvm import how_ended
from onyx.spark.session.masters import is_connect
from onyx.spark.session.opening import open_session
from onyx.spark.session.progress import GROUP, ConnectProgress, progress_of

NAME = "onyx"
"""The name of the application, which serves many runs; a run's own name is that of its jobs."""


class StaleSession(Unavailable):
    """What was kept is dead; a new process is needed. Nothing of the run has begun."""


class Sessions(Protocol):
    """The sessions of one master and its settings."""

    def open(self, group: str, name: str) -> Any:
        """A session for a run. Called by the main thread.

        Args:
            group: by which the jobs of the run are found, unique in the process.
            name: shown by Spark.

        Raises:
            StaleSession: see there.
            Unavailable: Spark does not start, or no server answers.
            UserError: a setting is refused.
        """
        ...

    def cancel(self) -> None:
        """End the jobs of the run, and those that it may still begin. From any thread."""
        ...

    def progress(self) -> SealProgress | None:
        """How far the run is; None if there is nothing to say. From any thread."""
        ...

    def how_ended(self) -> str:
        """After a failure: how the JVM that we have started has ended; empty if it runs. Blocks for
        a second."""
        ...

    def close(self) -> None:
        """End the run's session."""
        ...


def kept_sessions(master: str, scratch: Path, extra: Mapping[str, str]) -> Sessions:
    """For a master; nothing is started yet.

    Args:
        scratch: folder for what Spark likes to leave somewhere.
        extra: `sparkConf`.
    """
    kind = _ConnectSessions if is_connect(master) else _ClassicSessions
    return kind(master, scratch, extra)


@contextmanager
def sessions_beside(
    session: Any, master: str, scratch: Path, extra: Mapping[str, str]
) -> Iterator[Sessions]:
    """Sessions for runs in the Spark of a session that goes on afterwards."""
    if is_connect(master):
        yield _ConnectSessions(master, scratch, extra)
        return
    from pyspark.sql import SparkSession

    beside = _ClassicSessions(master, scratch, extra)
    beside.base = session
    before = SparkSession._instantiatedSession, SparkSession._activeSession
    try:
        yield beside
    finally:
        SparkSession._instantiatedSession, SparkSession._activeSession = before
        with contextlib.suppress(Exception):  # a JVM that is gone; what a run has raised says so
            session.sparkContext.setJobGroup(GROUP, GROUP)  # of the progress that is reported


class _ClassicSessions:
    def __init__(self, master: str, scratch: Path, extra: Mapping[str, str]) -> None:
        self._how = (master, NAME, scratch, extra)
        self.base: Any = None
        """The base of the context, which stays."""
        self._own: Any = None
        self._group = ""

    def open(self, group: str, name: str) -> Any:
        kept = self.base is not None
        if not kept:
            self.base = open_session(*self._how)
        from pyspark.sql import SparkSession

        try:
            # A session takes the place of the default one only where there is none; then it is the
            # one that `getOrCreate` finds in the user's code.
            SparkSession._instantiatedSession = SparkSession._activeSession = None
            self._own = self.base.newSession()
            self._own.sparkContext.setJobGroup(group, name, interruptOnCancel=True)
        except Exception as error:
            if kept:
                raise StaleSession(f"the JVM of Spark is gone: {error}") from error
            raise
        self._group = group
        return self._own

    def cancel(self) -> None:
        if self._group:
            self.base.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(self._group)

    def progress(self) -> SealProgress | None:
        return progress_of(self.base.sparkContext, self._group) if self._group else None

    def how_ended(self) -> str:
        return "" if self.base is None else how_ended(self.base.sparkContext._gateway)

    def close(self) -> None:
        """What the run has cached would stay in the heap."""
        own, self._own, self._group = self._own, None, ""
        for query in own.streams.active:
            query.stop()
        own.catalog.clearCache()
        for kept in own.sparkContext._jsc.getPersistentRDDs().values():
            kept.unpersist()
        own.sparkContext._jsc.clearJobGroup()


class _ConnectSessions:
    def __init__(self, master: str, scratch: Path, extra: Mapping[str, str]) -> None:
        self._how = (master, NAME, scratch, extra)
        self._own: Any = None
        self._progress = ConnectProgress()

    def open(self, group: str, name: str) -> Any:
        self._progress = ConnectProgress()
        self._own = open_session(*self._how)
        self._own.registerProgressHandler(self._progress.take)
        return self._own

    def progress(self) -> SealProgress | None:
        return self._progress.value

    def cancel(self) -> None:
        if self._own is not None:
            self._own.interruptAll()

    def how_ended(self) -> str:
        return ""  # the server is not ours, and `connect.is_lost` knows its errors

    def close(self) -> None:
        own, self._own, self._progress = self._own, None, ConnectProgress()
        own.stop()
