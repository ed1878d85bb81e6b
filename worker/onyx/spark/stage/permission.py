"""Whether a worker may publish what its stage has written."""

from __future__ import annotations

from collections.abc import Callable

from onyx.errors import Fenced, Unavailable

PERMISSION_POLL_S = 0.5
PERMISSION_POLLS_MAX = 240
"""A worker that has lost sight of ZooKeeper waits so often before its attempt has failed."""


def wait_until_permitted(
    where: object,
    permitted: Callable[[], bool],
    wanted: Callable[[], bool],
    pause: Callable[[float], None],
) -> None:
    """ZooKeeper may be away for a while; if this peer is replaced meanwhile, its staging goes.

    Raises:
        Fenced: the run is not wanted any more.
        Unavailable: it took too long.
    """
    for _ in range(PERMISSION_POLLS_MAX):
        if not wanted():
            raise fenced()
        if permitted():
            return
        pause(PERMISSION_POLL_S)
    raise Unavailable(f"{where}: this worker may not publish: it has lost sight of ZooKeeper")


def fenced() -> Fenced:
    """What is raised by a run that nobody wants any more."""
    return Fenced("this worker was declared dead, or its task stopped, while its Spark stage ran")
