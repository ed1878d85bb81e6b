"""Keys that change while a job runs: which, what they hold, and what is wrong is said at once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyx.errors import ManifestError
from onyx.model.canonical import job_hash
from onyx.model.changing import (
    KEYS,
    NOTHING_DECLARED,
    declared,
    differences,
    fingerprint,
    with_options,
    without,
)
from onyx.model.job import Job
from onyx.model.parsing.job import parse_mapping
from onyx.model.parsing.options import read_options


def job(read: dict[str, Any] | None = None, **spec: Any) -> Job:
    catalog = [
        {"name": "read", "type": "input", "plugin": "files", "options": {"path": "in.jsonl"}},
        {"name": "write", "type": "output", "plugin": "files", "options": {"path": "out"}},
    ]
    catalog[0] |= read or {}
    return parse_mapping(
        {
            "apiVersion": "onyx.dev/v1beta1",
            "kind": "OnyxJob",
            "metadata": {"name": "hello"},
            "spec": {"workflow": [["read", "write"]], "catalog": catalog, **spec},
        }
    )


values = st.dictionaries(st.sampled_from(sorted(KEYS)), st.integers(1, 100_000))


@given(values, values)
def test_manifests_that_differ_in_these_keys_only_are_one_job(
    first: dict[str, int], second: dict[str, int]
) -> None:
    one, other = job(first), job(second)
    assert job_hash(without(one)) == job_hash(without(other))
    assert (fingerprint(one) == fingerprint(other)) == (declared(one) == declared(other))
    assert without(one) == job()


@given(values, values)
def test_what_a_manifest_declares_makes_another_one_work_as_it(
    first: dict[str, int], second: dict[str, int]
) -> None:
    now = with_options(job(first), declared(job(second)), complete=True)
    assert now == job(second)
    assert (differences(job(first), now) == {}) == (now == job(first))


def test_a_manifest_without_them_declares_nothing() -> None:
    assert declared(job()) == {}
    assert fingerprint(job()) == NOTHING_DECLARED
    assert fingerprint(job({"batchTimeout": 0, "pendingTimeout": "60s"})) == NOTHING_DECLARED


def test_on_spark_they_belong_to_the_job_as_others_do() -> None:
    on_spark = job({"batchSize": 9}, engine="spark")
    assert (without(on_spark), fingerprint(on_spark)) == (on_spark, NOTHING_DECLARED)


def test_values_are_read_as_in_a_manifest() -> None:
    given = {"maxPending": 500, "pendingTimeout": "30s", "batchTimeout": "default"}
    expected = {"maxPending": 500, "pendingTimeout": 30_000, "batchTimeout": 0}
    assert read_options(job({"batchTimeout": 5}), "read", given) == expected


@pytest.mark.parametrize(
    ("task", "given", "why"),
    [
        ("reed", {"maxPending": 5}, "reed: is no task of the job (did you mean read?)"),
        ("read", {"minPeers": 2}, "minPeers: cannot change while the job runs (these can: batch"),
        (
            "read",
            {"maxpending": 2},
            "maxpending: is not a key of a catalog entry (did you mean max",
        ),
        ("read", {"maxPending": 0}, "maxPending: is the number 0, but must be an integer of"),
        ("read", {"maxPending": "many"}, 'maxPending: is "many", but must be an integer'),
        ("write", {"maxPending": 5}, "maxPending: is for type input, not for out"),
        ("read", {}, "read: gets no value (give key=value; keys are batchSize"),
    ],
)
def test_what_is_wrong_is_said_at_once(task: str, given: dict[str, Any], why: str) -> None:
    with pytest.raises(ManifestError) as refused:
        read_options(job(), task, given)
    assert str(refused.value).startswith(why)


def test_a_job_on_spark_and_one_that_replays_nothing_refuse_what_they_cannot_do() -> None:
    with pytest.raises(ManifestError, match="engine: is spark: nothing of such a job changes"):
        read_options(job(engine="spark"), "read", {"batchSize": 5})
    with pytest.raises(ManifestError, match="has no effect under guarantee: at-most-once"):
        read_options(job(guarantee="at-most-once"), "read", {"checkpointSegments": 5})
    with pytest.raises(ManifestError, match=r"segmentsPerSecondMax: is not for engine: spark"):
        job({"segmentsPerSecondMax": 5}, engine="spark")
    with pytest.raises(ManifestError, match=r"checkpointSegments: is not for engine: spark"):
        job({"checkpointSegments": 5}, engine="spark")
