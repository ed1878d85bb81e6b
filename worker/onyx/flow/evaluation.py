"""The flow conditions of a task, asked about the leaves of one batch.

Leaves are dicts or columns, and a predicate is made for either. What it needs in the other
format is converted once a batch, however many conditions need it, and only the rows that matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np

from onyx.flow.batch import Indices, Mask, Segment, Segments, format_of
from onyx.flow.columns.record_batch import Columns, from_dicts, shown_dicts
from onyx.flow.conditions import Compiled
from onyx.flow.leaves import Leaves
from onyx.flow.masks import Asked, Question, ask_each
from onyx.flow.segment_failure import SegmentFailure

TOGETHER_MIN = 32
"""Dicts of a batch that are compared together: fewer are faster one by one."""


class Rows:
    """Segments as dicts: rows of columns are converted when they are first needed."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._known: dict[int, Segment] = {}

    def at(self, indices: Indices | None) -> list[Segment]:
        """The rows at these indices; None: all."""
        at = format_of(self._segments).choose(_dicts_at, _rows_at)
        return at(self._segments, indices, self._known)

    def one(self, index: int) -> Segment:
        """The segment at this index."""
        return self.at(np.array([index]))[0]


def _dicts_at(
    segments: list[Segment], indices: Indices | None, known: dict[int, Segment]
) -> list[Segment]:
    return segments if indices is None else [segments[index] for index in indices.tolist()]


def _rows_at(columns: Columns, indices: Indices | None, known: dict[int, Segment]) -> list[Segment]:
    wanted = range(len(columns)) if indices is None else indices.tolist()
    unknown = [index for index in wanted if index not in known]
    if unknown:
        made = shown_dicts(columns.take(np.array(unknown, dtype=np.intp)))
        known.update(zip(unknown, made, strict=True))
    return [known[index] for index in wanted]


class Evaluation:
    """One batch and its leaves, while conditions are asked about them."""

    def __init__(self, event: Any, batch: Segments, leaves: Leaves) -> None:
        self._event = event
        self._leaves = leaves
        self.olds = Rows(batch)
        """The batch, as dicts."""
        self.news = Rows(leaves.segments)
        """The leaves, as dicts."""
        self._everything: list[tuple[Segment, ...]] | None = None
        self._columns: tuple[Columns, Indices | None, list[SegmentFailure]] | None = None

    def ask(self, condition: Compiled, wanted: Mask) -> tuple[Mask, list[SegmentFailure]]:
        """For which of the wanted leaves the predicate of a condition holds, and for which it
        raised, by index of the leaf."""
        segments = self._leaves.segments
        ask = format_of(segments).choose(self._over_dicts, self._over)
        return ask(segments, condition, wanted)

    def _over_dicts(
        self, segments: list[Segment], condition: Compiled, wanted: Mask
    ) -> tuple[Mask, list[SegmentFailure]]:
        if condition.takes_columns:
            return self._over_converted(segments, condition, wanted)
        if condition.compared and len(wanted) >= TOGETHER_MIN:
            return self._over(segments, condition, wanted)
        if wanted.all():
            return ask_each(condition.test, self._event, *self._asked(None))
        indices = np.flatnonzero(wanted)
        answers, errors = ask_each(condition.test, self._event, *self._asked(indices))
        holds = np.zeros_like(wanted)
        holds[indices] = answers
        return holds, [(int(indices[index]), error) for index, error in errors]

    def _over(
        self, segments: Segments, condition: Compiled, wanted: Mask
    ) -> tuple[Mask, list[SegmentFailure]]:
        question = Question(self._event, segments, self._asked)
        holds = question.unfailed(wanted & condition.ask(question, wanted))
        return holds, sorted(question.errors.items())

    def _over_converted(
        self, segments: list[Segment], condition: Compiled, wanted: Mask
    ) -> tuple[Mask, list[SegmentFailure]]:
        """A predicate over columns, of leaves that are dicts."""
        if self._columns is None:
            self._columns = from_dicts(segments)
        columns, kept, misfits = self._columns
        if kept is None:
            return self._over(columns, condition, wanted)
        found, errors = self._over(columns, condition, wanted[kept])
        holds = np.zeros_like(wanted)
        holds[kept] = found
        raised = [(int(kept[index]), error) for index, error in errors]
        unfit = [(index, error) for index, error in misfits if wanted[index]]
        return holds, sorted(raised + unfit, key=lambda each: each[0])

    def _asked(self, indices: Indices | None) -> Asked:
        """What predicates over dicts look at."""
        leaves = self._leaves
        everything: Iterable[tuple[Segment, ...]]
        if leaves.child_index is not None and leaves.parents is not None:
            known = self._all_of_parents(leaves.parents, leaves.child_index)
            everything = known if indices is None else [known[index] for index in indices.tolist()]
            news = self.news.at(indices)
        else:
            news = self.news.at(indices)
            everything = zip(news)
        parents = leaves.parents
        if parents is not None:
            indices = parents if indices is None else parents[indices]
        return self.olds.at(indices), news, everything

    def _all_of_parents(self, parents: Indices, child_index: Indices) -> list[tuple[Segment, ...]]:
        """For each leaf all leaves of its parent."""
        if self._everything is None:
            news, starts = self.news.at(None), np.flatnonzero(child_index == 0).tolist()
            self._everything = []
            for start, end in pairwise([*starts, len(parents)]):
                self._everything += [tuple(news[start:end])] * (end - start)
        return self._everything
