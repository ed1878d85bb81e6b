"""Spark children that serve several tests: each JVM takes seconds of CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from onyx.spark.child.environment import inherited
from onyx.spark.child.request import StageRequest, StageRunner, Watch
from onyx.spark.child.runner import ChildKeeper, run_in_child


@contextmanager
def warm_children() -> Iterator[StageRunner]:
    """Runs stages in the child of the run before, if that ended well."""
    keeper = ChildKeeper()

    def run(request: StageRequest, timeout_s: float, watch: Watch) -> None:
        run_in_child(request, timeout_s, watch, keeper)

    try:
        yield run
    finally:
        keeper.end()


def of_any_test() -> dict[str, str]:
    """What a child takes over from this process, whichever test runs."""
    return {name: value for name, value in inherited().items() if name != "PYTEST_CURRENT_TEST"}
