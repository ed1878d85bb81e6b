"""Answers about states as they go over HTTP."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from onyx.client.served_states import body_of
from onyx.client.window_view import WindowView
from onyx.gateway.states import StateForm
from onyx.ids import JobId
from onyx.keystate.extents import Extent

VIEW = WindowView(
    JobId("j"), "t", "w", (Extent("a", 0, 999, {"n": 1}), Extent("b", 0, 999, {"n": 2})), True, True
)
LINES = [
    {"key": "a", "from": 0, "to": 999, "state": {"n": 1}},
    {"key": "b", "from": 0, "to": 999, "state": {"n": 2}},
]


@pytest.mark.parametrize(("following", "shown"), [("x-1", "x-1"), ("", None)])
def test_json_says_what_comes_next(following: str, shown: str | None) -> None:
    found = json.loads(body_of(VIEW, StateForm.JSON, following))
    assert found == {"extents": LINES, "next": shown}


def test_lines_are_an_extent_each() -> None:
    found = body_of(VIEW, StateForm.LINES, "x").decode().splitlines()
    assert list(map(json.loads, found)) == LINES


def test_record_batches_are_a_stream_of_arrow() -> None:
    with pa.ipc.open_stream(body_of(VIEW, StateForm.ARROW, "")) as stream:
        table = stream.read_all()
    assert table["key"].to_pylist() == ["a", "b"]
    assert table["state"].to_pylist() == [{"n": 1}, {"n": 2}]
