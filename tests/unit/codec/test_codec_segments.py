"""What a person reads when a segment cannot travel, and the limits on size and nesting."""

import numpy as np
import pytest

from onyx.base.runs import Run
from onyx.codec import segments as codec
from onyx.errors import SegmentError


def test_a_value_that_cannot_travel_is_named_with_its_segment_and_key():
    with pytest.raises(SegmentError, match="segment 1 of the batch: key 'bad' holds a set, which"):
        codec.encode([{"n": 1}, {"fine": 1, "bad": {1, 2}}])


class Text(str):
    pass


@pytest.mark.parametrize("key", [1, None, b"n", Text("n")])
@pytest.mark.parametrize("encode", [codec.encode, codec.encode_apart])
def test_a_key_that_is_no_text_is_refused_among_those_that_are(key, encode):
    with pytest.raises(SegmentError, match="segment 2 of the batch"):
        encode([{"n": 1}, {}, {key: 1}, {"m": [{"n": 1}]}])


def test_a_segment_that_is_not_a_dict_is_refused():
    with pytest.raises(SegmentError, match="not a dict"):
        codec.encode([{"n": 1}, object()])


def test_nesting_beyond_the_interpreters_own_limit_is_an_error_in_any_segment():
    value: list = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(SegmentError):
        codec.encode([{"n": 1}, {"deep": value}])
    while value:
        value = value.pop()


def test_segments_too_large_on_average_are_refused_with_the_key_that_makes_them_so():
    with pytest.raises(SegmentError, match=r"segment 1 .* key 'page' takes 50\d\d; at most 1000"):
        codec.encode([{"n": 1}, {"n": 2, "page": "x" * 5000}], segment_bytes_max=1000)


def test_a_few_large_segments_among_small_ones_pass():
    segments = [{"page": "x" * 5000}] + [{"n": n} for n in range(99)]
    assert codec.decode(codec.encode(segments, segment_bytes_max=1000)) == segments


@pytest.mark.parametrize("length", [0, 1, 15, 16, 65_535, 65_536])
def test_the_header_of_a_payload_tells_how_many_segments_it_holds(length):
    assert codec.count(codec.encode([{}] * length)) == length


@pytest.mark.parametrize("payload", [b"", b"\x81\x01\x02", b"\xdc\x00", b"\xdd\x00\x00\x00"])
def test_a_payload_without_an_array_is_refused(payload):
    with pytest.raises(SegmentError):
        codec.count(payload)


def test_consecutive_numbers_arrive_as_a_run():
    column = codec.decode_column(codec.encode_column(np.array([7, 8, 9], np.uint64)), 3)
    assert column == Run(7, 3)


def test_a_run_that_leaves_64_bits_is_refused():
    with pytest.raises(SegmentError, match="begins at"):
        codec.decode_column(b"\xff" * 8, 2)


def test_a_column_of_another_length_is_refused():
    with pytest.raises(SegmentError, match="a column of 3 values has 16 bytes"):
        codec.decode_column(bytes(16), 3)
