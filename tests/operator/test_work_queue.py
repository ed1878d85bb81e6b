"""An object is looked at once at a time, again when something happened, and after failures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from onyx.errors import Unavailable
from onyx_operator.kube import KubeError
from onyx_operator.metrics import OperatorMetrics
from onyx_operator.settings import WorkPace
from onyx_operator.work_queue import ObjectKey, WorkQueue

A, B = ObjectKey("default", "a"), ObjectKey("default", "b")
PACE = WorkPace(concurrent_max=4, retry_min_s=0.001, retry_max_s=0.004)


def running(
    look: Callable[[ObjectKey], Awaitable[None]],
    scenario: Callable[[WorkQueue], Awaitable[None]],
    pace: WorkPace = PACE,
) -> OperatorMetrics:
    """Play a scenario with a queue that runs."""
    metrics = OperatorMetrics()

    async def play() -> None:
        queue = WorkQueue("thing", look, pace, metrics)
        task = asyncio.create_task(queue.run())
        try:
            async with asyncio.timeout(20):
                await scenario(queue)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(play())
    return metrics


def count(metrics: OperatorMetrics, result: str) -> float:
    labels = {"kind": "thing", "result": result}
    name = "onyx_operator_reconciles_total"
    return metrics.registry.get_sample_value(name, labels) or 0.0


def test_many_touches_before_a_look_are_one_look() -> None:
    looks: list[ObjectKey] = []
    done = asyncio.Event()

    async def look(key: ObjectKey) -> None:
        looks.append(key)
        if key == B:
            done.set()

    async def scenario(queue: WorkQueue) -> None:
        for key in (A, A, A, B):
            queue.touch(key)
        await done.wait()

    metrics = running(look, scenario, WorkPace(concurrent_max=1, retry_min_s=1.0, retry_max_s=1.0))
    assert looks == [A, B]
    assert count(metrics, "ok") == 2


def test_a_touch_during_a_look_is_a_look_after_it_and_never_beside_it() -> None:
    there: list[WorkQueue] = []
    looking, looks, done = 0, 0, asyncio.Event()

    async def look(key: ObjectKey) -> None:
        nonlocal looking, looks
        looking, looks = looking + 1, looks + 1
        assert looking == 1
        if looks == 1:
            there[0].touch(A)
            there[0].touch(A)
            await asyncio.sleep(0)
        else:
            done.set()
        looking -= 1

    async def scenario(queue: WorkQueue) -> None:
        there.append(queue)
        queue.touch(A)
        await done.wait()

    running(look, scenario)
    assert looks == 2


def test_different_objects_are_looked_at_side_by_side() -> None:
    meeting: set[ObjectKey] = set()
    met = asyncio.Event()

    async def look(key: ObjectKey) -> None:
        meeting.add(key)
        if meeting == {A, B}:
            met.set()
        await met.wait()

    async def scenario(queue: WorkQueue) -> None:
        queue.touch(A)
        queue.touch(B)
        await met.wait()

    running(look, scenario)
    assert meeting == {A, B}


@pytest.mark.parametrize(
    ("error", "result", "traceback"),
    [
        (Unavailable("the API server cannot be reached"), "retry", False),
        (KubeError(403, "Forbidden", "no"), "error", False),
        (ZeroDivisionError("oops"), "error", True),
    ],
    ids=["unavailable", "refused", "bug"],
)
def test_a_look_that_fails_is_repeated_until_it_does_not(
    error: Exception, result: str, traceback: bool, caplog: pytest.LogCaptureFixture
) -> None:
    looks, done = 0, asyncio.Event()

    async def look(key: ObjectKey) -> None:
        nonlocal looks
        looks += 1
        if looks <= 3:
            raise error
        done.set()

    async def scenario(queue: WorkQueue) -> None:
        queue.touch(A)
        await done.wait()

    with caplog.at_level(logging.WARNING):
        metrics = running(look, scenario)
    assert looks == 4
    assert count(metrics, result) == 3
    assert any(record.exc_info for record in caplog.records) is traceback
    assert "default/a" in caplog.text
