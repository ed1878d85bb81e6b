"""The process of a query: started, listened to and ended, by a thread of its own.

The thread starts the process and lives as long as it: the kernel kills the process when the thread
that started it ends, so a killed worker takes its query along, JVM included. A thread of a pool
would do that too early.

To end a query its process gets SIGTERM, so that it can cancel what runs on a server elsewhere, and
a little later SIGKILL, with all that it has started on this machine.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from threading import Event, Lock, Thread, Timer

import msgspec

from onyx.base.structs import UNREADABLE
from onyx.errors import OnyxError, Unavailable, describe
from onyx.spark.child.environment import environment
from onyx.spark.driver.request import (
    Published,
    QueryBatch,
    QueryProgress,
    QueryReply,
    QueryRequest,
    lines,
)
from onyx.spark.processes import ProcessGroup, spark_scratch
from onyx.state.local.scratch import Scratch

logger = logging.getLogger("onyx.task")

COMMAND = (sys.executable, "-m", "onyx.spark_query")
CANCEL_TIMEOUT_S = 3.0
"""Between the request to end and the kill."""
EXIT_TIMEOUT_S = 10.0
"""Longest wait for the end of a process that has replied."""


class QueryProcess:
    """One run of a job on Spark."""

    def __init__(
        self,
        request: QueryRequest,
        wake: Callable[[], None],
        command: Sequence[str] | None = None,
    ) -> None:
        """`wake` is called on another thread, after each report and at the end. `command`: what to
        start in the place of `COMMAND`."""
        self._request = request
        self._wake = wake
        self._command = tuple(command or COMMAND)
        self._lock = Lock()
        self._process: ProcessGroup | None = None
        self._progress: QueryProgress | None = None
        self._batch: QueryBatch | None = None
        self._reply: QueryReply | None = None
        self._error: OnyxError | None = None
        self._over, self._unwanted = Event(), Event()
        self._then: Callable[[], None] | None = None
        Thread(target=self._run, name=f"onyx-query-{request.job_id}", daemon=True).start()

    @property
    def progress(self) -> QueryProgress | None:
        """The newest report; None before the first one."""
        return self._progress

    @property
    def batch(self) -> QueryBatch | None:
        """A micro-batch that is staged and not published; None if there is none."""
        return self._batch

    def published(self, number: int) -> None:
        """The micro-batch of this number is published: the query goes on."""
        self._batch = None
        if self._process is not None:
            self._process.write(msgspec.json.encode(Published(number)) + b"\n")

    @property
    def pid(self) -> int | None:
        """The pid of the process, once it is started."""
        return None if self._process is None else self._process.pid

    def reply(self) -> QueryReply | None:
        """How it ended; None while it runs, and while anything that it started may still write."""
        if not self._over.is_set():
            return None
        if self._error is not None:
            raise self._error
        return self._reply

    def end(self, then: Callable[[], None] | None = None) -> None:
        """End it if it runs, and remove its scratch folder."""
        with self._lock:
            if self._unwanted.is_set():
                return
            self._then = then
            self._unwanted.set()
            process = self._process
        if process is None or self._over.is_set():
            return
        process.ask_to_end()
        timer = Timer(CANCEL_TIMEOUT_S, process.kill)
        timer.daemon = True
        timer.start()

    def _run(self) -> None:
        scratch: Scratch | None = None
        try:
            scratch = spark_scratch()
            self._request = msgspec.structs.replace(
                self._request, parent_pid=os.getpid(), scratch=str(scratch.path)
            )
            self._converse()
        except OnyxError as error:
            self._error = error
        except (OSError, *UNREADABLE) as error:
            self._error = Unavailable(f"the process of the query: {describe(error)}")
        self._over.set()
        self._wake()
        self._unwanted.wait()
        if scratch is not None:
            scratch.remove()
        if self._then is not None:
            try:
                self._then()
            except Exception as error:
                logger.warning("job %s: what a query left: %s", self._request.job_id, error)

    def _converse(self) -> None:
        """Start the process, listen until it has ended, and end what it has left."""
        process = self._started()
        if process is None:
            return
        try:
            process.write(msgspec.json.encode(self._request) + b"\n")
            for line in process.stdout:
                self._hear(line)
            process.wait(EXIT_TIMEOUT_S if self._reply is not None else CANCEL_TIMEOUT_S)
        finally:
            process.end()
        process.stdout.close()
        if self._reply is None:
            raise Unavailable(
                f"the process of the query ended with code {process.exit_code} and no reply; its "
                f"last lines:\n  {process.last_lines}"
            )

    def _started(self) -> ProcessGroup | None:
        """The process; None when nobody wants it any more."""
        request = self._request
        variables = environment(request.master, request.scratch)
        with self._lock:
            if self._unwanted.is_set():
                return None
            self._process = ProcessGroup(self._command, variables)
            return self._process

    def _hear(self, line: bytes) -> None:
        said = lines.decode(line)
        if isinstance(said, QueryReply):
            self._reply = said
        else:
            if isinstance(said, QueryBatch):
                self._batch = said
            else:
                self._progress = said
            self._wake()
