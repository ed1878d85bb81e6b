"""What compression saves over a slow network. `python -m benchmarks.slow_network [--mbit 100]`

Two processes with one stream, which passes a third process that lets so many bits through a second.
One sends batches of the segments of workload a, as dicts and as columns, the other takes and
decodes them. CPU is of these two. Without compression, with lz4 and with zstd in turn.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from multiprocessing.connection import Connection
from typing import NamedTuple, get_args

import numpy as np
import pyarrow as pa
from benchmarks.bench_transport import BACK, FAR, NEAR, THERE, Side, cpu_s, serve
from benchmarks.data import Segments
from benchmarks.figures import Measured, Options, Repeats, parser, ratio, run

from onyx.flow.batch import Batch
from onyx.flow.columns.record_batch import Columns
from onyx.settings import Compression, TlsSettings, TransportSettings
from onyx.transport.interface import Control, ControlKind

BATCH = 1_000
PIECE_BYTES = 16_384
"""That passes at once: a hundredth of a second at 13 Mbit/s."""
CODECS: tuple[Compression, ...] = get_args(Compression)
GOALS = {
    ("dicts", "lz4"): (0.6, 1.5),
    ("dicts", "zstd"): (0.5, 1.5),
    ("columns", "lz4"): (0.6, 1.5),
    ("columns", "zstd"): (0.5, 1.5),
}
"""Of wall and CPU, to those of none."""


class Took(NamedTuple):
    wall_s: float
    cpu_s: float
    wire_bytes: int


def slow(connection: Connection, there: str, bytes_a_second: float) -> None:
    """The process in the middle, until it is ended."""
    listener = socket.create_server(("127.0.0.1", 0))
    connection.send(f"127.0.0.1:{listener.getsockname()[1]}")
    host, _, port = there.rpartition(":")
    while True:
        near, _ = listener.accept()
        far = socket.create_connection((host, int(port)))
        for each in ((near, far), (far, near)):
            threading.Thread(target=_pass_on, args=(*each, bytes_a_second), daemon=True).start()


def _pass_on(source: socket.socket, sink: socket.socket, bytes_a_second: float) -> None:
    free_s = 0.0
    with suppress(OSError):
        while piece := source.recv(PIECE_BYTES):
            free_s = max(free_s, time.monotonic()) + len(piece) / bytes_a_second
            time.sleep(max(0.0, free_s - time.monotonic()))
            sink.sendall(piece)
    for each in (source, sink):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def batches(kind: str, segments: int) -> list[Batch]:
    lines = Segments().lines(segments)
    column = np.arange(BATCH, dtype=np.uint64)
    made = []
    while rows := [json.loads(line) for line in islice(lines, BATCH)]:
        found = Columns(pa.RecordBatch.from_pylist(rows)) if kind == "columns" else rows
        made.append(Batch(found, column[: len(rows)], column[: len(rows)]))
    return made


def sent(items: Sequence[Batch], codec: Compression, mbit: float) -> Took:
    """One pair of processes from start to end."""
    context = multiprocessing.get_context("spawn")
    near_end, far_end = context.Pipe()
    middle_end, given = context.Pipe()
    far = context.Process(target=serve, args=(far_end, TlsSettings()))
    far.start()
    middle: list[multiprocessing.process.BaseProcess] = []

    def reach(address: str) -> str:
        middle.append(context.Process(target=slow, args=(given, address, mbit * 125_000)))
        middle[0].start()
        return str(middle_end.recv())

    side = Side(
        NEAR, FAR, BACK, near_end, TlsSettings(), TransportSettings(compression=codec), reach
    )
    side.send(THERE, items[0])
    began, before = time.perf_counter(), cpu_s()
    for item in items:
        side.send(THERE, item)
    side.send(THERE, Control(ControlKind.FLUSH))
    far_cpu_s, counted = near_end.recv()
    took = Took(
        time.perf_counter() - began, cpu_s() - before + far_cpu_s, counted["received_bytes"]
    )
    side.send(THERE, Control(ControlKind.END))
    near_end.recv()
    side.transport.stop()
    far.join()
    middle[0].terminate()
    middle[0].join()
    return took


def measure(options: argparse.Namespace) -> Measured:
    figures, details = [], {}
    for kind in ("dicts", "columns"):
        items = batches(kind, options.segments)
        rounds = [
            {codec: sent(items, codec, options.mbit) for codec in CODECS}
            for _ in range(options.repeats)
        ]
        details[kind] = rounds
        none, *others = CODECS
        for codec in others:
            for what, goal in zip(("wall", "CPU"), GOALS[kind, codec], strict=True):
                mine, plain = (
                    Repeats(tuple(getattr(each[way], f"{what.lower()}_s") for each in rounds))
                    for way in (codec, none)
                )
                less, all_of_it = (rounds[0][way].wire_bytes / 1e6 for way in (codec, none))
                note = f"{mine.typical:.2f} s to {plain.typical:.2f}; "
                note += f"{less:.1f} MB to {all_of_it:.1f}"
                figures.append(ratio(f"{kind}: {what}, {codec} to none", mine, plain, goal, note))
    return Measured(figures, details)


def options() -> Options:
    made = parser(__doc__)
    made.sized("--segments", 1_000_000, 300_000, 5_000)
    made.sized("--repeats", 3, 1, 1)
    made.add_argument("--mbit", type=float, default=100.0, help="megabits a second")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
