"""Keys of declaration: parsed beside the job, never part of it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from onyx.errors import ManifestError
from onyx.model.declaration import Declaration, FailurePolicy, JobRef
from onyx.model.job import Upgrade
from onyx.model.parsing.job import job_hash, parse_declared, parse_mapping, to_mapping
from onyx.upgrade.plan import drop_unused_upgrade, upgrading

SPEC: dict[str, Any] = {
    "workflow": [["read", "write"]],
    "catalog": [
        {"name": "read", "type": "input", "plugin": "generator", "batchSize": 10},
        {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 10},
    ],
}
DECLARED: dict[str, Any] = {
    "desiredState": "Suspended",
    "restartNonce": 3,
    "ttlSecondsAfterFinished": 60,
    "failurePolicy": {"retries": 2},
    "clusterRef": "blue",
    "upgradePolicy": "KeepState",
}


def manifest(spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "job"},
        "spec": spec,
    }


def problems(spec: dict[str, Any]) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        parse_declared(manifest(spec))
    return [str(problem) for problem in caught.value.problems]


def test_the_declaration_is_read_with_its_defaults() -> None:
    assert parse_declared(manifest(SPEC))[0] == Declaration()
    assert parse_declared(manifest(SPEC | DECLARED))[0] == Declaration(
        "Suspended", 3, "KeepState", 60, FailurePolicy(2, 10), "blue"
    )


def test_the_declaration_is_no_part_of_the_job() -> None:
    plain, declared = (parse_mapping(manifest(spec)) for spec in (SPEC, SPEC | DECLARED))
    assert declared == plain
    assert job_hash(declared) == job_hash(plain)
    assert not set(to_mapping(declared)["spec"]) & set(DECLARED)


def test_a_reference_stands_in_place_of_the_job() -> None:
    declaration, job = parse_declared(manifest({"jobRef": {"configMap": "big"}, **DECLARED}))
    assert declaration.job_ref == JobRef("big", "job.yaml")
    assert job is None


def test_defaults_that_the_api_server_fills_in_do_not_contradict_a_reference() -> None:
    filled = {"taskScheduler": "balanced", "guarantee": "at-least-once", "ackerPercentage": 1}
    assert parse_declared(manifest({"jobRef": {"configMap": "big"}, **filled}))[1] is None


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, ["spec.catalog: is missing ("]),
        (
            {"jobRef": {"configMap": "big"}, "workflow": [["a", "b"]]},
            ["spec.workflow: is given together with jobRef"],
        ),
        ({"jobRef": {}}, ["spec.jobRef.configMap: is missing"]),
        (SPEC | {"desiredState": "Paused"}, ["spec.desiredState: is"]),
        (SPEC | {"restartNonce": True}, ["spec.restartNonce: is true"]),
        (SPEC | {"ttlSecondsAfterFinished": -1}, ["spec.ttlSecondsAfterFinished: is"]),
        (SPEC | {"failurePolicy": {"retry": 1}}, ["spec.failurePolicy.retry: is not a key"]),
        (SPEC | {"clusterRef": "Blue"}, ["spec.clusterRef: is"]),
        (
            SPEC | {"upgradePolicy": "KeepState", "guarantee": "at-most-once"},
            ["spec.upgradePolicy: KeepState is not for guarantee at-most-once"],
        ),
        (SPEC | {"upgradePolicy": "Replace"}, ["spec.upgradePolicy: is"]),
        (SPEC | {"desiredStates": "Running"}, ["spec.desiredStates: is not a key of a job"]),
    ],
)
def test_what_is_wrong_is_reported_with_its_path(spec: dict[str, Any], expected: list[str]) -> None:
    shown = problems(spec)
    assert len(shown) == len(expected)
    assert all(message.startswith(start) for message, start in zip(shown, expected, strict=True))


def test_an_upgrade_that_names_no_job_needs_a_policy_that_implies_one() -> None:
    answers = {"upgrade": {"tasks": {"read": "initialize"}}}
    assert problems(SPEC | answers) == [
        "spec.upgrade.from: is missing (give the id of the old job, a savepoint, or "
        "upgradePolicy: KeepState)"
    ]
    found = parse_mapping(manifest(SPEC | answers | {"upgradePolicy": "KeepState"}))
    assert found.upgrade == Upgrade(None, {"read": "initialize"})
    assert drop_unused_upgrade(found).upgrade is None
    point = upgrading(found, "old").upgrade
    assert point == Upgrade("old", {"read": "initialize"})
    assert drop_unused_upgrade(replace(found, upgrade=point)).upgrade == point


def test_commands_that_need_the_job_itself_refuse_a_reference() -> None:
    with pytest.raises(ManifestError, match=r"spec\.jobRef: is for Kubernetes only"):
        parse_mapping(manifest({"jobRef": {"configMap": "big"}}))
