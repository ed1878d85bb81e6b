"""Iterators as sources: cursors, ends, errors, and what does not come back."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.support.jobs.plugin_context import plugin_context
from tests.support.patience import WAIT_S

from onyx.errors import OnyxError, Unavailable, UserError, UserFunctionError
from onyx.flow.batch import as_dicts
from onyx.plugins.sources import iterator as module
from onyx.plugins.sources.iterator import IteratorSource
from onyx.plugins.sources.messages import messages_of

CONTEXT = plugin_context({})


def source_of(make: Any, cursor: Any = None, repeat_s: float | None = None) -> IteratorSource:
    return IteratorSource(CONTEXT, "f:rows", make, cursor, repeat_s)


def all_of(source: IteratorSource) -> tuple[list[dict[str, Any]], Any]:
    """All segments up to the end, and the last cursor."""
    found, cursor = [], None
    while not source.exhausted():
        portion = source.receive(WAIT_S)
        if portion is not None:
            found += [each for run in messages_of(portion, False).runs for each in as_dicts(run)]
            cursor = portion.cursor
    source.close()
    return found, cursor


def numbers(cursor: Any) -> Iterator[Any]:
    return ({"n": n} for n in range(cursor or 0, 5))


def test_segments_without_a_cursor_are_counted() -> None:
    assert all_of(source_of(numbers)) == ([{"n": n} for n in range(5)], 5)
    assert all_of(source_of(numbers, 3)) == ([{"n": 3}, {"n": 4}], 5)


def test_a_cursor_stands_behind_what_came_with_it() -> None:
    def pages(cursor: str | None) -> Iterator[Any]:
        yield [{"n": 1}, {"n": 2}], "a"
        yield pa.RecordBatch.from_pylist([{"n": 3}]), "b"
        yield {"n": 4}, {"page": ["c"]}

    assert all_of(source_of(pages)) == ([{"n": n} for n in range(1, 5)], {"page": ["c"]})


def test_an_asynchronous_iterator_is_run() -> None:
    async def rows(cursor: Any) -> AsyncIterator[Any]:
        for n in range(3):
            yield {"n": n}

    assert all_of(source_of(rows)) == ([{"n": n} for n in range(3)], 3)


def test_what_is_there_is_given_while_the_next_one_is_waited_for() -> None:
    gate = threading.Event()

    def slow(cursor: Any) -> Iterator[Any]:
        yield {"n": 0}
        gate.wait(WAIT_S)

    source = source_of(slow)
    portion = source.receive(WAIT_S)
    assert portion is not None
    assert portion.cursor == 1
    gate.set()
    source.close()


def test_an_iterator_that_ended_is_made_again_behind_its_cursor() -> None:
    cursors: list[Any] = []

    def polled(cursor: Any) -> Iterator[Any]:
        cursors.append(cursor)
        yield {"n": len(cursors)}

    source = source_of(polled, repeat_s=0.001)
    while len(cursors) < 3:
        source.receive(WAIT_S)
    assert cursors[:3] == [None, 1, 2]
    assert not source.exhausted()
    source.close()


def test_an_iterator_that_cannot_go_on_now_is_made_again_behind_its_cursor() -> None:
    cursors: list[Any] = []

    def flaky(cursor: Any) -> Iterator[Any]:
        cursors.append(cursor)
        yield {"n": cursor or 0}
        if len(cursors) == 1:
            raise Unavailable("not now")

    source, raised = source_of(flaky), 0
    found: list[Any] = []
    while not source.exhausted():
        try:
            portion = source.receive(WAIT_S)
        except Unavailable:
            raised += 1
        else:
            found += portion.segments if portion is not None else []
    assert raised == 1
    assert cursors == [None, 1]


def error_of(make: Any, cursor: Any = None) -> OnyxError:
    with pytest.raises(OnyxError) as raised:
        all_of(source_of(make, cursor))
    return raised.value


def test_an_exception_names_the_function() -> None:
    def broken(cursor: Any) -> Iterator[Any]:
        raise KeyError("page")
        yield

    error = error_of(broken)
    assert isinstance(error, UserFunctionError)
    assert "f:rows raised KeyError" in str(error)


@pytest.mark.parametrize(
    ("elements", "what"),
    [
        ([7], "f:rows gave an int"),
        ([({"n": 1}, "a"), {"n": 2}], "with a cursor and something without one"),
        ([{"n": 1}, ({"n": 2}, "a")], "with a cursor and something without one"),
        ([({"n": 1}, None)], "f:rows gave a pair without a cursor"),
    ],
)
def test_an_element_that_is_none_is_refused(elements: list[Any], what: str) -> None:
    error = error_of(lambda cursor: iter(elements))
    assert isinstance(error, UserError)
    assert what in str(error)


def test_an_iterator_is_not_far_ahead_of_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AHEAD_SEGMENTS_MAX", 10)
    given = 0

    def endless(cursor: Any) -> Iterator[Any]:
        nonlocal given
        while True:
            given += 1
            yield {"n": given}

    source = source_of(endless)
    for _ in range(20):
        portion = source.receive(WAIT_S)
        assert portion is not None
        assert len(messages_of(portion, False).counts) <= 10
    source.close()
