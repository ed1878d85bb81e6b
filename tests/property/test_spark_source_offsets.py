"""A stream over the parts of an output gives each row once, in whatever way parts are published,
batches are limited and repeated, and the query is started again."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyx.errors import UserError
from onyx.plugins.parts.offsets import (
    Limit,
    Mark,
    Part,
    Rows,
    advanced,
    between,
    end,
    from_json,
    settled,
    to_json,
)

LIMITS = st.one_of(
    st.builds(Limit),
    st.builds(Limit, rows=st.integers(1, 4)),
    st.builds(Limit, parts=st.integers(1, 3)),
    st.builds(Limit, size_bytes=st.integers(1, 30)),
)
PUBLISHED = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.integers(0, 6)), max_size=12
)
"""Writer, by how much its number grows, rows."""


def part(writer: str, number: int, rows: int) -> Part:
    return Part(f"{writer}/{number}/{rows}", writer, number, rows)


def rows_of(each: Part) -> int:
    return int(each.path.rpartition("/")[2])


def read(batch: list[Rows]) -> list[tuple[str, int]]:
    """Each row, as its part and its index."""
    found = []
    for rows in batch:
        last = int(rows.path.rpartition("/")[2]) if rows.last is None else rows.last
        found += [(rows.path, index) for index in range(rows.first, last)]
    return found


def in_order(published: list[tuple[str, int, int]]) -> list[Part]:
    numbers: dict[str, int] = {}
    found = []
    for writer, step, rows in published:
        numbers[writer] = numbers.get(writer, 0) + step
        found.append(part(writer, numbers[writer], rows))
    return found


@given(PUBLISHED, st.lists(st.tuples(st.integers(0, 5), LIMITS), max_size=12))
def test_each_row_comes_once_however_batches_are_cut(
    published: list[tuple[str, int, int]], turns: list[tuple[int, Limit]]
) -> None:
    parts, seen, at, rows = in_order(published), 0, {}, list[tuple[str, int]]()
    for more, limit in [*turns, (len(parts), Limit())]:
        seen = min(len(parts), seen + more)
        to = from_json(json.loads(json.dumps(to_json(advanced(at, parts[:seen], limit, rows_of)))))
        batch = read(between(at, to, parts[:seen]))
        assert read(between(at, to, parts)) == batch, "repeated when there are more parts"
        if limit.rows is not None:
            assert len(batch) <= limit.rows
        rows += batch
        at = to
    assert sorted(rows) == sorted((p.path, n) for p in parts for n in range(rows_of(p)))
    assert at == end({}, parts)


@given(PUBLISHED, st.data())
def test_a_listing_that_misses_parts_delays_them(
    published: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    parts = in_order(published)
    first = data.draw(st.integers(0, len(parts)))
    during = data.draw(st.lists(st.booleans(), min_size=len(parts), max_size=len(parts)))
    early = [each for n, each in enumerate(parts) if n < first or during[n]]
    found = settled(early, parts)
    numbers = {each.writer: each.number for each in found}
    assert {each.path for each in early} <= {each.path for each in found}
    assert found == [each for each in parts if each.number <= numbers.get(each.writer, -1)]


@given(PUBLISHED.filter(bool), st.data())
def test_a_batch_of_which_a_part_is_gone_is_refused(
    published: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    parts = in_order(published)
    gone = data.draw(st.sampled_from(parts))
    with pytest.raises(UserError, match="are gone"):
        between({}, end({}, parts), [each for each in parts if each is not gone])


def test_a_part_that_was_begun_and_is_gone_is_refused() -> None:
    later = [part("a", 5, 9)]
    for to in ({"a": Mark(6, 0, 2)}, {"a": Mark(5, 2, 1)}):
        with pytest.raises(UserError, match="are gone"):
            between({"a": Mark(2, 1, 0)}, to, later)


def test_a_part_that_nobody_published_is_refused() -> None:
    to = end({}, [part("a", 2, 1)])
    with pytest.raises(UserError, match="somebody has put files there"):
        between({}, to, [part("a", 1, 1), part("a", 2, 1)])


def test_a_limit_starves_no_writer() -> None:
    parts = [*(part("a", number, 1) for number in range(9)), part("b", 20, 1)]
    found = between({}, advanced({}, parts, Limit(parts=2), rows_of), parts)
    assert [each.path for each in found] == ["a/0/1", "b/20/1"]


def test_a_part_larger_than_the_limit_of_bytes_is_a_batch_of_its_own() -> None:
    parts = [part("a", 1, 50), part("b", 1, 50)]
    at = advanced({}, parts, Limit(size_bytes=10), rows_of)
    assert len(between({}, at, parts)) == 1


def test_an_offset_of_another_source_is_refused() -> None:
    with pytest.raises(UserError, match="start the query with a new checkpoint"):
        from_json({"index": 3})
