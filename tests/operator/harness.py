"""The whole operator in this process, against the fake API server and logs in memory or ZooKeeper.

    with Operator(api, logs.connect, failpoint=Failpoint(3, after_effect=True)) as operator:
        api.create(cluster()); api.create(job("flights"))
        api.wait_for("onyxjobs", "flights", lambda job: job["status"]["phase"] == "Running")

The operator runs in a thread with a loop of its own, exactly as `python -m onyx_operator` runs it.
It reaches the world through a door (see `fake_api/doors.py`), and only with the rights that the
chart grants it: a request beyond them fails the test. When the door is shut, by a failpoint
or by `kill()`, that incarnation is dead, and a new one is started behind a new door, as the kubelet
would. So a scenario need not know when the operator dies: it waits for what must come true.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from kubernetes.client import Configuration
from msgspec.structs import replace
from tests.operator.fake_api.doors import Door, Failpoint, Shut
from tests.operator.fake_api.paths import Target
from tests.operator.fake_api.server import FakeApi
from tests.support.generated.chart import NAMESPACE, objects, pod_specs
from tests.support.generated.rbac import Right, covers, granted, right_of
from tests.support.log.memory_log import MemoryLog
from tests.support.patience import WAIT_S

from onyx.errors import Unavailable
from onyx.ids import Position
from onyx.log.interface import ClientLog
from onyx.log.tenancy import check_owner
from onyx.replica import machine
from onyx.replica.command import Command
from onyx.replica.state import Replica
from onyx.settings import Settings
from onyx_operator.application import run
from onyx_operator.settings import OperatorSettings, operator_settings

Connect = Callable[[Settings], ClientLog]
DYING_S = 1.0
"""Time for what is dead to tidy up in this process; nothing of it reaches the world."""
QUICK = {
    "ONYX_OPERATOR_NAMESPACES": "default",
    "ONYX_OPERATOR_SERVER_HOST": "127.0.0.1",
    "ONYX_OPERATOR_SERVER_PORT": "0",
    "ONYX_OPERATOR_JOBS_RETRY_MIN_S": "0.01",
    "ONYX_OPERATOR_JOBS_RETRY_MAX_S": "0.1",
    "ONYX_OPERATOR_CLUSTERS_RETRY_MIN_S": "0.01",
    "ONYX_OPERATOR_CLUSTERS_RETRY_MAX_S": "0.1",
    "ONYX_OPERATOR_CLUSTERS_WORKER_IMAGE": "onyx-worker:test",
    "ONYX_OPERATOR_ZOOKEEPER_ADDRESSES": "zookeeper:2181",
    "ONYX_OPERATOR_TENANCIES": "default/shared,default/other",
}
"""Settings for tests: one namespace, free ports, short waits."""


def settings(**more: str) -> OperatorSettings:
    """The operator's settings for tests, changed by variables without their prefix:
    `settings(JOBS_RESYNC_INTERVAL_S="0.2")`."""
    changed = {f"ONYX_OPERATOR_{name}": value for name, value in more.items()}
    return operator_settings({**QUICK, **changed})


def with_account(found: OperatorSettings, folder: Path) -> OperatorSettings:
    """Settings of an operator that has an account of ZooKeeper, whose password is in a folder."""
    (folder / "password").write_text("of the operator")
    shown = {"auth_user": "onyx", "auth_password_file": str(folder / "password")}
    engine = replace(found.engine, zookeeper=replace(found.engine.zookeeper, **shown))
    return replace(found, engine=engine)


def installation(folder: Path, **values: Any) -> dict[str, str]:
    """Variables, without their prefix, by which the chart lets an operator draw Secrets and take
    its turn."""
    (box,) = pod_specs(values)["Deployment/onyx-operator"]["containers"]
    found = {each["name"].removeprefix("ONYX_OPERATOR_"): each.get("value") for each in box["env"]}
    own = ("INSTALLATION_", "LEASE_")
    drawn = {name: value for name, value in found.items() if name.startswith(own)}
    folder = folder / "onyx"
    return {**drawn, "INSTALLATION_FOLDER": str(folder), "LEASE_DURATION_S": "0.5"}


@cache
def chart_rights(
    *namespaces: str, everywhere: bool = False, labelled: bool = False, spark: bool = False
) -> frozenset[Right]:
    """What the chart grants to an operator that looks after these namespaces (by default the one
    called `default`), or all, or those with a label."""
    values = chart_values(*namespaces, everywhere=everywhere, labelled=labelled, spark=spark)
    return frozenset(granted(objects(values), (NAMESPACE, "onyx-operator")))


def chart_values(
    *namespaces: str, everywhere: bool = False, labelled: bool = False, spark: bool = False
) -> dict[str, Any]:
    """Values of the chart, by which such an operator is installed."""
    values: dict[str, Any] = {"clusterWide": True}
    if labelled:
        values = {"watchNamespaceLabels": {"onyx": "on"}}
    elif not everywhere:
        watched = list(namespaces or ("default",))
        values = {"watchNamespaces": watched, "cluster": {"create": False}}
    return {**values, "spark": {"enabled": spark}}


class Logs:
    """Logs in memory, one a tenancy; they outlive every operator."""

    def __init__(self) -> None:
        self._logs: dict[str, MemoryLog] = {}
        self._lock = threading.Lock()
        self.away = threading.Event()
        """While set, no log can be opened."""

    def connect(self, found: Settings) -> ClientLog:
        """What an operator is given to open a log."""
        if self.away.is_set():
            raise Unavailable("no ZooKeeper answers")
        log = self.log(found.tenancy_id).client()
        try:
            check_owner(log, found.tenancy_id, found.tenancy_owner)
        except BaseException:
            log.close()
            raise
        return log

    def log(self, tenancy: str = "default.onyx") -> MemoryLog:
        with self._lock:
            return self._logs.setdefault(tenancy, MemoryLog())

    def commands(self, fn: str = "", tenancy: str = "default.onyx") -> list[Command]:
        """All commands in a log, or those of one name."""
        client = self.log(tenancy).client()
        commands = [entry.command for entry in client.read(Position(-1))]
        client.close()
        return [command for command in commands if fn in ("", command.NAME)]

    def replica(self, tenancy: str = "default.onyx") -> Replica:
        client = self.log(tenancy).client()
        replica = Replica()
        for entry in client.read(Position(-1)):
            replica = machine.apply(replica, entry)
        client.close()
        return replica


class DoorLog:
    """A client's log behind a door: its writes are steps."""

    def __init__(self, log: ClientLog, door: Door) -> None:
        self._log = log
        self._door = door
        door.on_shut(log.close)

    def append(self, command: Command, by: str = "") -> Position:
        return self._step(f"append {command.NAME}", lambda: self._log.append(command, by))

    def put_chunk(self, data: bytes, if_room: bool = False) -> str:
        return self._step("put chunk", lambda: self._log.put_chunk(data, if_room))

    def establish(self, parameters: Mapping[str, str]) -> Mapping[str, str]:
        return self._step("establish", lambda: self._log.establish(parameters))

    def close(self) -> None:
        self._log.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def _step(self, name: str, act: Callable[[], Any]) -> Any:
        try:
            with self._door.step(name):
                return act()
        except Shut as error:
            raise Unavailable("the operator was killed") from error


class Operator:
    """The operator, started again whenever it is killed."""

    def __init__(
        self,
        api: FakeApi,
        connect: Connect,
        found: OperatorSettings | None = None,
        failpoint: Failpoint | None = None,
        rights: frozenset[Right] | None = None,
    ) -> None:
        self._api = api
        self._connect = connect
        self._settings = found or settings()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._stop: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._live, name="operator")
        self._error: BaseException | None = None
        self._rights = chart_rights() if rights is None else rights
        self._revoked = frozenset[str]()
        self.doors = [self._door(failpoint)]
        """Of every incarnation, the first one first."""

    @property
    def steps(self) -> list[str]:
        """What the first incarnation has done: failpoints are counted by this."""
        return list(self.doors[0].steps)

    def __enter__(self) -> Operator:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._stopping.set()
            self._stop()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the operator does not end"
        gc.collect()  # what is left open fails this test, not whichever runs when it is collected
        if self._error is not None:
            raise self._error
        denied = {
            str(right_of(each))
            for door in self.doors
            for each in door.denied
            if not covers(self._rights, right_of(each))
        }
        assert not denied, "the chart does not grant what the operator did"

    def kill(self) -> None:
        """Kill the operator as it is now; another one is started."""
        self.doors[-1].shut()

    def revoke(self, *namespaces: str) -> None:
        """Take the operator's rights in these namespaces, and give back those in all others."""
        self._revoked = frozenset(namespaces)

    def _door(self, failpoint: Failpoint | None = None) -> Door:
        return Door(failpoint, self._may)

    def _may(self, target: Target) -> bool:
        return target.namespace not in self._revoked and covers(self._rights, right_of(target))

    def _live(self) -> None:
        """One incarnation after another, until one is stopped."""
        try:
            while not self._stopping.is_set():
                asyncio.run(self._incarnation(self.doors[-1]))
                if self.doors[-1].is_shut:
                    _bury()
                    self.doors.append(self._door())
        except BaseException as error:
            self._error = error

    async def _incarnation(self, door: Door) -> None:
        loop, stop, killed = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        door.on_shut(lambda: loop.call_soon_threadsafe(killed.set))
        configuration = Configuration()
        configuration.host = self._api.through(door)
        running = asyncio.create_task(
            run(self._settings, configuration, stop, lambda found: self._open(found, door))
        )
        with self._lock:
            self._stop = lambda: loop.call_soon_threadsafe(stop.set)
            if self._stopping.is_set():
                stop.set()
        dying = asyncio.create_task(killed.wait())
        await asyncio.wait({running, dying}, return_when=asyncio.FIRST_COMPLETED)
        dying.cancel()
        if killed.is_set():
            running.cancel()
            await asyncio.wait({running}, timeout=DYING_S)
        else:
            await running
        with self._lock:
            self._stop = lambda: None

    def _open(self, found: Settings, door: Door) -> ClientLog:
        if door.is_shut:
            raise Unavailable("the operator was killed")
        log: Any = DoorLog(self._connect(found), door)
        return log


def _bury() -> None:
    """Collect what a killed operator has left open; a process that is killed closes nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def cluster(name: str = "onyx", namespace: str = "default", **spec: Any) -> dict[str, Any]:
    """An OnyxCluster whose log is at an address that tests never ask."""
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxCluster",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"zookeeper": {"address": "zookeeper:2181"}, **spec},
    }


def deployment(namespace: str, name: str) -> dict[str, Any]:
    """That of the operator, with which its Lease goes."""
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata}


def job(
    name: str = "job", version: int = 1, namespace: str = "default", **spec: Any
) -> dict[str, Any]:
    """A small OnyxJob; another `version` makes it another job."""
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "workflow": [["read", "write"]],
            "catalog": [
                {
                    "name": "read",
                    "type": "input",
                    "plugin": "sequence",
                    "batchSize": 10,
                    "options": {"segments": [{"n": version}]},
                },
                {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 10},
            ],
            **spec,
        },
    }
