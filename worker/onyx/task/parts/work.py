"""The batch on its way through the phases."""

from __future__ import annotations

from collections import deque

import msgspec
from msgspec import field

from onyx.base.seams import Clock
from onyx.flow.batch import Batch
from onyx.ids import PeerId
from onyx.program.batch_work import BatchWork
from onyx.task.batching.timer import BatchTimer
from onyx.transport.interface import Control, Partial


class Pieces(msgspec.Struct):
    """What was read at once and is worked on piece by piece: because it has suspects, is too
    large, or has segments of several forms."""

    waiting: deque[Batch] = field(default_factory=deque)
    suspects: int = 0
    """The last so many pieces are one suspect each."""
    controls: list[tuple[PeerId, Control]] = field(default_factory=list)
    """Came with the batch, and go on with the last piece."""


class Work(BatchWork, kw_only=True):
    """The batch on its way through the phases, and what came with it."""

    timer: BatchTimer
    beside: list[Batch] = field(default_factory=list)
    """Segments of other forms that were read with the batch, before they are its pieces."""
    controls: list[tuple[PeerId, Control]] = field(default_factory=list)
    """Control items behind the batch, each with the peer that sent it."""
    partials: list[Partial] = field(default_factory=list)
    """States that came in place of segments, beside the batch."""
    pieces: Pieces = field(default_factory=Pieces)
    """What is still to come of the batch that was read."""
    others: deque[Batch] = field(default_factory=deque)
    """What came together with the batch from other tasks, where those are kept apart."""
    behind: list[tuple[PeerId, Control]] = field(default_factory=list)
    """Control items behind all of these."""
    alone: bool = False
    """Whether the batch is one suspect: no other task of the process may run user code."""
    kept: bool = False
    """Whether the batch has changed the state of the task, and waits until that is durable."""

    def take(self, batches: list[Batch]) -> None:
        """What was read: a batch of each form."""
        self.batch, self.beside = (batches[0], batches[1:]) if batches else (None, [])

    def forget_batch(self) -> None:
        """The batch is done, or of an old allocation version."""
        self.batch = self.leaves = self.groups = self.seen = self.routed = None
        self.returned, self.made, self.made_of, self.left = [], [], {}, None
        self.alone = self.kept = False

    def forget_all(self) -> None:
        """A new allocation version: control items and waiting pieces came on old channels."""
        self.forget_batch()
        self.controls, self.pieces = [], Pieces()
        self.behind, self.partials = [], []
        self.others.clear()


def new_work(clock: Clock) -> Work:
    """The work of a task that has no batch."""
    return Work(timer=BatchTimer(clock))
