"""Bodies of requests hold every segment once, in order, within their limits."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.jobs.plugin_context import plugin_context

from onyx.errors import UserError
from onyx.flow.batch import Segments
from onyx.flow.columns.record_batch import Columns
from onyx.plugins.http.bodies import RequestBody, bodies_of, segments_in
from onyx.plugins.http.options import HttpOptions
from onyx.plugins.options import read_options

FORMS = ("json", "jsonl", "json-array", "arrow")


def options(**given: Any) -> HttpOptions:
    return read_options(plugin_context({"url": "http://a/", **given}), HttpOptions)


writes = st.lists(
    st.tuples(st.booleans(), st.lists(st.text(max_size=30), min_size=1, max_size=9)), max_size=6
)


@given(writes, st.sampled_from(FORMS), st.integers(1, 7), st.integers(1, 200))
def test_bodies_hold_every_segment_once_in_order_within_their_limits(
    given_: list[tuple[bool, list[str]]], form: str, segments_max: int, bytes_max: int
) -> None:
    found = options(format=form, requestSegments=segments_max, requestBytes=bytes_max)
    bodies = bodies_of(plugin_context({}), found)
    made: list[RequestBody] = []
    count = 0
    for as_columns, texts in given_:
        made += bodies.add(segments_of(texts, as_columns))
        count += len(texts)
        assert sum(each.segments for each in made) + bodies.waiting == count
    made += bodies.finish()
    assert bodies.finish() == []
    assert (bodies.waiting, bodies.waiting_bytes) == (0, 0)
    held = [segments_in(each.data, form) for each in made]
    assert [row["text"] for rows in held for row in rows] == [t for _, ts in given_ for t in ts]
    assert [len(rows) for rows in held] == [each.segments for each in made]
    assert all(each.segments <= (1 if form == "json" else segments_max) for each in made)
    if form in ("jsonl", "json-array"):
        assert all(len(each.data) <= bytes_max + 1 for each in made if each.segments > 1)


def segments_of(texts: list[str], as_columns: bool) -> Segments:
    if as_columns:
        return Columns(pa.record_batch({"text": pa.array(texts, pa.string())}))
    return [{"text": text} for text in texts]


@pytest.mark.parametrize("form", FORMS)
def test_what_was_added_can_be_forgotten(form: str) -> None:
    bodies = bodies_of(plugin_context({}), options(format=form))
    bodies.add([{"n": 1}])
    bodies.clear()
    assert bodies.finish() == []


def test_rows_of_other_types_begin_another_stream() -> None:
    bodies = bodies_of(plugin_context({}), options(format="arrow"))
    made = [*bodies.add([{"n": 1}]), *bodies.add([{"n": "one"}]), *bodies.finish()]
    assert [segments_in(each.data, "arrow") for each in made] == [[{"n": 1}], [{"n": "one"}]]


@pytest.mark.parametrize("form", FORMS)
def test_what_has_no_form_is_refused_and_nothing_is_added(form: str) -> None:
    bodies = bodies_of(plugin_context({}), options(format=form))
    bad: list[dict[str, Any]] = [{"n": 1}, {"n": "x" if form == "arrow" else float("nan")}]
    with pytest.raises(UserError, match="task 'work'"):
        bodies.add(bad)
    assert bodies.finish() == []


@pytest.mark.parametrize("value", [None, "", 1.5, b"x", True, [1], "x" * 2_000])
def test_a_value_that_identifies_nothing_is_no_key(value: Any) -> None:
    bodies = bodies_of(plugin_context({}), options(idempotencyKey="id"))
    with pytest.raises(UserError, match=r"key 'id' holds .* idempotencyKey needs"):
        bodies.add([{"id": value}])


@given(st.one_of(st.integers(), st.text(min_size=1, max_size=80)))
def test_different_values_are_different_keys_that_a_header_takes(value: int | str) -> None:
    bodies = bodies_of(plugin_context({}), options(idempotencyKey="id"))
    (body,) = bodies.add([{"id": value}])
    assert body.key is not None
    assert body.key.isascii()
    assert body.key.isprintable()
    assert " " not in body.key
    (other,) = bodies.add([{"id": f"{value}%20"}])
    assert other.key != body.key
