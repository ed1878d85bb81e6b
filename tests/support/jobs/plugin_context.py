"""A plugin's context for tests, with everything overridable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import pyarrow as pa
from tests.support.clocks import ManualClock

from onyx.base.seams import Clock
from onyx.errors import NameNotRegistered
from onyx.ids import GroupId, JobId, PeerId, Slot, TaskName
from onyx.plugins.protocol import PluginContext
from onyx.rights import EVERYTHING, Rights


def plugin_context(
    options: Mapping[str, Any],
    *,
    functions: Mapping[str, Callable[..., Any]] | None = None,
    clock: Clock | None = None,
    permitted: Callable[[], bool] = lambda: True,
    incarnation: str = "incarnation-1",
    slot: int = 0,
    task: str = "work",
    job: str = "job-1",
    data_dir: str = "",
    batch_format: Literal["dicts", "arrow"] = "dicts",
    schema: pa.Schema | None = None,
    rights: Rights = EVERYTHING,
    answers: bool = False,
    upgrades: JobId | None = None,
) -> PluginContext:
    known = functions or {}

    def resolve(name: str) -> Callable[..., Any]:
        if name not in known:
            raise NameNotRegistered(name)
        return known[name]

    return PluginContext(
        job=JobId(job),
        job_name="flights",
        task=TaskName(task),
        peer=PeerId(f"{incarnation}-peer"),
        slot=Slot(slot),
        incarnation=GroupId(incarnation),
        options=options,
        batch_size=100,
        clock=clock or ManualClock(),
        resolve=resolve,
        permitted=permitted,
        rights=rights,
        data_dir=data_dir,
        batch_format=batch_format,
        schema=schema,
        answers=answers,
        upgrades=upgrades,
    )
