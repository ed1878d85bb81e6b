"""Cases of `planning.json`: a workflow's graph, and what is submitted for a job."""

from __future__ import annotations

from typing import Any

from onyx.model import workflow


def check(case: dict[str, Any], document: dict[str, Any]) -> str | None:
    """None when we answer as the case says."""
    if case["fn"] == "create_submit_job_entry":
        # Of the scheduling side; imported here, so that the graph's cases run without it.
        from tests.conformance.adapters.planning_submission import check_submission

        return check_submission(case)
    if case["fn"] == "map_set_workflow_to_workflow":
        targets = {task: below["$set"] for task, below in case["input"].items()}
        got: Any = sorted(list(edge) for edge in workflow.edges_of(targets))
        wanted: Any = sorted(case["expected"])
    elif case["fn"] == "discover_tasks":
        got = {
            task: list(below)
            for task, below in workflow.children(map(tuple, case["input"]["workflow"])).items()
        }
        wanted = {task: sorted(below["$set"]) for task, below in case["expected"].items()}
    else:
        return f"no such function: {case['fn']}"
    return None if got == wanted else f"got {got}"
