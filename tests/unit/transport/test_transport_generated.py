"""The generated protobuf classes are those of the .proto files."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDER = Path("onyx/wire/v1")


def test_generated_code_is_not_stale(tmp_path):
    files = sorted((ROOT / "proto" / FOLDER).glob("*.proto"))
    command = [
        sys.executable,
        *("-m", "grpc_tools.protoc", "-I", str(ROOT / "proto")),
        *(f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", *map(str, files)),
    ]
    subprocess.run(command, check=True, cwd=tmp_path)
    made = {each.name: each.read_text() for each in (tmp_path / FOLDER).iterdir()}
    committed = (ROOT / "worker" / FOLDER).glob("*_pb2.py*")
    assert made == {each.name: each.read_text() for each in committed}, (
        "run `make generate` and commit"
    )
    assert len(made) == 2 * len(files)
