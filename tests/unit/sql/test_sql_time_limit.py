"""The thread that ends statements which take too long."""

from __future__ import annotations

import threading

import pytest
from tests.support.patience import WAIT_S

from onyx.sql import engine
from onyx.sql.engine import TimeLimit


def test_the_watch_looks_while_statements_run_and_waits_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "LOOK_INTERVAL_S", 0.0)
    watch = engine._Watch()
    monkeypatch.setattr(engine, "_watch", watch)
    cleared = threading.Event()
    clear = watch.awake.clear
    monkeypatch.setattr(watch.awake, "clear", lambda: (clear(), cleared.set()))
    limit = TimeLimit()

    for _ in range(3):
        interrupted = threading.Event()
        limit.begin(0.0, interrupted.set)
        assert interrupted.wait(WAIT_S)
        cleared.clear()
        limit.end()
        assert cleared.wait(WAIT_S)
        assert not watch.awake.is_set()
