"""What the front knows of the process that it serves: where requests go.

Apart from `app`, which imports a server for HTTP: few workers take requests.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from onyx.requests.append import Append
from onyx.requests.caller import Caller
from onyx.requests.request import Answer


class Target(msgspec.Struct, frozen=True):
    """An input that takes requests."""

    job: str
    """Id of the job."""
    task: str


class Requests(Protocol):
    """Where requests go. All run on the event loop of the front."""

    async def find(self, job: str, task: str, is_new: bool, caller: Caller) -> Target | Answer:
        """An input by the id or name of its job, or the answer that there is none for the caller.
        `is_new`: no journal can have the request."""
        ...

    async def append(self, append: Append) -> Answer:
        """The answer to a request, at the latest after the time that it gives."""
        ...
