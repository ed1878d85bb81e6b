"""One Spark child as its worker sees it: a process, orders to it, and its replies.

The process leads a session of its own, so that it and all that it starts can be ended together. The
kernel kills it when the thread that started it ends (`child.serve`), and the JVM follows.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
from collections import deque
from threading import Thread
from typing import IO, BinaryIO, cast

import msgspec

from onyx.errors import Unavailable
from onyx.spark.child.environment import environment
from onyx.spark.child.protocol import Order, Reply, Run, read_line, write_message
from onyx.spark.child.request import StageRequest
from onyx.spark.session.scratch import spark_scratch

STDERR_LINES_MAX = 20
"""Last lines that are kept, for the error when the process dies."""
END_WAIT_S = 5.0
"""Longest wait for the last lines of a process that was killed."""
_MODULE = "onyx.spark.child.serve"
_REPLIES: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)


class ChildDied(Unavailable):
    """The process ended without a reply."""


class Child:
    """Made by the thread of a `Keeper`; used by one thread at a time."""

    def __init__(self, master: str, taken: dict[str, str]) -> None:
        """
        Raises:
            SettingsError: the machine lacks a Java, a name for the user, or a temporary folder.
            Blocked: there is no room for Spark's files.
        """
        self._scratch = spark_scratch()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", _MODULE, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                env=environment(master, str(self._scratch.path), taken),
            )
        except BaseException:
            self._scratch.remove()
            raise
        self._runs = 0
        self._tail: deque[str] = deque(maxlen=STDERR_LINES_MAX)
        self._replies: queue.SimpleQueue[bytes | Unavailable] = queue.SimpleQueue()
        self._readers = [
            Thread(target=_forward, args=(self._process.stdout, self._replies), daemon=True),
            Thread(target=_drain, args=(self._process.stderr, self._tail), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        """The pid of the process."""
        return self._process.pid

    @property
    def fresh(self) -> bool:
        """Whether it has run nothing yet."""
        return self._runs == 0

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def run(self, request: StageRequest) -> int:
        """Begin a run; its number."""
        self._runs += 1
        self._tail.clear()
        self.send(Run(self._runs, request))
        return self._runs

    def send(self, order: Order) -> None:
        """Send an order. A child that is gone is noticed by `reply`."""
        with contextlib.suppress(OSError):
            write_message(cast(BinaryIO, self._process.stdin), order)

    def reply(self, timeout_s: float) -> Reply | None:
        """The next reply; None if there is none in time.

        Raises:
            ChildDied: there will be none.
            Unavailable: the child has written something else.
        """
        try:
            line = self._replies.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(line, Unavailable):
            raise line
        if not line:
            raise self._died()
        try:
            return _REPLIES.decode(line)
        except msgspec.DecodeError as error:
            raise Unavailable(f"the Spark child has written no reply: {error}") from error

    def end(self) -> None:
        """Kill what is left of the process and of those it started. Idempotent."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        with contextlib.suppress(OSError):
            cast(BinaryIO, self._process.stdin).close()
        for reader in self._readers:
            reader.join(END_WAIT_S)
        self._scratch.remove()

    def _died(self) -> ChildDied:
        self.end()
        last = "\n  ".join(self._tail) or "nothing"
        return ChildDied(
            f"ended with code {self._process.returncode} and no reply; its last lines:\n  {last}"
        )


def _forward(stream: BinaryIO, replies: queue.SimpleQueue[bytes | Unavailable]) -> None:
    """Until the end of the stream, which is forwarded as an empty line."""
    with stream:
        try:
            while line := read_line(stream):
                replies.put(line)
        except Unavailable as error:
            replies.put(error)
    replies.put(b"")


def _drain(stream: IO[bytes], tail: deque[str]) -> None:
    with stream:
        for line in stream:
            tail.append(line.decode("utf-8", "replace").rstrip())
