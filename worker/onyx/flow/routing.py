"""Route a batch: which leaves go to which child, what is retried, what has failed.

Without conditions nothing is done per segment. With conditions each one is asked about all leaves
that are still undecided before the next (`Questions`), so that a condition costs little more than
calling its predicate, and over columns nothing is done per segment; flows are masks.
`Conditions.route` has the meaning; a property test compares both. A predicate is made for dicts or
for columns. What it needs in the other format is converted once a batch, however many conditions
need it, and only the rows that matter.

This is the one module that decides what becomes of a segment that fails, whoever refuses it: the
function, a condition, a window, or the child that cannot be sent what was made of it. In this
order: the function itself asks for a retry (`functions.retry`), if one is left; a condition for
exceptions takes it (it sends something else on, or asks for a retry, if one is left); a dead letter
about it is sent; it is a failure of the task. Nothing else that was made of such a segment goes
anywhere, so that a segment is either processed or failed. A segment that is to be retried has not
failed, whatever else was wrong with it.

Conditions may put a segment in the index of a leaf (what describes an error of a predicate), and
leave keys out for some children (`OutgoingLeaves`). In columns the first is no row, so it goes
beside them as a dict; and a key is a whole column, which is left out if the key is to be left out
of all rows that go to the child, and otherwise null in those rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from functools import reduce
from itertools import pairwise
from operator import itemgetter, or_
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from onyx.flow.batch import DICTS, Indices, Mask, Segment, Segments, format_of
from onyx.flow.columns.compute import pc
from onyx.flow.columns.record_batch import Columns, from_dicts, shown_dicts
from onyx.flow.conditions import (
    Asked,
    BatchQuestion,
    Compiled,
    Conditions,
    Route,
    ask_each,
    everything_to,
    no_retry_left,
    sendable,
    without_keys,
)
from onyx.flow.leaves import Leaves
from onyx.flow.routed import NOTHING, FailureHandling, Outgoing, Refused, Routed, with_extra
from onyx.flow.segment import SegmentFailure
from onyx.functions.retry import Retry, retries_of

NOTHING_ELSE = FailureHandling()

TOGETHER_MIN = 32
"""Dicts of a batch that are compared together: fewer are faster one by one."""


def route_batch(
    conditions: Conditions | None,
    children: Sequence[str],
    event: Any,
    segments: Segments,
    leaves: Leaves,
    handling: FailureHandling = NOTHING_ELSE,
) -> Routed:
    """Where the leaves of a batch go.

    Args:
        conditions: of the task; None when it has none.
        children: of the task, in the order of the workflow.
        event: handed on to predicates and post-transforms.
        segments: the batch that the function was applied to.
        leaves: what it gave (`apply_function`).
        handling: what is done about failures besides.
    """
    whole = route_whole(conditions, children, leaves, handling.refused)
    if whole is not None:
        return whole
    if conditions is None:
        conditions = everything_to(tuple(children))
    run = _Routing(conditions, event, segments, leaves, handling)
    run.route_leaves()
    return run.result(children)


def route_whole(
    conditions: Conditions | None, children: Sequence[str], leaves: Leaves, refused: Refused
) -> Routed | None:
    """The routes as `route_batch`, where each child gets all of the leaves or none: most batches of
    most jobs. None: something has failed, or a condition is to be asked."""
    if leaves.failures or leaves.refusals or (conditions is not None and conditions.ordinary):
        return None
    if conditions is None:
        get_all: Collection[str] = children
    else:
        get_all = conditions.default
    to = {
        child: Outgoing(leaves.segments, leaves.parents, leaves.child_index)
        if child in get_all
        else Outgoing([], NOTHING)
        for child in children
    }
    if refused(to):
        return None
    unmatched = NOTHING if get_all or not children else np.arange(len(leaves))
    return Routed(to, shared=len(get_all) > 1, unmatched=unmatched)


class _Routing:
    """One batch on its way through the conditions."""

    def __init__(
        self,
        conditions: Conditions,
        event: Any,
        batch: Segments,
        leaves: Leaves,
        handling: FailureHandling,
    ) -> None:
        self.conditions = conditions
        self.event = event
        self.leaves = leaves
        self.handling = handling
        self.questions = Questions(event, batch, leaves)
        self.leaving = leaving(leaves)
        self.flow: dict[str, Mask] = {}
        """Which leaves go to each child, and are accounted for."""
        self.loose: dict[str, Mask] = {}
        """Which leaves go to each child by conditions that do not account for them."""
        self.retries: dict[int, int] = {}
        """How often the condition asks for that at most, by parent."""
        self.retry_errors: dict[int, Exception] = {}
        self.exhausted = _FirstErrors()
        """Conditions ask for a retry, and none is left."""
        self.unsendable = _FirstErrors()
        """A predicate has raised, and nobody gets that."""
        self.failures: dict[int, Exception] = {}
        """What nothing has taken care of."""
        self.replacements: dict[int, _Replacement] = {}
        self.unmatched: Mask | None = None
        """Leaves for which no condition has held so far; None if all go to children anyway."""

    def route_leaves(self) -> None:
        ordinary = self.conditions.ordinary
        undecided = np.ones(len(self.leaves), np.bool_)
        if not ordinary:
            self.flow = dict.fromkeys(self.conditions.default, undecided)
            if self.conditions.children and not self.flow:
                self.unmatched = undecided
            return
        self.unmatched = undecided.copy()
        for condition in ordinary:
            holds, errors = self.questions.ask(condition, undecided)
            self._predicates_failed(condition, errors)
            self._holds(condition, holds)
            self.unmatched &= ~holds
            # A leaf that is read again goes nowhere, so no further condition is asked about it.
            if condition.short_circuit or condition.retry:
                undecided = undecided & ~holds
            if errors:
                failed = [index for index, _ in errors]
                undecided = undecided.copy()
                undecided[failed] = self.unmatched[failed] = False

    def _holds(self, condition: Compiled, holds: Mask) -> None:
        if condition.retry:
            found = np.flatnonzero(holds)
            for leaf, parent in zip(found.tolist(), self._parents(found), strict=True):
                self._retry(parent, leaf, condition)
            return
        flow = self.flow if condition.anchored else self.loose
        for child in condition.to:
            mine = flow.get(child)
            flow[child] = holds if mine is None else mine | holds
        self.leaving.exclude(condition.exclude_keys, condition.to, holds)

    def _retry(self, parent: int, leaf: int, condition: Compiled) -> None:
        if self.handling.is_exhausted(parent):
            self.exhausted.add(parent, leaf, no_retry_left(condition))
        else:
            # Several leaves of one segment may ask: the strictest limit holds for all of it.
            most = self.retries.get(parent, condition.retries_max)
            self.retries[parent] = min(most, condition.retries_max)

    def _function_asks(self) -> None:
        """The function has raised or returned that segments are to be read again; without a retry
        left they fail with that, like with any exception."""
        for parent, error in self.leaves.failures:
            most = retries_of(error) if isinstance(error, Retry) else 0
            if most and not self.handling.is_exhausted(parent):
                self.retries[parent] = most
                self.retry_errors[parent] = error

    def _predicates_failed(self, condition: Compiled, errors: list[SegmentFailure]) -> None:
        if not errors:
            return
        failed = np.array([index for index, _ in errors])
        parents = self._parents(failed)
        olds, news = self.questions.olds.at(np.array(parents)), self.questions.news.at(failed)
        for (index, error), parent, old, new in zip(errors, parents, olds, news, strict=True):
            self._predicate_failed(index, parent, (old, new), condition, error)

    def _predicate_failed(
        self,
        index: int,
        parent: int,
        asked: tuple[Segment, Segment],
        condition: Compiled,
        error: Exception,
    ) -> None:
        """Everybody who would get the leaf gets the error instead, if it can be sent."""
        route = Route().failed(condition, error)
        try:
            segment = self.handling.sent(sendable(route, self.event, *asked))
        except Exception as unhandled:
            self.unsendable.add(parent, index, unhandled)
            return
        self.leaving.replace(index, segment)
        here = np.zeros(len(self.leaves), np.bool_)
        here[index] = True
        for child in route.flow:
            mine = self.flow.get(child)
            self.flow[child] = here if mine is None else mine | here
        self.leaving.exclude(condition.exclude_keys, route.flow, here)

    def result(self, children: Sequence[str]) -> Routed:
        """Settle what has failed, until everything that is to be sent can be."""
        failed, unhandled = self.exhausted.errors(), self.unsendable.errors()
        for parent, error in (*self.leaves.failures, *self.leaves.refusals):
            failed.setdefault(parent, error)
        self._function_asks()
        self.questions.olds.at(np.array(list(failed), dtype=np.intp))
        for parent, error in unhandled.items():
            if parent not in self.retries:
                self._send_letter(parent, error)
        for parent, error in failed.items():
            if parent not in self.retries and parent not in unhandled:
                self._ask_conditions(parent, error)
        # What stands in the place of a failure (a letter, a segment of a condition) may be refused
        # itself. Each round takes a last resort from somebody, so there are few.
        while True:
            withdrawn = sorted({*self.retries, *self.failures, *self.replacements})
            shares = self._shares(children, withdrawn)
            refused = self._refused(shares)
            if not refused:
                break
            for parent, error in refused:
                self._refuse(parent, error)
        instead = sorted(self.replacements.items(), key=itemgetter(0))
        return Routed(
            to=shares.to,
            beside=shares.beside,
            loose=[shares.loose, shares.loose_beside] if self.loose else [],
            retries=sorted(self.retries),
            retries_max=[self.retries[parent] for parent in sorted(self.retries)],
            retry_errors=self.retry_errors,
            failures=sorted(self.failures.items(), key=itemgetter(0)),
            shared=self._shared(),
            withdrawn=withdrawn,
            letters=[(parent, each.error) for parent, each in instead if each.letter],
            excepted=[(parent, each.error) for parent, each in instead if not each.letter],
            unmatched=self._unmatched(withdrawn),
        )

    def _refused(self, shares: _Shares) -> list[SegmentFailure]:
        """The parents of what a child cannot be sent, as `Handling.refused`: of the first part that
        has any."""
        found = (self.handling.refused(part) for part in shares if part)
        return next(filter(None, found), [])

    def _unmatched(self, withdrawn: list[int]) -> Indices:
        if self.unmatched is None or not self.unmatched.any():
            return NOTHING
        found = self.unmatched
        if withdrawn:
            found = found & np.isin(self._parents_of_leaves(), withdrawn, invert=True)
        return np.flatnonzero(found)

    def _refuse(self, parent: int, error: Exception) -> None:
        """A child cannot be sent what was made of a segment, or what stands in its place: each
        time the next resort, so that it comes to an end."""
        handled = self.replacements.pop(parent, None)
        if handled is None:
            self._ask_conditions(parent, error)
        elif not handled.letter:
            self._send_letter(parent, error)
        else:
            self.failures[parent] = error

    def _ask_conditions(self, parent: int, error: Exception) -> None:
        """A segment has failed: the conditions for exceptions, the dead letter, the job."""
        old = self.questions.olds.one(parent)
        exhausted = self.handling.is_exhausted(parent)
        route = self.conditions.route(self.event, old, error, (error,), exhausted)
        if route.retry is not None:
            self.retries[parent] = route.retry.retries_max
            self.retry_errors[parent] = error
            return
        try:
            if not route.flow:
                raise route.error or error
            segment = self.handling.sent(sendable(route, self.event, old, error))
            self.replacements[parent] = _Replacement(segment, route, error)
        except Exception as unhandled:
            self._send_letter(parent, unhandled)

    def _send_letter(self, parent: int, error: Exception) -> None:
        to, letter = self.handling.dead_letter, self.handling.letter
        if to is None or letter is None:
            self.failures[parent] = error
        else:
            route = Route(frozenset((to,)))
            self.replacements[parent] = _Replacement(
                letter(parent, error), route, error, letter=True
            )

    def _shared(self) -> bool:
        if any(len(each.route.flow) > 1 for each in self.replacements.values()):
            return True
        masks = [*self.flow.values(), *self.loose.values()]
        return len(masks) > 1 and bool((np.sum(masks, axis=0) > 1).any())

    def _shares(self, children: Iterable[str], withdrawn: list[int]) -> _Shares:
        """What children get of all parents but these."""
        kept: Mask | None = None
        if withdrawn:
            kept = np.isin(self._parents_of_leaves(), withdrawn, invert=True)
        shares = _Shares({}, {}, {}, {})
        for child in children:
            mask = self.flow.get(child)
            if mask is not None and kept is not None:
                mask = mask & kept
            instead = self._in_place(child)
            shares.to[child], apart = self.leaving.outgoing(child, mask, instead)
            if apart is not None:
                shares.beside[child] = apart
        for child, mask in self.loose.items():
            anchored = self.flow.get(child)
            for other in (None if anchored is None else ~anchored, kept):
                mask = mask if other is None else mask & other
            shares.loose[child], apart = self.leaving.outgoing(child, mask, [])
            if apart is not None:
                shares.loose_beside[child] = apart
        return shares

    def _in_place(self, child: str) -> list[tuple[int, Segment]]:
        """What a child is sent in place of segments that failed, each with its parent."""
        return [
            (parent, each.route.for_child(child, each.segment))
            for parent, each in sorted(self.replacements.items())
            if child in each.route.flow
        ]

    def _parents_of_leaves(self) -> Indices:
        parents = self.leaves.parents
        return np.arange(len(self.leaves)) if parents is None else parents

    def _parents(self, found: Indices) -> list[int]:
        parents = found if self.leaves.parents is None else self.leaves.parents[found]
        result: list[int] = parents.tolist()
        return result


class _Shares(NamedTuple):
    """What the children of a task get of a batch, by child. `Routed` has these names too."""

    to: dict[str, Outgoing]
    """For every child what it gets that is accounted for."""
    beside: dict[str, Outgoing]
    """What it gets besides, because it is no row of the same columns."""
    loose: dict[str, Outgoing]
    """What it gets that nobody accounts for, because no other condition sends it there."""
    loose_beside: dict[str, Outgoing]
    """What it gets of that besides."""


class _Replacement(msgspec.Struct, frozen=True):
    """What is sent in place of a segment that failed."""

    segment: Segment
    route: Route
    error: Exception
    letter: bool = False


class _FirstErrors:
    """Errors of the leaves of a batch: for each parent that of its first leaf, whichever condition
    has found it."""

    def __init__(self) -> None:
        self._of_parent: dict[int, SegmentFailure] = {}

    def add(self, parent: int, leaf: int, error: Exception) -> None:
        known = self._of_parent.get(parent)
        if known is None or leaf < known[0]:
            self._of_parent[parent] = leaf, error

    def errors(self) -> dict[int, Exception]:
        """The error of each parent."""
        return {parent: error for parent, (_, error) in self._of_parent.items()}


# --- conditions are asked -----------------------------------------------------------------------


class Questions:
    """One batch and its leaves, while conditions are asked about them."""

    def __init__(self, event: Any, batch: Segments, leaves: Leaves) -> None:
        self._event = event
        self._leaves = leaves
        self.olds = LazyDicts(batch)
        """The batch, as dicts."""
        self.news = LazyDicts(leaves.segments)
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
        question = BatchQuestion(self._event, segments, self._asked)
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


class LazyDicts:
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


# --- leaves leave -------------------------------------------------------------------------------

Extra = list[tuple[int, Segment]]
"""Segments made of exceptions, each with its parent."""


class OutgoingLeaves(ABC):
    """The leaves of one batch."""

    def __init__(self, leaves: Leaves) -> None:
        self._leaves = leaves
        self._excluded: list[tuple[frozenset[str], frozenset[str], Mask]] = []
        """Keys that a condition leaves out, for which children, and the leaves it held for."""

    @abstractmethod
    def replace(self, index: int, segment: Segment) -> None:
        """Put a segment in the index of a leaf."""

    @abstractmethod
    def _in_mask(
        self, child: str, mask: Mask, extra: Extra
    ) -> tuple[Outgoing, Outgoing | None]: ...

    def exclude(self, keys: frozenset[str], children: frozenset[str], rows: Mask) -> None:
        """Leave keys out of these leaves for these children."""
        if keys and children:
            self._excluded.append((keys, children, rows))

    def outgoing(
        self, child: str, mask: Mask | None, extra: Extra
    ) -> tuple[Outgoing, Outgoing | None]:
        """What a child gets of the leaves in the mask and besides them, and what of that goes
        apart because it is no row of the same columns."""
        if mask is None:
            return with_extra([], Outgoing([], NOTHING), extra), None
        return self._in_mask(child, mask, extra)

    def _lineage(self, found: Indices) -> tuple[Indices | None, Indices | None]:
        leaves = self._leaves
        parents = found if leaves.parents is None else leaves.parents[found]
        return parents, None if leaves.child_index is None else leaves.child_index[found]


def leaving(leaves: Leaves) -> OutgoingLeaves:
    """The leaves of a batch, before anything is decided about them."""
    made = format_of(leaves.segments).choose(_LeavingDicts, _LeavingColumns)
    return made(leaves.segments, leaves)


class _LeavingDicts(OutgoingLeaves):
    def __init__(self, segments: list[Segment], leaves: Leaves) -> None:
        super().__init__(leaves)
        self._given = self._segments = segments

    def replace(self, index: int, segment: Segment) -> None:
        if self._segments is self._given:
            self._segments = list(self._given)
        self._segments[index] = segment

    def _in_mask(self, child: str, mask: Mask, extra: Extra) -> tuple[Outgoing, None]:
        leaves, segments = self._leaves, self._of_child(child)
        if mask.all():
            outgoing = Outgoing(segments, leaves.parents, leaves.child_index)
        else:
            segments = DICTS.filter(segments, mask)
            outgoing = Outgoing(segments, *self._lineage(np.flatnonzero(mask)))
        return with_extra(segments, outgoing, extra), None

    def _of_child(self, child: str) -> list[Segment]:
        mine = [(keys, rows) for keys, children, rows in self._excluded if child in children]
        if not mine:
            return self._segments
        segments = list(self._segments)
        for keys, rows in mine:
            for index in np.flatnonzero(rows).tolist():
                segments[index] = without_keys(segments[index], keys)
        return segments


class _LeavingColumns(OutgoingLeaves):
    def __init__(self, columns: Columns, leaves: Leaves) -> None:
        super().__init__(leaves)
        self._columns = columns
        self._beside: dict[int, Segment] = {}
        """What goes in the index of rows."""

    def replace(self, index: int, segment: Segment) -> None:
        self._beside[index] = segment

    def _in_mask(self, child: str, mask: Mask, extra: Extra) -> tuple[Outgoing, Outgoing | None]:
        beside = [index for index in sorted(self._beside) if mask[index]]
        if beside:
            mask = mask.copy()
            mask[beside] = False
        leaves, columns, excluded = self._leaves, self._columns, self._by_key(child)
        if mask.all():
            lineage = leaves.parents, leaves.child_index
        else:
            lineage = self._lineage(np.flatnonzero(mask))
            columns = columns.filter(mask)
            excluded = {key: rows[mask] for key, rows in excluded.items()}
        outgoing = Outgoing(_without(columns, excluded), *lineage)
        if not beside and not extra:
            return outgoing, None
        segments = [self._without_keys(child, index) for index in beside]
        apart = Outgoing(segments, *self._lineage(np.array(beside, dtype=np.intp)))
        return outgoing, with_extra(segments, apart, extra)

    def _by_key(self, child: str) -> dict[str, Mask]:
        """For each key that is left out somewhere, of which leaves."""
        rows: dict[str, list[Mask]] = {}
        for keys, children, found in self._excluded:
            if child in children:
                for key in keys:
                    rows.setdefault(key, []).append(found)
        return {key: reduce(or_, masks) for key, masks in rows.items()}

    def _without_keys(self, child: str, index: int) -> Segment:
        segment = self._beside[index]
        for keys, children, rows in self._excluded:
            if child in children and rows[index]:
                segment = without_keys(segment, keys)
        return segment


def _without(columns: Columns, excluded: dict[str, Mask]) -> Columns:
    if not excluded:
        return columns
    dropped = [key for key, rows in excluded.items() if rows.all()]
    batch = columns.without(dropped).record_batch
    for key, rows in excluded.items():
        if key in dropped or not columns.has(key) or not rows.any():
            continue
        index = batch.schema.get_field_index(key)
        column = batch.column(index)
        nulled = pc.if_else(pa.array(rows), pa.scalar(None, column.type), column)
        batch = batch.set_column(index, batch.schema.field(index), nulled)
    return Columns(batch)
