"""Carries out what the state machine of a group decides (`group.step`). On the group's thread.

Each action is one call; what may block goes to the background. An effect that concerns tasks goes
to `RunningTasks`, after the others of the same step.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from onyx.errors import OnyxError
from onyx.ids import GroupId, JobId
from onyx.peer.actions import (
    Action,
    Append,
    Left,
    Pause,
    Restart,
    Resume,
    StartBackOff,
    StartPauseTimer,
)
from onyx.peer.events import BackOffElapsed, PauseDue, PulseGone
from onyx.peer.life import Life
from onyx.peer.work.workforce import Workforce
from onyx.replica.effects import (
    AnswerCheck,
    Effect,
    ProbePulse,
    RemoveState,
    UnwatchPulse,
    WatchPulse,
)

logger = logging.getLogger("onyx.peer")


class ActionRunner:
    """The actions of one incarnation."""

    def __init__(self, life: Life, work: Workforce) -> None:
        self._log = life.log
        self._events = life.events
        self._lease = life.lease
        self._background = life.background
        self._context = life.context
        self._work = work

    def carry_out(self, actions: Sequence[Action]) -> Left | Restart | None:
        """Carry out the actions in order; the one that ends the incarnation, if there is one."""
        for_tasks: list[Effect] = []
        for action in actions:
            match action:
                case Left() | Restart():
                    return action
                case Append(commands, parent):
                    self._log.append(commands, parent)
                case WatchPulse(other):
                    self._log.watch_pulse(other, lambda gone: self._events.post(PulseGone(gone)))
                case UnwatchPulse(other):
                    self._log.unwatch_pulse(other)
                case ProbePulse(other):
                    self._probe(other)
                case RemoveState(job):
                    self._remove_state(job)
                case AnswerCheck():
                    self._work.checker.ask(action)
                case StartPauseTimer(suspension):
                    self._events.post_after(self._lease.remaining_s(), PauseDue(suspension))
                case StartBackOff():
                    self._events.post_after(self._back_off_s(), BackOffElapsed())
                case Pause():
                    logger.warning("ZooKeeper does not answer: tasks are paused")
                    self._lease.pause()
                case Resume():
                    logger.info("ZooKeeper answers again and the session lives: tasks resume")
                    self._lease.resume()
                    self._work.tasks.wake()
                case _:
                    for_tasks.append(action)
        self._work.tasks.apply(for_tasks)
        return None

    def _back_off_s(self) -> float:
        """Random, so that groups that join at once do not collide again."""
        return 2 * self._context.randomness.random() * self._context.settings.log.join_back_off_s

    def _probe(self, other: GroupId) -> None:
        def look() -> None:
            if not self._log.pulse_exists(other):
                self._events.post(PulseGone(other))

        self._background.run(look)

    def _remove_state(self, job: JobId) -> None:
        def work() -> None:
            try:
                self._work.services.state_store(durable=True).remove_tree(job)
            except OnyxError as error:
                logger.warning("the state of job %s could not be removed: %s", job, error)

        self._background.run(work)
