"""How a worker process has died is found out from its exit code and from what the kernel counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.clocks import ManualClock

from onyx.errors import OutOfMemory
from onyx.ids import JobId, TaskName
from onyx.processes.ends import ExitCode, exit_code_of
from onyx.processes.exit_examiner import OTHERS_AFTER_S, DeathWatch
from onyx.reports.deaths import DeathCause
from onyx.settings import SupervisorSettings
from onyx.telemetry.container import ContainerMemory
from onyx.telemetry.recorder import Inside

MIB = 1 << 20
KILL, SEGV = -9, -11


class Container:
    """A kernel that counts, and a supervisor's watch."""

    def __init__(self, root: Path, counts: str = "container", **settings: float) -> None:
        self._file = root / "sys/fs/cgroup/memory.events"
        if counts == "machine":
            self._file = root / "proc/vmstat"
        self.clock = ManualClock(1_000.0)
        for path, text in (
            ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n"),
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/memory.max", f"{512 * MIB}\n"),
        ):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        self._kills = 5
        self.kernel_kills(0) if counts != "nobody" else None
        found = SupervisorSettings(**settings)  # type: ignore[arg-type]
        self.watch = DeathWatch(ContainerMemory(root), self.clock, found, "pod-0")

    def kernel_kills(self, count: int = 1) -> None:
        self._kills += count
        self._file.write_text(f"oom_kill {self._kills}\n")

    def dies(self, code: int = KILL, *roots: int) -> DeathCause:
        inside = [over(*roots)] if roots else []
        return self.watch.died(0, code, 100 * MIB, inside).cause


def over(*roots: int) -> Inside:
    return Inside(JobId("j"), TaskName("eat"), "apply-fn", True, roots, 0)


def test_a_kill_that_the_kernel_counts_is_for_want_of_memory(tmp_path: Path) -> None:
    container = Container(tmp_path)
    assert container.dies() is DeathCause.SIGNAL
    container.kernel_kills()
    death = container.watch.died(1, KILL, 498 * MIB, [over(7)], [JobId("j"), JobId("k")])
    assert death.inside == (
        "in apply-fn of task eat of job j, over one segment (partition 0 of the job at position 7)"
    )
    assert (death.jobs, death.blamed) == (("j", "k"), ("j",))
    assert (death.cause, death.process, death.limit_bytes) == (DeathCause.MEMORY, 1, 512 * MIB)
    assert container.watch.explained(death) == (
        "SIGKILL: the kernel killed it because this container with a limit of 512 MiB was out of "
        "memory (it held 498 MiB of memory at most)"
    )
    assert container.dies() is DeathCause.SIGNAL, "one kill explains one death"


@pytest.mark.parametrize(("code", "words"), [(SEGV, "SIGSEGV"), (3, "code 3"), (-77, "signal 77")])
def test_other_ends_are_named_with_the_memory_that_was_held(
    tmp_path: Path, code: int, words: str
) -> None:
    container = Container(tmp_path)
    container.kernel_kills()
    death = container.watch.died(0, code, 40 * MIB)
    assert death.cause is not DeathCause.MEMORY
    assert container.watch.explained(death) == f"{words} (it held 40 MiB of memory at most)"
    assert container.dies() is DeathCause.MEMORY, "the kill was of somebody else"


@pytest.mark.parametrize(
    ("counts", "cause"), [("machine", DeathCause.MEMORY), ("nobody", DeathCause.SIGNAL)]
)
def test_without_a_container_the_machine_counts_if_anybody_does(
    tmp_path: Path, counts: str, cause: DeathCause
) -> None:
    container = Container(tmp_path, counts)
    if counts == "machine":
        container.kernel_kills()
    death = container.watch.died(0, KILL, 40 * MIB)
    assert death.cause is cause
    said = container.watch.explained(death)
    assert ("this machine was out of memory" in said) is (cause is DeathCause.MEMORY)
    assert "40 MiB" in said


def test_a_kill_of_another_process_of_the_container_is_told_after_a_while(tmp_path: Path) -> None:
    container = Container(tmp_path)
    container.kernel_kills(2)
    assert container.watch.others() == []
    assert container.dies() is DeathCause.MEMORY
    container.clock.advance(OTHERS_AFTER_S)
    (death,) = container.watch.others()
    assert (death.process, death.cause) == (-1, DeathCause.MEMORY)
    assert container.watch.others() == []
    assert container.dies() is DeathCause.SIGNAL


def test_kills_of_others_on_the_machine_are_not_ours(tmp_path: Path) -> None:
    container = Container(tmp_path, "machine")
    container.kernel_kills()
    container.watch.others()
    container.clock.advance(OTHERS_AFTER_S)
    assert container.watch.others() == []
    assert container.dies() is DeathCause.SIGNAL


@pytest.mark.parametrize(
    ("settings", "every_s", "kills", "ends"),
    [
        ({}, 0.0, 2, False),
        ({}, 0.0, 3, True),
        ({}, 299.0, 3, True),
        ({}, 301.0, 9, False),
        ({"memory_kills_max": 1}, 0.0, 1, True),
        ({"memory_kills_max": 0}, 0.0, 50, False),
        ({"memory_kills_max": 5, "memory_kills_within_s": 10.0}, 2.4, 5, True),
    ],
)
def test_repeated_kills_within_a_time_end_the_supervisor(
    tmp_path: Path, settings: dict[str, float], every_s: float, kills: int, ends: bool
) -> None:
    container = Container(tmp_path, **settings)
    for number in range(kills):
        container.clock.advance(every_s if number else 0.0)
        container.kernel_kills()
        container.dies()
        container.dies(SEGV)
    why = container.watch.too_many()
    assert bool(why) is ends
    if ends:
        assert "512 MiB" in why
        assert exit_code_of(OutOfMemory(why)) is ExitCode.OUT_OF_MEMORY


def test_a_segment_that_takes_all_memory_does_not_end_the_supervisor(tmp_path: Path) -> None:
    container = Container(tmp_path)
    for roots in [(5, 6, 7), (7,), (7,), (7,)]:
        container.kernel_kills()
        assert container.dies(KILL, *roots) is DeathCause.MEMORY
    assert not container.watch.too_many()
    for _ in range(2):
        container.kernel_kills()
        container.dies(KILL, 8, 9)
    assert container.watch.too_many(), "batches that take it all are too many"
