"""The end of input without acks: END control items, accounted for as one shared tree.

Without acks nobody knows when the last segment has arrived. So every input ends each channel with
an END item that carries an id of one shared tree. A task passes END on when all its upstream peers
have ended: it consumes what came and produces what goes. An output consumes when all it was given
is durable. The XOR of that tree is zero when the whole job has ended, and the inputs get its
completion. Counting messages through the log was rejected: it needs a command and an entry a peer.
"""

from __future__ import annotations

import hashlib

import numpy as np

from onyx.base.runs import Numbers
from onyx.ids import PeerId
from onyx.ledger.lineage import END_ROOT, END_ROOTS
from onyx.task.acking.sender import AckSender
from onyx.task.channels.outbox import Outbox
from onyx.task.channels.wiring import Wiring
from onyx.transport.interface import Control, ControlKind


def end_id(source: PeerId, target: PeerId) -> int:
    """Id of the END item on the channel between two peers; never 0."""
    digest = hashlib.blake2b(f"{source}>{target}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") | 1


class EndOfInput:
    """The end of input of one task, within one allocation version. Without END items, as where
    segments are accounted for: completions and `exhaust-input` say what has ended."""

    complete: bool = False
    """Every output has everything (known to inputs only)."""

    def arrive(self, source: PeerId, control: Control) -> None:
        """An upstream peer has sent END."""

    def all_arrived(self) -> bool:
        """Whether every upstream peer has sent END."""
        return False

    def pass_on(self) -> None:
        """End every channel downstream, once."""

    def take_completion(self, roots: Numbers) -> bool:
        """Whether these roots are the completion of the END tree: the whole job has ended."""
        return False


class EndItems(EndOfInput):
    """END items, for segments that are not accounted for."""

    def __init__(self, wiring: Wiring, outbox: Outbox, acks: AckSender) -> None:
        self._wiring = wiring
        self._outbox = outbox
        self._acks = acks
        self._arrived: dict[PeerId, int] = {}
        self._passed_on = False

    def arrive(self, source: PeerId, control: Control) -> None:
        """Count it by its id."""
        self._arrived[source] = control.id

    def all_arrived(self) -> bool:
        """Never for a peer without upstream peers, as an input is: it ends by itself."""
        upstream = self._wiring.upstream
        return bool(upstream) and len(self._arrived) == len(upstream)

    def pass_on(self) -> None:
        """Consume what arrived, produce an id for each channel, and ack both."""
        if self._passed_on:
            return
        self._passed_on = True
        value = 0
        for consumed in self._arrived.values():
            value ^= consumed
        for child in self._wiring.children:
            for site in child.sites:
                produced = end_id(self._wiring.me.peer, site.peer)
                value ^= produced
                self._outbox.put_to(site, Control(ControlKind.END, END_ROOT, produced))
        self._acks.add(END_ROOTS, np.array([value], dtype=np.uint64))

    def take_completion(self, roots: Numbers) -> bool:
        """The END tree has one root."""
        if len(roots) != 1 or roots[0] != END_ROOT:
            return False
        self.complete = True
        return True
