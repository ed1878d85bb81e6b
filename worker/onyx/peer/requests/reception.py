"""Where clients of one process are received, over all incarnations of its group.

The front listens as long as the process lives, and the router knows the cluster as long as its
incarnation does. Between two incarnations, and until the next one has read the log and joined,
there is no router: clients come again.
"""

from __future__ import annotations

from collections.abc import Sequence

from onyx.front.app import Target
from onyx.front.loop import Loop
from onyx.peer.requests.inputs import RequestInput
from onyx.peer.requests.router import RequestRouter
from onyx.requests.append import Append
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

    async def find(self, job: str, task: str, is_new: bool) -> Target | Answer:
        """An input, or the answer that there is none."""
        router = self._router
        if router is None:
            return NOBODY
        found = await router.find(job, task, is_new)
        if isinstance(found, Answer):
            return found
        return _target(found)

    async def inputs(self, job: str) -> Sequence[Target] | None:
        """The inputs of all jobs that a client may mean; None: there is no such job."""
        router = self._router
        found = None if router is None else await router.inputs(job)
        return None if found is None else [_target(each) for each in found]

    async def unheard_of(self, job: str, is_new: bool) -> Answer:
        """The answer as of a job that is not there."""
        router = self._router
        return NOBODY if router is None else await router.unheard_of(job, is_new)

    async def append(self, append: Append) -> Answer:
        """The answer to a request."""
        router = self._router
        return NOBODY if router is None else await router.answer(append)


def _target(found: RequestInput) -> Target:
    plugin, options = found.entry.plugin or "", found.entry.options
    return Target(found.job, found.task, plugin, options, found.follows, found.job_name)
