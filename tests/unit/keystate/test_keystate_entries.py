"""Entries of a map in memory: the first ones in order, without a look at the order of all."""

from __future__ import annotations

import random

import pytest

from onyx.keystate.entries import in_order

NUMBERS = list(range(5_000))
ORDERS = {
    "ascending": NUMBERS,
    "descending": NUMBERS[::-1],
    "shuffled": random.Random(1).sample(NUMBERS, len(NUMBERS)),
    "few first": [*range(4_000, 5_000), *range(4_000)],
    "large where it is looked at": [n if n % 5 else n + 10_000 for n in NUMBERS],
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("most", [1, 7, 300, 2_499, 2_500, 4_999, 5_000, 6_000])
def test_the_first_entries_are_those_of_all_in_order(order: str, most: int) -> None:
    state = {number: -number for number in ORDERS[order]}
    expected = sorted(state.items())
    assert list(in_order(state, most=most)) == expected[:most]
    assert (
        list(in_order(state, behind=1_234, most=most))
        == [each for each in expected if each[0] > 1_234][:most]
    )
    texts = {f"{number:05}": number for number in state}
    assert (
        list(in_order(texts, first="02", end="03", most=most))
        == [each for each in sorted(texts.items()) if "02" <= each[0] < "03"][:most]
    )
