"""Workloads as plain loops: the floor. `python plain.py segments|words|windows FOLDER`"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
from bench_tasks import even, inc

WINDOW_MS = 60_000


def lines(folder: str) -> Iterator[bytes]:
    for path in sorted(Path(folder).glob("part-*")):
        with open(path, "rb") as file:
            yield from file


def segments(folder: str) -> tuple[int, int]:
    decode = msgspec.json.Decoder(dict).decode
    count = total = 0
    for line in lines(folder):
        segment = inc(decode(line))
        if even(segment):
            count += 1
            total += segment["n"]
    return count, total


def words(folder: str) -> tuple[int, int]:
    counts: Counter[str] = Counter()
    for line in lines(folder):
        for word in line.decode().split():
            counts[word] += 1
    return len(counts), counts.total()


def windows(folder: str) -> tuple[int, int]:
    decode = msgspec.json.Decoder(dict).decode
    sums: Counter[tuple[str, int]] = Counter()
    for line in lines(folder):
        event = decode(line)
        sums[event["key"], event["ts"] // WINDOW_MS] += event["v"]
    return len(sums), sums.total()


if __name__ == "__main__":
    workload, folder = sys.argv[1:]
    print("ANSWER", *{"segments": segments, "words": words, "windows": windows}[workload](folder))
