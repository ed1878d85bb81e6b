"""The input `job` over parts in an object store."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest
from msgspec.structs import replace
from tests.support.jobs.plugin_context import plugin_context
from tests.support.servers.object_stores import ObjectStore

from onyx.base.seams import SystemClock
from onyx.plugins.job.input import JobInput
from onyx.plugins.job.options import JobOptions
from onyx.plugins.protocol import START, JobOutput
from onyx.plugins.registry import build_output
from onyx.storage.interface import MemoryBlobStore

READS_MAX = 500


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_parts_in_a_bucket_are_read_as_they_are_published(store: ObjectStore, form: str) -> None:
    state, blobs, woken = ["runs"], MemoryBlobStore(), threading.Event()
    options = {"path": f"{store.url}/out", "format": form, "rollSegments": 2}
    output = build_output("files", plugin_context(options, task="out", job="first"))
    made = plugin_context({}, clock=SystemClock(), job="follower")
    context = replace(
        made,
        journal_of=lambda job, task, known: None,
        output_of=lambda job, task, known: JobOutput({"first": f"{store.url}/out"}, state[0]),  # type: ignore[arg-type]
        durable_store=lambda: blobs,
        wake=woken.set,
    )
    found: list[int] = []
    with closing(
        JobInput(context, JobOptions(job="first", task="out", poll_seconds=0.1))
    ) as plugin:
        plugin.allocate(1)  # type: ignore[arg-type]
        reader = plugin.open("0", START)  # before there is a part
        for first in (0, 5):
            output.write([{"n": n} for n in range(first, first + 5)])
            output.flush()
        output.close()
        state[0] = "completed"
        for _ in range(READS_MAX):
            found += [each["n"] for each in reader.read(3)]
            if reader.exhausted():
                break
            woken.wait(0.05)
            woken.clear()
    assert found == list(range(10))
