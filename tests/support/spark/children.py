"""Spark children that serve several tests: each JVM takes seconds of CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from onyx.spark.child.environment import inherited
from onyx.spark.child.keeper import Keeper
from onyx.spark.child.request import StageRequest, StageRunner, Watch
from onyx.spark.child.runner import run_in_child


@contextmanager
def warm_children() -> Iterator[StageRunner]:
    """Runs stages in the child of the run before, if that ended well.

    A child serves only requests of the environment that it began with, and pytest keeps the name of
    the test that runs in a variable.
    """
    keeper = Keeper()

    def run(request: StageRequest, timeout_s: float, watch: Watch) -> None:
        run_in_child(request, timeout_s, watch, keeper)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onyx.spark.child.keeper.inherited", _of_any_test)
        try:
            yield run
        finally:
            keeper.end()


def _of_any_test() -> dict[str, str]:
    return {name: value for name, value in inherited().items() if name != "PYTEST_CURRENT_TEST"}
