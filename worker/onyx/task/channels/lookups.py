"""What a batch needs of the state of another task, asked of the peers that have its groups.

The task waits in a phase of its own and blocks nothing; a peer answers between two of its steps,
also while it waits itself. So two tasks may look up each other. Whatever was lost is asked again.

Rejected: asking from within the user's function. It would hold the thread that all tasks of the
process share, among them perhaps the one that is to answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from onyx.base.seams import Clock
from onyx.codec.questions import decode_states, key_pieces
from onyx.flow.batch import Batch
from onyx.flow.groups.keys import shard_of
from onyx.keystate.groups import Shards
from onyx.task.channels.wiring import Site, Wiring
from onyx.transport.interface import LookUp, LookUpAnswer, Transport

if TYPE_CHECKING:
    from onyx.joins.kept import ForeignState

ASK_AGAIN_S = 2.0
"""After so long without an answer: it was lost, or its peer is busy with a batch."""
KEYS_BYTES_MAX = 1_000_000
"""Groups in one question, encoded; a single one may be larger."""


class Reads(msgspec.Struct, frozen=True):
    """What a task looks up, and of whom."""

    state: str
    sites: tuple[Site, ...]
    """Peers of the task that keeps it, by slot."""
    durable: bool


class _OpenQuestion(msgspec.Struct):
    site: Site
    message: LookUp
    keys: list[Any]


class Lookups:
    """The questions of one peer in one allocation version, about one batch at a time."""

    def __init__(
        self, kept: ForeignState, reads: Reads, wiring: Wiring, transport: Transport, clock: Clock
    ) -> None:
        self._kept = kept
        self._reads = reads
        self._wiring = wiring
        self._transport = transport
        self._clock = clock
        self._batch: Batch | None = None
        self._open: dict[int, _OpenQuestion] = {}
        self._last_number = 0
        self._keys: list[Any] = []
        self._states: list[Any] = []
        """The states of these keys, as far as they have come."""
        self._shards = Shards(shard_of)
        self._refused: dict[Any, str] = {}
        """Groups whose state cannot be given, and why."""
        self._again_s = 0.0

    @property
    def title(self) -> str:
        """What is looked up, with its name, for people."""
        return self._kept.title

    @property
    def waits(self) -> bool:
        """Whether an answer is still to come."""
        return bool(self._open)

    def are_there(self, batch: Batch) -> bool:
        """Whether the states that a batch needs are there; they are asked for at its first call."""
        if self._batch is not batch:
            self._begin(batch)
        if self._open:
            self._ask_again()
            return False
        self._kept.take(self._keys, self._states, self._refused)
        self._batch, self._keys, self._states, self._refused = None, [], [], {}
        return True

    def receive(self, found: LookUpAnswer) -> None:
        """Take an answer; one that came before, or is about a batch before this one, is dropped."""
        question = self._open.pop(found.number, None)
        if question is None:
            return
        if found.error:
            self._refuse(question, found.error)
            return
        keys, states, others = decode_states(found.states, question.keys)
        self._keys += keys
        self._states += states
        if others:
            self._ask(question.site, others)

    def _refuse(self, question: _OpenQuestion, error: str) -> None:
        """An error is about one of the groups, which is found by halves: the others get answers."""
        keys = question.keys
        if len(keys) == 1:
            self._refused[keys[0]] = error
            return
        half = len(keys) // 2
        self._ask(question.site, keys[:half])
        self._ask(question.site, keys[half:])

    def _begin(self, batch: Batch) -> None:
        self._batch, self._open = batch, {}
        self._keys, self._states, self._refused = [], [], {}
        sites, shards = self._reads.sites, self._shards
        of_slot: dict[int, list[Any]] = {}
        for key in self._kept.keys_of(batch.segments):
            of_slot.setdefault(shards[key] % len(sites), []).append(key)
        for slot, keys in of_slot.items():
            self._ask(sites[slot], keys)

    def _ask(self, site: Site, keys: list[Any]) -> None:
        for some, data in key_pieces(keys, KEYS_BYTES_MAX):
            self._last_number += 1
            wiring, number = self._wiring, self._last_number
            message = LookUp(
                wiring.job,
                wiring.version,
                site.peer,
                wiring.me.group,
                wiring.me.peer,
                number,
                self._reads.state,
                data,
                self._reads.durable,
            )
            self._open[number] = _OpenQuestion(site, message, some)
            self._transport.send_lookup(site.group, message)
        self._again_s = self._clock.monotonic_s() + ASK_AGAIN_S

    def _ask_again(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s < self._again_s:
            return
        self._again_s = now_s + ASK_AGAIN_S
        for each in list(self._open.values()):
            self._transport.send_lookup(each.site.group, each.message)
