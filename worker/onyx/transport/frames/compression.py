"""Frames that are smaller on the wire, between machines.

A compressed frame is a message that holds another frame, whole and with its checksum, and says with
which codec: whoever receives needs no setting. Whoever sends uses a codec only if the hello of the
other side names it, and never to a group on the same machine, where bytes cost less than their
compression does.

Whole frames, and not the buffers of columns: the same lines serve dicts, and lineage and small
batches are compressed together. Rejected: gRPC's own compression, which has gzip alone.
"""

from __future__ import annotations

import platform
from hashlib import blake2b
from pathlib import Path

import pyarrow as pa
from google.protobuf.message import DecodeError

from onyx.errors import SettingsError
from onyx.settings import Compression
from onyx.transport.frames.packets import FrameError, Hello
from onyx.wire.v1 import streams_pb2 as pb

COMPRESSED_FROM_BYTES = 1_024
"""Smaller frames are mostly lineage and acks, and fit in one packet of a network anyway."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TAG = bytes([(pb.Frame.COMPRESSED_FIELD_NUMBER << 3) | 2])
CODES: dict[Compression, pb.Codec] = {"lz4": pb.CODEC_LZ4, "zstd": pb.CODEC_ZSTD}
NAMES = {code: name for name, code in CODES.items()}
READ = tuple(name for name in CODES if pa.Codec.is_available(name))
"""The codecs that this process reads."""


def this_machine() -> int:
    """A number that processes of one machine share, in whatever containers they are."""
    try:
        name = BOOT_ID.read_text()
    except OSError:
        name = platform.node()
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


def check_compression(wanted: Compression) -> None:
    """Raises SettingsError when this process has no such codec."""
    if wanted not in ("none", *READ):
        raise SettingsError(
            f"ONYX_TRANSPORT_COMPRESSION={wanted} needs a PyArrow that was built with {wanted}; "
            f"this one has {', '.join(READ) or 'neither lz4 nor zstd'}"
        )


def agreed(wanted: Compression, machine: int, hello: Hello) -> Compression:
    """What frames to the group that has said this hello are compressed with."""
    return wanted if wanted in hello.codecs and machine != hello.machine else "none"


def compressed(frame: bytes, codec: Compression) -> bytes:
    """A frame as it goes over the wire: compressed, if that makes it smaller."""
    if codec == "none" or len(frame) < COMPRESSED_FROM_BYTES:
        return frame
    data = pa.Codec(codec).compress(frame, asbytes=True)
    message = pb.Compressed(codec=CODES[codec], frame_bytes=len(frame), data=data)
    smaller: bytes = pb.Frame(compressed=message).SerializeToString()
    return smaller if len(smaller) < len(frame) else frame


def plain(data: bytes, frame_bytes_max: int) -> bytes:
    """The frame that has come as these bytes. Whether it is whole, its own checksum says: PyArrow
    does not say when lz4 gives fewer bytes than were announced.

    Raises:
        FrameError: they cannot be decompressed, or would be larger than `frame_bytes_max`.
    """
    if data[:1] != _TAG:
        return data
    try:
        message = pb.Frame.FromString(data).compressed
    except (DecodeError, ValueError, RecursionError) as error:
        raise FrameError(f"a frame of {len(data)} bytes is no message: {error}") from error
    name = NAMES.get(message.codec)
    if name not in READ:
        raise FrameError(
            f"a frame is compressed with codec {name or message.codec}, which this process does "
            "not have: set ONYX_TRANSPORT_COMPRESSION=none for those that send, or run the same "
            "version of Onyx on all workers"
        )
    if message.frame_bytes > frame_bytes_max:
        raise FrameError(
            f"a compressed frame has {message.frame_bytes} bytes; at most {frame_bytes_max} are "
            "allowed"
        )
    try:
        found: bytes = pa.Codec(name).decompress(message.data, message.frame_bytes, asbytes=True)
    except (pa.ArrowException, OSError) as error:
        raise FrameError(f"a compressed frame is damaged: {error}") from error
    return found
