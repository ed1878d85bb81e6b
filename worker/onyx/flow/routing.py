"""Route a batch: which leaves go to which child, what is retried, what has failed.

Without conditions nothing is done per segment. With conditions each one is evaluated over all
leaves that are still undecided before the next, so that a condition costs little more than calling
its predicate; flows are masks. `Conditions.route` has the meaning; a property test compares both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onyx.errors import contained
from onyx.flow.batch import Indices, Segment
from onyx.flow.conditions import Compiled, Conditions, Route, sendable, without_keys
from onyx.flow.leaves import Failure, Leaves

Mask = NDArray[np.bool_]


@dataclass(slots=True)
class Outgoing:
    """What one child gets. Segments may be the very objects that other children get, too."""

    segments: list[Segment]
    parents: Indices | None = None
    """Index in the batch of each one's parent, never falling; None: i-th of the i-th, for all."""
    child_index: Indices | None = None
    """Index among the leaves of the parent, for `child_ids`; None: 0 for all."""

    def __len__(self) -> int:
        return len(self.segments)


@dataclass(slots=True)
class Routed:
    """The verdict on a batch."""

    to: dict[str, Outgoing]
    """For every child, in the order of the workflow, what it gets (perhaps nothing)."""
    retries: list[int] = field(default_factory=list)
    """Parents whose roots are to be read again: do not ack them. Increasing, each once."""
    failures: list[Failure] = field(default_factory=list)
    """(index of the parent, exception) that no condition took care of; by parent."""
    shared: bool = False
    """Whether a segment goes to several children, who then need copies of their own."""


def route_batch(
    conditions: Conditions | None,
    children: Sequence[str],
    event: Any,
    segments: list[Segment],
    leaves: Leaves,
) -> Routed:
    """Where the leaves of a batch go.

    Args:
        conditions: of the task; None when it has none.
        children: of the task, in the order of the workflow.
        event: handed on to predicates and post-transforms.
        segments: the batch that the function was applied to.
        leaves: what it gave (`apply_function`).
    """
    if conditions is None:
        outgoing = Outgoing(leaves.segments, leaves.parents, leaves.child_index)
        return Routed(dict.fromkeys(children, outgoing), [], leaves.failures, len(children) > 1)
    run = _Run(conditions, event, segments, leaves)
    run.route_leaves()
    for index, error in leaves.failures:
        run.route_exception(index, error)
    return run.result(children)


class _Run:
    """One batch on its way through the conditions."""

    def __init__(
        self, conditions: Conditions, event: Any, segments: list[Segment], leaves: Leaves
    ) -> None:
        self.conditions = conditions
        self.event = event
        self.batch = segments
        self.leaves = leaves
        self.outgoing = leaves.segments
        self.flow: dict[str, Mask] = {}
        self.excluded: list[tuple[frozenset[str], Indices]] = []
        """Keys that a condition left out, and the leaves for which it held."""
        self.retries: set[int] = set()
        self.failures: list[Failure] = []
        self.handled: list[tuple[int, Segment, frozenset[str]]] = []
        """Exceptions made into segments: (parent, segment, children)."""

    def route_leaves(self) -> None:
        ordinary = self.conditions.ordinary
        count = len(self.leaves)
        if not ordinary:
            self.flow = {child: np.ones(count, np.bool_) for child in self.conditions.default}
            return
        olds, everything = self._olds(), self._everything()
        undecided: Indices | None = None
        for condition in ordinary:
            chosen = _select(undecided, olds, self.leaves.segments, everything)
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
            for mask in self.flow.values():
                mask[found] = False
            self.retries.update(self._parents(found))
            return
        for child in condition.to:
            self._mask(child)[found] = True
        if condition.exclude_keys:
            self.excluded.append((condition.exclude_keys, found))
            outgoing = self._own_outgoing()
            for index in found.tolist():
                outgoing[index] = without_keys(outgoing[index], condition.exclude_keys)

    def _predicate_failed(self, index: int, condition: Compiled, error: Exception) -> None:
        """Everybody who would get the leaf gets the error instead, if it can be sent."""
        parent = self._parent(index)
        old, new = self.batch[parent], self.leaves.segments[index]
        keys = [keys for keys, found in self.excluded if index in found]
        route = Route(exclude_keys=frozenset().union(*keys)).failed(condition, error)
        try:
            self._own_outgoing()[index] = sendable(route, self.event, old, new)
        except Exception as unhandled:
            self.failures.append((parent, unhandled))
            for mask in self.flow.values():
                mask[index] = False
            return
        for child in condition.errors_to or ():
            self._mask(child)[index] = True

    def route_exception(self, parent: int, error: Exception) -> None:
        """An exception of the function itself; what nothing takes care of is a failure."""
        old = self.batch[parent]
        route = self.conditions.route(self.event, old, error, (error,))
        if route.retry:
            self.retries.add(parent)
            return
        try:
            if not route.flow:
                raise route.predicate_error or error
            self.handled.append((parent, sendable(route, self.event, old, error), route.flow))
        except Exception as unhandled:
            self.failures.append((parent, unhandled))

    def result(self, children: Iterable[str]) -> Routed:
        to = {child: self._outgoing_of(child) for child in children}
        failures = sorted(self.failures, key=itemgetter(0))
        return Routed(to, sorted(self.retries), failures, self._shared())

    def _shared(self) -> bool:
        if any(len(flow) > 1 for _, _, flow in self.handled):
            return True
        masks = list(self.flow.values())
        return len(masks) > 1 and bool((np.sum(masks, axis=0) > 1).any())

    def _outgoing_of(self, child: str) -> Outgoing:
        mask, leaves = self.flow.get(child), self.leaves
        extra = [(parent, segment) for parent, segment, flow in self.handled if child in flow]
        if mask is None:
            outgoing = Outgoing([], np.empty(0, dtype=np.intp))
        elif mask.all():
            outgoing = Outgoing(self.outgoing, leaves.parents, leaves.child_index)
        else:
            found = np.flatnonzero(mask)
            parents = found if leaves.parents is None else leaves.parents[found]
            indices = None if leaves.child_index is None else leaves.child_index[found]
            outgoing = Outgoing(list(compress(self.outgoing, mask.tobytes())), parents, indices)
        return _insert(outgoing, extra) if extra else outgoing

    def _mask(self, child: str) -> Mask:
        mask = self.flow.get(child)
        if mask is None:
            mask = self.flow[child] = np.zeros(len(self.leaves), dtype=np.bool_)
        return mask

    def _own_outgoing(self) -> list[Segment]:
        if self.outgoing is self.leaves.segments:
            self.outgoing = list(self.leaves.segments)
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
            result += [tuple(leaves.segments[start:end])] * (end - start)
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
) -> tuple[Mask, list[Failure]]:
    """Which leaves the predicate holds for, and for which it raised; each is asked once."""
    test = condition.test
    answers: list[int] = []
    errors: list[Failure] = []
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


def _insert(outgoing: Outgoing, extra: list[tuple[int, Segment]]) -> Outgoing:
    """With segments made of exceptions put in order of parent; they are their parents' only
    ones."""
    count = len(outgoing)
    parents = np.arange(count) if outgoing.parents is None else outgoing.parents
    indices = np.zeros(count, np.intp) if outgoing.child_index is None else outgoing.child_index
    parents = np.concatenate((parents, np.array([parent for parent, _ in extra], dtype=np.intp)))
    order = np.argsort(parents, kind="stable")
    segments = outgoing.segments + [segment for _, segment in extra]
    indices = np.concatenate((indices, np.zeros(len(extra), dtype=np.intp)))
    return Outgoing([segments[i] for i in order.tolist()], parents[order], indices[order])
