"""Counters of the transport, as totals since the start.

Plain integers, each written only under the lock of the link or inbox that owns the object. Readers
need no lock: they may see a value that is one event old, never a torn one.
"""

from __future__ import annotations

from collections import Counter

import msgspec
from msgspec import field

from onyx.base.structs import fields
from onyx.telemetry.labels import Refusal


class Counters(msgspec.Struct):
    """Events since the start of the owner."""

    sent_bytes: int = 0
    sent_frames: int = 0
    sent_packets: int = 0
    received_bytes: int = 0
    received_frames: int = 0
    received_packets: int = 0
    local_batches: int = 0
    """Batches handed over inside the process."""
    connects: int = 0
    """Streams that passed the handshake."""
    reconnects: int = 0
    """The connections of them that took up an earlier session of the same two groups."""
    broken_streams: int = 0
    """Streams that ended by silence, an error of the network or a bad frame."""
    bad_frames: int = 0
    """Frames that were corrupt, too large, out of sequence or unknown; each closed its stream."""
    resent_packets: int = 0
    dropped_repeats: int = 0
    """Packets that had been delivered before the stream broke."""
    dropped_version: int = 0
    """Packets for a peer and allocation version without an inbox here."""
    dropped_unsent: int = 0
    """Packets given up because the link was closed or the other group lost its session."""
    dropped_corrupt: int = 0
    """Batches whose segments could not be decoded; their trees are replayed."""
    refused_sends: int = 0
    """Sends answered with "no room"."""
    refused_calls: Counter[Refusal] = field(default_factory=Counter)
    """Calls that were not let in."""

    def add(self, other: Counters) -> None:
        """Add the totals of another owner."""
        for each in fields(type(self)):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
