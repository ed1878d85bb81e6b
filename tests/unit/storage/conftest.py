"""Every place for files, each empty."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.object_stores import ObjectStore

from onyx.storage.interface import BlobStore, Location
from onyx.storage.memory import MemoryBlobStore
from onyx.storage.opening import location

PLACES = ["folder", "fake_s3", "s3_gateway"]


def opened(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Location:
    """A place of a kind."""
    if kind == "folder":
        return location(str(tmp_path / "some" / "place"))
    server = request.getfixturevalue(kind)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return location(f"{ObjectStore(server).url}/some/place")


@pytest.fixture(params=["memory", *PLACES])
def blobs(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> BlobStore:
    if request.param == "memory":
        return MemoryBlobStore()
    return opened(request.param, request, tmp_path, monkeypatch)


@pytest.fixture(params=PLACES)
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Location:
    return opened(request.param, request, tmp_path, monkeypatch)
