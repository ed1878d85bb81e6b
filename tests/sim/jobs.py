"""The jobs that a simulated cluster is given, and their submissions."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.support.log.submissions import submit_job

from onyx.ids import JobId
from onyx.replica.commands import SubmitJob


@dataclass(frozen=True, slots=True)
class SimJob:
    """A chain of tasks: one input, functions, one or two outputs."""

    id: JobId
    inputs: tuple[str, ...]
    functions: tuple[str, ...]
    outputs: tuple[str, ...]
    partitions: int
    """Of each input task; 0 for an endless job."""
    peers_max: int | None
    task_scheduler: str = "balanced"

    @property
    def tasks(self) -> tuple[str, ...]:
        return self.inputs + self.functions + self.outputs

    @property
    def finite(self) -> bool:
        return self.partitions > 0

    def submission(self) -> SubmitJob:
        """The command that submits it."""
        return submit_job(
            self.id,
            self.tasks,
            digest=f"digest-{self.id}",
            inputs=self.inputs,
            outputs=self.outputs,
            task_scheduler=self.task_scheduler,
            task_saturation=dict.fromkeys(self.inputs, self.peers_max),
            acker_percentage=1,
        )


def draw_job(number: int, choice: random.Random) -> SimJob:
    outputs = 1 + (choice.random() < 0.3)
    return SimJob(
        id=JobId(f"job-{number}"),
        inputs=("in",),
        functions=("work",) if choice.random() < 0.7 else (),
        outputs=tuple(f"out{index}" for index in range(outputs)),
        partitions=0 if choice.random() < 0.2 else choice.randint(1, 4),
        peers_max=choice.choice((None, 1, 2)),
        task_scheduler="colocated" if choice.random() < 0.2 else "balanced",
    )
