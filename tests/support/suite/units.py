"""Which tests of `make test` one process runs, one after the other, while several processes run.

A file is one unit: what its tests share is made once. So are all files about Spark, and all about
Kafka, because a process keeps their JVM for all its tests, and each takes some 12 CPU s to start.
Units begin in the order of their names: those with servers come before the many short ones of
`tests/unit`, which fill the end.

The rest of the tests has an hour of Spark, which one process alone would end last. There processes
take tests from each other (`--dist worksteal`).
"""

from __future__ import annotations

import pytest
from tests.support.suite.tiers import tier_of
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

WITH_A_JVM = ("spark", "kafka")


def unit_of(file: str) -> str:
    """The unit that a file of tests belongs to."""
    return next((each for each in WITH_A_JVM if each in file), file)


class UnitScheduling(LoadScopeScheduling):
    """Gives each process unit after unit."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid.partition("::")[0])


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> UnitScheduling | None:
    if tier_of(config) != "short":
        return None
    config.option.loadscopereorder = False  # it would begin with the many short ones
    return UnitScheduling(config, log)
