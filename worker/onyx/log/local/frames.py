"""What client and server of a local log say to each other, and where they meet.

A frame is its length and a value in msgpack. The client asks under numbers of its own, and each
question has one answer. What is to be heard later (the next entries, the end of a pulse) is a
question that is answered later. So the server sends nothing that nobody waits for: a client that
has stopped reading holds at most what it has asked for, and after a break it asks again.

The socket is a file in the folder of the log, which only its owner may enter. Rejected: a port on
loopback, which every user of the machine reaches, so that it would need a secret.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from onyx.errors import Fenced, OnyxError, SettingsError, StateError, Unavailable, UserError
from onyx.log.interface import ChunkGone
from onyx.log.local.requests import AnyRequest

PROTOCOL = 1
FRAME_BYTES_MAX = 67_108_864
"""The longest frame, and so about the largest document after it is compressed."""
RECEIVE_BYTES = 262_144
SOCKET = "socket"
ADDRESS_BYTES_MAX = 100
"""Systems have room for 104 or 108 bytes in the address of a socket."""
DESCRIPTORS = Path("/proc/self/fd")
_LENGTH = struct.Struct("!I")
_ERRORS = {each.__name__: each for each in (ChunkGone, Fenced, StateError, Unavailable, UserError)}


class LogQuestion(msgspec.Struct, array_like=True, frozen=True):
    """A request under a number."""

    number: int
    request: AnyRequest
    again: bool = False
    """It may have been performed before: the connection broke before its answer."""


class LogAnswer(msgspec.Struct, array_like=True, frozen=True):
    """What a request has given, or why it was refused."""

    number: int
    value: Any = None
    error: str = ""
    """The name of an exception; empty: it was not refused."""
    message: str = ""

    @staticmethod
    def refusing(number: int, error: OnyxError) -> LogAnswer:
        """An answer for which the client raises the same."""
        known = (kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _ERRORS)
        return LogAnswer(number, None, next(known, Unavailable.__name__), str(error))

    def refusal(self) -> OnyxError | None:
        """What is to be raised, if it was refused."""
        return _ERRORS.get(self.error, Unavailable)(self.message) if self.error else None


_ENCODER = msgspec.msgpack.Encoder()
QUESTIONS = msgspec.msgpack.Decoder(LogQuestion)
ANSWERS = msgspec.msgpack.Decoder(LogAnswer)


def framed(message: LogQuestion | LogAnswer) -> bytes:
    """The frame of a message.

    Raises:
        UserError: it is too large, or has a number or text that no message can have.
    """
    try:
        data = _ENCODER.encode(message)
    except (OverflowError, UnicodeEncodeError) as error:
        raise UserError(f"the log cannot be asked this: {error}") from None
    if len(data) > FRAME_BYTES_MAX:
        raise UserError(
            f"{len(data):,} bytes are too many for the log: at most {FRAME_BYTES_MAX:,} are sent"
        )
    return _LENGTH.pack(len(data)) + data


class Frames:
    """What has been received and is no whole frame yet."""

    def __init__(self) -> None:
        self._data = bytearray()

    def taken(self, data: bytes) -> Iterator[bytes]:
        """The frames that are whole with these bytes.

        Raises:
            ValueError: the other side speaks of a frame that is too long.
        """
        self._data += data
        start, end = 0, _LENGTH.size
        while len(self._data) >= end:
            (length,) = _LENGTH.unpack_from(self._data, start)
            if length > FRAME_BYTES_MAX:
                raise ValueError(
                    f"a frame of {length:,} bytes, at most {FRAME_BYTES_MAX:,} are read"
                )
            if len(self._data) < end + length:
                break
            yield bytes(self._data[end : end + length])
            start, end = end + length, end + length + _LENGTH.size
        del self._data[:start]


@contextmanager
def address_of(folder: Path) -> Iterator[str]:
    """The address of the socket in a folder, for the time of a block.

    Raises:
        SettingsError: the path is too long for an address, and this system has no other way.
        OSError: the folder is not there.
    """
    path = folder.absolute() / SOCKET
    if len(os.fsencode(path)) <= ADDRESS_BYTES_MAX:
        yield str(path)
        return
    if not DESCRIPTORS.is_dir():
        raise SettingsError(
            f"{path}: a socket of this system has at most {ADDRESS_BYTES_MAX} bytes in its path; "
            "choose a folder with a shorter one"
        )
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"{DESCRIPTORS}/{held}/{SOCKET}"
    finally:
        os.close(held)


def waker() -> tuple[int, int]:
    """A pipe that wakes who waits for sockets: its end to read and its end to write."""
    ends = os.pipe()
    for each in ends:
        os.set_blocking(each, False)
    return ends


def reach(folder: Path, patience_s: float) -> socket.socket:
    """A connection to the server of a folder. Raises OSError: there is none."""
    return _at(folder, lambda made, address: made.connect(address), patience_s)


def listen(folder: Path, connections_max: int) -> socket.socket:
    """A socket for connections, in place of one that another process has left behind."""

    def bind(made: socket.socket, address: str) -> None:
        (folder / SOCKET).unlink(missing_ok=True)
        made.bind(address)
        (folder / SOCKET).chmod(0o600)  # before anybody can connect
        made.listen(connections_max)

    return _at(folder, bind, None)


def _at(
    folder: Path, start: Callable[[socket.socket, str], None], patience_s: float | None
) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.settimeout(patience_s)
        with address_of(folder) as address:
            start(made, address)
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made
