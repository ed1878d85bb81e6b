"""A worker from its start until it has joined the cluster: executed, and forked by a zygote.

    python -m benchmarks.worker_start [--quick] [--json FILE]

Several workers under one supervisor, in turns in both ways, in one run. *CPU* is what workers have
used when all are members, and their zygote, for each of them; that *of one more* is of the
successor of one that was killed, whose zygote is there already. *Memory* is of the workers and
their zygote, for each worker: in the proportional set size (PSS) a page that several share counts
in parts.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import tempfile
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil
from benchmarks.figures import Figure, Measured, Size, parser, run
from msgspec.structs import replace

from onyx import api
from onyx.processes.child import NAME, worker_launcher
from onyx.processes.supervisor import Supervisor
from onyx.processes.zygote import NAME as ZYGOTE

WORKERS = 1, 3, 8
WAIT_S = 120.0
GOALS = {1: (1.1, 1.3), 3: (0.5, 0.7), 8: (0.3, 0.5)}
"""By the number of workers: what each takes of CPU and memory, to what it takes executed."""
GOAL_CPU_S = 0.3
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Seen(NamedTuple):
    """Of several workers and their zygote, if they have one."""

    cpu_s: float
    """Of one worker and its part of the zygote."""
    start_s: float
    """Of CPU, of one that is started when the others are there."""
    back_s: float
    """From the death of a worker until its successor is a member. The supervisor waits first, and
    if the dead one stands beside it in the ring, the session of that has to expire."""
    pss_mib: float
    rss_mib: float
    """Of one worker and its part of the zygote."""


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def ours(name: str, others: Collection[psutil.Process] = ()) -> list[psutil.Process]:
    """Processes of this one with a name, but for some that it has had before."""
    children = psutil.Process().children(recursive=True)
    return [each for each in children if each not in others and each.name() == name]


def until(holds: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < ends_s, "workers did not join in time"
        time.sleep(0.02)


def seen(settings: api.Settings, count: int, forked: bool) -> Seen:
    others = psutil.Process().children(recursive=True)
    launcher = worker_launcher(settings)
    if not forked:
        launcher.close()
    settings = replace(settings, tenancy_id=uuid.uuid4().hex)
    workers = Supervisor(settings, [1] * count, launcher)
    with api.connect(settings) as client:

        def joined() -> set[str]:
            return set(map(str, client.replica().groups))

        workers.start()
        until(lambda: len(joined()) == count)
        zygotes, there = ours(ZYGOTE, others), ours(NAME, others)
        assert (len(zygotes), len(there)) == (int(forked), count)
        used_s = sum(map(cpu_s, [*zygotes, *there])) / count
        full = [each.memory_full_info() for each in [*zygotes, *there]]
        first, *_ = there
        of_zygote_s = sum(map(cpu_s, zygotes))
        died_s = time.monotonic()
        first.send_signal(signal.SIGKILL)
        known = joined()
        until(lambda: bool(joined() - known))
        back_s = time.monotonic() - died_s
        (new,) = ours(NAME, [*others, *there])
        start_s = cpu_s(new) + sum(map(cpu_s, zygotes)) - of_zygote_s
    workers.stop()
    return Seen(
        used_s,
        start_s,
        back_s,
        sum(each.pss for each in full) / count / 2**20,
        sum(each.rss for each in full) / count / 2**20,
    )


def _middle(repeats: Sequence[Seen]) -> Seen:
    return Seen(*(median(each) for each in zip(*repeats, strict=True)))


def measure(options: argparse.Namespace) -> Measured:
    counts = WORKERS if options.size is Size.FULL else WORKERS[:1]
    found: dict[tuple[int, bool], list[Seen]] = {}
    with tempfile.TemporaryDirectory() as folder:
        env = api.start_env(api.Settings(tenancy_id="bench"), Path(folder))
        try:
            for _ in range(options.repeats):
                for count, forks in itertools.product(counts, (False, True)):
                    each = seen(env.settings, count, forks)
                    found.setdefault((count, forks), []).append(each)
                    print(count, "forked" if forks else "executed", *map("{:.2f}".format, each))
        finally:
            api.shutdown_env(env)
    figures = []
    for count in counts:
        executed, forked = _middle(found[count, False]), _middle(found[count, True])
        of = f"{count} worker{'' if count == 1 else 's'}"
        most_cpu, most_memory = GOALS[count]
        for name, value, before, goal in (
            ("CPU until joined", forked.cpu_s, executed.cpu_s, most_cpu),
            ("PSS", forked.pss_mib, executed.pss_mib, most_memory),
        ):
            note = f"each {value:.2f}, executed {before:.2f}"
            figures.append(
                Figure(f"{of}: {name}, to executed", value / before, "x", goal, note=note)
            )
        note = f"executed {executed.start_s:.2f}"
        figures.append(Figure(f"{of}: CPU of one more", forked.start_s, "s", GOAL_CPU_S, note=note))
    return Measured(figures, {f"{count} {way}": rows for (count, way), rows in found.items()})


def main(arguments: Sequence[str] | None = None) -> None:
    made = parser(__doc__)
    made.sized("--repeats", 3, 1, 1)
    run(measure, made, arguments)


if __name__ == "__main__":
    main()
