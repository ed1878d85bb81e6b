"""All stores of chunks, each empty."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.servers.object_stores import ObjectStore

from onyx.state.location import open_store
from onyx.storage.interface import BlobStore, MemoryBlobStore


@pytest.fixture(params=["memory", "directory", "fake_s3", "s3_gateway"])
def chunks(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> BlobStore:
    if request.param == "memory":
        return MemoryBlobStore()
    if request.param == "directory":
        return open_store(str(tmp_path / "state"))
    server = request.getfixturevalue(request.param)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return open_store(f"{ObjectStore(server).url}/some/state")
