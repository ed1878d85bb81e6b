"""What the death of a worker process says about segments: reading its flight recorder.

A process that others have ended (SIGKILL, SIGTERM, out of memory) says nothing, and neither does
one that has ended in an orderly way. All other ends are its own: an exit code, or a signal that a
process brings about itself. Then whoever was in user code is to blame: one task with one segment
for certain, several only perhaps; tasks of one job over no segments are all its own. Segments
without positions (at-most-once) do not come again, so they are named in the log and no more.
"""

from __future__ import annotations

import secrets
import signal
from collections.abc import Sequence

import msgspec

from onyx.ids import JobId, TaskName
from onyx.peer.loss_reports import pending
from onyx.replica.commands import ReportLoss
from onyx.telemetry.recorder import LOSSES_BYTES_MAX, Inside, Recorder, runs

RUNS_MAX = 64
"""Runs of positions, of one batch: those that are close are joined."""
BY_ITSELF = frozenset(
    {
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGSEGV,
        signal.SIGSYS,
        signal.SIGTRAP,
    }
)
LIVED_LONG_S = 60.0
"""A process that has lived as long does not die again and again."""
_PARTITION_SHIFT, _POSITION_MASK = 48, (1 << 40) - 1


def by_itself(code: int, recorder: Recorder) -> bool:
    """Whether a process with this exit code (negative: the signal) was ended by its own code."""
    if code < 0:
        return -code in BY_ITSELF
    return recorder.orderly() != code


def reports(deaths: Sequence[Inside], lived_s: float) -> list[ReportLoss]:
    """What to report of user code that was running at one death."""
    made = []
    over_nothing = not any(each.over_segments for each in deaths)
    of_one_job = over_nothing and len({each.job for each in deaths}) == 1
    for each in deaths:
        named = _positions(each.roots)
        if not named and not of_one_job:
            continue
        certain = len(deaths) == 1 and len(each.roots) == 1
        made.append(
            ReportLoss(
                job=JobId(each.job),
                task=TaskName(each.task),
                loss=secrets.token_hex(8),
                runs=tuple(named),
                id=f"{each.id:x}" if certain else "",
                afresh=lived_s >= LIVED_LONG_S,
            )
        )
    return made


def hand_over(recorder: Recorder, lost: Sequence[ReportLoss]) -> None:
    """Leave reports to the next process, beside those that are still there; the newest stay."""
    all_of_them = [*left(recorder), *lost]
    while len(data := msgspec.json.encode(all_of_them)) > LOSSES_BYTES_MAX:
        all_of_them.pop(0)
    recorder.keep(data)


def left(recorder: Recorder) -> list[ReportLoss]:
    """Reports that no process has made yet."""
    return list(pending(recorder))


def described(deaths: Sequence[Inside]) -> str:
    """What was running at a death, in words for the log; empty when nobody was in user code."""
    return "; or ".join(_described(each) for each in deaths)


def _described(each: Inside) -> str:
    where = f"in {each.phase} of task {each.task} of job {each.job}"
    if not each.over_segments:
        return where
    if not each.roots:
        return f"{where}, over segments that are lost (at-most-once)"
    named = _positions(each.roots)
    segments = ", ".join(
        f"partition {partition} position {first}" + (f" to {last}" if last > first else "")
        for partition, first, last in named[:4]
    )
    more = f" and {len(named) - 4} more runs" if len(named) > 4 else ""
    many = "one segment" if len(each.roots) == 1 else f"{len(each.roots)} segments"
    return f"{where}, over {many} ({segments}{more})"


def _positions(roots: Sequence[int]) -> list[tuple[int, int, int]]:
    """Partition, first and last position."""
    by_partition: dict[int, list[int]] = {}
    for root in roots:
        by_partition.setdefault(root >> _PARTITION_SHIFT, []).append(root & _POSITION_MASK)
    each_max = max(1, RUNS_MAX // max(1, len(by_partition)))
    return [
        (partition, first, last)
        for partition, positions in sorted(by_partition.items())[:RUNS_MAX]
        for first, last in runs(positions, each_max)
    ]
