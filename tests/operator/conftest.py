"""Fixtures of the operator's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.operator.fake_api.server import CRDS, FakeApi


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """A fake API server that serves our kinds; see tests/operator/fake_api/server.py."""
    with FakeApi(*CRDS) as server:
        yield server
