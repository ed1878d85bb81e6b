"""Route a batch: which leaves go to which child, what is retried, what has failed.

Without conditions nothing is done per segment. With conditions each one is evaluated over all
leaves that are still undecided before the next (`evaluation`), so that a condition costs little
more than calling its predicate, and over columns nothing is done per segment; flows are masks.
`Conditions.route` has the meaning; a property test compares both.

This is the one module that decides what becomes of a segment that fails, whoever refuses it: the
function, a condition, a window, or the child that cannot be sent what was made of it. In this
order: the function itself asks for a retry (`functions.retry`), if one is left; a condition for
exceptions takes it (it sends something else on, or asks for a retry, if one is left); a dead letter
about it is sent; it is a failure of the task. Nothing else that was made of such a segment goes
anywhere, so that a segment is either processed or failed. A segment that is to be retried has not
failed, whatever else was wrong with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np

from onyx.flow.batch import Indices, Mask, Segment, Segments
from onyx.flow.conditions import (
    Compiled,
    Conditions,
    Route,
    everything_to,
    no_retry_left,
    sendable,
)
from onyx.flow.evaluation import Evaluation
from onyx.flow.handling import Handling, Refused
from onyx.flow.leaves import Leaves
from onyx.flow.leaving import leaving
from onyx.flow.routed import NOTHING, Outgoing, Routed
from onyx.flow.segment_failure import SegmentFailure
from onyx.functions.retry import Retry, retries_of

NOTHING_ELSE = Handling()


def route_batch(
    conditions: Conditions | None,
    children: Sequence[str],
    event: Any,
    segments: Segments,
    leaves: Leaves,
    handling: Handling = NOTHING_ELSE,
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
    run = _Run(conditions, event, segments, leaves, handling)
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


class _Handled(msgspec.Struct, frozen=True):
    """What is sent in place of a segment that failed."""

    segment: Segment
    route: Route
    error: Exception
    letter: bool = False


class _First:
    """Errors of the leaves of a batch: for each parent that of its first leaf, whichever condition
    has found it."""

    def __init__(self) -> None:
        self._of_parent: dict[int, SegmentFailure] = {}

    def add(self, parent: int, leaf: int, error: Exception) -> None:
        known = self._of_parent.get(parent)
        if known is None or leaf < known[0]:
            self._of_parent[parent] = leaf, error

    def errors(self) -> dict[int, Exception]:
        """By parent."""
        return {parent: error for parent, (_, error) in self._of_parent.items()}


class _Run:
    """One batch on its way through the conditions."""

    def __init__(
        self,
        conditions: Conditions,
        event: Any,
        batch: Segments,
        leaves: Leaves,
        handling: Handling,
    ) -> None:
        self.conditions = conditions
        self.event = event
        self.leaves = leaves
        self.handling = handling
        self.evaluation = Evaluation(event, batch, leaves)
        self.leaving = leaving(leaves)
        self.flow: dict[str, Mask] = {}
        """Which leaves go to each child, and are accounted for."""
        self.loose: dict[str, Mask] = {}
        """Which leaves go to each child by conditions that do not account for them."""
        self.retries: dict[int, int] = {}
        """How often the condition asks for that at most, by parent."""
        self.retry_errors: dict[int, Exception] = {}
        self.exhausted = _First()
        """Conditions ask for a retry, and none is left."""
        self.unsendable = _First()
        """A predicate has raised, and nobody gets that."""
        self.failures: dict[int, Exception] = {}
        """What nothing has taken care of."""
        self.handled: dict[int, _Handled] = {}
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
            holds, errors = self.evaluation.ask(condition, undecided)
            self._predicates_failed(condition, errors)
            self._holds(condition, holds)
            self.unmatched &= ~holds
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
        olds, news = self.evaluation.olds.at(np.array(parents)), self.evaluation.news.at(failed)
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
        self.evaluation.olds.at(np.array(list(failed), dtype=np.intp))
        for parent, error in unhandled.items():
            if parent not in self.retries:
                self._send_letter(parent, error)
        for parent, error in failed.items():
            if parent not in self.retries and parent not in unhandled:
                self._ask_conditions(parent, error)
        while True:
            withdrawn = sorted({*self.retries, *self.failures, *self.handled})
            to, beside, *loose = parts = self._send_to(children, withdrawn)
            refused = self._refused(parts)
            if not refused:
                break
            for parent, error in refused:
                self._refuse(parent, error)
        handled = sorted(self.handled.items(), key=itemgetter(0))
        return Routed(
            to,
            beside,
            loose,
            retries=sorted(self.retries),
            retries_max=[self.retries[parent] for parent in sorted(self.retries)],
            retry_errors=self.retry_errors,
            failures=sorted(self.failures.items(), key=itemgetter(0)),
            shared=self._shared(),
            withdrawn=withdrawn,
            letters=[(parent, each.error) for parent, each in handled if each.letter],
            excepted=[(parent, each.error) for parent, each in handled if not each.letter],
            unmatched=self._unmatched(withdrawn),
        )

    def _refused(self, parts: Iterable[dict[str, Outgoing]]) -> list[SegmentFailure]:
        """The parents of what a child cannot be sent, as `Handling.refused`: of the first part that
        has any."""
        found = (self.handling.refused(part) for part in parts if part)
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
        handled = self.handled.pop(parent, None)
        if handled is None:
            self._ask_conditions(parent, error)
        elif not handled.letter:
            self._send_letter(parent, error)
        else:
            self.failures[parent] = error

    def _ask_conditions(self, parent: int, error: Exception) -> None:
        """A segment has failed: the conditions for exceptions, the dead letter, the job."""
        old = self.evaluation.olds.one(parent)
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
            self.handled[parent] = _Handled(segment, route, error)
        except Exception as unhandled:
            self._send_letter(parent, unhandled)

    def _send_letter(self, parent: int, error: Exception) -> None:
        to, letter = self.handling.dead_letter, self.handling.letter
        if to is None or letter is None:
            self.failures[parent] = error
        else:
            route = Route(frozenset((to,)))
            self.handled[parent] = _Handled(letter(parent, error), route, error, letter=True)

    def _shared(self) -> bool:
        if any(len(each.route.flow) > 1 for each in self.handled.values()):
            return True
        masks = [*self.flow.values(), *self.loose.values()]
        return len(masks) > 1 and bool((np.sum(masks, axis=0) > 1).any())

    def _send_to(self, children: Iterable[str], withdrawn: list[int]) -> list[dict[str, Outgoing]]:
        """What each child gets, and besides; then the same of what is not accounted for, if there
        may be any."""
        kept: Mask | None = None
        if withdrawn:
            kept = np.isin(self._parents_of_leaves(), withdrawn, invert=True)
        to: dict[str, Outgoing] = {}
        beside: dict[str, Outgoing] = {}
        for child in children:
            mask = self.flow.get(child)
            if mask is not None and kept is not None:
                mask = mask & kept
            to[child], apart = self.leaving.outgoing(child, mask, self._in_place(child))
            if apart is not None:
                beside[child] = apart
        return [to, beside, *self._loose_parts(kept)] if self.loose else [to, beside]

    def _loose_parts(self, kept: Mask | None) -> tuple[dict[str, Outgoing], dict[str, Outgoing]]:
        """What children get that is not accounted for, and besides. What another condition sends
        to the same child is."""
        loose: dict[str, Outgoing] = {}
        beside: dict[str, Outgoing] = {}
        for child, mask in self.loose.items():
            anchored = self.flow.get(child)
            for other in (None if anchored is None else ~anchored, kept):
                mask = mask if other is None else mask & other
            loose[child], apart = self.leaving.outgoing(child, mask, [])
            if apart is not None:
                beside[child] = apart
        return loose, beside

    def _in_place(self, child: str) -> list[tuple[int, Segment]]:
        """What a child is sent in place of segments that failed, each with its parent."""
        return [
            (parent, each.route.for_child(child, each.segment))
            for parent, each in sorted(self.handled.items())
            if child in each.route.flow
        ]

    def _parents_of_leaves(self) -> Indices:
        parents = self.leaves.parents
        return np.arange(len(self.leaves)) if parents is None else parents

    def _parents(self, found: Indices) -> list[int]:
        parents = found if self.leaves.parents is None else self.leaves.parents[found]
        result: list[int] = parents.tolist()
        return result
