"""Lines that are one object each are counted as line by line."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from onyx.plugins.files.lines import count_objects

PIECES = st.sampled_from([b"{", b"}", b"\n", b"\r", b"\r\n", b"{}", b'{"a":1}', b" ", b"x"])
BLOCKS = st.lists(PIECES, max_size=12).map(b"".join)
LINES = st.lists(st.sampled_from([b"{}", b'{"a":1}']), min_size=1, max_size=8)


def one_by_one(lines: bytes) -> int | None:
    found = [line.removesuffix(b"\r") for line in lines.removesuffix(b"\n").split(b"\n")]
    whole = all(line.startswith(b"{") and line.endswith(b"}") for line in found)
    return len(found) if whole else None


@given(lines=BLOCKS)
@example(lines=b"")
@example(lines=b"{}\r\n\r")
@example(lines=b"{}\n\n{}")
@example(lines=b"{}{}\n{\n}")
def test_a_block_of_lines_has_the_objects_that_its_lines_are(lines: bytes) -> None:
    assert count_objects(lines) == one_by_one(lines)


@given(lines=LINES, newline=st.sampled_from([b"\n", b"\r\n"]), ended=st.booleans())
def test_lines_of_objects_are_counted(lines: list[bytes], newline: bytes, ended: bool) -> None:
    assert count_objects(newline.join(lines) + newline * ended) == len(lines)
