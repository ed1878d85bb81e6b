"""Workloads a, b and c on PyFlink's DataStream API in thread mode, one slot.

    python pyflink_stream.py segments|words|windows FOLDER SCRATCH

Thread mode runs Python functions inside the JVM (pemja); PYTHONPATH must name the packages of the
venv. The sink leaves the answer in a file: what it prints is the JVM's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from bench_tasks import even, inc
from pyflink.common import Configuration, Duration, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSource, StreamFormat
from pyflink.datastream.functions import (
    AggregateFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessWindowFunction,
    RuntimeContext,
)
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.datastream.window import Time, TumblingEventTimeWindows

LATENESS_MINUTES = 10


def environment() -> StreamExecutionEnvironment:
    options = Configuration()
    options.set_string("python.execution-mode", "thread")
    options.set_string("python.executable", sys.executable)
    options.set_string("python.fn-execution.bundle.size", "100000")
    options.set_string("python.state.cache-size", "100000")
    options.set_string("rest.bind-port", "0")
    found = StreamExecutionEnvironment.get_execution_environment(options)
    found.set_parallelism(1)
    return found


def lines(env: StreamExecutionEnvironment, folder: str) -> DataStream:
    paths = [str(path) for path in sorted(Path(folder).glob("part-*"))]
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), *paths).build()
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "lines")


class Answer(MapFunction):
    """Where running counts end, or one value a key."""

    def __init__(self, path: str, running: bool) -> None:
        self.path = path
        self.running = running

    def open(self, context: RuntimeContext) -> None:
        self.count = self.total = 0

    def map(self, item: tuple[str, int]) -> int:
        self.count += not self.running or item[1] == 1
        self.total += 1 if self.running else item[1]
        return 0

    def close(self) -> None:
        Path(self.path).write_text(f"ANSWER {self.count} {self.total}")


class Count(KeyedProcessFunction):
    def open(self, context: RuntimeContext) -> None:
        self.count = context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, word: str, context: Any) -> Iterator[tuple[str, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield word, count


def segments(env: StreamExecutionEnvironment, folder: str) -> DataStream:
    event = Types.TUPLE([Types.LONG(), Types.LONG()])
    return lines(env, folder).flat_map(IncEven(), output_type=event)


class IncEven(FlatMapFunction):
    """Parse, add one, keep the even; the id and the number go on."""

    def open(self, context: RuntimeContext) -> None:
        self.decode = msgspec.json.Decoder(dict).decode

    def flat_map(self, line: str) -> Iterator[tuple[int, int]]:
        segment = inc(self.decode(line))
        if even(segment):
            yield segment["id"], segment["n"]


def words(env: StreamExecutionEnvironment, folder: str) -> DataStream:
    split = lines(env, folder).flat_map(lambda line: line.split(), output_type=Types.STRING())
    keyed = split.key_by(lambda word: word, key_type=Types.STRING())
    return keyed.process(Count(), output_type=Types.TUPLE([Types.STRING(), Types.LONG()]))


class EventTime(TimestampAssigner):
    def extract_timestamp(self, event: tuple[str, int, int], record_timestamp: int) -> int:
        return event[1]


class Sum(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, event: tuple[str, int, int], total: int) -> int:
        return total + event[2]

    def get_result(self, total: int) -> int:
        return total

    def merge(self, one: int, other: int) -> int:
        return one + other


class Named(ProcessWindowFunction):
    def process(self, key: str, context: Any, totals: Any) -> Iterator[tuple[str, int]]:
        yield f"{key} {context.window().start}", next(iter(totals))


class Parse(MapFunction):
    def open(self, context: RuntimeContext) -> None:
        self.decode = msgspec.json.Decoder(dict).decode

    def map(self, line: str) -> tuple[str, int, int]:
        event = self.decode(line)
        return event["key"], event["ts"], event["v"]


def windows(env: StreamExecutionEnvironment, folder: str) -> DataStream:
    event = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
    lateness = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_minutes(LATENESS_MINUTES))
    timed = (
        lines(env, folder)
        .map(Parse(), output_type=event)
        .assign_timestamps_and_watermarks(lateness.with_timestamp_assigner(EventTime()))
    )
    return (
        timed.key_by(lambda event: event[0], key_type=Types.STRING())
        .window(TumblingEventTimeWindows.of(Time.minutes(1)))
        .aggregate(
            Sum(),
            window_function=Named(),
            accumulator_type=Types.LONG(),
            output_type=Types.TUPLE([Types.STRING(), Types.LONG()]),
        )
    )


def main(workload: str, folder: str, scratch: str) -> None:
    env = environment()
    answer = Path(scratch) / "answer"
    results = {"segments": segments, "words": words, "windows": windows}[workload](env, folder)
    done = results.map(Answer(str(answer), workload == "words"), output_type=Types.INT())
    done.filter(lambda each: False).print()
    env.execute()
    print(answer.read_text())


if __name__ == "__main__":
    main(*sys.argv[1:])
