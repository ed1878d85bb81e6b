"""The Spark child: `python -m onyx.spark.child.serve PARENT`, orders on standard input, replies on
standard output, everything that stages or Spark print on standard error.

A process of its own, because a JVM inside the worker would outlive a killed task, could not be
stopped when a stage hangs, and would keep the worker's memory high for good.

The main thread runs stages: PySpark gives each thread of Python one of the JVM, and the jobs of a
run must be found under its group. Another thread reads orders, so that a run can be cancelled.
"""

from __future__ import annotations

import os
import queue
import sys
import tempfile
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from onyx.base.parent import die_with
from onyx.spark.child.protocol import (
    Cancel,
    Ended,
    Go,
    Order,
    Progressed,
    Reply,
    Run,
    StageFailure,
    Writing,
    read_line,
    write_message,
)
from onyx.spark.child.run_stage import Turn, answer
from onyx.spark.session.kept import Sessions, kept_sessions

REPORT_INTERVAL_S = 1.0
REPORT_WAIT_S = 5.0
"""Longest wait for the last report of a run."""
_ORDERS = msgspec.json.Decoder(Order)


class ChildServer:
    """Runs what it is asked to, one run after the other."""

    def __init__(self, orders: BinaryIO, replies: BinaryIO, scratch: Path) -> None:
        self._orders = orders
        self._replies = replies
        self._scratch = scratch
        self._sessions: Sessions | None = None
        self._runs: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
        self._replying = threading.Lock()
        self._cancelled = 0
        """Number of the newest run that was cancelled."""
        self._answered = threading.Event()
        """The worker has answered `Writing`, or cancelled the run."""

    def serve(self) -> None:
        """Until there are no more orders."""
        threading.Thread(target=self._read, daemon=True).start()
        while (run := self._runs.get()) is not None:
            self._reply(Ended(run.number, self._answer(run)))

    def _answer(self, run: Run) -> StageFailure | None:
        request = run.request
        if self._sessions is None:
            self._sessions = kept_sessions(request.master, self._scratch, request.spark_conf)
        turn = Turn(
            self._sessions,
            f"onyx-{run.number}",
            self._scratch,
            lambda: self._cancelled >= run.number,
            lambda: self._ask(run.number),
            lambda: self._report(run.number),
        )
        ended = threading.Event()
        reporter = threading.Thread(target=self._follow, args=(run.number, ended), daemon=True)
        reporter.start()
        try:
            return answer(request, turn)
        finally:
            ended.set()
            reporter.join(REPORT_WAIT_S)

    def _follow(self, number: int, ended: threading.Event) -> None:
        while not ended.wait(REPORT_INTERVAL_S):
            self._report(number)

    def _report(self, number: int) -> None:
        with suppress(Exception):  # a JVM that does not answer fails the run itself
            if self._sessions is not None and (progress := self._sessions.progress()) is not None:
                self._reply(Progressed(number, progress))

    def _reply(self, message: Reply) -> None:
        with self._replying:
            write_message(self._replies, message)

    def _ask(self, number: int) -> None:
        """Wait until the worker permits a direct write, or has cancelled the run."""
        self._answered.clear()
        if self._cancelled < number:
            self._reply(Writing(number))
            self._answered.wait()

    def _read(self) -> None:
        """Orders, as they come. The end of the stream is the end of the worker: what runs then has
        nobody to answer to."""
        try:
            while line := read_line(self._orders):
                self._take(_ORDERS.decode(line))
        except Exception:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def _take(self, order: Order) -> None:
        match order:
            case Run():
                self._runs.put(order)
            case Cancel():
                self._cancel(order)
            case Go():
                self._answered.set()

    def _cancel(self, order: Cancel) -> None:
        self._cancelled = order.number
        self._answered.set()
        if self._sessions is not None:
            with suppress(Exception):  # a run that does not end in time is killed
                self._sessions.cancel()


def main(parent_pid: int) -> None:
    """Serve one worker."""
    die_with(parent_pid)
    orders, replies = _own_streams()
    scratch = Path(tempfile.mkdtemp(prefix="onyx-spark-"))  # inside one that the worker removes
    ChildServer(orders, replies, scratch).serve()


def _own_streams() -> tuple[BinaryIO, BinaryIO]:
    """Standard input and output for messages alone: a stage reads nothing, and what it prints goes
    to standard error."""
    kept = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return kept


if __name__ == "__main__":
    main(int(sys.argv[1]))
    # At once: a connection to a server that says nothing would hold the process.
    os._exit(0)
