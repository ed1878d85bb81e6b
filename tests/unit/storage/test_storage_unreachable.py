"""A store that is away is asked again after a pause, however long it has been away."""

from __future__ import annotations

import botocore.endpoint
import pytest

from onyx.errors import Unavailable
from onyx.storage.opening import location_of

TRIES = 60
"""More than the quota of repeated requests that a client of the library may have."""


def test_no_try_is_made_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(botocore.endpoint.time, "sleep", pauses.append)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nobody listens
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "something")
    folder = location_of("s3://bucket/folder")

    waited = []
    for _ in range(TRIES):
        pauses.clear()
        with pytest.raises(Unavailable, match="cannot be reached"):
            folder.list("")
        waited.append(len(pauses))

    assert min(waited) > 0
