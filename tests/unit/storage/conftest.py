"""Every location for files, each empty."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.servers.object_stores import ObjectStore

from onyx.storage.interface import BlobStore, Location, MemoryBlobStore
from onyx.storage.opening import location_of

LOCATIONS = ["folder", "fake_s3", "s3_gateway"]


def opened(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Location:
    """A location of a kind."""
    if kind == "folder":
        return location_of(str(tmp_path / "some" / "location"))
    server = request.getfixturevalue(kind)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return location_of(f"{ObjectStore(server).url}/some/location")


@pytest.fixture(params=["memory", *LOCATIONS])
def blobs(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> BlobStore:
    if request.param == "memory":
        return MemoryBlobStore()
    return opened(request.param, request, tmp_path, monkeypatch)


@pytest.fixture(params=LOCATIONS)
def location(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Location:
    return opened(request.param, request, tmp_path, monkeypatch)
