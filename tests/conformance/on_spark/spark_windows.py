"""The window cases with `engine: spark` on their windows, and a trigger that Spark can have.

Most cases count segments, which only peers do. So a case whose triggers are refused is run with
timers in their place that never fire before the end: what the windows hold then is the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from tests.conformance.on_spark import functions
from tests.conformance.on_spark.windows import Case, job_of
from tests.conformance.values import value
from tests.conformance.windowing import Call, calls, differences, groups_of, is_unordered
from tests.support.spark.windows import Peer, by_spark

from onyx.errors import ManifestError
from onyx.model.canonical import to_mapping
from onyx.model.job import Job, Trigger
from onyx.model.parsing.job import parse_mapping
from onyx.windows.compile import compile_windows
from onyx.windows.firing import Firing
from onyx.windows.task_windows import TaskWindows

SHARD = 0


def difference(case: Case, folder: Path) -> str | None:
    """How what fires by Spark differs from what fires on peers, or why it is refused.

    Raises:
        ManifestError: it is refused on either engine.
    """
    job = job_of(case, folder / "case.jsonl")
    try:
        made = _by_spark(job)
    except ManifestError:
        job = replace(job, triggers=tuple(map(_at_the_end, job.triggers)))
        try:
            made = _by_spark(job)
        except ManifestError as error:
            return str(error)
    found = _run(case, Peer(_windows(made, by_spark(folder)), [SHARD]), made)
    wanted = _run(case, Peer(_windows(job, None), [SHARD]), job)
    assert wanted, "something fires at the end"
    return differences(found, wanted, is_unordered(case))


def _by_spark(job: Job) -> Job:
    windows = tuple(replace(each, engine="spark") for each in job.windows)
    return parse_mapping(to_mapping(replace(job, windows=windows)))


def _at_the_end(trigger: Trigger) -> Trigger:
    return Trigger(
        trigger.window_id, "timer", trigger.id, trigger.refinement, emit=trigger.emit,
        period=(365, "days"), post_evictor=trigger.post_evictor,
    )  # fmt: skip


def _windows(job: Job, make: Any) -> TaskWindows:
    compiled = compile_windows(job, "fold", lambda name: getattr(functions, name.split(":")[1]))
    assert compiled is not None
    return TaskWindows(compiled, lambda group: SHARD, make_elsewhere=make)


def _run(case: Case, peer: Peer, job: Job) -> list[Call]:
    fired: list[Firing] = []
    for step in case.get("steps") or [{"segment": each} for each in case["segments"]]:
        if "segment" in step:
            segment = value(step["segment"])
            groups = groups_of(job.entry("fold"), [segment])
            fired += peer.windows.add([segment], groups, 0).firings
            peer.chunk()
        elif step["event"] == "watermark":
            fired += peer.fired(peer.windows.advance(min(step["watermarks"].values())))
    fired += peer.fired(peer.windows.complete([SHARD], 0))
    return calls(None, _flat(fired))


def _flat(fired: Iterable[Any]) -> list[Firing]:
    return [*chain.from_iterable([each] if isinstance(each, Firing) else each for each in fired)]
