"""Servers and authorities for the whole session of tests, made when the first test asks for one."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import pytest
import trustme

from onyx.log.server import ZooKeeperServer

hypothesis.settings.register_profile("onyx", deadline=None)
hypothesis.settings.load_profile("onyx")


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A running server shared by all tests: use a tenancy of your own and do not stop it."""
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    """Signs the certificates of a cluster."""
    return trustme.CA()


@pytest.fixture(scope="session")
def stranger() -> trustme.CA:
    """Signs certificates that the cluster must not accept."""
    return trustme.CA()
