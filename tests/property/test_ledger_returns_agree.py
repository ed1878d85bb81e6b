"""Values that are given back come to the same, however they are put together on the way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyx.codec.values import decode_returns, encode_returns, pieces_of
from onyx.ledger import returns
from onyx.ledger.returns import Parts, ReturnPart, add_tree, part_of, put_together
from onyx.model.kinds import ACK_AGGREGATORS

NUMBERS = st.integers(-(10**6), 10**6)
GIVEN = st.lists(st.tuples(st.sampled_from("ab"), NUMBERS), min_size=1, max_size=20)
OWN = "app:largest"
PLAIN = {
    "sum": sum,
    "count": len,
    "min": min,
    "max": max,
    "collect": list,
    "last": lambda values: values[-1],
    OWN: list,
}


def together(aggregator: str, given: list[tuple[str, int]]) -> Parts:
    found: Parts = {}
    put_together(found, [(key, part_of(aggregator, value, 8)) for key, value in given])
    return found


@given(st.sampled_from(sorted(PLAIN)), GIVEN, st.data())
def test_parts_come_to_what_a_plain_loop_gives(
    aggregator: str, given: list[tuple[str, int]], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(given)))
    found = together(aggregator, given[:cut])
    put_together(found, together(aggregator, given[cut:]).items())
    for key in {key for key, _ in given}:
        values = [value for each, value in given if each == key]
        assert found[key].value == PLAIN[aggregator](values)


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), GIVEN), max_size=5))
def test_trees_survive_the_wire(given: list[tuple[int, list[tuple[str, int]]]]) -> None:
    trees: returns.Trees = {}
    for root, values in given:
        add_tree(trees, root, together("sum", values))
    assert decode_returns(encode_returns(trees)) == trees
    pieces = [decode_returns(piece) for piece in pieces_of(trees)]
    assert {root: parts for piece in pieces for root, parts in piece.items()} == trees


def test_every_aggregator_of_the_model_is_there() -> None:
    assert set(ACK_AGGREGATORS) == set(PLAIN) - {OWN}


@pytest.mark.parametrize(
    ("aggregator", "values", "why"),
    [
        ("sum", [1, "one"], "sum of k failed: TypeError"),
        ("max", [1, "one"], "max of k failed: TypeError"),
    ],
)
def test_values_that_do_not_fit_together_are_an_error_of_their_key(
    aggregator: str, values: list[object], why: str
) -> None:
    found: Parts = {}
    put_together(found, [("k", part_of(aggregator, value, 8)) for value in values])
    put_together(found, [("k", part_of(aggregator, 3, 8))])
    assert found["k"].error.startswith(why)
    assert found["k"].value is None


def test_what_one_tree_gives_back_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(returns, "TREE_BYTES_MAX", 20)
    found: Parts = {}
    put_together(found, [("k", part_of("collect", "x", 15)) for _ in range(2)])
    assert found["k"] == ReturnPart("collect", None, 0, "more than 20 bytes were given back")
