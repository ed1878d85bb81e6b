"""How fast the log is written and followed, on an embedded ZooKeeper with fsync.

    python -m benchmarks.bench_log [--entries N] [--quick] [--json FILE]

Appends go through one group (pulse checked in every transaction) to a reader in another session;
then a new reader follows the whole log from its start, and one client appends with an answer each.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing

from benchmarks.figures import Figure, Measured, parser, publish

from onyx.ids import NO_POSITION, GroupId, PeerId
from onyx.log.server.process import ZooKeeperServer
from onyx.log.zookeeper.client_log import ZooKeeperClientLog
from onyx.log.zookeeper.group_log import ZooKeeperGroupLog
from onyx.replica.commands import AddVirtualPeer
from onyx.settings import LogSettings, Settings, ZooKeeperSettings

COMMAND = AddVirtualPeer(
    id=PeerId("3f0c52c7-3d1a-4d5e-9f57-1f6f1f0f8b11"),
    group_id=GroupId("g"),
    peer_site={"note": "x" * 160},
)
SINGLE_APPENDS = 300
GOAL_ENTRIES_S = 5_000


class Until:
    """Counts deliveries and signals when all have come."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._all = threading.Event()

    def __call__(self, _: object) -> None:
        self._left -= 1
        if self._left == 0:
            self._all.set()

    def wait(self) -> None:
        assert self._all.wait(120), "entries are missing"


def timed(action: Callable[[], None]) -> float:
    started_s = time.perf_counter()
    action()
    return time.perf_counter() - started_s


def measure(settings: Settings, entries: int) -> dict[str, float]:
    with closing(ZooKeeperGroupLog(settings, GroupId("writer"))) as group:
        with closing(ZooKeeperClientLog(settings)) as reader:
            group.register_pulse()
            arrived = Until(entries)
            reader.subscribe(NO_POSITION, arrived)

            def append_and_arrive() -> None:
                for _ in range(entries):
                    group.append([COMMAND])
                arrived.wait()

            append_s = timed(append_and_arrive)
        with closing(ZooKeeperClientLog(settings)) as late:
            caught_up = Until(entries)

            def follow() -> None:
                late.subscribe(NO_POSITION, caught_up)
                caught_up.wait()

            tail_s = timed(follow)

            def append_singly() -> None:
                for _ in range(SINGLE_APPENDS):
                    late.append(COMMAND)

            single_s = timed(append_singly)
    return {
        "appends_and_deliveries_per_s": round(entries / append_s),
        "tail_entries_per_s": round(entries / tail_s),
        "single_append_ms": round(1000 * single_s / SINGLE_APPENDS, 2),
    }


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--entries", type=int, default=10_000)
    options = made.parse_args()
    entries = 2_000 if options.quick else options.entries
    with tempfile.TemporaryDirectory() as folder, ZooKeeperServer(folder) as server:
        settings = Settings(
            zookeeper=ZooKeeperSettings(address=server.address),
            log=LogSettings(append_queue_entries_max=entries),
        )
        found = measure(settings, entries)
    for name, value in found.items():
        print(f"{name:<32}{value:>10}")
    rate = Figure(
        f"reading a log of {entries:,} entries from ZooKeeper",
        found["tail_entries_per_s"],
        "entries/s",
        GOAL_ENTRIES_S,
        at_least=True,
    )
    publish(Measured([rate], found), options.json)


if __name__ == "__main__":
    main()
