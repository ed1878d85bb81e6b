"""Reconciles objects, in the same four steps for every kind: observe, plan, act, status.

*Observe* reads what there is into a value; *plan* is a pure function of it; *act* carries out the
plan's actions, each of which may be repeated; then all is observed again, until a plan has no
actions left. *Status* is a pure function of the last observation and plan, written only if it
differs, and its changes are reported as events.

Every write to the object carries the version that was observed, so of two operators, or of an
operator and a user, none overwrites the other's change: the loser reads the object again and
reconciles again. So the Lease (`lease`) only keeps several operators from doing the same work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from onyx_operator.conditions import KubeEvent, change
from onyx_operator.informers.informer import Informer
from onyx_operator.kube import Conflict, Kube, NotFound, Object
from onyx_operator.metrics import OperatorMetrics
from onyx_operator.settings import WorkPace
from onyx_operator.work_queue import ObjectKey, WorkQueue


class AnyPlan(Protocol):
    """What plans of all kinds have."""

    @property
    def actions(self) -> Sequence[object]:
        """What to do now, in this order."""

    @property
    def again_in_s(self) -> float | None:
        """Reconcile again after so many seconds, whatever happens."""

    @property
    def error(self) -> Exception | None:
        """An action failed with it: raised after the status is written, so that it is retried."""


SeenT = TypeVar("SeenT")
PlanT = TypeVar("PlanT", bound=AnyPlan)


class ObjectKind(msgspec.Struct, Generic[SeenT, PlanT], frozen=True):
    """The functions that are particular to a kind. They may raise KubeError and Unavailable: the
    object is reconciled again later."""

    observe: Callable[[ObjectKey, Object], Awaitable[SeenT | None]]
    """What there is; None while too little is known to plan."""
    plan: Callable[[SeenT], PlanT]
    act: Callable[[Object, SeenT, PlanT], Awaitable[PlanT | None]]
    """Carry out a plan. None when that succeeded, else the plan to report."""
    status: Callable[[SeenT, PlanT], dict[str, Any]]
    """The whole status of the object."""
    news: Callable[[Mapping[str, Any], Mapping[str, Any]], Iterable[KubeEvent]]
    """The events that follow from a change of the status: before, after."""
    plans_max: int
    """Plans carried out in one reconciliation."""


class Reconciler(Generic[SeenT, PlanT]):
    """Runs the reconciliation of objects of one kind. Belongs to one event loop."""

    def __init__(
        self,
        kind: ObjectKind[SeenT, PlanT],
        informer: Informer,
        kube: Kube,
        pace: WorkPace,
        metrics: OperatorMetrics,
    ) -> None:
        self._kind, self._kube = kind, kube
        self._resource, self._store = informer.resource, informer.store
        self._queue = WorkQueue(informer.resource.kind, self._reconcile, pace, metrics)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await self._queue.run()

    def touch(self, key: ObjectKey) -> None:
        """Have an object reconciled soon."""
        self._queue.touch(key)

    def forget(self, key: ObjectKey) -> None:
        """The object is gone."""
        self._queue.touch_later(key, None)

    async def _reconcile(self, key: ObjectKey) -> None:
        body = self._store.get(key)
        if body is None:
            return
        error = None
        try:
            error = await self._steps(key)
        except NotFound:
            # The informer reports the deletion. Dropping the object here would keep that from its
            # listeners until then: a job that goes with its cluster would lose the way to its log.
            self.forget(key)
        except Conflict:
            fresh = await self._kube.get(self._resource, key.namespace, key.name)
            if fresh is not None:
                self._store.put(fresh)
                self.touch(key)
        if error is not None:
            raise error

    async def _steps(self, key: ObjectKey) -> Exception | None:
        """Observe, plan and act in rounds, until a plan has no actions or one has failed; then
        report it. The last round reports in any case."""
        failed: PlanT | None = None
        for left in reversed(range(self._kind.plans_max + 1)):
            body = self._store.get(key)
            seen = None if body is None else await self._kind.observe(key, body)
            if body is None or seen is None:
                return None
            # After an action that failed there is no other plan: it says what is reported.
            plan = failed or self._kind.plan(seen)
            if failed is None and plan.actions and left:
                failed = await self._kind.act(body, seen, plan)
                continue
            await self._report(body, self._kind.status(seen, plan))
            if failed is None and plan.actions:
                self.touch(key)  # the rest, although nothing that is watched may change meanwhile
            else:
                self._queue.touch_later(key, plan.again_in_s)
            return plan.error
        raise AssertionError("the last round reports")

    async def _report(self, body: Object, after: dict[str, Any]) -> None:
        """Write the status if it has changed, and events about what is new in it."""
        before = body.get("status") or {}
        difference = change(before, after)
        if not difference:
            return
        self._store.put(await self._kube.write_status(self._resource, body, difference))
        for each in self._kind.news(before, after):
            await self._kube.event(body, each.reason, each.message, warning=each.warning)
