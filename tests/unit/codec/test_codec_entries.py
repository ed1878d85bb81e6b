"""Entries come back as they were, and no bytes at all make the reader raise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.log.submissions import submit_job

from onyx.codec.entries import decode_entry, encode_entry
from onyx.errors import UserError
from onyx.ids import Position
from onyx.replica.command import Entry, Undecodable
from onyx.replica.commands import AddVirtualPeer, ExhaustInput, KillJob

NAME = st.from_regex(r"\A[a-z][a-z0-9]{0,20}\Z")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SCALAR = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)


@given(
    command=st.builds(
        AddVirtualPeer,
        id=NAME,
        group_id=NAME,
        peer_site=st.none() | st.dictionaries(TEXT, SCALAR, max_size=4),
        tags=st.lists(TEXT, max_size=3).map(tuple),
    ),
    writer=st.none() | st.tuples(st.just("g1"), st.integers(1, 2**40)),
    parent=st.none() | st.integers(-1, 2**31),
)
def test_an_entry_comes_back_as_it_was(command, writer, parent):
    name, sequence = writer or ("", 0)
    data = encode_entry(command, name, sequence, parent)
    assert decode_entry(Position(3), data) == Entry(Position(3), command, name, sequence, parent)


def test_people_can_read_an_entry_with_the_tools_of_zookeeper():
    job = submit_job("flights", "read write", inputs=["read"], outputs=["write"])
    assert encode_entry(job, "g1", 7) == (
        b'{"v":2,"fn":"submit-job","args":{"id":"flights","spec":{"tasks":['
        b'{"name":"read","input":true},{"name":"write","output":true}],'
        b'"task-scheduler":"balanced"}},"writer":"g1","sequence":7}'
    )


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
        b'{"v":1,"fn":"a"}',
        b'{"v":2,"fn":"a","future":1}',
        b'{"v":2,"fn":7}',
        b'{"v":2,"fn":"a","args":{"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}}",
        b'{"v":2,"fn":"a","writer":"g"}',
        b'{"v":2,"fn":"a","sequence":3}',
        b'{"v":2,"fn":"a","writer":"g","sequence":-1}',
        b'{"v":2,"fn":"' + b"a" * 300 + b'"}',
        b'{"v":2,"fn":"a","args":{"x":"' + b"a" * 1_100_000 + b'"}}',
    ],
)
def test_bytes_that_are_no_entry_are_undecodable_with_the_reason(data):
    entry = decode_entry(Position(5), data)
    assert isinstance(entry.command, Undecodable)
    assert entry.command.reason
    assert (entry.writer, entry.sequence) == ("", 0)


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (b"{}", "missing required field `job`"),
        (b'{"job":7}', "Expected `str`, got `int`"),
        (b"[]", "Expected `object`, got `array`"),
        (b'{"job":"../j"}', "matching regex"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_arguments_that_do_not_decode_keep_the_name_and_the_writer(args, reason):
    data = b'{"v":2,"fn":"kill-job","args":%b,"writer":"g","sequence":3}' % args
    entry = decode_entry(Position(5), data)
    assert isinstance(entry.command, Undecodable)
    assert entry.command.fn == "kill-job"
    assert reason in entry.command.reason
    assert (entry.writer, entry.sequence) == ("g", 3)


def test_an_unknown_command_is_undecodable():
    command = decode_entry(Position(5), b'{"v":2,"fn":"complete-job"}').command
    assert command == Undecodable("complete-job", "no such command")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (AddVirtualPeer(id="p", group_id="g", peer_site={"x": float("inf")}), "no form for it"),
        (AddVirtualPeer(id="p", group_id="g", peer_site={"x": float("nan")}), "no form for it"),
        (AddVirtualPeer(id="p", group_id="g", peer_site={"x": object()}), "object"),
        (AddVirtualPeer(id="p", group_id="g", peer_site={"x": "\ud800"}), "surrogate"),
        (AddVirtualPeer(id="../p", group_id="g"), "matching regex"),
        (KillJob(job=7), "Expected `str`"),
        (ExhaustInput(job="j", task="t", partitions=[1]), "no form for it"),
        (Undecodable("kill-job", "a reason"), "no such command"),
    ],
)
def test_what_no_reader_would_take_as_it_is_is_refused(command, message):
    with pytest.raises(UserError, match=message):
        encode_entry(command)
