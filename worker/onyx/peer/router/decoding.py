"""Makes segments of the bodies of requests, large ones on a thread.

A body of some megabytes takes seconds to look through, and the event loop serves all clients. So
large ones wait for one of few threads: their clients wait for each other, and nobody else does.
Small ones stay on the loop, because a thread costs more than they do.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from onyx.flow.batch import Segments
from onyx.requests.append import Payload
from onyx.requests.content import digest_of, is_large, segments_of

THREADS = 2


class Decoding:
    """Awaited on the loop of the router."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "onyx-decoding")

    async def decoded(self, payload: Payload) -> tuple[Segments, bytes]:
        """The segments of a payload and its digest. Raises Refused as `segments_of` does."""
        if not is_large(payload):
            return _decoded(payload)
        return await asyncio.get_running_loop().run_in_executor(self._threads, _decoded, payload)

    def stop(self) -> None:
        """Begin nothing more. Does not wait."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _decoded(payload: Payload) -> tuple[Segments, bytes]:
    return segments_of(payload), digest_of(payload)
