"""Checks that a plugin keeps to the protocol, for the tests of whoever writes one.

`check_input` reads a source in every way the engine may: at once, one by one, again from every
cursor. `check_output` writes, flushes, crashes at every point, is fenced, and looks each time
whether what was said to be durable can be found. Both raise AssertionError that says what was done
and what came of it.
"""

from __future__ import annotations

import contextlib
import copy
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import msgspec

from onyx.flow.segment import Segment
from onyx.ids import GroupId
from onyx.plugins.protocol import START, Cursor, Input, Output, Reader

READS_MAX = 1_000_000
"""Reads in a row after which a source counts as one that never ends."""
EMPTY_READS_MAX = 1_000
"""Reads in a row that may give nothing before the source is exhausted."""


def check_input(
    make: Callable[[], Input],
    expected: dict[str, list[Segment]] | None = None,
    read_sizes: Sequence[int] = (1, 3, 1_000_000),
) -> dict[str, list[Segment]]:
    """Check an input plugin whose source is bounded and small (a few hundred segments).

    Args:
        make: a new instance over the same source, each time it is called.
        expected: segments of each partition, in order; not compared when left out.
        read_sizes: how many segments are asked for at a time, one whole reading for each.

    Returns:
        The segments of every partition.
    """
    names, again = _names(make), _names(make)
    assert names == again, f"partitions() gives {names}, another instance {again}; sort the names"
    assert len(set(names)) == len(names), f"partitions() repeats a name: {names}"
    found = {name: _check_partition(make, name) for name in names}
    if expected is not None:
        assert found == expected, f"read {found}, expected {expected}"
    for name, segments in found.items():
        for size in read_sizes:
            with closing(make()) as plugin:
                read = _read_all(plugin, name, START, size)
            assert read == segments, f"{name}: reading {size} at a time gives {read}"
    return found


def _names(make: Callable[[], Input]) -> list[str]:
    with closing(make()) as plugin:
        return list(plugin.partitions())


def _check_partition(make: Callable[[], Input], name: str) -> list[Segment]:
    """Read one by one, and after each segment again from the cursor of that position."""
    with closing(make()) as plugin, closing(plugin.open(name, START)) as reader:
        whole = _read_all(plugin, name, START, 1_000_000)
        read: list[Segment] = []
        while len(read) < len(whole):
            assert not reader.exhausted(), f"{name}: exhausted after {len(read)} of {len(whole)}"
            read += _read_some(reader, 1)
            position = len(read)
            _check_cursor(plugin, name, reader.cursor(position), position, whole)
        assert read == whole, f"{name}: one by one gives {read}, at once {whole}"
        assert not _read_some(reader, 1), f"{name}: goes on after everything was read"
    return whole


def _check_cursor(
    plugin: Input, name: str, cursor: Cursor, position: int, whole: list[Segment]
) -> None:
    assert cursor.position <= position, f"{name}: cursor({position}) is later: {cursor}"
    stored = msgspec.json.decode(msgspec.json.encode(cursor.state))
    again = _read_all(plugin, name, Cursor(cursor.position, stored), 7)
    assert again == whole[cursor.position :], (
        f"{name}: re-opened at {cursor} it reads {again}, not {whole[cursor.position :]}"
    )


def _read_all(plugin: Input, name: str, cursor: Cursor, size: int) -> list[Segment]:
    segments: list[Segment] = []
    with closing(plugin.open(name, cursor)) as reader:
        for _ in range(READS_MAX):
            if reader.exhausted():
                return segments
            more = _read_some(reader, size)
            segments += copy.deepcopy(more)
            # A function may do this to what it is given; the source must not notice.
            for segment in more:
                segment.clear()
            more.clear()
    raise AssertionError(f"{name}: not exhausted after {READS_MAX} reads")


def _read_some(reader: Reader, size: int) -> list[Segment]:
    """The next segments; empty only at the end."""
    for _ in range(EMPTY_READS_MAX):
        segments = reader.read(size)
        assert len(segments) <= size, f"read({size}) gave {len(segments)} segments"
        if segments or reader.exhausted():
            return segments
    raise AssertionError(f"{EMPTY_READS_MAX} reads gave nothing, but it is not exhausted")


MakeOutput = Callable[[GroupId], Output]
ReadBack = Callable[[], list[Segment]]
SEGMENTS = tuple({"n": number, "text": f"line {number}\n"} for number in range(12))

_FLUSH = object()
_TICK = object()


def check_output(
    start: Callable[[], tuple[MakeOutput, ReadBack]],
    segments: Sequence[Segment] = SEGMENTS,
    batch_size: int = 3,
) -> None:
    """Check an output plugin.

    Args:
        start: prepares an empty target and gives a function that makes an instance writing to it
            as an incarnation, and one that reads back everything that is visible there.
        segments: what to write; all different.
        batch_size: segments a `write`.
    """
    batches = [list(segments[i : i + batch_size]) for i in range(0, len(segments), batch_size)]
    steps: list[Any] = []
    for number, batch in enumerate(batches):
        steps += [batch, _TICK] if number % 2 else [batch, _FLUSH]
    for crash_after in range(len(steps) + 1):
        _check_crash(start, steps[:crash_after], list(segments))
        _check_fenced(start, steps[:crash_after], list(segments))
    _check_whole(start, batches, list(segments))


def _check_crash(
    start: Callable[[], tuple[MakeOutput, ReadBack]], steps: list[Any], segments: list[Segment]
) -> None:
    """Dropped without a close, as a crash would: what was durable is there, nothing is torn."""
    make, read_back = start()
    output = make(GroupId("crashed"))
    try:
        written = _run(output, steps, read_back)
        _check_visible(read_back(), written, output.durable())
    finally:
        # Only to give its files back; a crash would have the system do it.
        output.close()
    successor = make(GroupId("successor"))
    successor.fence([GroupId("successor")])
    _run(successor, [segments, _FLUSH], read_back)
    successor.seal()
    successor.seal()
    successor.close()
    missing = _count(segments) - _count(read_back())
    assert not missing, f"after a crash and a replay, these are missing: {list(missing)}"


def _check_fenced(
    start: Callable[[], tuple[MakeOutput, ReadBack]], steps: list[Any], segments: list[Segment]
) -> None:
    """An incarnation that was fenced while it slept makes nothing more visible."""
    make, read_back = start()
    zombie = make(GroupId("zombie"))
    _run(zombie, steps, read_back)
    living = make(GroupId("living"))
    living.fence([GroupId("living")])
    before = _count(read_back())
    durable = zombie.durable()
    # Any exception may say so.
    with contextlib.suppress(Exception):
        zombie.flush()
    added = _count(read_back()) - before
    unfinished = sum(len(step) for step in steps if isinstance(step, list)) - durable
    assert not added or not unfinished, f"a fenced incarnation made visible: {list(added)}"
    assert zombie.durable() == durable or not unfinished, "a fenced flush counted as durable"
    zombie.close()
    living.close()


def _check_whole(
    start: Callable[[], tuple[MakeOutput, ReadBack]],
    batches: list[list[Segment]],
    segments: list[Segment],
) -> None:
    """Without any fault, everything is there once."""
    make, read_back = start()
    output = make(GroupId("whole"))
    output.fence([GroupId("whole")])
    _run(output, [*batches, _FLUSH], read_back)
    assert output.durable() == len(segments), (
        f"durable() is {output.durable()} after a flush of {len(segments)} segments"
    )
    output.seal()
    output.close()
    assert _count(read_back()) == _count(segments), f"read back {read_back()}, wrote {segments}"


def _run(output: Output, steps: list[Any], read_back: ReadBack) -> list[Segment]:
    """Do the steps, checking after each that durable() neither lies nor goes back."""
    written: list[Segment] = []
    before = 0
    for step in steps:
        if step is _FLUSH:
            output.flush()
        elif step is _TICK:
            output.tick()
        else:
            output.write([dict(segment) for segment in step])
            written += step
        durable = output.durable()
        assert before <= durable <= len(written), (
            f"durable() went from {before} to {durable} with {len(written)} written"
        )
        missing = _count(written[:durable]) - _count(read_back())
        assert not missing, f"durable() is {durable}, but not found: {list(missing)}"
        before = durable
    return written


def _check_visible(visible: list[Segment], written: list[Segment], durable: int) -> None:
    invented = _count(visible) - _count(written)
    assert not invented, f"visible, but never written: {list(invented)}"
    missing = _count(written[:durable]) - _count(visible)
    assert not missing, f"durable() is {durable}, but not found: {list(missing)}"


def _count(segments: Sequence[Segment]) -> Counter[bytes]:
    encoder = msgspec.json.Encoder(order="deterministic")
    return Counter(encoder.encode(segment) for segment in segments)
