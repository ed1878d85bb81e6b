"""Where clients of one process are received, over all incarnations of its group.

The front listens as long as the process lives, and the router knows the cluster as long as its
incarnation does. Between two incarnations, and until the next one has read the log and joined,
there is no router: clients come again.
"""

from __future__ import annotations

from onyx.gateway.interface import Target
from onyx.gateway.loop import Loop
from onyx.peer.router.router import RequestRouter
from onyx.requests.append import Append
from onyx.requests.caller import Caller
from onyx.requests.request import Answer, Status

AGAIN_S = 1.0
NOBODY = Answer(Status.UNAVAILABLE, "this worker is not in the cluster now", AGAIN_S)
"""The answer of a worker that has just started too: it has not read yet which jobs there are."""


class Reception:
    """Implements the front's `Requests`. `open` and `close` are called on any thread, the rest on
    that of the loop."""

    def __init__(self) -> None:
        self.loop = Loop()
        self._router: RequestRouter | None = None

    def open(self, router: RequestRouter) -> None:
        """An incarnation takes requests by this router."""
        self._router = router

    def close(self, router: RequestRouter) -> None:
        """It takes none any more."""
        if self._router is router:
            self._router = None

    async def find(self, job: str, task: str, is_new: bool, caller: Caller) -> Target | Answer:
        """An input, or the answer that there is none for the caller."""
        router = self._router
        if router is None:
            return NOBODY
        found = await router.find(job, task, is_new, caller)
        return found if isinstance(found, Answer) else Target(found.job, found.task)

    async def append(self, append: Append) -> Answer:
        """The answer to a request."""
        router = self._router
        return NOBODY if router is None else await router.answer(append)
