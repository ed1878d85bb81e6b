"""Group keys are read once in a process, where segments come from; hooks make them be read anew."""

from collections import Counter

import pyarrow as pa
import pytest
from tests.support.jobs.bench import Bench

WORDS = ["a", "b", "a", "c", "a", "b"]


def job(count=None, **spec):
    """read -> count -> write: words counted by what a function makes of them."""
    return {
        "guarantee": "exactly-once",
        "workflow": [["read", "count"], ["count", "write"]],
        "catalog": [
            {
                "name": "read",
                "type": "input",
                "plugin": "sequence",
                "options": {"segments": [{"word": word} for word in WORDS]},
            },
            {
                "name": "count",
                "type": "reduce",
                "nPeers": 1,
                "fluxPolicy": "recover",
                **(count or {}),
            },
            {"name": "write", "type": "output", "plugin": "blackhole"},
        ],
        "windows": [{"id": "words", "task": "count", "type": "global", "aggregation": "count"}],
        "triggers": [
            {
                "windowId": "words",
                "id": "end",
                "type": "watermark",
                "refinement": "accumulating",
                "emit": "m:emit",
            }
        ],
        **spec,
    }


def emit(event, window, trigger, state_event, state):
    return {"word": state_event["group_key"], "count": state}


def counted(spec, short_circuit=True, **functions):
    bench = Bench(
        spec, {"m:emit": emit, **{f"m:{k}": f for k, f in functions.items()}},
        short_circuit=short_circuit,
    )  # fmt: skip
    bench.settle()
    return {each["word"]: each["count"] for each in bench.written("write")}


@pytest.mark.parametrize(("short_circuit", "times"), [(True, 1), (False, 2)])
def test_the_users_function_for_keys_is_called_once_in_a_process(short_circuit, times):
    calls = Counter()

    def key(segment):
        calls[segment["word"]] += 1
        return segment["word"].upper()

    found = counted(job({"groupByFn": "m:key"}), short_circuit, key=key)
    assert found == {"A": 3, "B": 2, "C": 1}
    assert calls == {"a": 3 * times, "b": 2 * times, "c": times}


def test_segments_that_a_hook_has_changed_are_in_the_groups_that_they_have_then():
    def all_x(event, lifecycle):
        for segment in event["batch"]:
            segment["word"] = "x"

    found = counted(
        job({"groupByKey": "word"}, lifecycles=[{"task": "count", "calls": "m:hooks"}]),
        hooks=lambda: {"after_read_batch": all_x},
    )
    assert found == {"x": 6}


def test_columns_are_counted_by_the_keys_that_the_sender_found():
    spec = job({"groupByKey": "word", "batchFormat": "arrow"})
    spec["catalog"][0] |= {"fn": "m:same", "batchFormat": "arrow"}
    assert counted(spec, same=lambda batch: pa.record_batch(batch)) == {"a": 3, "b": 2, "c": 1}
