"""The window cases of both eras as jobs: an input, a windowed task, and triggers that write.

What fires is compared and not when: the rows of a job have no order. At the end each extent fires,
so that what windows hold is seen too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from tests.conformance.on_spark import functions
from tests.conformance.values import value
from tests.conformance.windowing import (
    SHARDS,
    Call,
    calls,
    differences,
    is_unordered,
    taken,
    trigger_of,
    window_of,
    windows_of,
)

from onyx.model.canonical import to_mapping
from onyx.model.job import CatalogEntry, Job, Trigger, Window
from onyx.model.parsing.job import parse_mapping

FILES = ("window_jobs_0.9.json", "window_jobs_0.10plus.json")
FOLDER = Path(__file__).parents[1] / "cases"
MODULE = functions.__name__
Case = dict[str, Any]


def window_cases() -> dict[str, Case]:
    """All window cases, by a name that has the era."""
    return {
        f"{file.removeprefix('window_jobs_').removesuffix('.json')} {case['id']}": case
        for file in FILES
        for case in json.loads((FOLDER / file).read_text("utf-8"))["cases"]
    }


def job_of(case: Case, path: Path) -> Job:
    """The job of a case.

    Args:
        path: of the file that it reads, which is written here.

    Raises:
        ManifestError: it is refused on either engine.
    """
    lines = [*_lines(case)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    read = CatalogEntry(
        "read", "input", 1, plugin="files", options={"path": str(path), "format": "jsonl"},
        assign_watermark_fn=f"{MODULE}:event_time" if _is_marked(case) else None,
    )  # fmt: skip
    by = case["task_map"].get("onyx/group-by-key")
    fold = CatalogEntry(
        "fold", "reduce", 1, group_by_key=tuple(by) if type(by) is list else by,
        flux_policy=None if by is None else "continue",
    )  # fmt: skip
    windows = [window_of(each, "fold") for each in case["windows"]]
    triggers = [trigger_of(each, index) for index, each in enumerate(case["triggers"])]
    job = Job(
        "case",
        (("read", "decode"), ("decode", "fold"), ("fold", "write")),
        (
            read,
            CatalogEntry("decode", "function", 1, fn=f"{MODULE}:segment"),
            fold,
            CatalogEntry("write", "output", 20, plugin="files", options={"path": "out"}),
        ),
        windows=tuple(map(_stored, windows)),
        triggers=tuple(map(_calling, triggers)),
        guarantee="exactly-once",
    )
    return parse_mapping(to_mapping(job))


def difference(case: Case, rows: Iterable[dict[str, Any]]) -> str | None:
    """How what its job has written differs from what fires on peers."""
    return differences([*map(_call, rows)], on_peers(case), is_unordered(case))


def on_peers(case: Case) -> list[Call]:
    """What fires when the windows of peers take the segments one by one."""
    windows, entry = windows_of(case, assigned=_is_marked(case))
    fired = []
    for step in case.get("steps") or [{"segment": each} for each in case["segments"]]:
        if step.get("event") != "job-completed":
            fired += taken(windows, entry, step)
    return calls(None, [*fired, *chain.from_iterable(windows.complete(range(SHARDS), 0))])


def _call(row: dict[str, Any]) -> Call:
    said = value(row["call"])
    places = (said["group_key"], said["lower_bound"], said["upper_bound"])
    return Call(None, row["trigger"], row["event"], *places, said["state"])


def _lines(case: Case) -> Iterable[dict[str, Any]]:
    for segment in case.get("segments", ()):
        yield {"segment": segment}
    for step in case.get("steps", ()):
        if "segment" in step:
            yield {"segment": step["segment"]}
        elif step["event"] == "watermark":
            yield {"mark": min(step["watermarks"].values())}


def _is_marked(case: Case) -> bool:
    return any("mark" in line for line in _lines(case))


def _stored(window: Window) -> Window:
    strategies = tuple(each for each in window.storage_strategy if each != "extents")
    return replace(window, storage_strategy=strategies or ("incremental",))


def _calling(trigger: Trigger) -> Trigger:
    pred = trigger.pred and f"{MODULE}:{trigger.pred.rpartition(':')[2].replace('-', '_')}"
    keeps = None if "all" in trigger.post_evictor else "accumulating"
    return replace(
        trigger, sync=None, emit=f"{MODULE}:call", pred=pred,
        refinement=trigger.refinement or keeps, state_context=("trigger-state",),
    )  # fmt: skip
