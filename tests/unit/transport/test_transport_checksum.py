"""What the checksum of a frame notices, of small frames and of those that are folded."""

import random
import zlib

import pytest

from onyx.transport.frames.packets import FOLDED_FROM_BYTES, ROW_BYTES, checksum

SIZES = (FOLDED_FROM_BYTES - 1, FOLDED_FROM_BYTES, FOLDED_FROM_BYTES + ROW_BYTES + 5, 200_000)
PACKET_BYTES = 9_000


def some_bytes(size: int) -> bytearray:
    return bytearray(random.Random(size).randbytes(size))


@pytest.mark.parametrize("size", SIZES)
def test_a_changed_bit_is_noticed_wherever_it_is(size):
    body = some_bytes(size)
    right = checksum(body)
    for place in (0, 7, 8, size // 2, size - ROW_BYTES, size - 2, size - 1):
        for bit in range(8):
            body[place] ^= 1 << bit
            assert checksum(body) != right, (place, bit)
            body[place] ^= 1 << bit
    assert checksum(body) == right


@pytest.mark.parametrize("distance", [2, 8, 1_024, PACKET_BYTES - 2])
def test_words_that_change_places_in_a_packet_are_noticed(distance):
    """The checksum of TCP is a sum of words of 16 bits, and lets them."""
    body = some_bytes(200_000)
    changed = body.copy()
    first = 70_000
    changed[first : first + 2] = body[first + distance : first + distance + 2]
    changed[first + distance : first + distance + 2] = body[first : first + 2]
    assert changed != body
    assert checksum(changed) != checksum(body)


def test_rows_of_zeros_count():
    """Their sums are those of no rows."""
    sizes = [FOLDED_FROM_BYTES + number * ROW_BYTES for number in range(5)]
    assert len({checksum(bytes(size)) for size in sizes}) == len(sizes)


def test_a_part_of_other_bytes_has_the_checksum_of_its_own():
    """Frames are checked in place, at any address."""
    body = some_bytes(FOLDED_FROM_BYTES + 100)
    assert checksum(memoryview(b"abc" + body + b"de")[3:-2]) == checksum(body)


def test_a_small_frame_has_the_usual_checksum():
    assert checksum(b"123456789") == zlib.crc32(b"123456789").to_bytes(4, "little")
