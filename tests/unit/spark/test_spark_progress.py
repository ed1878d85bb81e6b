"""How far a run on Spark is, reported while it runs."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from tests.support.patience import WAIT_S

from onyx.plugins.protocol import SealProgress
from onyx.spark.session.progress import reported


class Stage(NamedTuple):
    num_tasks: int
    num_completed_tasks: int
    num_bytes_read: int = 0


class Session:
    """Of a Connect server, as far as it reports."""

    def registerProgressHandler(self, handler: Any) -> None:
        self.handler = handler


def test_each_change_of_a_connect_server_is_reported_once() -> None:
    session, heard = Session(), list[SealProgress]()
    news = threading.Semaphore(0)

    def say(progress: SealProgress) -> None:
        heard.append(progress)
        news.release()

    with reported("sc://spark", session, say, every_s=0.001):
        for done in (1, 1, 3):
            session.handler([Stage(4, done)], 1, "operation", False)
            if done not in {each.tasks_done for each in heard}:
                assert news.acquire(timeout=WAIT_S)
    assert [(each.tasks, each.tasks_done) for each in heard] == [(4, 1), (4, 3)]


def test_who_cannot_be_reported_to_does_not_end_the_run() -> None:
    session, called = Session(), threading.Event()

    def say(progress: SealProgress) -> None:
        called.set()
        raise BrokenPipeError

    with reported("sc://spark", session, say, every_s=0.001):
        session.handler([Stage(4, 1)], 1, "operation", False)
        assert called.wait(WAIT_S)
