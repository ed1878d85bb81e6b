"""`startFrom`: where a new job begins, said alike for every input that can begin elsewhere."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.clocks import ManualClock
from tests.support.jobs.bench import Bench, chain
from tests.support.jobs.plugin_context import plugin_context
from tests.support.servers.object_stores import ObjectStore

from onyx.errors import UserError
from onyx.model.plugins import INPUTS
from onyx.plugins.kafka.options import KafkaInputOptions as KafkaOptions
from onyx.plugins.options import check_options, options_of
from onyx.plugins.protocol import START, Cursor
from onyx.plugins.registry import build_input
from onyx.plugins.starting import Start, StartAt, first_cursor, read_start

SAME = {"m:same": lambda segment: segment}
SEGMENTS = [{"n": n} for n in range(20)]
KAFKA = {"bootstrapServers": "b:9092", "topic": "t"}
NEEDED: dict[str, dict[str, Any]] = {
    "kafka": KAFKA, "files": {"path": "in.jsonl"}, "sequence": {"segments": []}, "generator": {},
}  # fmt: skip


def problems(plugin: str, start: Any) -> list[str]:
    found = check_options({**NEEDED[plugin], "startFrom": start}, options_of(INPUTS[plugin]))
    return list(map(str, found[1]))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("beginning", Start("beginning")),
        ("end", Start("end")),
        ("1970-01-01T01:00:02+01:00", Start("time", milliseconds=2_000)),
        (StartAt(time_ago="2 hours"), Start("timeAgo", milliseconds=7_200_000)),
        (StartAt(time_ago=[1, "minute"]), Start("timeAgo", milliseconds=60_000)),
        (StartAt(records_ago=5), Start("recordsAgo", records=5)),
        (StartAt(position=0), Start("position")),
        (StartAt(positions={"0": 7}), Start("positions", positions={"0": 7})),
    ],
)
def test_a_start_is_a_word_a_time_or_one_place(given: Any, expected: Start) -> None:
    assert read_start(given) == expected


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("latest", "startFrom: is 'latest' (take beginning, end, a time with its zone, as 2026-"),
        ("2026-11-21T09:00:00", "startFrom: is '2026-11-21T09:00:00' (take beginning, end, a"),
        ({}, "startFrom: is no place (give one of timeAgo, recordsAgo, position or positions)"),
        ({"position": 1, "recordsAgo": 1}, "startFrom: is no place (give one of"),
        ({"timeAgo": "2 moons"}, "startFrom: is no place (timeAgo must be"),
        ({"offset": 1}, "startFrom: is wrong"),
        ({"position": -1}, "startFrom.position: is wrong"),
    ],
)
def test_what_is_no_place_is_told(given: Any, why: str) -> None:
    (problem,) = problems("kafka", given)
    assert problem.startswith(why), problem


ALL = {
    "beginning": "beginning", "end": "end", "time": "2026-11-21T09:00:00Z",
    "timeAgo": {"timeAgo": "1h"}, "recordsAgo": {"recordsAgo": 1}, "position": {"position": 1},
    "positions": {"positions": {"0": 1}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("plugin", "refused"),
    [
        ("kafka", set()),
        ("files", {"end", "recordsAgo"}),
        ("sequence", {"end", "recordsAgo", "time", "timeAgo"}),
        ("generator", {"end", "recordsAgo", "time", "timeAgo"}),
    ],
)
def test_an_input_refuses_what_it_cannot_do_and_says_what_it_can(
    plugin: str, refused: set[str]
) -> None:
    found = {form: problems(plugin, given) for form, given in ALL.items()}
    assert {form for form, wrong in found.items() if wrong} == refused
    for form in refused:
        (problem,) = found[form]
        assert problem.startswith(f"startFrom: is {form}, and ")
        assert "it can be beginning" in problem


def test_the_options_of_kafka_need_no_broker_to_be_read() -> None:
    assert check_options({**KAFKA, "startFrom": {"timeAgo": 5}}, KafkaOptions)[1] == []


@pytest.mark.parametrize("batch_format", ["dicts", "arrow"])
@pytest.mark.parametrize("plugin", ["sequence", "generator"])
def test_a_job_begins_at_its_positions_and_they_stay_what_they_are(
    plugin: str, batch_format: str
) -> None:
    start = {"startFrom": {"positions": {"1": 4}}}
    options: dict[str, Any] = {"segments": SEGMENTS if plugin == "sequence" else len(SEGMENTS)}
    read = {"plugin": plugin, "options": {"partitions": 2, **options, **start}}
    bench = Bench(chain(SEGMENTS, read={**read, "batchFormat": batch_format}), SAME)
    bench.settle()
    assert bench.completed
    found = sorted(each["n"] for each in bench.written("write"))
    assert found == sorted([*range(0, 20, 2), *range(1, 20, 2)[4:]])
    assert bench.inputs[0].opened == [0, 4]


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once", "exactly-once"])
def test_every_guarantee_begins_there(guarantee: str) -> None:
    read = {"options": {"segments": SEGMENTS, "startFrom": {"position": 15}}}
    bench = Bench(chain(SEGMENTS, read=read, guarantee=guarantee), SAME)
    bench.settle()
    assert bench.completed
    assert [each["n"] for each in bench.written("write")] == list(range(15, 20))


def test_a_position_behind_the_end_gives_nothing() -> None:
    read = {"options": {"segments": SEGMENTS, "startFrom": {"position": 50}}}
    bench = Bench(chain(SEGMENTS, read=read), SAME)
    bench.settle()
    assert bench.completed
    assert bench.written("write") == []


def test_what_is_stored_goes_before_it() -> None:
    read = {"options": {"segments": SEGMENTS, "startFrom": {"position": 5}}, "maxPending": 4}
    bench = Bench(chain(SEGMENTS, read=read, batch_size=2), SAME)
    bench.start()
    while len(bench.written("write")) < 8:
        bench.round()
        bench.clock.advance(0.5)
    bench.crash(bench.task("read"))
    bench.settle()
    assert bench.completed
    assert bench.inputs[1].opened[0] > 5
    assert {each["n"] for each in bench.written("write")} == set(range(5, 20))


def test_an_upgrade_goes_on_where_the_old_job_stopped_whatever_it_says() -> None:
    read = {"options": {"segments": SEGMENTS}, "maxPending": 4}
    old = Bench(chain(SEGMENTS, read=read, batch_size=2), SAME)
    old.start()
    while len(old.written("write")) < 8:
        old.round()
        old.clock.advance(0.5)
    again = {"options": {"segments": SEGMENTS, "startFrom": {"position": 19}}}
    new = Bench(
        chain(SEGMENTS, read=again, batch_size=2, upgrade={"from": old.id}), SAME, after=old
    )
    new.settle()
    found = {each["n"] for each in (*old.written("write"), *new.written("write"))}
    assert found == set(range(20))


def test_a_partition_that_is_not_there_is_told() -> None:
    context = plugin_context({"segments": 5, "startFrom": {"positions": {"3": 1}}})
    with pytest.raises(UserError, match="has a position for '3', which is no partition"):
        build_input("generator", context).partitions()


def files(folder: Path, **options: Any) -> Any:
    context = plugin_context(
        {"path": "*.jsonl", **options}, data_dir=str(folder), clock=ManualClock(1_000.0)
    )
    return build_input("files", context)


def test_files_begin_at_a_record_of_each_or_of_some(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(6)))
    a, b = (str(tmp_path / f"{name}.jsonl") for name in "ab")
    each = files(tmp_path, startFrom={"position": 4})
    assert [first_cursor(each, name) for name in each.partitions()] == [Cursor(4), Cursor(4)]
    with closing(each.open(a, Cursor(4))) as reader:
        assert reader.read(10) == [{"n": 4}, {"n": 5}]
    some = files(tmp_path, startFrom={"positions": {"b.jsonl": 99}})
    assert [first_cursor(some, name) for name in some.partitions()] == [START, Cursor(99)]
    with closing(some.open(b, Cursor(99))) as behind:
        assert behind.read(10) == []
        assert behind.exhausted()


@pytest.mark.parametrize("start", ["1970-01-01T00:15:00Z", {"timeAgo": "100s"}])
def test_files_that_were_modified_before_are_not_read(tmp_path: Path, start: Any) -> None:
    for name, modified_s in (("old", 899), ("new", 900)):
        path = tmp_path / f"{name}.jsonl"
        path.write_text('{"n": 1}\n')
        os.utime(path, (modified_s, modified_s))
    plugin = files(tmp_path, startFrom=start)
    new, old = plugin.partitions()
    assert (first_cursor(plugin, new), first_cursor(plugin, old)) == (START, None)


def test_a_job_of_which_no_file_is_new_enough_completes_with_nothing(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"n": 1}\n')
    read = {"plugin": "files", "options": {"path": str(path), "startFrom": "9999-01-01T00:00:00Z"}}
    bench = Bench(chain([], read=read), SAME)
    bench.settle()
    assert bench.completed
    assert bench.written("write") == []


def test_objects_go_by_when_they_were_written(store: ObjectStore, tmp_path: Path) -> None:
    store.put("when/in.jsonl", '{"n": 1}\n')
    for start, expected in (("1970-01-01T00:00:00Z", START), ("9999-01-01T00:00:00Z", None)):
        plugin = files(tmp_path, path=f"{store.url}/when/*.jsonl", startFrom=start)
        (name,) = plugin.partitions()
        assert first_cursor(plugin, name) == expected
