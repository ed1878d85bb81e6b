"""The operator in this process, in a thread with a loop of its own, against the fake API server.

Logs of clusters are in memory, one a tenancy, unless a test brings others. `kill` ends an operator
as a crash does: nothing it was doing is finished, nothing is let go in an orderly way.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from kubernetes.client import Configuration
from tests.operator.fake_api.server import FakeApi

from onyx.ids import JobId
from onyx.log.interface import ClientLog
from onyx.log.memory import MemoryLog
from onyx.replica import machine
from onyx.replica.state import Replica
from onyx.settings import Settings
from onyx_operator.application import run
from onyx_operator.settings import (
    JobSettings,
    KubeSettings,
    OperatorSettings,
    ServerSettings,
)

WAIT_S = 30.0
FAST = OperatorSettings(
    kube=KubeSettings(threads_max=4),
    server=ServerSettings(host="127.0.0.1", port=0),
    jobs=JobSettings(retry_min_s=0.02, retry_max_s=0.2, progress_interval_s=0.1),
)


class Logs:
    """The logs of all clusters."""

    def __init__(self) -> None:
        self.by_tenancy: dict[str, MemoryLog] = defaultdict(MemoryLog)

    def connect(self, settings: Settings) -> ClientLog:
        return self.by_tenancy[settings.tenancy_id].client()

    def replica(self, tenancy: str = "default.onyx") -> Replica:
        """What a peer would know now."""
        replica = Replica()
        client = self.by_tenancy[tenancy].client()
        for entry in client.read(replica.version):
            replica = machine.apply(replica, entry)
        client.close()
        return replica

    def commands(self, tenancy: str = "default.onyx") -> list[tuple[str, str]]:
        """(name, job) of every entry, in order."""
        client = self.by_tenancy[tenancy].client()
        entries = client.read(Replica().version)
        client.close()
        return [
            (each.command.fn, str(each.command.args.get("id") or each.command.args.get("job")))
            for each in entries
        ]

    def tell(self, fn: str, job: JobId | str, tenancy: str = "default.onyx", **args: Any) -> None:
        """Write a command as somebody else would."""
        from onyx.replica.entry import Command

        client = self.by_tenancy[tenancy].client()
        client.append(Command(fn, {"job": job, **args}))
        client.close()


class RunningOperator:
    """An operator that runs until `stop` or `kill`."""

    def __init__(
        self,
        api: FakeApi,
        connect: Callable[[Settings], ClientLog],
        settings: OperatorSettings = FAST,
    ) -> None:
        self._configuration = Configuration()
        self._configuration.host = api.url
        self._connect = connect
        self._settings = settings
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._started = threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="operator", daemon=True)
        self._thread.start()
        assert self._started.wait(WAIT_S)

    def stop(self) -> None:
        """As SIGTERM does."""
        assert self._loop is not None
        assert self._stop is not None
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the operator does not end"

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._started.set()
        try:
            await run(self._settings, self._configuration, self._stop, self._connect)
        except BaseException as error:
            self.error = error


@contextlib.contextmanager
def running_operator(
    api: FakeApi,
    connect: Callable[[Settings], ClientLog],
    settings: OperatorSettings = FAST,
) -> Iterator[RunningOperator]:
    operator = RunningOperator(api, connect, settings)
    try:
        yield operator
    finally:
        operator.stop()
    assert operator.error is None, operator.error


def eventually(check: Callable[[], Any], what: str = "", timeout_s: float = WAIT_S) -> Any:
    """Wait until `check` gives something true, and return that."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        found = check()
        if found:
            return found
        assert time.monotonic() < deadline_s, f"not in time: {what}"
        time.sleep(0.01)
