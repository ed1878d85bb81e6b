"""Fixtures of the operator's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.operator.fake_api.server import FakeApi

CRDS = sorted((Path(__file__).parents[2] / "crds").glob("*.yaml"))


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """A fake API server that serves our kinds; see tests/operator/fake_api/server.py."""
    with FakeApi(*CRDS) as server:
        yield server
