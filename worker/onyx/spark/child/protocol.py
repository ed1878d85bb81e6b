"""What a worker and its Spark child say to each other: a JSON object a line, both ways.

The worker sends `Run` and, while that runs, perhaps `Cancel`. The child answers each `Run` with one
`Ended`, before that says with `Progressed` how far it is, and asks with `Writing` before it writes
what nothing can take back. One run at a time: a second one in the same JVM would share its heap,
and a failure of one would be the other's. Rejected: gRPC, which Spark's own Python processes would
inherit; and pickle.
"""

from __future__ import annotations

from typing import BinaryIO

import msgspec

from onyx.base.structs import prepared
from onyx.errors import Unavailable
from onyx.plugins.protocol import SealProgress
from onyx.spark.child.request import StageRequest

LINE_BYTES_MAX = 67_108_864
"""The size of one message. The longest is a request that names half a million parts."""


@prepared
class Run(msgspec.Struct, frozen=True, tag="run"):
    """Run a stage; the run before has ended."""

    number: int
    """Number of this run in its child."""
    request: StageRequest


@prepared
class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """End a run soon. Nothing happens if it has ended."""

    number: int


@prepared
class Go(msgspec.Struct, frozen=True, tag="go"):
    """The answer to `Writing`: write."""

    number: int


Order = Run | Cancel | Go


class StageFailure(msgspec.Struct, frozen=True):
    """Why a run failed."""

    message: str
    """For the person who wrote the stage, with the lines of the traceback that are theirs."""
    by_user: bool
    """Another run would fail in the same way: the stage, or its data, are wrong."""
    away: bool = True
    """Spark could not run it, and may be able to soon. False: nobody knows whose fault it is."""
    stale: bool = False
    """Nothing of the run has begun: the session that was kept since an earlier one is dead."""


@prepared
class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """A run is over, and nothing of it goes on."""

    number: int
    failure: StageFailure | None = None


@prepared
class Writing(msgspec.Struct, frozen=True, tag="writing"):
    """All is ready for a direct write, which waits for `Go`."""

    number: int


@prepared
class Progressed(msgspec.Struct, frozen=True, tag="progressed"):
    """How far a run is."""

    number: int
    progress: SealProgress


Reply = Ended | Writing | Progressed


def encoded(message: Order | Reply) -> bytes:
    """A message as its line."""
    return msgspec.json.encode(message) + b"\n"


def write_message(stream: BinaryIO, message: Order | Reply) -> None:
    """Raises OSError: the other end is gone."""
    stream.write(encoded(message))
    stream.flush()


def read_line(stream: BinaryIO) -> bytes:
    """The next message, encoded; empty at the end of the stream.

    Raises Unavailable: a line is too long, or the stream ended within one.
    """
    line = stream.readline(LINE_BYTES_MAX + 1)
    if line and not line.endswith(b"\n"):
        raise Unavailable(
            f"a message of the Spark child is cut off, or longer than {LINE_BYTES_MAX} bytes"
        )
    return line
