"""What clients learn when the function that they have follow the log raises."""

from __future__ import annotations

import pytest
from tests.support.log.logs import Inbox
from tests.support.log.markers import marker
from tests.support.log.memory_log import MemoryLog
from tests.support.log.submissions import submit_job
from tests.support.patience import WAIT_S

from onyx.client.client import Client
from onyx.client.subscription import Subscription, shutdown_subscription
from onyx.ids import NO_POSITION, JobId, Position
from onyx.replica.state import Replica


def test_a_subscription_ends_with_what_its_function_raises_and_says_where() -> None:
    client = MemoryLog().client()
    for name in "abc":
        client.append(marker(name))
    told: list[Position] = []

    def deliver(item: object) -> None:
        told.append(item.position)  # type: ignore[attr-defined]
        if len(told) == 2:
            raise ValueError("entry b is not for me")

    subscription = Subscription(client, deliver, NO_POSITION)
    with pytest.raises(ValueError, match="entry b"):
        subscription.wait(WAIT_S)
    with pytest.raises(ValueError, match="entry b"):
        shutdown_subscription(subscription)
    assert told == [0, 1]


def test_an_entry_at_which_a_function_raises_is_named_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = MemoryLog().client()
    client.append(marker("a"))
    failures = Inbox()
    client.subscribe(NO_POSITION, lambda _: 1 // 0, failures)
    failures.take()
    assert "has raised at entry 0 and is given no more entries" in caplog.text
    assert "after position -1" in caplog.text


def test_whoever_waits_for_a_job_hears_at_once_what_its_progress_function_raises() -> None:
    log = MemoryLog().client()
    client = Client(log, "balanced")
    log.append(
        submit_job("j", "in out", inputs=["in"], outputs=["out"], digest=log.put_chunk(b"j"))
    )
    calls = []

    def progress(_: Replica) -> None:
        calls.append(1)
        if len(calls) == 1:
            log.append(marker("later"))
        else:
            raise ValueError("the screen is gone")

    with pytest.raises(ValueError, match="the screen is gone"):
        client.wait(JobId("j"), WAIT_S, progress)


def test_the_end_of_a_block_raises_what_the_function_that_followed_has_raised() -> None:
    log = MemoryLog().client()
    client = Client(log, "balanced")
    log.append(marker("a"))
    told = Inbox()
    with (
        pytest.raises(ZeroDivisionError),
        client.follow(lambda *_: 1 // 0, failed=lambda: told("failed")),
    ):
        assert told.take() == ["failed"]
