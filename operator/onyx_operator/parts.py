"""The parts of an operator that run as long as it does; one that ends before is a bug."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any

from onyx_operator.context import Operator

logger = logging.getLogger(__name__)


def run_forever(
    operator: Operator, opened: AsyncExitStack, name: str, part: Coroutine[Any, Any, None]
) -> None:
    """Run a part that must not end before the operator does; it ends when `opened` does."""

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            logger.error("%s ended: a bug in the operator", name, exc_info=task.exception())
            operator.liveness.behind(name, True)

    task = asyncio.create_task(part, name=name)
    task.add_done_callback(ended)
    opened.push_async_callback(_end, task)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
