"""The cases that are whole jobs, with files in the place of channels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.conformance.adapters.integration_jobs import MODULE, in_order, segments_of, spec_of
from tests.conformance.on_spark import functions
from tests.conformance.on_spark.merged import Rows

from onyx.errors import UserError
from onyx.model.job import Job
from onyx.model.parsing.job import parse_manifest

FILE = Path(__file__).parents[1] / "jobs" / "integration_jobs.json"
MODULES = (MODULE, functions.__name__)
NO_JOB = ("steps", "n_groups", "jobs")
"""Keys of cases about peers and the log."""
Case = dict[str, Any]


def whole_jobs() -> dict[str, Case]:
    """All cases."""
    return {each["id"]: each for each in json.loads(FILE.read_text("utf-8"))["cases"]}


def job_of(case: Case, folder: Path) -> Job:
    """The job of a case; its inputs are written to a folder.

    Raises:
        ManifestError: it is refused on either engine.
        UserError: the case is not about what a job does.
    """
    if any(key in case for key in NO_JOB):
        raise UserError("the case runs no job of its own")
    spec = spec_of(case)
    given = case.get("peer_config", {}).get("onyx.peer/fn-params", {})
    for entry in spec["catalog"]:
        _fill(entry, case, folder, given.get(entry["name"], []))
    for trigger in spec.get("triggers", ()):
        del trigger["sync"]
        trigger["emit"] = f"{functions.__name__}:call"
    head = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "case"}}
    return parse_manifest(json.dumps({**head, "spec": spec}).encode())


def difference(case: Case, rows: Rows) -> str | None:
    """How what its job has written differs from what the case expects."""
    expected = case["expected"]
    for task, wanted in expected.get("outputs", {"out": expected.get("recorded")}).items():
        got = [each for each in rows[task] if "call" not in each]
        if in_order(got, expected["compare"]) != in_order(segments_of(wanted), expected["compare"]):
            return f"{task} got {got[:20]}"
    said = [each for task in rows.values() for each in task if "call" in each]
    for windows in expected.get("window_contents", {}).values():
        for extents in windows.values():
            last = [each["call"] for each in said if each["event"] == "job-completed"]
            held = [functions.state(each) for each in last]
            if held != [*extents.values()]:
                return f"windows hold {held}"
    return None


def _fill(entry: dict[str, Any], case: Case, folder: Path, params: list[Any]) -> None:
    options = entry.setdefault("options", {})
    if entry["type"] == "input":
        path = folder / f"{case['id']}-{entry['name']}.jsonl"
        segments = segments_of(case["inputs"][entry["name"]])
        path.write_text("".join(json.dumps(each) + "\n" for each in segments))
        entry["plugin"] = "files"
        options |= {"path": str(path), "format": "jsonl"}
    elif entry["type"] == "output":
        entry["plugin"] = "files"
        options["path"] = "out"
    if params:  # which a worker has from its settings, before those of the job
        entry["params"] = ["given", *entry.get("params", [])]
        (options["given"],) = params
