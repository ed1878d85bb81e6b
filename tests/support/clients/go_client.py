"""The client in Go for tests, built once from `requests.proto` and `go/main.go`:
`python -m tests.support.clients.go_client`, which `make clients` does."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cluster import binaries
from tests.cluster.layout import CACHE

PROTO = Path(__file__).parents[3] / "proto"
SOURCE = Path(__file__).parent / "go" / "main.go"
MESSAGES = "onyx/wire/v1/requests.proto"
GENERATORS = ("protoc-gen-go", "protoc-gen-go-grpc")
MODULE = "onyx.test/client"
GRPC, PROTOBUF = "v1.79.3", "v1.36.11"
BUILD_TIMEOUT_S = 900.0
_MODULE_FILE = f"""module {MODULE}

go 1.24.0

require (
\tgoogle.golang.org/grpc {GRPC}
\tgoogle.golang.org/protobuf {PROTOBUF}
)
"""


def program() -> Path:
    """The client. Skips the test when it has not been built."""
    if not _target().exists():
        pytest.skip("the client in Go has not been built: make clients")
    return _target()


def build() -> None:
    """Build it, unless the same is there. Raises CalledProcessError, ClusterError."""
    target = _target()
    if target.exists():
        return
    binaries.build(GENERATORS)
    folder = target.parent / "src"
    (folder / "wire").mkdir(parents=True, exist_ok=True)
    (folder / "go.mod").write_text(_MODULE_FILE)
    shutil.copy(SOURCE, folder / "main.go")
    options = [f"M{MESSAGES}={MODULE}/wire", f"module={MODULE}"]
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(PROTO)]
    for name in GENERATORS:
        kind = name.removeprefix("protoc-gen-")
        command += [f"--plugin={name}={binaries.program(name)}", f"--{kind}_out={folder}"]
        command += [f"--{kind}_opt={each}" for each in options]
    _run([*command, MESSAGES], folder)
    _run(["go", "mod", "tidy"], folder)
    unfinished = target.with_suffix(".unfinished")
    _run(["go", "build", "-o", str(unfinished), "."], folder)
    unfinished.rename(target)


def _target() -> Path:
    """By what it is made of, so that a change of the protocol builds another one."""
    content = (PROTO / MESSAGES).read_bytes() + SOURCE.read_bytes() + _MODULE_FILE.encode()
    return CACHE / f"go-client-{hashlib.sha256(content).hexdigest()[:12]}" / "client"


def _run(command: list[str], folder: Path) -> None:
    environment = {**os.environ, "CGO_ENABLED": "0"}
    subprocess.run(command, cwd=folder, check=True, timeout=BUILD_TIMEOUT_S, env=environment)


if __name__ == "__main__":
    build()
