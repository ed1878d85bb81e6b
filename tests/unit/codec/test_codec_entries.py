"""Entries come back as they were, and no bytes at all make the reader raise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyx.codec.entries import NESTING_MAX, UNREADABLE, decode_entry, encode_entry
from onyx.errors import UserError
from onyx.ids import Position
from onyx.replica.entry import Command, Entry

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(
    args=st.dictionaries(TEXT, JSON, max_size=4),
    writer=st.none() | st.tuples(st.just("g1"), st.integers(1, 2**40)),
    parent=st.none() | st.integers(-1, 2**31),
)
def test_an_entry_comes_back_as_it_was(args, writer, parent):
    name, sequence = writer or ("", 0)
    data = encode_entry(Command("submit-job", args), name, sequence, parent)
    expected = Entry(Position(3), Command("submit-job", args), name, sequence, parent)
    assert decode_entry(Position(3), data) == expected


@given(st.binary(max_size=200))
def test_no_bytes_make_the_reader_raise(data):
    assert decode_entry(Position(1), data).position == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"v":2,"fn":"a"}',
        b'{"v":1,"fn":"a","future":1}',
        b'{"v":1,"fn":7}',
        b'{"v":1,"fn":"a","args":[]}',
        b'{"v":1,"fn":"a","args":{"x":1e400}}',
        b'{"v":1,"fn":"a","args":{"x":' + b"9" * 5000 + b"}}",
        b'{"v":1,"fn":"a","args":{"x":' + b"[" * 40 + b"]" * 40 + b"}}",
        b'{"v":1,"fn":"a","args":{"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}}",
        b'{"v":1,"fn":"a","writer":"g"}',
        b'{"v":1,"fn":"a","sequence":3}',
        b'{"v":1,"fn":"a","writer":"g","sequence":-1}',
        b'{"v":1,"fn":"' + b"a" * 300 + b'"}',
        b'{"v":1,"fn":"a","args":{"x":"' + b"a" * 1_100_000 + b'"}}',
    ],
)
def test_bytes_that_are_no_entry_become_an_unreadable_command_with_the_reason(data):
    entry = decode_entry(Position(5), data)
    assert entry.command.fn == UNREADABLE
    assert entry.command.args["reason"]
    assert (entry.writer, entry.sequence) == ("", 0)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("inf"), "inf"),
        (float("nan"), "nan"),
        (2**64, "cannot be written"),
        ({1: 2}, "not text"),
        (object(), "cannot be written"),
        ("\ud800", "surrogate"),
    ],
)
def test_what_would_come_back_changed_is_refused_with_its_place(value, message):
    with pytest.raises(UserError, match=message):
        encode_entry(Command("kill-job", {"job": {"x": [value]}}))


def test_nesting_is_bounded_when_writing_and_what_was_written_can_be_read():
    deepest: object = 1
    for _ in range(NESTING_MAX - 1):
        deepest = [deepest]
    data = encode_entry(Command("a", {"x": deepest}))
    assert decode_entry(Position(0), data).command.fn == "a"
    with pytest.raises(UserError, match="deeper"):
        encode_entry(Command("a", {"x": [deepest]}))
