"""The kit accepts every built-in plugin, and finds what is wrong with bad ones."""

import itertools

import msgspec
import pyarrow.parquet as pq
import pytest
from tests.support.jobs.plugin_context import plugin_context

from onyx.plugins.bases import IndexedReader
from onyx.plugins.channel import open_channel
from onyx.plugins.protocol import Cursor, Input
from onyx.plugins.registry import build_input, build_output
from onyx.testing.plugin_kit import SEGMENTS, check_input, check_output

# --- inputs --------------------------------------------------------------------------------------


def test_sequence():
    options = {"segments": [{"n": [n]} for n in range(7)], "partitions": 2}
    check_input(
        lambda: build_input("sequence", plugin_context(options)),
        {"0": [{"n": [n]} for n in (0, 2, 4, 6)], "1": [{"n": [n]} for n in (1, 3, 5)]},
    )


def test_generator():
    options = {"segments": 5, "partitions": 2}
    check_input(
        lambda: build_input("generator", plugin_context(options)),
        {"0": [{"n": 0}, {"n": 2}, {"n": 4}], "1": [{"n": 1}, {"n": 3}]},
    )


def test_channel_input():
    channel = open_channel("kit-in")
    channel.put(*SEGMENTS)
    channel.close()
    found = check_input(lambda: build_input("channel", plugin_context({"channel": "kit-in"})))
    assert found == {"kit-in": list(SEGMENTS)}


class Faulty(Input):
    """An input over numbers, with one fault."""

    cooperative = True

    def __init__(self, fault):
        self._fault = fault
        self._segments = [{"n": n} for n in range(9)]

    def partitions(self):
        if self._fault == "order":
            return ["a", "b"][:: next(COUNTER) % 2 * 2 - 1]
        return ["a"]

    def open(self, partition, cursor):
        segments = self._segments if self._fault == "shared" else [dict(s) for s in self._segments]
        first = cursor.position + (self._fault == "off by one" and cursor.position > 3)
        size = 8 if self._fault == "ends early" else 9

        def fetch(position, segments_max):
            return segments[position : position + segments_max + (self._fault == "too many")]

        reader = IndexedReader(first, fetch, lambda: None if self._fault == "endless" else size)
        if self._fault == "late cursor":
            reader.cursor = lambda position: Cursor(position + 1)
        return reader

    def close(self):
        pass


COUNTER = itertools.count()
NUMBERS = {"a": [{"n": n} for n in range(9)]}


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("order", "sort the names"),
        ("shared", "re-opened at"),
        ("off by one", "re-opened at"),
        ("ends early", "re-opened at"),
        ("endless", "gave nothing, but it is not exhausted"),
        ("too many", r"read\(1\) gave 2 segments"),
        ("late cursor", "is later"),
    ],
)
def test_faults_of_an_input_are_found(fault, why):
    with pytest.raises(AssertionError, match=why):
        check_input(lambda: Faulty(fault), NUMBERS)


def test_the_same_input_without_a_fault_passes():
    check_input(lambda: Faulty(None), NUMBERS)


# --- outputs -------------------------------------------------------------------------------------


def jsonl(directory):
    return [
        segment
        for part in sorted(directory.glob("*.jsonl"))
        for segment in msgspec.json.Decoder().decode_lines(part.read_bytes())
    ]


def parquet(directory):
    return [
        row
        for part in sorted(directory.glob("*.parquet"))
        for row in pq.read_table(part).to_pylist()
    ]


@pytest.mark.parametrize(
    ("options", "read_back"),
    [
        ({}, jsonl),
        ({"rollSegments": 4}, jsonl),
        ({"format": "parquet"}, parquet),
    ],
)
def test_files_output(tmp_path, options, read_back):
    numbers = itertools.count()

    def start():
        target = tmp_path / str(next(numbers))
        target.mkdir()

        def make(incarnation):
            context = plugin_context({"path": str(target), **options}, incarnation=incarnation)
            return build_output("files", context)

        return make, lambda: read_back(target)

    check_output(start)


def test_channel_output():
    def start():
        channel = open_channel("kit-out")
        taken = []

        def read_back():
            taken.extend(channel.take())
            return taken

        return lambda _: build_output("channel", plugin_context({"channel": "kit-out"})), read_back

    check_output(start)


@pytest.mark.parametrize("batch", [False, True])
def test_function_output(batch):
    def start():
        called = []
        functions = {"m:f": called.extend if batch else called.append}
        context = plugin_context({"fn": "m:f", "batch": batch}, functions=functions)
        return lambda _: build_output("function", context), lambda: called

    check_output(start)


class FaultyOutput:
    """Buffers in memory, shows what it flushes; with one fault."""

    cooperative = True

    def __init__(self, target, fenced, incarnation, fault):
        self._target, self._fenced, self._me, self._fault = target, fenced, incarnation, fault
        self._buffer = []
        self._durable = 0

    def write(self, segments):
        self._buffer += segments
        if self._fault == "early":
            self._durable += len(segments)

    def durable(self):
        return self._durable

    def flush(self):
        if self._fault == "lazy":
            return
        if self._me in self._fenced and self._fault != "unfenced":
            raise RuntimeError("fenced")
        self._target += self._buffer[1:] if self._fault == "lossy" else self._buffer
        if self._fault == "twice":
            self._target += self._buffer
        if self._fault != "early":
            self._durable += len(self._buffer)
        self._buffer = []

    def tick(self):
        if self._fault == "backwards":
            self._durable = 0

    def fence(self, live):
        self._fenced |= {"crashed", "zombie"} - set(live)

    def seal(self):
        pass

    def close(self):
        pass


def faulty(fault):
    def start():
        target, fenced = [], set()
        return lambda me: FaultyOutput(target, fenced, me, fault), lambda: target

    return start


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("early", "but not found"),
        ("lazy", "these are missing"),
        ("lossy", "but not found"),
        ("twice", "never written"),
        ("backwards", "went from 3 to 0"),
        ("unfenced", "a fenced incarnation made visible"),
    ],
)
def test_faults_of_an_output_are_found(fault, why):
    with pytest.raises(AssertionError, match=why):
        check_output(faulty(fault))


def test_the_same_output_without_a_fault_passes():
    check_output(faulty(None))
