"""What is attacked: each takes one changed input, and lets it pass or refuses it in words."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from tests.fuzz.http import Gateway
from tests.fuzz.http import seeds as requests
from tests.fuzz.mutating import mutated, mutated_value

from onyx.codec.streams import read_stream
from onyx.errors import ManifestError, OnyxError, SegmentError
from onyx.model.parsing.job import parse_file
from onyx.plugins.files.parquet_reader import ParquetRows
from onyx.requests.content import Refused, payload_of, segments_of
from onyx.requests.request import Form, Payload
from onyx.storage.files import LocalFiles
from onyx.transport.frames import encoder
from onyx.transport.frames.compression import READ, compressed, plain
from onyx.transport.frames.decoder import decode
from onyx.transport.frames.packets import CHECKSUM_BYTES, Credit, FrameError
from onyx.transport.interface import FLUSH, Control, ControlKind
from onyx_operator.admission import server as webhook
from onyx_operator.admission.review import MalformedReview

ROOT = Path(__file__).parents[2]
FRAME_BYTES_MAX = 4_000_000
CONTROLS = (
    FLUSH,
    Control(ControlKind.END, 5, 6),
    Control(ControlKind.WATERMARK, time_ms=-1),
    Control(ControlKind.EPOCH, epoch=3, frontiers=((0, 5), (1, 9))),
)
Attack = Callable[[Random], None]
MIB = 1_048_576


class Target(msgspec.Struct, frozen=True):
    """Something that strangers reach."""

    make: Callable[[], Attack]
    memory_bytes: int
    """The bound that is documented for one input, with what the process needs to judge it."""


def _manifests() -> Attack:
    texts = [each.read_bytes() for each in sorted(ROOT.glob("examples/**/*.yaml"))]
    texts = [each for each in texts if b"kind: OnyxJob" in each and len(each) < 20_000]

    def attack(random: Random) -> None:
        text = random.choice(texts)
        with suppress(ManifestError):
            parse_file(mutated(random, text), "fuzz.yaml")
        request = {"uid": "1", "operation": "CREATE", "object": _changed(random, text)}
        review = {"kind": "AdmissionReview", "request": request}
        review["apiVersion"] = "admission.k8s.io/v1"
        with suppress(MalformedReview, UnicodeEncodeError):
            webhook._judged(msgspec.json.encode(review, enc_hook=str))

    return attack


def _changed(random: Random, text: bytes) -> Any:
    value = next(iter(yaml.safe_load_all(text)))
    for _ in range(random.randint(1, 4)):
        value = mutated_value(random, value)
    return value


def _http() -> Attack:
    gateway, right = Gateway(), requests()
    return lambda random: gateway.attack(random, random.choice(right))


def _segments() -> Attack:
    """Bodies in MessagePack, as clients over gRPC send them."""
    rows = [
        {"n": number, "who": "x" * number, "of": [1.5, None, {"a": b"x"}]} for number in range(9)
    ]
    data = payload_of(rows).data

    def attack(random: Random) -> None:
        with suppress(Refused):
            segments_of(Payload(Form.MSGPACK, mutated(random, data)))

    return attack


def _frames() -> Attack:
    packets = [
        encoder.credit_packet(Credit(1, 5, 10)),
        encoder.close_packet(2),
        encoder.schema_packet(1, pa.schema([("n", pa.int64())])),
        *(encoder.item_packet(1, 1, each) for each in CONTROLS),
    ]
    right = [encoder.frame(1, 0, packets), encoder.frame(1, 0, packets * 20)]
    small = [compressed(frame * 30, codec) for frame in right for codec in READ]

    def attack(random: Random) -> None:
        body = mutated(random, random.choice(right)[:-CHECKSUM_BYTES])
        with suppress(FrameError):
            decode(encoder._sealed([body]), FRAME_BYTES_MAX)
        with suppress(FrameError):
            plain(mutated(random, random.choice(small)), FRAME_BYTES_MAX)

    return attack


def _arrow() -> Attack:
    right = _streams()

    def attack(random: Random) -> None:
        data = mutated(random, random.choice(right))
        with suppress(SegmentError):
            read_stream(data)
        with suppress(Refused):
            segments_of(Payload(Form.ARROW, data))

    return attack


def _streams() -> list[bytes]:
    found = []
    for table in _tables():
        for compression in (None, "zstd"):
            sink = pa.BufferOutputStream()
            options = pa.ipc.IpcWriteOptions(compression=compression)
            with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
                writer.write_table(table)
            found.append(sink.getvalue().to_pybytes())
    return found


def _tables() -> Sequence[pa.Table]:
    texts = pa.array([None, "a", "long " * 50] * 10)
    indices = pa.array(np.arange(30) % 3, pa.int32())
    return [
        pa.table(
            {"n": pa.array(range(30)), "who": texts, "ok": pa.array([True, None, False] * 10)}
        ),
        pa.table({"d": pa.DictionaryArray.from_arrays(indices, ["a", "b", "long " * 50])}),
        pa.table(
            {"l": pa.array([[1, 2], None, []] * 10), "s": pa.array([{"a": 1.5}, None, {}] * 10)}
        ),
    ]


def _parquet() -> Attack:
    folder = tempfile.mkdtemp(prefix="onyx-fuzz-")
    atexit.register(shutil.rmtree, folder)
    path = Path(folder, "fuzz.parquet")
    right = []
    for table in _tables():
        for how in ("none", "zstd", "snappy"):
            pq.write_table(table, path, compression=how)
            right.append(path.read_bytes())

    def attack(random: Random) -> None:
        path.write_bytes(mutated(random, random.choice(right)))
        with suppress(OnyxError), closing(ParquetRows(str(path), 0, LocalFiles())) as rows:
            while rows.next(65_536) is not None:
                pass

    return attack


TARGETS: dict[str, Target] = {
    "manifests": Target(_manifests, 128 * MIB),
    "http": Target(_http, 160 * MIB),
    "segments": Target(_segments, 160 * MIB),
    "frames": Target(_frames, 64 * MIB),
    "arrow": Target(_arrow, 320 * MIB),
    "parquet": Target(_parquet, 384 * MIB),
}
