"""Deaths of worker processes: what a supervisor reports, and what is said of a job because of them.

A supervisor starts a process again that has died, and then nothing shows that it did: no pod is
restarted, and tasks that begin anew all the time do not stand still for long enough to be reported.
So each supervisor keeps a document beside the log with the last deaths that it has seen. Everybody
who reads it shows those of the last minutes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

import msgspec

from onyx.ids import JobId
from onyx.reports.stalls import instant

SHOWN_S = 600.0
"""For so long a death is shown."""
OFTEN = 2
"""From so many deaths on within that time a job does not merely have had bad luck."""
_MEBIBYTE = 1 << 20


class DeathCause(StrEnum):
    """Why a process has ended, as far as its supervisor knows."""

    MEMORY = "out-of-memory"
    """The kernel has killed it for want of memory."""
    SIGNAL = "signal"
    EXIT = "exit-code"


class Death(msgspec.Struct, frozen=True):
    """One process of a worker that has ended and was not asked to."""

    host: str
    process: int
    """Number within its supervisor; -1: another process in the same container, such as Spark's."""
    at_ms: int
    """When, in milliseconds since 1970, by the clock of its machine."""
    cause: DeathCause
    how: str
    """The signal or exit code, in words."""
    memory_bytes: int = 0
    """Most memory that it held; 0 when that is not known."""
    limit_bytes: int = 0
    """Memory that its container may use; 0 without a limit."""
    inside: str = ""
    """Which user code was running, in words."""
    jobs: tuple[JobId, ...] = ()
    """The jobs whose user code it has run; empty when that is not known."""
    blamed: tuple[JobId, ...] = ()
    """The ones among them in whose user code it died; empty when that is not known."""


def is_recent(death: Death, now_ms: int) -> bool:
    """Whether it is still shown."""
    return now_ms - death.at_ms < SHOWN_S * 1000


def concerning(deaths: Sequence[Death], job: JobId, now_ms: int) -> list[Death]:
    """The deaths of the last minutes that a job may be the cause of, or suffers from, the oldest
    first."""
    found = [
        each for each in deaths if is_recent(each, now_ms) and (not each.jobs or job in each.jobs)
    ]
    return sorted(found, key=lambda each: each.at_ms)


def sentence(deaths: Sequence[Death], job: JobId | None = None) -> str:
    """What is shown of these deaths, in the order of time, of a job or for the whole cluster; empty
    when there are none."""
    if not deaths:
        return ""
    last = deaths[-1]
    counts = Counter(_words(each) for each in deaths)
    shown = ", ".join(f"{count} {words}" for words, count in counts.items())
    where = f"process {last.process} of {last.host}" if last.process >= 0 else last.host
    inside = f", {last.inside}" if last.inside else ""
    found = (
        f"worker processes die: {shown} in the last {SHOWN_S / 60:.0f} minutes, the last one at "
        f"{instant(last.at_ms)} ({where}{memory_words(last)}{inside})"
    )
    if _lacks_memory(deaths, job):
        found += (
            "; give workers more memory (in an OnyxCluster resources.limits.memory), fewer peers, "
            "or their tasks a smaller batchSize"
        )
    return found


def reason(deaths: Sequence[Death], job: JobId | None = None) -> str:
    """Why processes have died, in one word for conditions and events: of a job or of the whole
    cluster."""
    return "OutOfMemory" if _lacks_memory(deaths, job) else "WorkersDie"


def _lacks_memory(deaths: Sequence[Death], job: JobId | None) -> bool:
    """Whether one was for want of memory, and not known to be the doing of other jobs."""
    return any(
        each.cause is DeathCause.MEMORY and (job is None or not each.blamed or job in each.blamed)
        for each in deaths
    )


def memory_words(death: Death) -> str:
    """How much memory it held, and might have."""
    found = ""
    if death.memory_bytes:
        found += f", which held {mebibytes(death.memory_bytes)} at most"
    if death.limit_bytes and death.cause is DeathCause.MEMORY:
        found += f", with a memory limit of {mebibytes(death.limit_bytes)}"
    return found


def mebibytes(size: int) -> str:
    """A number of bytes as text, in MiB."""
    return f"{max(1, round(size / _MEBIBYTE)):,} MiB"


def halts(deaths: Sequence[Death], moved_ms: int) -> bool:
    """Whether a job stands still because of deaths, in the order of time: it has completed nothing
    since before the last ones.

    Args:
        moved_ms: when it completed something last, in milliseconds since 1970.
    """
    return len(deaths) >= OFTEN and moved_ms < deaths[-OFTEN].at_ms


def _words(death: Death) -> str:
    return "for want of memory" if death.cause is DeathCause.MEMORY else f"by {death.how}"
