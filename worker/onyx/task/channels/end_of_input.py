"""The end of input under at-most-once, told by control items that the ledger accounts for.

Without acks nobody knows when the last segment has arrived. So every input ends each channel with
an END item that carries an id of one shared tree; a task passes END on when all its upstream peers
have ended, consuming what came and producing what goes; an output consumes when all it was given is
durable. The XOR of that tree is zero when the whole job has ended, and the inputs are told.
Counting messages through the log instead was rejected: it would need a command and an entry a peer.
"""

from __future__ import annotations

import hashlib

import numpy as np

from onyx.flow.batch import U64
from onyx.ids import PeerId
from onyx.ledger.lineage import PARTITIONS_MAX, pack_roots
from onyx.task.acking.sender import AckSender
from onyx.task.channels.outbox import Outbox
from onyx.task.channels.wiring import Wiring
from onyx.transport.interface import Control, ControlKind

END_PARTITION = PARTITIONS_MAX - 1
"""Number that no source partition may have: the tree of END items."""
END_ROOT = pack_roots(END_PARTITION, 0, np.zeros(1, dtype=np.uint64))


def end_id(source: PeerId, target: PeerId) -> int:
    """Id of the END item on the channel between two peers; never 0."""
    digest = hashlib.blake2b(f"{source}>{target}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") | 1


class EndOfInput:
    """What one task knows of it, within one allocation version."""

    def __init__(self, wiring: Wiring, outbox: Outbox, acks: AckSender) -> None:
        self._wiring = wiring
        self._outbox = outbox
        self._acks = acks
        self._arrived: dict[PeerId, int] = {}
        self._passed_on = False
        self.complete = False
        """Every output has everything (known to inputs only)."""

    def arrive(self, source: PeerId, control: Control) -> None:
        self._arrived[source] = control.id

    def all_arrived(self) -> bool:
        return len(self._arrived) == len(self._wiring.upstream)

    def pass_on(self) -> bool:
        """End every channel downstream, once; True when it was done now."""
        if self._passed_on:
            return False
        self._passed_on = True
        value = 0
        for consumed in self._arrived.values():
            value ^= consumed
        for child in self._wiring.children:
            for site in child.sites:
                produced = end_id(self._wiring.me.peer, site.peer)
                value ^= produced
                self._outbox.put_to(site, Control(ControlKind.END, int(END_ROOT[0]), produced))
        self._acks.add(END_ROOT, np.array([value], dtype=np.uint64))
        return True

    def take_completion(self, roots: U64) -> bool:
        """Whether this is the news that the whole job has ended."""
        if len(roots) == 1 and roots[0] == END_ROOT[0]:
            self.complete = True
            return True
        return False
