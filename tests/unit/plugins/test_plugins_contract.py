"""A plugin that breaks a rule is reported by its name and the rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from tests.support.jobs.bench import Bench, chain
from tests.support.jobs.plugin_context import plugin_context

from onyx.errors import UserError
from onyx.plugins import protocol
from onyx.plugins.bases import ImmediateOutput, IndexedColumnsReader, IndexedReader
from onyx.plugins.checked import DurableCount
from onyx.plugins.parts.writer import PartsWriter
from onyx.plugins.protocol import START, Cursor, PluginContext
from onyx.plugins.registry import build_input, build_output
from onyx.program.plugin_forms import plugin_reader, segments_reader

SEGMENTS = [{"n": n} for n in range(10)]


class Reader(IndexedReader):
    def __init__(self, position: int = 0) -> None:
        super().__init__(position, lambda at, most: SEGMENTS[at : at + most], lambda: len(SEGMENTS))


class Input(protocol.Input):
    cooperative = True

    def __init__(self, reader: Callable[[int], Any] = Reader, names: Any = ("all",)) -> None:
        self._reader, self._names = reader, names

    def partitions(self) -> Any:
        return self._names

    def open(self, partition: str, cursor: Cursor) -> Any:
        return self._reader(cursor.position)

    def close(self) -> None:
        pass


def context(plugin: Any) -> PluginContext:
    return plugin_context({}, functions={"m:plugin": lambda context: plugin})


def reader(**methods: Callable[..., Any]) -> Any:
    """One whose methods do something else."""
    kind = type("Odd", (Reader,), methods)
    return build_input("m:plugin", context(Input(kind))).open("all", START)


@pytest.mark.parametrize(
    ("answer", "rule"),
    [
        (None, r"read\(\) returned a NoneType, not a list"),
        (SEGMENTS, r"read\(3\) returned 10 segments, which is more"),
        ([{"n": 1}, "x"], r"read\(\) returned a list that holds a str, not a dict"),
    ],
)
def test_what_a_reader_gives_is_a_list_of_dicts_no_longer_than_asked(
    answer: Any, rule: str
) -> None:
    with pytest.raises(UserError, match=f"plugin m:plugin breaks a rule of inputs: {rule}"):
        reader(read=lambda self, most: answer).read(3)


def test_a_cursor_is_a_place_at_or_before_the_position() -> None:
    for answer, rule in [
        (7, r"cursor\(\) returned an int, not a Cursor"),
        (Cursor(7), r"cursor\(5\) returned a cursor at position 7"),
        (Cursor(-1), r"cursor\(5\) returned a cursor at position -1"),
    ]:
        with pytest.raises(UserError, match=rule):
            reader(cursor=lambda self, position, answer=answer: answer).cursor(5)


def test_exhausted_says_yes_or_no() -> None:
    with pytest.raises(UserError, match=r"exhausted\(\) returned a NoneType, not a bool"):
        reader(exhausted=lambda self: None).exhausted()


def test_open_gives_a_reader() -> None:
    odd = build_input("m:plugin", context(Input(lambda position: object())))
    with pytest.raises(UserError, match=r"open\(\) returned an object without read\(\)"):
        odd.open("all", START)


def test_partitions_are_named_once_by_text() -> None:
    for names, rule in [(None, "NoneType, not a list"), ([1], "a list, not a list of str"),
                        (["a", "a"], "names a partition twice")]:  # fmt: skip
        with pytest.raises(UserError, match=rule):
            build_input("m:plugin", context(Input(names=names))).partitions()


def test_an_input_that_keeps_to_the_rules_is_read_as_it_is() -> None:
    found = reader()
    assert (found.read(4), found.exhausted(), found.cursor(2)) == (SEGMENTS[:4], False, Cursor(2))


class Columns(IndexedColumnsReader):
    """Three rows are decoded at a time."""

    def __init__(self, position: int = 0) -> None:
        super().__init__(position, self.fetch, lambda: len(SEGMENTS))

    def fetch(self, position: int, segments_max: int) -> Any:
        rows = SEGMENTS[position : min(position + segments_max, position // 3 * 3 + 3)]
        return pa.RecordBatch.from_pylist(rows)

    def ready(self) -> int:
        return len(SEGMENTS) - self._position

    def obstacle(self) -> str:
        return "it rains"


class Telling(Input):
    examined = True

    def column_types(self) -> Any:
        return {"n": pa.int64()}

    def describe(self, partition: str, position: int) -> str:
        return f"number {position}"


def test_what_a_plugin_says_besides_reaches_the_engine() -> None:
    plugin = build_input("m:plugin", context(Telling(Columns)))
    assert (plugin.examined, plugin.describe("all", 4)) == (True, "number 4")
    assert plugin.column_types() == {"n": pa.int64()}
    opened = segments_reader(plugin.open("all", START), columns=True)
    assert plugin_reader(opened).obstacle() == "it rains"
    assert len(opened.read(8)) == 8, "what is decoded is read in one go"


def test_what_a_plugin_does_not_say_has_a_default() -> None:
    plugin = build_input("m:plugin", context(Input()))
    assert (plugin.examined, plugin.column_types()) == (False, {})
    assert plugin.describe("all", 4) == "partition all, position 4"
    assert plugin_reader(plugin.open("all", START)).obstacle() == ""


class Duck:
    """A reader that derives from nothing."""

    read = read_columns = exhausted = cursor = close = obstacle = print


def test_a_reader_that_derives_from_nothing_is_told_of_the_base() -> None:
    plugin = build_input("m:plugin", context(Input(lambda position: Duck())))
    with pytest.raises(UserError, match=r"without ready\(\), which all have that derive from Col"):
        plugin.open("all", START)


class Forgets(ImmediateOutput):
    def __init__(self) -> None:
        pass


class ForgetsParts(PartsWriter):
    def __init__(self) -> None:
        pass


@pytest.mark.parametrize(("kind", "base"), [(Forgets, "Imme"), (ForgetsParts, "PartsWriter")])
def test_a_class_that_skips_the_init_of_its_base_is_told_so(kind: Any, base: str) -> None:
    rule = rf"plugin m:plugin breaks a rule: {kind.__name__}.__init__\(\) does not call .*{base}"
    with pytest.raises(UserError, match=rule):
        build_output("m:plugin", context(kind()))


class Overrides(ImmediateOutput):
    def write(self, segments: list[Any]) -> None:
        pass


class Says(ImmediateOutput):
    def __init__(self, *answers: Any) -> None:
        super().__init__()
        self._answers = list(answers)

    def durable(self) -> Any:
        return self._answers.pop(0)


def test_an_output_that_cannot_be_right_about_what_is_durable_is_told_so() -> None:
    for plugin, rule in [
        (
            Overrides(),
            r"write\(\) was overridden and counts only 0 of 5 segments: override deliver",
        ),
        (Says(None), r"durable\(\) returned a NoneType, not an int"),
        (Says(6), r"durable\(\) returned 6, but only 5 were written"),
    ]:
        with pytest.raises(UserError, match=f"plugin mine breaks a rule of outputs: {rule}"):
            DurableCount(plugin, "mine").after(5)
    goes_back = DurableCount(Says(5, 3), "mine")
    assert goes_back.after(5) == 5
    with pytest.raises(UserError, match=r"durable\(\) went back from 5 to 3"):
        goes_back.after(5)


def test_a_job_whose_output_overrides_write_ends_and_does_not_hang() -> None:
    job = chain(SEGMENTS)
    job["catalog"][2].update(plugin="m:out", options={})
    bench = Bench(job, {"m:same": dict, "m:out": lambda context: Overrides()})
    bench.settle()
    reported = bench.exceptions[0]
    assert reported["task"] == "write"
    assert "plugin m:out breaks a rule of outputs: write() was overridden" in reported["message"]
