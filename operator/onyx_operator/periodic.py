"""What is done now and then, as long as somebody runs it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from onyx.errors import OnyxError

logger = logging.getLogger(__name__)


async def every(interval_s: float, do: Callable[[], Awaitable[None]]) -> None:
    """Do something periodically; with an interval of 0, never."""
    while interval_s > 0:
        await asyncio.sleep(interval_s)
        try:
            await do()
        except OnyxError as error:
            logger.warning("%s", error)
        except Exception:
            logger.exception("a bug in the operator")
