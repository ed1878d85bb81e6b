"""The jobs that a simulated cluster is given, and their `submit-job` arguments."""

from __future__ import annotations

import random
from dataclasses import dataclass

from onyx.ids import JobId
from onyx.replica.entry import Command

UNLIMITED = "Infinity"


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

    def submission(self) -> Command:
        return Command(
            "submit-job",
            {
                "id": self.id,
                "digest": f"digest-{self.id}",
                "tasks": list(self.tasks),
                "inputs": list(self.inputs),
                "outputs": list(self.outputs),
                "task-scheduler": self.task_scheduler,
                "saturation": UNLIMITED,
                "task-saturation": {task: self._most(task) for task in self.tasks},
                "min-required-peers": dict.fromkeys(self.tasks, 1),
                "flux-policies": {},
                "required-tags": {},
                "exempt-tasks": [],
                "acker-percentage": 1,
                "acker-exclude-inputs": False,
                "acker-exclude-outputs": False,
            },
        )

    def _most(self, task: str) -> int | str:
        if self.peers_max is None or task not in self.inputs:
            return UNLIMITED
        return self.peers_max


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
