"""Which letters went in before: marks beside the letters, each made once.

    _redriven/0000000007.claim     these letters go into that input, as one batch of a write
    _redriven/0000000007.done      the batch was taken, and what became of it

A claim is made before anything is sent, under the next number. Whoever finds the number taken reads
that claim first, and tries again with what is left of its letters. So a letter is in one claim,
however many do this at once, and there is no lock that somebody who died could hold.

The name of the write stands in the claim, so whoever finds one without its end sends the same batch
again, at any time later: it is committed once ([why](../../../../docs/decisions/0142-redrive.md)).

Marks lie where the letters are, because that is where they mean something: in the state of a job
they would go with the job, and a letter could go into its successor again. Rejected: letters that
are deleted or moved when they went in: readers of a bucket rarely have the right to, and a part
holds letters that stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from onyx.codec.sealed import FileFormat, opened, seal
from onyx.flow.arrays import U64
from onyx.storage.interface import BlobStore, Location

FOLDER = "_redriven"
"""Spark and Hadoop read no folder of such a name, and the glob of a job has none."""
CLAIM = FileFormat(b"ONYXRC", 1, "claim of dead letters")
DONE = FileFormat(b"ONYXRD", 1, "end of a claim of dead letters")
RUNS_MAX = 16
"""Arrays of numbers that are looked into one by one; then they become one."""
_NAME = re.compile(r"(\d{10})\.(claim|done)\Z")
_U64 = np.dtype("<u8")


class Claim(msgspec.Struct, array_like=True, frozen=True):
    """Letters that go into an input together."""

    write: str
    """Id of the write whose only batch they are."""
    job: str
    input: str
    task: str
    by: str
    wall_ms: int
    rows: tuple[tuple[str, tuple[int, ...]], ...]
    """Parts, each with rows of it, in the order of the segments of the batch."""
    keys: bytes
    """Numbers of the letters."""
    prints: bytes
    """What equal segments have in common, likewise."""
    rounds: bytes
    """How often a segment like this goes in with this time, a byte each."""

    @property
    def count(self) -> int:
        """How many letters."""
        return len(self.rounds)


class Done(msgspec.Struct, array_like=True, frozen=True):
    """What became of a claim."""

    by: str
    wall_ms: int
    taken: bool
    """Whether the job has taken the segments; False: nobody knows, and nobody tries again."""
    outcomes: dict[str, int]
    """How many did not simply go on."""
    text: str = ""
    """Its first error, or why nobody knows."""


class MarkedClaim(NamedTuple):
    """A claim with its number."""

    number: int
    claim: Claim
    is_done: bool


_claims = msgspec.msgpack.Decoder(Claim)
_done = msgspec.msgpack.Decoder(Done)
_encoder = msgspec.msgpack.Encoder()


class RedriveMarks:
    """The marks of one place. Raises like the store."""

    def __init__(self, location: Location) -> None:
        self._at: BlobStore = location / FOLDER

    def claims(self) -> Iterator[MarkedClaim]:
        """All claims, in the order in which they were made. Raises StateError: one is damaged."""
        names = [each.name for each in self._at.list("")]
        found = {match[0]: int(match[1]) for match in map(_NAME.fullmatch, names) if match}
        for name, number in sorted(found.items()):
            if name.endswith(".claim"):
                claim = self.claim(number)
                if claim is not None:
                    yield MarkedClaim(number, claim, _end_of(number) in found)

    def claim(self, number: int) -> Claim | None:
        """The claim of a number, if there is one."""
        name = f"{number:010d}.claim"
        data = self._at.read(name)
        return None if data is None else opened(CLAIM, _claims, data, f"file {name}")[0]

    def make(self, number: int, claim: Claim) -> bool:
        """Make a claim; False: there is another one of this number."""
        data = seal(CLAIM, _encoder.encode(claim), ())
        return self._at.create(f"{number:010d}.claim", data)

    def end(self, number: int, done: Done) -> None:
        """A claim needs nothing more. Who comes second says nothing."""
        self._at.create(_end_of(number), seal(DONE, _encoder.encode(done), ()))

    def done(self, number: int) -> Done | None:
        """What became of a claim, if that is known."""
        data = self._at.read(_end_of(number))
        return None if data is None else opened(DONE, _done, data, f"file {_end_of(number)}")[0]


def _end_of(number: int) -> str:
    return f"{number:010d}.done"


def unpacked(numbers: bytes) -> list[int]:
    """Numbers that a claim holds."""
    found: list[int] = np.frombuffer(numbers, _U64).tolist()
    return found


def packed(numbers: Sequence[int]) -> bytes:
    """Numbers as a claim holds them."""
    return np.array(numbers, dtype=_U64).tobytes()


class Known:
    """The letters of all claims, eight bytes each, and how often segments like theirs went in."""

    def __init__(self) -> None:
        self._keys: list[U64] = []
        self._rounds: list[tuple[U64, Any]] = []

    def add(self, claim: Claim) -> None:
        """The letters of a claim are known."""
        if not claim.count:
            return
        self._keys.append(np.sort(np.frombuffer(claim.keys, _U64)))
        prints = np.frombuffer(claim.prints, _U64)
        self._rounds.append(_most(prints, np.frombuffer(claim.rounds, np.uint8)))
        if len(self._keys) >= RUNS_MAX:
            self._keys = [np.unique(np.concatenate(self._keys))]
            joined = [np.concatenate(each) for each in zip(*self._rounds, strict=True)]
            self._rounds = [_most(*joined)]

    def has(self, keys: Sequence[int]) -> list[bool]:
        """Which of the letters are in a claim."""
        wanted = np.array(keys, dtype=np.uint64)
        found = np.zeros(len(keys), np.bool_)
        for each in self._keys:
            found |= _places(each, wanted)[1]
        return found.tolist()

    def rounds(self, prints: Sequence[int]) -> list[int]:
        """How often segments like these went in."""
        wanted = np.array(prints, dtype=np.uint64)
        most = np.zeros(len(prints), np.uint8)
        for numbers, rounds in self._rounds:
            places, there = _places(numbers, wanted)
            most = np.maximum(most, np.where(there, rounds[places], 0))
        return most.tolist()


def _most(prints: U64, rounds: Any) -> tuple[U64, Any]:
    """Each number once, increasing, with the largest of its rounds."""
    order = np.lexsort((rounds, prints))
    prints, rounds = prints[order], rounds[order]
    last = np.append(prints[1:] != prints[:-1], True)
    return prints[last], rounds[last]


def _places(numbers: U64, wanted: U64) -> tuple[Any, Any]:
    """Where the wanted ones are among increasing numbers, and which of them are there."""
    places = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
    return places, numbers[places] == wanted
