"""Blocks of JSON lines: what a block gives is what its lines give one by one."""

from __future__ import annotations

from itertools import permutations

import pytest

from onyx.flow.segment import Segment
from onyx.plugins.files.lines import JsonLineRecords
from onyx.plugins.records import BadRecords

FLAT = b'{"a":1,"b":"x","c":1.5,"d":true,"e":null}'
NESTED = b'{"a":[1,{"b":2}]}'
LARGEST = b'{"a":18446744073709551615}'
TOO_LARGE = b'{"a":18446744073709551616}'
DEEP = b'{"a":' + b"[" * 70 + b"]" * 70 + b"}"
NO_OBJECT = b"[1]"


def decode(records: JsonLineRecords, lines: bytes) -> list[Segment]:
    segments, used = records.decode(lines, 0, at_end=True)
    assert used == len(lines)
    return segments


def fresh() -> JsonLineRecords:
    return JsonLineRecords(BadRecords("a test", keep=True))


@pytest.mark.parametrize("lines", list(permutations([FLAT, NESTED, LARGEST, TOO_LARGE], 3)))
def test_what_a_block_gives_does_not_depend_on_the_blocks_before(lines: tuple[bytes, ...]) -> None:
    records = fresh()
    assert [decode(records, line) for line in lines] == [decode(fresh(), line) for line in lines]


@pytest.mark.parametrize("odd", [NESTED, LARGEST, TOO_LARGE, DEEP, NO_OBJECT])
def test_a_line_does_not_change_what_the_others_of_its_block_are(odd: bytes) -> None:
    first, _, last = decode(fresh(), b"\n".join((FLAT, odd, FLAT)))
    assert [first, last] == decode(fresh(), FLAT) * 2


@pytest.mark.parametrize(("line", "bad"), [(LARGEST, False), (TOO_LARGE, True), (DEEP, True)])
def test_what_cannot_travel_is_a_bad_record(line: bytes, bad: bool) -> None:
    (segment,) = decode(fresh(), line)
    assert (segment == {"a": 2**64 - 1}) is not bad
