"""Fixtures of the operator's tests."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from tests.operator.declaring import FAST
from tests.operator.fake_api.server import CRDS, FakeApi
from tests.operator.harness import Logs, Operator, cluster
from tests.operator.workers import Workers


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """A fake API server that serves our kinds; see tests/operator/fake_api/server.py."""
    with FakeApi(*CRDS) as server:
        yield server


@pytest.fixture
def logs() -> Logs:
    return Logs()


@pytest.fixture
def workers(logs: Logs) -> Iterator[Workers]:
    with Workers(logs.log()) as group:
        yield group


@pytest.fixture
def operator(api: FakeApi, logs: Logs) -> Iterator[Operator]:
    api.create(cluster())
    with Operator(api, logs.connect, FAST) as running:
        yield running


@pytest.fixture
def leftovers_collected() -> Iterator[None]:
    """Collect what a killed operator left behind while its own test still answers for it: the next
    one to be blamed would be whichever runs when the collector does."""
    yield
    gc.collect()
