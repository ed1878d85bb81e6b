"""The flow conditions of one task: compiled once, and what they say about one segment.

`Conditions.route` is the meaning, one segment at a time; `routing.route_batch` gives the same
answer for a batch, column by column. Two points where the original's versions differ:

* A task with exception conditions only sends ordinary segments to all children that no exception
  condition names (the original since 0.12; before, to all).
* A predicate that raises: its condition's `predicateErrorsTo` get the post-transformed error, if it
  has both (0.10 and later); otherwise the error is a failure of the task.

A child that a window of the task names in `lateTo` gets late segments, and of the others only those
that a condition naming it sends there: neither no conditions nor `to: all` mean it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from onyx.errors import UserFunctionError, contained, describe
from onyx.flow.batch import Segment
from onyx.flow.predicates import Resolve, Test, compile_predicate
from onyx.model.job import FlowCondition, Job, Targets

PostTransform = Callable[[Any, Any, Exception], Any]


@dataclass(frozen=True, slots=True)
class Compiled:
    """One flow condition with its names resolved."""

    test: Test
    to: frozenset[str]
    """Children it sends to."""
    errors_to: frozenset[str] | None
    """Children that get the error when the predicate itself raises; None: nobody may."""
    exclude_keys: frozenset[str]
    short_circuit: bool
    post_transform: PostTransform | None
    retry: bool


@dataclass(frozen=True, slots=True)
class Route:
    """What the conditions say about one segment or exception."""

    flow: frozenset[str] = frozenset()
    """Children that get it."""
    exclude_keys: frozenset[str] = frozenset()
    retry: bool = False
    """Send nothing; its root is to be read again."""
    post_transform: PostTransform | None = None
    predicate_error: Exception | None = None
    """What a predicate raised."""

    def joined(self, condition: Compiled) -> Route:
        """With a condition that holds."""
        return Route(
            self.flow | condition.to,
            self.exclude_keys | condition.exclude_keys,
            self.retry or condition.retry,
            condition.post_transform if condition.short_circuit else None,
        )

    def failed(self, condition: Compiled, error: Exception) -> Route:
        """With a condition whose predicate raised: nothing after it is looked at."""
        return Route(
            self.flow | (condition.errors_to or frozenset()),
            self.exclude_keys | condition.exclude_keys,
            False,
            condition.post_transform if condition.errors_to is not None else None,
            error,
        )


@dataclass(frozen=True, slots=True)
class Conditions:
    """All flow conditions of one task, in the order of the job."""

    children: tuple[str, ...]
    ordinary: tuple[Compiled, ...]
    exceptional: tuple[Compiled, ...]
    default: frozenset[str]
    """Where ordinary segments go when there is no condition for them."""

    def route(self, event: Any, old: Segment, new: Segment | Exception, all_new: Any) -> Route:
        """Which children get `new`, made of `old`, or the exception that the function raised.

        Args:
            event: handed on to the predicates.
            all_new: everything that was made of `old`.
        """
        thrown = isinstance(new, Exception)
        conditions = self.exceptional if thrown else self.ordinary
        if not conditions:
            return Route() if thrown else Route(self.default)
        route = Route()
        for condition in conditions:
            try:
                holds = condition.test(event, old, new, all_new)
            except BaseException as error:
                return route.failed(condition, contained(error, "the predicate"))
            if holds:
                route = route.joined(condition)
                if condition.short_circuit or condition.retry:
                    break
        return Route(frozenset(), route.exclude_keys, retry=True) if route.retry else route


def sendable(route: Route, event: Any, old: Segment, new: Segment | Exception) -> Segment:
    """The segment that goes to `route.flow`: transformed if it is an error, without excluded keys.

    Raises:
        Exception: the error itself (of the function or of a predicate) when nothing transforms it.
        UserFunctionError: the post-transform raised or did not return a dict.
    """
    error = route.predicate_error or (new if isinstance(new, Exception) else None)
    if error is None:
        assert isinstance(new, dict)
        return without_keys(new, route.exclude_keys)
    if route.post_transform is None:
        raise error
    cause = old if route.predicate_error is None else {"old": old, "new": new}
    try:
        segment = route.post_transform(event, cause, error)
    except BaseException as again:
        raise UserFunctionError(
            f"the flow condition's postTransform, given {type(error).__name__}, raised "
            f"{describe(again)}"
        ) from again
    if not isinstance(segment, dict):
        raise UserFunctionError(
            f"the flow condition's postTransform returned {type(segment).__name__}: "
            f"it must return one dict"
        ) from error
    return without_keys(segment, route.exclude_keys)


def without_keys(segment: Segment, keys: frozenset[str]) -> Segment:
    """The same object when there is nothing to leave out."""
    if keys.isdisjoint(segment):
        return segment
    return {key: value for key, value in segment.items() if key not in keys}


def children_of(job: Job, task: str) -> tuple[str, ...]:
    """Children of a task, in the order of the workflow."""
    return tuple(dict.fromkeys(child for parent, child in job.workflow if parent == task))


def compile_conditions(job: Job, task: str, resolve: Resolve) -> Conditions | None:
    """What decides about segments of `task`; None when nothing does: all go everywhere.

    A condition from `all` concerns the tasks that have all the children it names.

    Raises:
        UserError: a predicate is malformed. NameNotRegistered: from `resolve`.
    """
    children = children_of(job, task)
    ordinary: list[Compiled] = []
    exceptional: list[Compiled] = []
    late = {window.late_to for window in job.windows if window.task == task}
    ordinary_children = tuple(child for child in children if child not in late)
    named: set[str] = set()
    for index, condition in enumerate(job.flow_conditions):
        if not _concerns(condition, task, children):
            continue
        where = f"job {job.name!r}, flowConditions[{index}] from {task!r}"
        compiled = _compile(condition, ordinary_children, resolve, where)
        if condition.thrown_exception:
            exceptional.append(compiled)
            named.update(condition.to if not isinstance(condition.to, str) else ())
        else:
            ordinary.append(compiled)
    if not ordinary and not exceptional and ordinary_children == children:
        return None
    default = frozenset(ordinary_children) - named
    return Conditions(children, tuple(ordinary), tuple(exceptional), default)


def _concerns(condition: FlowCondition, task: str, children: tuple[str, ...]) -> bool:
    if condition.from_task != "all":
        return condition.from_task == task
    return isinstance(condition.to, str) or set(condition.to) <= set(children)


def _compile(
    condition: FlowCondition, everyone: tuple[str, ...], resolve: Resolve, where: str
) -> Compiled:
    errors_to = condition.predicate_errors_to
    transform = condition.post_transform
    return Compiled(
        test=compile_predicate(condition.predicate, condition.options, resolve, where),
        to=_targets(condition.to, everyone),
        errors_to=None if errors_to is None else _targets(errors_to, everyone),
        exclude_keys=frozenset(condition.exclude_keys),
        short_circuit=condition.short_circuit,
        post_transform=None if transform is None else resolve(transform),
        retry=condition.action == "retry",
    )


def _targets(targets: Targets, everyone: tuple[str, ...]) -> frozenset[str]:
    if targets == "all":
        return frozenset(everyone)
    if targets == "none":
        return frozenset()
    return frozenset((targets,) if isinstance(targets, str) else targets)
