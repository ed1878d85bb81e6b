"""Segments pass through the tasks of a fragment, depth first, in one process.

Each task does with a batch what it does on a peer, by the same code: its function, its conditions,
dead letters, windows. Instead of being sent, what comes out is pushed into the next task, or put
into the outlet where that one is behind a shuffle.

A retry that a function or a condition asks for is done here, in the process that has the segments
that failed, because nothing of them has gone anywhere. Attempts are counted in roots, as on peers,
though nothing here is acked.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from onyx.base.runs import array_of
from onyx.codec.segments import decode, encode
from onyx.flow.batch import Batch, Indices, Segments, as_given, as_shown, copies_of
from onyx.flow.groups.grouping import GroupChecks
from onyx.flow.leaves import Leaves
from onyx.flow.routed import Outgoing, Routed, laps_of
from onyx.ledger.lineage import FINAL, tries_of
from onyx.ledger.retry_delay import DEFAULT, RetryDelay
from onyx.model.workflow import laps_to
from onyx.program.batch_work import BatchWork, apply, route, route_emitted
from onyx.program.operator import Operator
from onyx.program.phases import Phase
from onyx.program.program import Program
from onyx.spark_query.counting import Counting
from onyx.spark_query.failure import Disordered, TaskFailed
from onyx.spark_query.folding.combine import Combining
from onyx.spark_query.outlet import Outlet
from onyx.spark_query.programs import Query
from onyx.spark_query.sinks import Sinks

ATTEMPT = 1 << 40
"""One attempt, in a root."""
Sleep = Callable[[float], None]


class _Tried(NamedTuple):
    """What is not done with of a batch."""

    again: Batch
    """To be tried again."""
    left: Batch | None = None
    """Left in the inbox of the operator."""


class Tree:
    """The tasks of a fragment in one task of Spark."""

    def __init__(self, query: Query, sinks: Sinks, retrying: Retrying | None = None) -> None:
        self._query = query
        self._sinks = sinks
        self._retrying = retrying or Retrying()
        self._programs: dict[str, Program] = {}
        self._checks: dict[str, GroupChecks] = {}
        self.counting = Counting()
        self.examined: set[str] = set()
        """Inputs of which every segment can travel."""
        self._combining: dict[str, Combining] = {}
        self.outlet: Outlet
        """The outlet of the origin whose segments are pushed."""
        self.bucket = 0
        """The bucket of these segments, behind a shuffle."""
        self._laps: dict[tuple[str, str], int | None] = {}
        """What going from a task to a child adds to the laps of segments."""
        self._back: dict[str, list[Batch]] = {}
        """By task, what is to go there once more."""

    def program(self, task: str) -> Program:
        """The program of a task, made when it is needed first."""
        if task not in self._programs:
            try:
                program = self._query.program(task, lambda: self.bucket)
            except Exception as error:
                raise self.failure(task, Phase.BUILD.value, error) from error
            shuffled = [each for each in program.routes.groupings if self._is_sent(each)]
            self._programs[task] = program
            self.counting.metrics[task] = program.metrics
            self._checks[task] = GroupChecks(program.routes.groupings, shuffled)
            for child in program.routes.children:
                self._laps[task, child] = laps_to(program.job, task, child)
        return self._programs[task]

    def failure(
        self, task: str, phase: str, error: Exception, batch: Batch | None = None
    ) -> Exception:
        """What is raised when a task has failed, over a batch."""
        return self._query.failure(task, phase, error, batch)

    def blamed(self, task: str, phase: str, error: Exception) -> Exception:
        """What is raised when something raises that a task has done, or one that it has fed."""
        return (
            error
            if isinstance(error, TaskFailed | Disordered)
            else self.failure(task, phase, error)
        )

    def push(self, task: str, batch: Batch, operator: Operator | None = None) -> Indices:
        """A batch comes to a task, or is of the rows of its Spark stage. Returns the indices of the
        segments that the operator has left in its inbox.

        Args:
            operator: of the task, if it has one.

        Raises:
            TaskFailed: a segment has failed, and nothing takes care of it.
        """
        left = self._push(task, batch, operator)
        # Here, where its loop begins: calls would be as deep as there are laps. The newest first,
        # so that what waits is bounded by the laps, and by what one segment becomes in each.
        while waiting := self._back.get(task):
            self._push(task, waiting.pop(), operator)
        return left

    def _push(self, task: str, batch: Batch, operator: Operator | None) -> Indices:
        program = self.program(task)
        most = program.entry.batch_size or len(batch)
        found = [np.empty(0, np.intp)]
        if program.has_inbox:
            batch.ids = np.arange(len(batch), dtype=np.uint64)
        for first in range(0, len(batch), max(most, 1)):
            part = batch.slice(first, first + most) if len(batch) > most else batch
            if operator is not None and (len(found) > 1 or operator.unfinished):
                found.append(_places(part))
                continue
            if program.retries:
                self._retrying.first(part)
            while len(part):
                part, left = self._try(program, part, operator)
                if left is not None:
                    found.append(_places(left))
                if operator is not None and operator.unfinished and len(part):
                    found.append(_places(part))
                    break
        left_at = np.sort(np.concatenate(found))
        if program.entry.stage is None:  # what came to the stage was counted
            self.counting.read[task] += len(batch) - len(left_at)
        return left_at

    def end(self) -> None:
        """The origin has no more segments: what was folded of them leaves."""
        assert not any(self._back.values()), "a loop is entered where it begins"
        for task, combining in self._combining.items():
            self._leave(task, combining)
        self._combining.clear()

    def emit(self, task: str, segments: Segments, child: str | None) -> None:
        """Segments that triggers of a task have emitted; late ones are for a child of their own."""
        program = self.program(task)
        batch = Batch(segments)
        try:
            routed = route_emitted(program, self._checks[task], batch, child)
        except Exception as error:
            raise self.failure(task, Phase.SEND.value, error) from error
        self._pass_on(program, batch, routed)

    def _try(self, program: Program, batch: Batch, operator: Operator | None) -> _Tried:
        """Work on a batch; what is to be tried again has its attempts as roots."""
        # Before the function has them: it may change segments, and a retry begins from what came.
        unchanged = self._unchanged(program, batch) if program.retries else None
        phase = Phase.APPLY_FN
        try:
            work = self._applied(program, batch, operator)
            if work.batch is None:
                return _Tried(Batch([]), work.left)
            assert work.leaves is not None
            phase = Phase.ROUTE
            if operator is not None:
                operator.look(work)
            route(program, self._checks[program.task], work)
            routed = work.routed
            assert routed is not None, "there is a batch"
            if operator is not None:
                phase = Phase.ASSIGN_WINDOWS
                operator.change(work)
            if program.entry.type == "output":
                phase = Phase.SEND
                self._sinks.write(program.task, work.leaves.segments)
                self.counting.written[program.task] += len(work.leaves.segments)
        except TaskFailed:
            raise
        except Exception as error:
            raise self.failure(program.task, phase.value, error, batch) from error
        self._pass_on(program, work.batch, routed)
        if unchanged is None or not routed.retries:
            return _Tried(Batch([]), work.left)
        before = unchanged()
        if work.left is not None:
            before = before.take(np.flatnonzero(np.isin(_places(before), _places(work.batch))))
        return _Tried(self._retrying.again(before, routed), work.left)

    def _unchanged(self, program: Program, batch: Batch) -> Callable[[], Batch]:
        conditions = program.routes.conditions
        deeply = conditions is not None and conditions.retries
        return self._retrying.unchanged(batch, deeply)

    def _applied(self, program: Program, batch: Batch, operator: Operator | None) -> BatchWork:
        if program.observed:
            if program.takes == "dicts":
                batch.segments = as_shown(batch.segments)
            program.event["batch"] = as_given(batch.segments)
        work = BatchWork(batch, own=program.entry.stage is not None)
        read = program.entry.type == "input" and program.task not in self.examined
        if operator is None:
            apply(program, work, examined=not read)
        else:
            operator.apply(work, examined=not read)
        return work

    def _pass_on(self, program: Program, batch: Batch, routed: Routed) -> None:
        shares: list[tuple[str, Outgoing]] = []
        for child in program.routes.children:
            for share in [*routed.shares_of(child), *routed.loose_of(child)]:
                if routed.shared and shares:
                    share.segments = copies_of(share.segments)
                shares.append((child, share))
        for child, share in shares:
            self.counting.written[program.task] += len(share)
            if self._query.plan.middle(child) is not None:
                self._bundle(child, program.task, share.segments)
                continue
            if child == program.entry.loop_to:
                self._back.setdefault(child, []).append(self._sent(program, batch, child, share))
                continue
            if not self.outlet.leads_to(child):
                self.push(child, self._sent(program, batch, child, share))
                continue
            if not self._is_sent(child):
                self._combine(child, share)
                continue
            hashes, grouping = share.hashes, program.routes.groupings.get(child)
            if hashes is None and grouping is not None:
                hashes = grouping.hashes_of(share.segments)
            self.outlet.put(child, program.task, share.segments, hashes)

    def _sent(self, program: Program, batch: Batch, child: str, share: Outgoing) -> Batch:
        """What a child gets, with how often it has gone back."""
        more = self._laps[program.task, child]
        laps = None if more is None else laps_of(batch.laps, len(batch), share.parents, more)
        return Batch(share.segments, laps=laps)

    def _bundle(self, child: str, task: str, segments: Segments) -> None:
        """Write segments for a Spark stage."""
        self.counting.read[child] += len(segments)
        program, phase = self.program(child), Phase.ROUTE
        try:
            if program.routes.handles_failures:
                segments = self._without_misfits(program, task, segments)
            phase = Phase.SEND
            self._sinks.bundle(child, task, segments)
        except TaskFailed:
            raise
        except Exception as error:
            raise self.failure(child, phase.value, error) from error

    def _without_misfits(self, program: Program, task: str, segments: Segments) -> Segments:
        """Segments of a task that its Spark stage can have; the others have failed."""
        misfits = self._sinks.misfits(program.task, task, segments)
        if not misfits:
            return segments
        leaves = Leaves(segments).without(misfits)
        batch = Batch(segments)
        work = BatchWork(batch)
        work.leaves = leaves
        route(program, self._checks[program.task], work)
        assert work.routed is not None, "there is a batch"
        self._pass_on(program, batch, work.routed)
        return leaves.segments

    def _is_sent(self, child: str) -> bool:
        """Whether segments for a child are shuffled."""
        exchange = self._query.plan.exchange(child)
        return exchange is not None and not exchange.combined

    def _combine(self, child: str, share: Outgoing) -> None:
        """Fold segments for a child that gets states."""
        combining = self._combining.get(child)
        if combining is None:
            combining = Combining(self.program(child), lambda: self.outlet.mark)
            self._combining[child] = combining
        self.push(child, Batch(share.segments, keys=share.keys), combining.operator)
        if combining.full:
            self._leave(child, combining)

    def _leave(self, task: str, combining: Combining) -> None:
        for bucket, payload in combining.take(partial(self.outlet.bucket_of, task)):
            self.outlet.put_states(task, bucket, payload)


def _places(batch: Batch) -> Indices:
    """Where its segments were in what has come to an operator with an inbox."""
    assert batch.ids is not None, "by `push`"
    return array_of(batch.ids).astype(np.intp)


class Retrying:
    """Tries segments again, after a rest."""

    def __init__(self, sleep: Sleep = time.sleep, delay: RetryDelay = DEFAULT) -> None:
        self._sleep = sleep
        self._delay = delay

    def first(self, batch: Batch) -> None:
        """A batch is tried for the first time."""
        batch.roots = np.zeros(len(batch), np.uint64)

    def unchanged(self, batch: Batch, deeply: bool) -> Callable[[], Batch]:
        """What gives the batch as it is now, whatever functions do with its segments.

        Args:
            deeply: also with what is in lists and dicts of a segment. Any function may ask for
                retries, and hardly one does: it pays for copies of dicts, and for no more.
        """
        if not deeply or not isinstance(batch.segments, list):
            segments = copies_of(batch.segments)
            return lambda: replace(batch, segments=segments, keys=None)
        data = encode(as_shown(batch.segments))
        return lambda: replace(batch, segments=decode(data), keys=None)

    def again(self, batch: Batch, routed: Routed) -> Batch:
        """The segments to be tried again, after a rest, each with its next attempt."""
        again = batch.take(np.array(routed.retries, np.intp))
        assert again.roots is not None
        roots = array_of(again.roots)
        tried = [tries_of(int(root)) for root in roots]
        next_roots = roots + np.uint64(ATTEMPT)
        for index, (count, most) in enumerate(zip(tried, routed.retries_max, strict=True)):
            if count >= most:
                next_roots[index] |= np.uint64(FINAL << 40)
        again.roots = next_roots
        self._sleep(max(self._delay.delay_s(count - 1) for count in tried))
        return again
