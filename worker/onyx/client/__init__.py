"""A client of a cluster: what hands segments to its jobs, for programs of users.

    from onyx.client import Appender

Everything else of this package is behind `onyx.api`. Names are imported when they are first asked
for: commands import this package too, and an appender takes half a second to import.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onyx.client.appender import (
        Appender,
        AsyncAppender,
        NotTaken,
        NotYetTaken,
        RequestFailed,
    )
    from onyx.requests.request import Answer, Status

__all__ = [
    "Answer",
    "Appender",
    "AsyncAppender",
    "NotTaken",
    "NotYetTaken",
    "RequestFailed",
    "Status",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    where = "onyx.requests.request" if name in ("Answer", "Status") else "onyx.client.appender"
    return getattr(importlib.import_module(where), name)
