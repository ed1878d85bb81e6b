"""One Spark child as its worker sees it: a process, orders to it, and its replies."""

from __future__ import annotations

import os
import queue
import sys
from threading import Thread
from typing import BinaryIO

import msgspec

from onyx.base.structs import UNREADABLE
from onyx.errors import Unavailable
from onyx.spark.child.environment import environment
from onyx.spark.child.protocol import Order, Reply, Run, encoded, read_line
from onyx.spark.child.request import StageRequest
from onyx.spark.process_group import TAIL_TIMEOUT_S, ProcessGroup
from onyx.spark.session.scratch import spark_scratch

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
            command = [sys.executable, "-m", _MODULE, str(os.getpid())]
            self._process = ProcessGroup(
                command, environment(master, str(self._scratch.path), taken)
            )
        except BaseException:
            self._scratch.remove()
            raise
        self._runs = 0
        self._replies: queue.SimpleQueue[bytes | Unavailable] = queue.SimpleQueue()
        stdout = self._process.stdout
        self._reader = Thread(target=_forward, args=(stdout, self._replies), daemon=True)
        self._reader.start()

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
        return self._process.alive

    def run(self, request: StageRequest) -> int:
        """Begin a run; its number."""
        self._runs += 1
        self._process.forget_lines()
        self.send(Run(self._runs, request))
        return self._runs

    def send(self, order: Order) -> None:
        """Send an order. A child that is gone is noticed by `reply`."""
        self._process.write(encoded(order))

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
        except UNREADABLE as error:
            raise Unavailable(f"the Spark child has written no reply: {error}") from error

    def end(self) -> None:
        """Kill what is left of the process and of those it started. Idempotent."""
        self._process.end()
        self._reader.join(TAIL_TIMEOUT_S)
        self._scratch.remove()

    def _died(self) -> ChildDied:
        self.end()
        return ChildDied(
            f"ended with code {self._process.exit_code} and no reply; its last lines:\n  "
            f"{self._process.last_lines}"
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
