"""What all writers of a frame have agreed that its keys are.

Documents in one folder, numbered 1, 2, and so on. Each has all keys that are known, and holds what
the one before holds. A document is created on the condition that there is none of its number; who
comes too late looks at what the other has written, and then at its own segments again. So a writer
takes no segment before its type is in a document, and each later document holds that, too.

Types change a few times in the life of a job: with the first segments, and when a number comes that
is greater or of another kind than all before. All other batches read and write nothing.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

import msgspec
import pyarrow as pa

from onyx.base.structs import prepared, stored
from onyx.storage.interface import Location


class Reach(msgspec.Struct, frozen=True):
    """How far numbers reach."""

    below: int
    """All numbers are nearer to 0."""
    digits: int
    """Decimals have at most so many before and behind the point together. 0: there are none."""

    def or_more(self, other: Reach) -> Reach:
        """How far the numbers of both reach."""
        return Reach(max(self.below, other.below), max(self.digits, other.digits))

    def is_within(self, other: Reach) -> bool:
        """Whether no number is beyond."""
        return self.below <= other.below and self.digits <= other.digits


class Known(msgspec.Struct, frozen=True):
    """What is known of the values of a key."""

    type: pa.DataType
    """In Spark."""
    reaches: Mapping[str, Reach]
    """How far whole numbers and decimals reach, by where they are in a value."""


@prepared
class _Key(msgspec.Struct, frozen=True):
    name: str
    schema: str
    """A schema of Arrow with this key alone."""
    reaches: dict[str, tuple[str, int]]
    """Numbers as text, of any size."""


@prepared
class _Document(msgspec.Struct, frozen=True):
    keys: list[_Key]


class AgreedTypes:
    """The types of one frame, as one writer knows them."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._number = -1
        """The number of the newest document that was read; 0: there is none; -1: nobody looked."""
        self._known: Mapping[str, Known] = {}

    @property
    def known(self) -> Mapping[str, Known]:
        """What is known of each key."""
        if self._number < 0:
            self._read()
        return self._known

    def agree(self, known: Mapping[str, Known]) -> bool:
        """Have others know it, too. False: others know something else meanwhile, which `known` has
        then."""
        if known == self._known:
            return True
        document = msgspec.json.encode(_Document(list(map(_key, known, known.values()))))
        if not self._location.create(_name(self._number + 1), document):
            self._read()
            return False
        self._number, self._known = self._number + 1, known
        return True

    def _read(self) -> None:
        """Look at the newest document."""
        names = [each.name for each in self._location.list("")]
        self._number = int(max(names).partition(".")[0]) if names else 0
        if names:
            self._known = self._decoded(max(names))

    def _decoded(self, name: str) -> Mapping[str, Known]:
        data = self._location.read(name)
        document = stored(data or b"", _Document, self._location.path_of(name))
        return {each.name: _known(each) for each in document.keys}


def _name(number: int) -> str:
    return f"{number:08d}.json"


def _key(name: str, known: Known) -> _Key:
    schema = pa.schema([(name, known.type)]).serialize().to_pybytes()
    reaches = {path: (str(each.below), each.digits) for path, each in known.reaches.items()}
    return _Key(name, base64.b64encode(schema).decode(), reaches)


def _known(key: _Key) -> Known:
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(key.schema)))
    reaches = {path: Reach(int(below), digits) for path, (below, digits) in key.reaches.items()}
    return Known(schema.field(0).type, reaches)
