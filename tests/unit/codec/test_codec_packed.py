"""Documents are kept compressed, and few bytes of them do not become many."""

from __future__ import annotations

import random
import zlib

import pytest

from onyx.codec.packed import ALWAYS_BYTES, RATIO_MAX, pack, unpack

NOISE = random.Random(1).randbytes(100_000)


@pytest.mark.parametrize(
    "data",
    [b"", b"x", NOISE, b"word " * 20_000, bytes(ALWAYS_BYTES), bytes(20 * ALWAYS_BYTES)],
    ids=len,
)
def test_what_is_packed_comes_back(data: bytes) -> None:
    packed = pack(data)

    assert unpack(packed) == data
    assert len(packed) <= len(data) * 1.001 + 16


def test_text_shrinks() -> None:
    assert len(pack(b"word " * 20_000)) < 1_000


@pytest.mark.parametrize("size", [ALWAYS_BYTES + 1, 100_000_000])
def test_few_bytes_that_become_many_are_refused(size: int) -> None:
    bomb = zlib.compress(bytes(size))

    assert size > RATIO_MAX * len(bomb)
    with pytest.raises(ValueError, match="become more than"):
        unpack(bomb)


@pytest.mark.parametrize(
    "damaged", [b"", b"text", pack(NOISE)[:-1], pack(NOISE) + b"x", pack(NOISE)[1:]], ids=len
)
def test_what_is_damaged_is_refused(damaged: bytes) -> None:
    with pytest.raises(ValueError, match=r"compressed|end"):
        unpack(damaged)
