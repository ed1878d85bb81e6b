"""One ZooKeeper server for the whole session of tests, started when the first test asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import pytest

from onyx.log.server import ZooKeeperServer

hypothesis.settings.register_profile("onyx", deadline=None)
hypothesis.settings.load_profile("onyx")


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A running server shared by all tests: use a tenancy of your own and do not stop it."""
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server
