"""A schema with required keys: what does not fit fails alone, in dicts and columns, in each kind of
task."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.jobs.bench import Bench

from onyx.errors import ManifestError
from onyx.processors import Inbox, Processor

Segment = dict[str, Any]
SCHEMA = {"n": "int64", "name": "string", "note": "string"}
SEGMENTS: list[Segment] = [
    {"n": 0, "name": "Ann", "note": "x"},
    {"n": 1, "name": "Bob"},
    {"n": 2},
    {"n": 3, "name": None},
    {"n": "4", "name": "Cid"},
    {"n": 5, "name": "Dan", "age": 7},
]
FITTING = [0, 1]


class Passes(Processor):
    def process(self, ordinal: int, inbox: Inbox) -> None:
        for item in inbox.drain():
            self.outbox.offer(item)


KINDS: dict[str, dict[str, Any]] = {
    "function": {"fn": "m:same"},
    "batch": {"fn": "m:same", "batchFn": True},
    "columns": {"fn": "m:same", "batchFormat": "arrow"},
    "state": {
        "fn": "m:keyed", "groupByKey": "n", "fluxPolicy": "continue", "state": {"a": "value"},
    },
    "state over columns": {
        "fn": "m:keyed_columns", "groupByKey": "n", "fluxPolicy": "continue",
        "state": {"a": "value[int]"}, "batchFormat": "arrow",
    },
    "processor": {"processor": "m:passes"},
}  # fmt: skip
FUNCTIONS = {
    "m:same": lambda segments: segments,
    "m:keyed": lambda segment, state: segment,
    "m:keyed_columns": lambda batch, states: batch,
    "m:passes": Passes,
}


def bench(kind: str, **more: Any) -> Bench:
    read = {"options": {"segments": SEGMENTS, "partitions": 1}}
    work = {"name": "work", "type": "function", "deadLetter": "bad", **KINDS[kind]}
    return Bench(
        {
            "guarantee": "exactly-once",
            "workflow": [["read", "work"], ["work", "write"], ["work", "bad"]],
            "catalog": [
                {"name": "read", "type": "input", "plugin": "sequence", **read},
                {**work, "schema": SCHEMA, "required": ["name"], **more},
                {"name": "write", "type": "output", "plugin": "blackhole"},
                {"name": "bad", "type": "output", "plugin": "blackhole"},
            ],
        },
        FUNCTIONS,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_what_does_not_fit_is_a_dead_letter_and_the_rest_goes_on(kind: str) -> None:
    found = bench(kind)
    found.settle()
    assert found.completed, found.exceptions
    assert sorted(each["n"] for each in found.written("write")) == FITTING
    letters = {str(each["segment"]["n"]): each["error"] for each in found.written("bad")}
    assert sorted(letters) == ["2", "3", "4", "5"]
    assert letters["2"]["message"] == "the segment has no 'name', which is required"
    assert letters["3"]["message"] == letters["2"]["message"]


def test_a_function_gets_a_dict_as_it_is() -> None:
    found = bench("function", required=[])
    found.settle()
    assert {"n": 2} in found.written("write")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"required": ["nam"]}, '"nam" is not in the schema of the task'),
        ({"schema": None}, '"name" is not in the schema of the task'),
    ],
)
def test_what_is_required_is_in_the_schema(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ManifestError, match=said):
        bench("function", **more)
