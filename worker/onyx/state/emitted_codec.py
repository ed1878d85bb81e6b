"""Emissions of a shard as bytes: a list of runs, each of dicts or of columns with their schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onyx.codec.segment_runs import decode_run, encode_run
from onyx.codec.values import decode_values, encode_values
from onyx.state.chunks import EmittedRun


def encode_emitted(runs: Sequence[EmittedRun]) -> bytes:
    """The bytes of some runs.

    Raises:
        SegmentError: a value has no encoding.
    """
    encoded = [each.encoded or encode_run(each.segments) for each in runs]
    return encode_values(
        [[each.first, each.child, *data] for each, data in zip(runs, encoded, strict=True)]
    )


def decode_emitted(data: bytes) -> Iterator[EmittedRun]:
    """The runs of `encode_emitted`.

    Raises:
        SegmentError: the bytes are not those of runs.
    """
    for first, child, payload, schema in decode_values(data):
        yield EmittedRun(first, decode_run(payload, schema), child)
