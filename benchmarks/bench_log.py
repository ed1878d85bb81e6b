"""How fast the log is written and followed, on an embedded ZooKeeper with fsync.

    python -m benchmarks.bench_log [--entries N] [--quick] [--json FILE]

Appends go through one group (pulse checked in every transaction) to a reader in another session;
then a new reader follows the whole log from its start, and one client appends with an answer each.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing

from benchmarks.figures import Figure, Measured, Options, parser, run

from onyx.ids import NO_POSITION, GroupId, PeerId
from onyx.log.server.process import ZooKeeperServer
from onyx.log.zookeeper.group_log import ZooKeeperGroupLog
from onyx.log.zookeeper.log import ZooKeeperClientLog
from onyx.replica.commands import AddVirtualPeer
from onyx.settings import LogSettings, Settings, ZooKeeperSettings

COMMAND = AddVirtualPeer(
    id=PeerId("3f0c52c7-3d1a-4d5e-9f57-1f6f1f0f8b11"),
    group_id=GroupId("g"),
    peer_site={"note": "x" * 160},
)
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


def rates(settings: Settings, entries: int, single: int) -> dict[str, float]:
    """Entries a second, and how long one append takes whose answer is waited for."""
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
                for _ in range(single):
                    late.append(COMMAND)

            single_s = timed(append_singly)
    return {
        "appends_and_deliveries_per_s": round(entries / append_s),
        "tail_entries_per_s": round(entries / tail_s),
        "single_append_ms": round(1000 * single_s / single, 2),
    }


def measure(options: argparse.Namespace) -> Measured:
    entries = options.entries
    with tempfile.TemporaryDirectory() as folder, ZooKeeperServer(folder) as server:
        settings = Settings(
            zookeeper=ZooKeeperSettings(address=server.address),
            log=LogSettings(append_queue_entries_max=entries),
        )
        found = rates(settings, entries, options.single)
    return Measured(
        [
            Figure(f"reading a log of {entries:,} entries from ZooKeeper",
                   found["tail_entries_per_s"], "entries/s", GOAL_ENTRIES_S, at_least=True),
            Figure("appending by a group to a reader", found["appends_and_deliveries_per_s"],
                   "entries/s"),
            Figure("an append by a client with its answer", found["single_append_ms"], "ms"),
        ],
        found,
    )  # fmt: skip


def options() -> Options:
    made = parser(__doc__)
    made.sized("--entries", 10_000, 2_000, 200)
    made.sized("--single", 300, 300, 20, "appends, one after the other")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
