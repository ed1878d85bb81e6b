"""A worker without peers that says of every job that is checked what the test wants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.support.log.memory_log import MemoryLog

from onyx.ids import GroupId, Position
from onyx.log.interface import Origin
from onyx.replica.command import Entry
from onyx.replica.commands import CheckJob, PrepareJoinCluster, VouchJob


@contextmanager
def voucher(
    log: MemoryLog, problems: Sequence[str] | None = (), name: str = "voucher"
) -> Iterator[None]:
    """A member of the cluster; `problems`: None answers nothing."""
    group = GroupId(name)
    mine = log.group(group)

    def read(item: Entry | Origin) -> None:
        if problems is None or not isinstance(item, Entry):
            return
        if isinstance(item.command, CheckJob):
            vouch = VouchJob(id=item.command.id, group=group, problems=tuple(problems))
            mine.append([vouch])

    mine.register_pulse()
    mine.append([PrepareJoinCluster(joiner=group)])
    unsubscribe = mine.subscribe(Position(-1), read)
    try:
        yield
    finally:
        unsubscribe()
        mine.close()
