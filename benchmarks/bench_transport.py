"""Streams between two processes on loopback: throughput, CPU per frame, latency of two hops.

    python -m benchmarks.bench_transport [--segments 2000000] [--batch 1000] [--json FILE]
    python -m benchmarks.bench_transport --tls 3        # what TLS costs: pairs of runs, ratios

One process sends batches of small segments, the other takes and decodes them and echoes single
segments back for the latency part (there and back are two hops). CPU is of both processes, user
and system, without start-up.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import trustme
from benchmarks.figures import Figure, Measured, Options, Repeats, parser, ratio, run

from onyx.flow.batch import Batch
from onyx.ids import AllocationVersion, GroupId, JobId, PeerId
from onyx.settings import TlsSettings, TransportSettings
from onyx.tls.files import GROUPS, CertificateFiles
from onyx.transport.grpc_transport import GrpcTransport
from onyx.transport.interface import Bounds, Channel, Control, ControlKind, Delivery, Sendable

JOB, VERSION = JobId("bench"), AllocationVersion(1)
NEAR, FAR = GroupId("a"), GroupId("b")
THERE = Channel(JOB, VERSION, PeerId("p"), PeerId("q"))
BACK = Channel(JOB, VERSION, PeerId("q"), PeerId("p"))


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Side:
    """One process: it sleeps until something has arrived or there is room."""

    def __init__(
        self,
        group: GroupId,
        other: GroupId,
        channel_in: Channel,
        connection: Connection,
        tls: TlsSettings,
        settings: TransportSettings | None = None,
        reach: Callable[[str], str] = str,
    ) -> None:
        """`reach`: an address that leads to that of the other group. Each is as on a machine of its
        own, so what `settings` say of compression holds."""
        self.other = other
        self.event = threading.Event()
        files = CertificateFiles.named_by(tls, GROUPS, serves=True)
        self.transport = GrpcTransport(
            settings or TransportSettings(), "bench", files, machine=ord(group)
        )
        self.transport.on_room(self.event.set)
        self.transport.start(group, self)
        connection.send(self.transport.address)
        self.transport.connect({other: reach(connection.recv())})
        self.inbox = self.transport.open_inbox(
            JOB, VERSION, channel_in.target, Bounds(20_000, 1 << 26), self.event.set
        )

    def send(self, channel: Channel, item: Sendable) -> None:
        while True:
            self.event.clear()
            if self.transport.send(self.other, channel, item):
                return
            self.event.wait(1)

    def take(self) -> Sequence[Delivery]:
        while True:
            self.event.clear()
            taken = self.inbox.take(5_000)
            if taken:
                return taken
            self.event.wait(1)

    def on_acks(self, *args: Any) -> None: ...

    def on_completions(self, *args: Any) -> None: ...

    def on_held(self, *args: Any) -> None: ...

    def on_lookup(self, *_: Any) -> None:
        raise NotImplementedError

    def on_returns(self, *_: Any) -> None:
        raise NotImplementedError

    def on_append(self, append: Any) -> Future[Any]:
        raise NotImplementedError

    def on_query(self, query: Any) -> Future[Any]:
        raise AssertionError("nobody asks")


def serve(connection: Connection, tls: TlsSettings) -> None:
    """The far process: count until FLUSH, report, then echo until END."""
    side = Side(FAR, NEAR, THERE, connection, tls)
    before = cpu_s()
    while True:
        for delivery in side.take():
            if not isinstance(delivery.item, Control):
                if len(delivery.item) == 1:
                    side.send(BACK, delivery.item)
            elif delivery.item.kind is ControlKind.FLUSH:
                used = cpu_s() - before
                connection.send((used, vars_of(side.transport.counters())))
                before = cpu_s()
            else:
                connection.send(cpu_s() - before)
                side.transport.stop()
                return


def vars_of(counters: Any) -> dict[str, int]:
    return {name: getattr(counters, name) for name in counters.__slots__}


def throughput(side: Side, connection: Connection, segments: int, batch: int) -> dict[str, float]:
    rows = [{"id": n, "name": "abcdefghijklmnopqr", "age": n % 90} for n in range(batch)]
    column = np.arange(batch, dtype=np.uint64)
    side.send(THERE, Batch(rows[:2], column[:2], column[:2]))
    start, cpu = time.perf_counter(), cpu_s()
    for _ in range(segments // batch):
        side.send(THERE, Batch(rows, column, column))
    side.send(THERE, Control(ControlKind.FLUSH))
    far_cpu, far = connection.recv()
    wall, cpu = time.perf_counter() - start, cpu_s() - cpu
    near = vars_of(side.transport.counters())
    megabytes = far["received_bytes"] / 1e6
    data_frames = near["sent_frames"]
    return {
        "segments": segments,
        "batch": batch,
        "segments/s": round(segments / wall),
        "MB/s": round(megabytes / wall, 1),
        "KiB/frame": round(far["received_bytes"] / data_frames / 1024, 1),
        "CPU us/frame": round((cpu + far_cpu) / data_frames * 1e6, 1),
        "CPU s/M segments": round((cpu + far_cpu) / segments * 1e6, 3),
    }


def latency(side: Side, connection: Connection, count: int, per_second: int) -> dict[str, float]:
    times = []
    cpu = cpu_s()
    for each in range(count):
        start = time.perf_counter()
        column = np.array([each], np.uint64)
        side.send(THERE, Batch([{"id": each}], column, column))
        side.take()
        times.append(time.perf_counter() - start)
        time.sleep(max(0.0, 1 / per_second - times[-1]))
    cpu = cpu_s() - cpu
    side.send(THERE, Control(ControlKind.END))
    cpu += connection.recv()
    p50, p99 = np.percentile(times, [50, 99]) * 1e3
    return {
        "segments": count,
        "per second": per_second,
        "two hops p50 ms": round(p50, 3),
        "two hops p99 ms": round(p99, 3),
        "CPU us/segment": round(cpu / count * 1e6),
    }


def both_ends(options: argparse.Namespace, tls: TlsSettings) -> dict[str, dict[str, float]]:
    """One pair of processes from start to end."""
    context = multiprocessing.get_context("spawn")
    near_end, far_end = context.Pipe()
    process = context.Process(target=serve, args=(far_end, tls))
    process.start()
    side = Side(NEAR, FAR, BACK, near_end, tls)
    results = {
        "throughput": throughput(side, near_end, options.segments, options.batch),
        "latency": latency(side, near_end, options.round_trips, 200),
    }
    side.transport.stop()
    process.join()
    return results


def certificates(folder: Path) -> TlsSettings:
    authority = trustme.CA()
    leaf = authority.issue_cert("bench.test")
    files = [folder / name for name in ("ca.crt", "tls.crt", "tls.key")]
    authority.cert_pem.write_to_path(str(files[0]))
    leaf.cert_chain_pems[0].write_to_path(str(files[1]))
    leaf.private_key_pem.write_to_path(str(files[2]))
    authority_file, certificate, key = map(str, files)
    return TlsSettings(authority_file, certificate, key, "bench.test")


class Place(NamedTuple):
    """Where a figure is found."""

    part: str
    key: str
    unit: str


FIGURES = {
    "segments over one stream": Place("throughput", "segments/s", "/s"),
    "CPU of a frame": Place("throughput", "CPU us/frame", "us"),
    "CPU of a million segments": Place("throughput", "CPU s/M segments", "s"),
    "two hops, p50": Place("latency", "two hops p50 ms", "ms"),
    "two hops, p99": Place("latency", "two hops p99 ms", "ms"),
    "CPU of a segment, one by one": Place("latency", "CPU us/segment", "us"),
}


def cost_of_tls(options: argparse.Namespace) -> Measured:
    """Runs without and with TLS in turn; ratios of their medians."""
    with tempfile.TemporaryDirectory() as folder:
        tls = certificates(Path(folder))
        pairs = [
            (both_ends(options, TlsSettings()), both_ends(options, tls)) for _ in range(options.tls)
        ]
    figures = []
    for name, (part, key, _) in FIGURES.items():
        plain = Repeats(tuple(each[part][key] for each, _ in pairs))
        secure = Repeats(tuple(each[part][key] for _, each in pairs))
        note = f"{plain.typical:g} become {secure.typical:g}; {len(pairs)} pairs"
        figures.append(ratio(f"{name}, TLS to plain", secure, plain, note=note))
    return Measured(figures, pairs)


def measure(options: argparse.Namespace) -> Measured:
    if options.tls:
        return cost_of_tls(options)
    found = both_ends(options, TlsSettings())
    for part, rows in found.items():
        print(part, "  ".join(f"{name} {value:,}" for name, value in rows.items()))
    figures = [Figure(name, found[part][key], unit) for name, (part, key, unit) in FIGURES.items()]
    return Measured(figures, found)


def options() -> Options:
    made = parser(__doc__)
    made.sized("--segments", 2_000_000, 200_000, 20_000)
    made.add_argument("--batch", type=int, default=1_000)
    made.sized("--round-trips", 1_000, 200, 20)
    made.add_argument("--tls", type=int, default=0, metavar="PAIRS", help="compare with TLS")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
