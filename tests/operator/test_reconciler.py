"""An object is reconciled until its plan is empty, whoever reports changes meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec

from onyx_operator.informers.informer import Store
from onyx_operator.metrics import OperatorMetrics
from onyx_operator.reconciler import ObjectKind, Reconciler
from onyx_operator.settings import WorkPace
from onyx_operator.work_queue import ObjectKey

KEY = ObjectKey("default", "thing")
BODY = {"metadata": {"namespace": "default", "name": "thing", "uid": "1", "resourceVersion": "1"}}
PACE = WorkPace(concurrent_max=1, retry_min_s=0.001, retry_max_s=0.004)


class Plan(msgspec.Struct, frozen=True):
    """So many actions are left."""

    actions: tuple[int, ...]
    again_in_s: float | None = None
    error: Exception | None = None


def test_actions_that_are_left_after_the_last_round_are_done_without_news() -> None:
    """The status stays what it is, so nothing comes back from the watch."""
    left, done = [1, 2, 3, 4, 5], asyncio.Event()

    async def observe(key: ObjectKey, body: Any) -> list[int]:
        if not left:
            done.set()
        return left

    async def act(body: Any, seen: list[int], plan: Plan) -> None:
        left.pop()

    kind: ObjectKind[Any, Any] = ObjectKind(
        observe=observe,
        plan=lambda seen: Plan(tuple(seen)),
        act=act,
        status=lambda seen, plan: {},
        news=lambda before, after: (),
        plans_max=2,
    )

    async def play() -> None:
        store = Store()
        store.put(BODY)
        informer: Any = SimpleNamespace(resource=SimpleNamespace(kind="Thing"), store=store)
        kube: Any = None  # nothing is written
        reconciler = Reconciler(kind, informer, kube, PACE, OperatorMetrics())
        task = asyncio.create_task(reconciler.run())
        reconciler.touch(KEY)
        try:
            async with asyncio.timeout(20):
                await done.wait()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(play())
    assert left == []
