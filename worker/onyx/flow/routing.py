"""Route a batch: which leaves go to which child, what is retried, what has failed.

Without conditions nothing is done per segment. With conditions each one is evaluated over all
leaves that are still undecided before the next, so that a condition costs little more than calling
its predicate; flows are masks. `Conditions.route` has the meaning; a property test compares both.

This is the one place that decides what becomes of a segment that fails, whoever refuses it: the
function, a condition, a window, or the child that cannot be sent what was made of it. In this
order: a condition for exceptions takes it (it sends something else on, or asks for a retry, if one
is left); a dead letter about it is sent; it is a failure of the task. Nothing else that was made of
such a segment goes anywhere, so that a segment is either processed or failed. A segment that is to
be retried has not failed, whatever else was wrong with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np

from onyx.errors import contained
from onyx.flow.batch import Indices, Segment, Segments, as_dicts
from onyx.flow.conditions import (
    Compiled,
    Conditions,
    Route,
    everything_to,
    no_retry_left,
    sendable,
    without_keys,
)
from onyx.flow.handling import Handling, Mask, Refused
from onyx.flow.leaves import Leaves
from onyx.flow.routed import Outgoing, Routed, with_extra
from onyx.flow.segment_failure import SegmentFailure

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
    run = _Run(conditions, event, as_dicts(segments), leaves, handling)
    run.route_leaves()
    return run.result(children)


def route_whole(
    conditions: Conditions | None, children: Sequence[str], leaves: Leaves, refused: Refused
) -> Routed | None:
    """As `route_batch`, where each child gets all of the leaves or none: most batches of most
    jobs. None: something has failed, or a condition is to be asked."""
    if leaves.failures or leaves.refusals or (conditions is not None and conditions.ordinary):
        return None
    if conditions is None:
        get_all: Collection[str] = children
    else:
        get_all = conditions.default
    to = {
        child: Outgoing(leaves.segments, leaves.parents, leaves.child_index)
        if child in get_all
        else Outgoing([], _NOBODY)
        for child in children
    }
    return None if refused(to) else Routed(to, shared=len(get_all) > 1)


_NOBODY = np.empty(0, dtype=np.intp)


@dataclass(frozen=True, slots=True)
class _Handled:
    """What is sent in place of a segment that failed."""

    segment: Segment
    route: Route
    letter: bool = False


class _Run:
    """One batch on its way through the conditions."""

    def __init__(
        self,
        conditions: Conditions,
        event: Any,
        segments: list[Segment],
        leaves: Leaves,
        handling: Handling,
    ) -> None:
        self.conditions = conditions
        self.event = event
        self.batch = segments
        self.leaves = leaves
        self.handling = handling
        self.made = self.outgoing = as_dicts(leaves.segments)
        self.flow: dict[str, Mask] = {}
        self.excluded: list[tuple[frozenset[str], frozenset[str], Indices]] = []
        """Keys that a condition leaves out, for which children, and the leaves it held for."""
        self.retries: dict[int, int] = {}
        """How often the condition asks for that at most, by parent."""
        self.failed: dict[int, Exception] = {}
        """Of what is known to have failed, the first that was raised, by parent."""
        self.failures: dict[int, Exception] = {}
        """What nothing has taken care of."""
        self.handled: dict[int, _Handled] = {}

    def route_leaves(self) -> None:
        ordinary = self.conditions.ordinary
        count = len(self.leaves)
        if not ordinary:
            self.flow = {child: np.ones(count, np.bool_) for child in self.conditions.default}
            return
        olds, everything = self._olds(), self._everything()
        undecided: Indices | None = None
        for condition in ordinary:
            chosen = _select(undecided, olds, self.made, everything)
            hits, errors = _evaluate(condition, self.event, *chosen)
            for place, error in errors:
                self._predicate_failed(_at(undecided, place), condition, error)
            found = np.flatnonzero(hits)
            if undecided is not None:
                found = undecided[found]
            self._holds(condition, found)
            if errors or condition.short_circuit or condition.retry:
                final = condition.short_circuit or condition.retry
                decided = hits if final else np.zeros_like(hits)
                decided[[place for place, _ in errors]] = True
                remaining = np.flatnonzero(~decided)
                undecided = remaining if undecided is None else undecided[remaining]

    def _holds(self, condition: Compiled, found: Indices) -> None:
        if len(found) == 0:
            return
        if condition.retry:
            for parent in self._parents(found):
                self._retry(parent, condition)
            return
        for child in condition.to:
            self._mask(child)[found] = True
        if condition.exclude_keys and condition.to:
            self.excluded.append((condition.exclude_keys, condition.to, found))

    def _retry(self, parent: int, condition: Compiled) -> None:
        if self.handling.is_exhausted(parent):
            self.failed.setdefault(parent, no_retry_left(condition))
        else:
            most = self.retries.get(parent, condition.retries_max)
            self.retries[parent] = min(most, condition.retries_max)

    def _predicate_failed(self, index: int, condition: Compiled, error: Exception) -> None:
        """Everybody who would get the leaf gets the error instead, if it can be sent."""
        parent = self._parent(index)
        old, new = self.batch[parent], self.made[index]
        route = Route().failed(condition, error)
        try:
            segment = self.handling.sent(sendable(route, self.event, old, new))
        except Exception as unhandled:
            self.failures.setdefault(parent, unhandled)
            return
        self._own_outgoing()[index] = segment
        here = np.array([index])
        for child in route.flow:
            self._mask(child)[index] = True
        if condition.exclude_keys and route.flow:
            self.excluded.append((condition.exclude_keys, route.flow, here))

    def result(self, children: Sequence[str]) -> Routed:
        """Settle what has failed, until everything that is to be sent can be."""
        for parent, error in (*self.leaves.failures, *self.leaves.refusals):
            self.failed.setdefault(parent, error)
        unhandled, self.failures = self.failures, {}
        for parent, error in unhandled.items():
            if parent not in self.retries:
                self._send_letter(parent, error)
        for parent, error in self.failed.items():
            if parent not in self.retries and parent not in unhandled:
                self._ask_conditions(parent, error)
        while True:
            withdrawn = sorted({*self.retries, *self.failures, *self.handled})
            to = self._send_to(children, withdrawn)
            refused = self.handling.refused(to)
            if not refused:
                break
            for parent, error in refused:
                self._refuse(parent, error)
        return Routed(
            to,
            sorted(self.retries),
            [self.retries[parent] for parent in sorted(self.retries)],
            sorted(self.failures.items()),
            self._shared(),
            withdrawn,
            sum(each.letter for each in self.handled.values()),
        )

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
        old = self.batch[parent]
        exhausted = self.handling.is_exhausted(parent)
        route = self.conditions.route(self.event, old, error, (error,), exhausted)
        if route.retry is not None:
            self.retries[parent] = route.retry.retries_max
            return
        try:
            if not route.flow:
                raise route.error or error
            segment = self.handling.sent(sendable(route, self.event, old, error))
            self.handled[parent] = _Handled(segment, route)
        except Exception as unhandled:
            self._send_letter(parent, unhandled)

    def _send_letter(self, parent: int, error: Exception) -> None:
        to, letter = self.handling.dead_letter, self.handling.letter
        if to is None or letter is None:
            self.failures[parent] = error
        else:
            self.handled[parent] = _Handled(letter(parent, error), Route(frozenset((to,))), True)

    def _shared(self) -> bool:
        if any(len(each.route.flow) > 1 for each in self.handled.values()):
            return True
        masks = list(self.flow.values())
        return len(masks) > 1 and bool((np.sum(masks, axis=0) > 1).any())

    def _send_to(self, children: Iterable[str], withdrawn: list[int]) -> dict[str, Outgoing]:
        kept: Mask | None = None
        if withdrawn:
            kept = np.isin(self._parents_of_leaves(), withdrawn, invert=True)
        return {child: self._outgoing_of(child, kept) for child in children}

    def _outgoing_of(self, child: str, kept: Mask | None) -> Outgoing:
        mask, leaves = self.flow.get(child), self.leaves
        extra = [
            (parent, each.route.for_child(child, each.segment))
            for parent, each in sorted(self.handled.items())
            if child in each.route.flow
        ]
        if mask is not None and kept is not None:
            mask = mask & kept
        if mask is None:
            outgoing = Outgoing([], np.empty(0, dtype=np.intp))
        elif mask.all():
            outgoing = Outgoing(self._of_child(child), leaves.parents, leaves.child_index)
        else:
            found = np.flatnonzero(mask)
            parents = found if leaves.parents is None else leaves.parents[found]
            indices = None if leaves.child_index is None else leaves.child_index[found]
            chosen = list(compress(self._of_child(child), mask.tobytes()))
            outgoing = Outgoing(chosen, parents, indices)
        return with_extra(outgoing, extra) if extra else outgoing

    def _of_child(self, child: str) -> list[Segment]:
        """All leaves, without the keys that conditions leave out for this child."""
        mine = [(keys, found) for keys, targets, found in self.excluded if child in targets]
        if not mine:
            return self.outgoing
        outgoing = list(self.outgoing)
        for keys, found in mine:
            for index in found.tolist():
                outgoing[index] = without_keys(outgoing[index], keys)
        return outgoing

    def _parents_of_leaves(self) -> Indices:
        parents = self.leaves.parents
        return np.arange(len(self.leaves)) if parents is None else parents

    def _mask(self, child: str) -> Mask:
        mask = self.flow.get(child)
        if mask is None:
            mask = self.flow[child] = np.zeros(len(self.leaves), dtype=np.bool_)
        return mask

    def _own_outgoing(self) -> list[Segment]:
        if self.outgoing is self.made:
            self.outgoing = list(self.made)
        return self.outgoing

    def _parent(self, index: int) -> int:
        return index if self.leaves.parents is None else int(self.leaves.parents[index])

    def _parents(self, found: Indices) -> list[int]:
        parents = found if self.leaves.parents is None else self.leaves.parents[found]
        result: list[int] = parents.tolist()
        return result

    def _olds(self) -> list[Segment]:
        if self.leaves.parents is None:
            return self.batch
        batch = self.batch
        return [batch[parent] for parent in self.leaves.parents.tolist()]

    def _everything(self) -> list[tuple[Segment, ...]] | None:
        """For each leaf all leaves of its parent; None when it is the only one, for all."""
        leaves = self.leaves
        if leaves.child_index is None or leaves.parents is None:
            return None
        starts = np.flatnonzero(leaves.child_index == 0).tolist()
        result: list[tuple[Segment, ...]] = []
        for start, end in zip(starts, [*starts[1:], len(leaves)], strict=True):
            result += [tuple(self.made[start:end])] * (end - start)
        return result


def _at(undecided: Indices | None, place: int) -> int:
    return place if undecided is None else int(undecided[place])


def _select(
    undecided: Indices | None,
    olds: list[Segment],
    news: list[Segment],
    everything: list[tuple[Segment, ...]] | None,
) -> tuple[list[Segment], list[Segment], Iterable[tuple[Segment, ...]]]:
    """The columns that a condition has to look at."""
    if undecided is not None:
        places = undecided.tolist()
        olds = [olds[place] for place in places]
        news = [news[place] for place in places]
        everything = everything and [everything[place] for place in places]
    return olds, news, zip(news) if everything is None else everything


def _evaluate(
    condition: Compiled,
    event: Any,
    olds: list[Segment],
    news: list[Segment],
    everything: Iterable[tuple[Segment, ...]],
) -> tuple[Mask, list[SegmentFailure]]:
    """Which leaves the predicate holds for, and for which it raised; each is asked once."""
    test = condition.test
    answers: list[int] = []
    errors: list[SegmentFailure] = []
    append = answers.append
    remaining = zip(olds, news, everything, strict=True)
    while True:
        try:
            for old, new, all_new in remaining:
                append(1 if test(event, old, new, all_new) else 0)
            return np.frombuffer(bytearray(answers), dtype=np.bool_), errors
        except BaseException as error:
            errors.append((len(answers), contained(error, "the predicate")))
            append(0)
