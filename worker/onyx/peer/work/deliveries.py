"""What the transport brings for tasks and ackers of this process. On the threads of the transport.

All is only passed on: whoever gets it looks at it when its own thread steps it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from onyx.base.runs import Numbers
from onyx.errors import Unavailable
from onyx.ids import AllocationVersion, JobId, PeerId
from onyx.ledger.returns import Trees
from onyx.peer.work.running_tasks import RunningTasks
from onyx.requests.request import Answer as RequestAnswer
from onyx.requests.request import Append
from onyx.task.holding import holds_for
from onyx.task.messages import Completions, Query, Returns
from onyx.transport.lookups import Lookup
from onyx.transport.state_queries import StateAnswer, StateQuery


class Deliveries:
    """Implements the transport's `Handlers`."""

    def __init__(
        self, tasks: RunningTasks, append: Callable[[Append], Future[RequestAnswer]]
    ) -> None:
        """`append` routes the requests of clients."""
        self._tasks = tasks
        self.on_append = append

    def on_acks(
        self, job: JobId, version: AllocationVersion, acker: PeerId, roots: Numbers, values: Numbers
    ) -> None:
        """Acks for an acker of this group: columns of roots and of the values to XOR into them.
        Acks for an acker that is not here are dropped: replay covers them."""
        found = self._tasks.acking.get(job, version, acker)
        if found is not None:
            found.post(roots, values)

    def on_completions(
        self,
        job: JobId,
        version: AllocationVersion,
        target: PeerId,
        roots: Numbers,
        retries_max: int,
    ) -> None:
        """Trees that are complete (`retries_max` 0), or that a flow condition asks to be read
        again, at most so many times."""
        runner = self._tasks.runner(target, job)
        if runner is not None:
            runner.task.post(Completions(version, roots, retries_max))

    def on_held(
        self, job: JobId, version: AllocationVersion, target: PeerId, roots: Numbers
    ) -> None:
        """Somebody works on these trees, for the input that began them or their acker."""
        acker = self._tasks.acking.get(job, version, target)
        if acker is not None:
            acker.holds.add(roots)
        runner = self._tasks.runner(target, job)
        if runner is not None:
            holds_for(runner.task, version, roots)

    def on_returns(
        self, job: JobId, version: AllocationVersion, target: PeerId, trees: Trees, to_acker: bool
    ) -> None:
        """What functions give back for trees, for an acker or an input."""
        if to_acker:
            acker = self._tasks.acking.get(job, version, target)
            if acker is not None:
                acker.give_back(trees)
            return
        runner = self._tasks.runner(target, job)
        if runner is not None:
            runner.task.post(Returns(version, trees))

    def on_lookup(self, message: Lookup) -> None:
        """A task asks for states, or is answered. Who is not here is asked again."""
        runner = self._tasks.runner(message.target, message.job)
        if runner is not None:
            runner.task.post(message)

    def on_query(self, query: StateQuery) -> Future[StateAnswer]:
        """A client asks for the state of a window."""
        answer: Future[StateAnswer] = Future()
        runner = self._tasks.runner(query.peer, query.job)
        if runner is None:
            answer.set_exception(Unavailable(f"peer {query.peer} does not work on the job now"))
        else:
            runner.task.post(Query(query, answer))
        return answer
