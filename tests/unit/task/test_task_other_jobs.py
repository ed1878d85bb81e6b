"""What an input hears of the output of another job that it cannot follow."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.log.memory_log import MemoryLog

from onyx.client.client import Client
from onyx.errors import UserError
from onyx.model.parsing.job import parse_mapping
from onyx.settings import Settings
from onyx.task.other_jobs import output_of
from onyx.task.services import Services

TAKE = {"name": "take", "type": "input", "plugin": "requests"}
KEEP = {"name": "keep", "type": "output", "plugin": "files", "options": {"path": "/lake"}}
SHOW = {"name": "show", "type": "output", "plugin": "stdout"}
SUM = {"name": "sum", "type": "reduce"}
WINDOW = {"id": "w", "task": "sum", "type": "global", "aggregation": "count"}
TRIGGER = {"windowId": "w", "type": "segment", "threshold": [1, "element"],
           "refinement": "accumulating", "sync": "m:f"}  # fmt: skip


def services_of(*ends: dict[str, Any], **more: Any) -> Services:
    """A cluster with the job `orders`, which takes requests and has these ends."""
    client = Client(MemoryLog().client(), "balanced")
    spec = {
        "guarantee": "at-most-once",
        "workflow": [["take", each["name"]] for each in ends],
        "catalog": [TAKE, *ends],
        **more,
    }
    header = {"apiVersion": "onyx.dev/v1alpha1", "kind": "OnyxJob", "metadata": {"name": "orders"}}
    client.submit(parse_mapping({**header, "spec": spec}))
    found = SimpleNamespace(replica=client.replica, log=client.log, settings=Settings())
    return cast("Services", found)


def test_an_output_of_files_is_followed_where_it_writes() -> None:
    (path,) = output_of(services_of(KEEP), "orders", "keep", ()).paths.values()
    assert path == "/lake"


@pytest.mark.parametrize(
    ("ends", "task", "why"),
    [
        ([KEEP], "take", "that task is none; have the job write to an output 'files'"),
        ([KEEP], "kep", "did you mean keep"),
        ([KEEP, SHOW], "other", "its outputs are keep or show"),
        ([KEEP, SHOW], "show", "only outputs 'files' can be followed"),
        ([SUM], "take", "it has no outputs"),
    ],
)
def test_what_cannot_be_followed_is_refused_with_what_can(
    ends: list[dict[str, Any]], task: str, why: str
) -> None:
    windows = {"windows": [WINDOW], "triggers": [TRIGGER]} if SUM in ends else {}
    with pytest.raises(UserError, match=why):
        output_of(services_of(*ends, **windows), "orders", task, ())
