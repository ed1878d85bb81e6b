"""SIGTERM and SIGINT, as an event of the loop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def stop_signals(stop: asyncio.Event) -> Iterator[None]:
    """SIGTERM and SIGINT set `stop`, where signals arrive: on the main thread."""
    loop, ours = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGINT)
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    for each in ours:
        loop.add_signal_handler(each, stop.set)
    try:
        yield
    finally:
        for each in ours:
            loop.remove_signal_handler(each)
