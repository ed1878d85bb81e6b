"""A thread that ends by an error is never a secret, and one of Onyx's ends the process."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from tests.support.patience import WAIT_S

from onyx.processes.running import ThreadWatch


@pytest.fixture
def watch() -> Iterator[ThreadWatch]:
    made = ThreadWatch()
    made.start()
    yield made
    made.stop()


def run(name: str, error: type[BaseException]) -> None:
    def ends() -> None:
        raise error("the reason")

    thread = threading.Thread(target=ends, name=name)
    thread.start()
    thread.join(WAIT_S)


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
def test_a_thread_of_ours_that_ends_is_why_the_process_cannot_go_on(
    error: type[BaseException], watch: ThreadWatch, caplog: pytest.LogCaptureFixture
) -> None:
    run("onyx-heartbeats", error)
    assert f"thread onyx-heartbeats has ended: {error.__name__}: the reason" in str(watch.failure)
    assert "the process ends too" in caplog.text


def test_a_thread_of_a_plugin_that_ends_is_logged_and_the_process_goes_on(
    watch: ThreadWatch, caplog: pytest.LogCaptureFixture
) -> None:
    run("my-poller", SystemExit)
    assert watch.failure is None
    assert "thread my-poller has ended: SystemExit: the reason" in caplog.text


def test_a_process_ends_in_time_though_a_thread_of_a_pool_hangs() -> None:
    code = (
        "import threading\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from onyx.processes.running import end_within\n"
        "ThreadPoolExecutor(1).submit(threading.Event().wait)\n"
        "end_within(0.05)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], timeout=WAIT_S, check=False)
    assert ended.returncode == 1
