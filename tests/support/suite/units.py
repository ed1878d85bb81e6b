"""Which tests of `make test` one process runs, one after the other, while several processes run.

A file is one unit: what its tests share is made once. So are all files about Spark, and all about
Kafka, because a process keeps their JVM for all its tests, and each takes some 12 CPU s to start.
Units begin in the order of their names: those with servers come before the many short ones of
`tests/unit`, which fill the end.

The rest of the tests has an hour of Spark, which one process alone would end last. There processes
take tests from each other (`--dist worksteal`).

Most tests take a millisecond, and to say that one begins, what came of its three steps and that it
has ended took two. So a process says of a test that passed only what came of its call.
"""

from __future__ import annotations

import os

import pytest
from _pytest.runner import runtestprotocol
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

    def _pending_of(self, workload: dict[str, dict[str, bool]]) -> int:
        """Of what a process was given, how many tests it has not ended. It ends units in their
        order, so that only the last are looked at, after each test."""
        pending = 0
        for unit in reversed(workload.values()):
            of_unit = list(unit.values()).count(False)
            if not of_unit:
                break
            pending += of_unit
        return pending


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> UnitScheduling | None:
    if tier_of(config) != "short":
        return None
    config.option.loadscopereorder = False  # it would begin with the many short ones
    return UnitScheduling(config, log)


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """In a process that runs tests for another one, which counts what each step has cost."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return None
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    if len(reports) == 3 and all(report.passed for report in reports):
        setup, call, teardown = reports
        call.user_properties += [*setup.user_properties, *teardown.user_properties]
        reports = [call]
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    return True
