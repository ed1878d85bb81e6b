"""The tasks of one incarnation with all that works for them: threads, services, holds, checks."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from onyx.peer.events import Answer
from onyx.peer.life import Life
from onyx.peer.liveness import Watched
from onyx.peer.router.inputs import InputTokens, RequestInputs
from onyx.peer.router.router import NOT_A_MEMBER, RequestRouter
from onyx.peer.work.deliveries import Deliveries
from onyx.peer.work.holding import Holding
from onyx.peer.work.job_checker import JobChecker
from onyx.peer.work.running_tasks import RunningTasks
from onyx.peer.work.task_services import TaskServices
from onyx.peer.work.task_threads import TaskThreads
from onyx.replica.state import Replica
from onyx.requests.request import Answer as RequestAnswer
from onyx.requests.request import Append, answered


class Workforce:
    """Start it before the log is read; `stop` it when the incarnation ends."""

    def __init__(self, life: Life, replica: Callable[[], Replica]) -> None:
        """`replica` gives the newest replica."""
        self._life = life
        context, group, crashed = life.context, life.group, life.events.crash
        self._liveness = context.liveness
        self._threads = TaskThreads(
            group,
            context.settings.task.stop_timeout_s,
            crashed,
            lambda: context.liveness.beat(Watched.TASKS),
        )
        self.services = TaskServices(life, replica)
        self.tasks = RunningTasks(group, self.services, self._threads)
        self.checker = JobChecker(
            self.services, group, lambda answer: life.events.post(Answer(answer))
        )
        self._router = RequestRouter(
            RequestInputs(replica, life.log, context.clock),
            life.mailboxes,
            life.transport,
            life.background.run,
            context.randomness,
            group,
            context.current_router.loop,
            context.resolver.resolve,
            partial(self.services.state_store, durable=True),
            context.clock,
            InputTokens(context.settings, context.clock),
        )
        self._current_router = context.current_router
        self._receives = False
        self._holding = Holding(group, life.transport, context.clock, self.tasks, crashed)

    def start(self) -> None:
        """Take what the transport brings, and run the tasks that are given from now on."""
        self._life.transport.start(self._life.group, Deliveries(self.tasks, self._append))
        self._life.transport.on_room(self._threads.wake)
        self._threads.start()
        self._holding.start()

    def receive(self) -> None:
        """Take requests of clients from now on: this process has read which jobs there are, and
        takes part in the cluster."""
        self._receives = True
        self._current_router.open(self._router)

    def _append(self, append: Append) -> Future[RequestAnswer]:
        return self._router.append(append) if self._receives else answered(NOT_A_MEMBER)

    def drain(self) -> None:
        """Before leaving: inputs return their partitions and outputs close what they write, while
        the pulse of this group still lets them."""
        self.tasks.stop()
        self._threads.drain()

    def stop(self) -> None:
        """The incarnation has ended: end all tasks, and answer nothing any more."""
        self.tasks.stop()
        self._current_router.close(self._router)
        self._router.stop()
        self._holding.stop()
        self._threads.stop()
        self._liveness.forget(Watched.TASKS)
