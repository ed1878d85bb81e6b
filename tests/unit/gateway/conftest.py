"""Requests that a test answers."""

from __future__ import annotations

import pytest
from tests.support.servers.fake_requests import FakeRequests


@pytest.fixture
def requests() -> FakeRequests:
    return FakeRequests()
