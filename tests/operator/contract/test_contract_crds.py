"""Contract of an API server with our own kinds: it takes them, our examples, and no mistakes.

Only a real server knows for sure whether a schema is structural and whether its rules stay within
the cost that it allows.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.operator.contract.client import APPLY, CRDS, Answer, Client
from tests.operator.contract.kinds import FILES, GROUP, our_definitions
from tests.operator.harness import cluster, job

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted(
    file for file in (ROOT / "examples").rglob("*.yaml") if "kind: Onyx" in file.read_text()
)
STRICT = {"dryRun": "All", "fieldValidation": "Strict"}
PLURALS = {"OnyxJob": "onyxjobs", "OnyxCluster": "onyxclusters"}


def path(server: Client, body: Mapping[str, Any], name: str = "") -> str:
    return server.at(PLURALS[body["kind"]], name, root=f"apis/{GROUP}/v1beta1")


def create(server: Client, body: Mapping[str, Any], query: dict[str, str]) -> Answer:
    metadata = {**body["metadata"], "namespace": server.namespace}
    moved = {**body, "apiVersion": f"{GROUP}/v1beta1", "metadata": metadata}
    return server.call("POST", path(server, body), moved, query)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_our_crds_are_taken_as_they_are(server: Client, file: Path) -> None:
    crd = yaml.safe_load(file.read_text())
    query = {**STRICT, "fieldManager": "contract", "force": "true"}
    answer = server.call("PATCH", f"{CRDS}/{crd['metadata']['name']}", crd, query, APPLY)

    assert answer.code in (200, 201), answer.body
    assert answer.body["spec"]["names"]["kind"] == crd["spec"]["names"]["kind"]


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: str(file.relative_to(ROOT)))
def test_our_examples_are_taken_without_a_warning(server: Client, file: Path) -> None:
    for body in yaml.safe_load_all(file.read_text()):
        answer = create(server, body, STRICT)
        assert answer.code == 201, answer.body


def edited(body: dict[str, Any], *changes: tuple[str, Any]) -> dict[str, Any]:
    """The body with other values at some paths, such as `catalog.0.type`; None removes."""
    new = copy.deepcopy(body)
    for at, value in changes:
        *parents, last = at.split(".")
        place: Any = new["spec"]
        for step in parents:
            place = place[int(step)] if step.isdecimal() else place[step]
        if value is None:
            del place[last]
        else:
            place[last] = value
    return new


def windowed(kind: str, **more: Any) -> tuple[str, Any]:
    return "windows", [{"id": "w", "task": "work", "type": kind, "aggregation": "count", **more}]


def triggered(kind: str, **more: Any) -> tuple[str, Any]:
    trigger = {"windowId": "w", "type": kind, "refinement": "discarding", "sync": "app:sync"}
    return "triggers", [{**trigger, **more}]


JOB = job()
REF = {"configMap": "jobs", "key": "job.yaml"}
RANGE, PERIOD = [1, "minute"], [1, "second"]
FIXED = windowed("fixed", windowKey="at", range=RANGE)
BAD_JOBS: dict[str, dict[str, Any]] = {
    "the name of a job has": {**JOB, "metadata": {"name": "a.b"}},
    "give either catalog, or jobRef": edited(JOB, ("jobRef", REF)),
    "workflow is given without catalog": edited(JOB, ("catalog", None), ("jobRef", REF)),
    "plugin is needed for type input, output, table": edited(JOB, ("catalog.0.plugin", None)),
    "plugin is only for type input, output, table": edited(
        JOB, ("catalog.0.type", "function"), ("catalog.0.fn", "app:fn")
    ),
    "fn or sql or sparkStage or sparkSql or join or processor is needed for type function": edited(
        JOB, ("catalog.0.type", "function")
    ),
    "sql is only for type function": edited(JOB, ("catalog.1.sql", "from segments")),
    "processor is only for type function": edited(JOB, ("catalog.1.processor", "app:Sums")),
    "sparkSql is only for type function": edited(JOB, ("catalog.1.sparkSql", "from segments")),
    "combine is only for type reduce": edited(JOB, ("catalog.1.combine", True)),
    "loopTo is only for type function": edited(JOB, ("catalog.1.loopTo", "read")),
    "firstFailuresMax is only for type input, function, reduce, join": edited(
        JOB, ("catalog.1.firstFailuresMax", 3)
    ),
    "lapsMax is only for type function": edited(JOB, ("catalog.1.lapsMax", 3)),
    "state is only for type function": edited(JOB, ("catalog.1.state", {"seen": "value"})),
    "onTimer is only for type function": edited(JOB, ("catalog.1.onTimer", "app:due")),
    "join is only for type function": edited(
        JOB, ("catalog.1.join", {"table": "users", "key": "user"})
    ),
    "left is needed for type join": edited(JOB, ("catalog.1.type", "join")),
    "right is needed for type join": edited(
        JOB, ("catalog.1.type", "join"), ("catalog.1.left", {"task": "a", "key": "k", "at": "t"})
    ),
    "left is only for type join": edited(
        JOB, ("catalog.1.left", {"task": "a", "key": "k", "at": "t"})
    ),
    "right is only for type join": edited(
        JOB, ("catalog.1.right", {"task": "a", "key": "k", "at": "t"})
    ),
    "how is only for type join": edited(JOB, ("catalog.1.how", "outer")),
    "within is only for type join": edited(JOB, ("catalog.1.within", {"before": 1})),
    "lateTo is only for type join": edited(JOB, ("catalog.1.lateTo", "late")),
    "tables is only for type function": edited(JOB, ("catalog.1.tables", ["users"])),
    "partitioned is only for type table": edited(JOB, ("catalog.1.partitioned", True)),
    "versionKey is only for type table": edited(JOB, ("catalog.1.versionKey", "since")),
    "sparkStage is only for type function": edited(JOB, ("catalog.1.sparkStage", "app:stage")),
    "groupByFn is only for": edited(JOB, ("catalog.0.groupByFn", "app:key")),
    "fluxPolicy is only for": edited(JOB, ("catalog.0.fluxPolicy", "kill")),
    "maxPending is only for type input": edited(JOB, ("catalog.1.maxPending", 5)),
    "guarantee is only for type input": edited(JOB, ("catalog.1.guarantee", "at-most-once")),
    "retryMode is only for": edited(JOB, ("catalog.1.retryMode", "none")),
    "anchored is only for": edited(JOB, ("catalog.0.anchored", False)),
    "checkpointSegments is only for": edited(JOB, ("catalog.1.checkpointSegments", 5)),
    "segmentsPerSecondMax is only for": edited(JOB, ("catalog.1.segmentsPerSecondMax", 5)),
    "assignWatermarkFn is only for": edited(JOB, ("catalog.1.assignWatermarkFn", "app:at")),
    "whenIdle is only for": edited(JOB, ("catalog.1.whenIdle", "clock")),
    "watermarkKey is only for": edited(JOB, ("catalog.1.watermarkKey", "at")),
    "onMissingKey is only for": edited(JOB, ("catalog.0.onMissingKey", "group")),
    "deadLetter is only for": edited(JOB, ("catalog.1.deadLetter", "failed")),
    "nPeers cannot be given together": edited(
        JOB, ("catalog.0.nPeers", 1), ("catalog.0.minPeers", 1)
    ),
    "minPeers must not be above maxPeers": edited(
        JOB, ("catalog.0.minPeers", 2), ("catalog.0.maxPeers", 1)
    ),
    "lateTo is only for": edited(JOB, windowed("global", lateTo="late")),
    "sessionKey is only for": edited(
        JOB, windowed("fixed", windowKey="at", range=RANGE, sessionKey="user")
    ),
    "pred is needed for": edited(JOB, FIXED, triggered("punctuation")),
    "watermarkPercentage is needed for": edited(JOB, FIXED, triggered("percentile-watermark")),
}
BAD_CLUSTERS: dict[str, dict[str, Any]] = {
    "the name of a cluster has": {**cluster(), "metadata": {"name": "9-lives"}},
}
BAD_CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a job cannot move to another cluster": (JOB, {"clusterRef": "other"}),
    "tenancyId cannot be changed": (cluster(), {"tenancyId": "other"}),
    "jobScheduler cannot be changed": (cluster(), {"jobScheduler": "greedy"}),
}
GOOD = {
    "a job whose parser finds the rest": edited(
        JOB,
        ("workflow", None),
        ("catalog.0.type", None),
        ("catalog.1.type", None),
        ("windows", [{"task": "write", "type": "fixed", "aggregation": "count", "range": RANGE}]),
        ("triggers", [{"type": "watermark", "sync": "app:store"}]),
    ),
    "a job by reference": {**JOB, "spec": {"jobRef": REF}},
    "a job with windows": edited(JOB, FIXED, triggered("timer", period=PERIOD)),
    "a job with times as text, pairs and numbers": edited(
        JOB,
        ("catalog.0.pendingTimeout", "60s"),
        ("catalog.0.inputRetryTimeout", [1, "second"]),
        ("catalog.0.idleTimeout", 5_000),
        ("catalog.0.watermarkKey", "at"),
        ("catalog.0.allowedDisorder", "5 seconds"),
        windowed("sliding", windowKey="at", range="1 minute", slide="30s", allowedLateness="1h"),
        triggered("timer", period="10s"),
    ),
    "a job whose triggers watch": edited(
        JOB, windowed("global"), triggered("percentile-watermark", watermarkPercentage=0.5)
    ),
    "peers within bounds": edited(JOB, ("catalog.0.minPeers", 1), ("catalog.0.maxPeers", 1)),
    "a cluster": cluster(tenancyId="a", jobScheduler="greedy"),
}


def rules(schema: Mapping[str, Any]) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield rule["message"]
    for inner in schema.get("properties", {}).values():
        yield from rules(inner)
    if "items" in schema:
        yield from rules(schema["items"])


def test_every_rule_of_ours_has_a_bad_example() -> None:
    messages = [
        message
        for crd in our_definitions().values()
        for message in rules(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    ]
    examples = [*BAD_JOBS, *BAD_CLUSTERS, *BAD_CHANGES]

    assert len(messages) > 20
    assert [m for m in messages if not any(m.startswith(each) for each in examples)] == []


@pytest.mark.parametrize("message", [*BAD_JOBS, *BAD_CLUSTERS])
def test_a_mistake_is_refused_and_told(server: Client, message: str) -> None:
    answer = create(server, {**BAD_JOBS, **BAD_CLUSTERS}[message], {"dryRun": "All"})

    assert (answer.code, answer.reason) == (422, "Invalid"), answer.body
    assert message in answer.body["message"]


@pytest.mark.parametrize("message", BAD_CHANGES)
def test_a_change_that_cannot_be_is_refused_and_told(server: Client, message: str) -> None:
    body, change = BAD_CHANGES[message]
    assert create(server, body, {}).code == 201
    there = path(server, body, body["metadata"]["name"])
    answer = server.call("PATCH", there, {"spec": change}, content="application/merge-patch+json")

    assert (answer.code, answer.reason) == (422, "Invalid"), answer.body
    assert message in answer.body["message"]


@pytest.mark.parametrize("case", GOOD)
def test_what_is_right_is_taken(server: Client, case: str) -> None:
    answer = create(server, GOOD[case], STRICT)

    assert answer.code == 201, answer.body
