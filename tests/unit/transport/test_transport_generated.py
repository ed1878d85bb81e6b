"""The generated protobuf classes are those of the .proto files."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PROTO = Path("onyx/wire/v1/streams.proto")


def test_generated_code_is_not_stale(tmp_path):
    command = [
        sys.executable,
        *("-m", "grpc_tools.protoc", "-I", str(ROOT / "proto")),
        *(f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", str(ROOT / "proto" / PROTO)),
    ]
    subprocess.run(command, check=True, cwd=tmp_path)
    generated = sorted((tmp_path / PROTO).parent.iterdir())
    assert [each.name for each in generated] == ["streams_pb2.py", "streams_pb2.pyi"]
    for each in generated:
        committed = ROOT / "worker" / PROTO.parent / each.name
        assert each.read_text() == committed.read_text(), "run `make generate` and commit"
