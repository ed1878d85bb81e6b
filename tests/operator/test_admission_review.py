"""What the webhook answers to a review: all problems with their paths, or leave to pass."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.operator.clusters import SMALL, WHOLE, cluster
from tests.operator.harness import job

from onyx_operator.admission.review import (
    MESSAGE_CHARACTERS_MAX,
    MalformedReview,
    answer,
)
from onyx_operator.admission.review import (
    judged as judged_by_itself,
)

BAD = sorted((Path(__file__).parents[1] / "unit" / "model" / "bad").glob("*.yaml"))
NEVER_SENT = {
    "binary-tag", "coerced-date", "integer-of-5000-digits", "python-tag", "syntax", "tab-indent",
    "two-documents", "empty", "only-comments", "scalar", "not-a-mapping", "api-version", "kind",
    "missing-everything",
}  # fmt: skip
"""kubectl or the API server refuse them themselves, or they are no OnyxJob."""
READ_OTHERWISE = {
    "alias-bomb", "coerced-key", "coerced-no", "coerced-octal", "coerced-on", "coerced-sexagesimal",
    "coerced-underscore", "duplicate-key", "duplicate-key-in-entry", "float-overflow",
    "integer-key", "merge-key",
}  # fmt: skip
"""Traps of YAML, met before the object is sent: `onyx validate` reports them."""


def review(body: Any, old: Any = None, operation: str = "CREATE", **request: Any) -> dict[str, Any]:
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "review-1",
            "operation": operation,
            "object": body,
            "oldObject": old,
            **request,
        },
    }


def judged(body: Any, old: Any = None, operation: str = "CREATE", **request: Any) -> Any:
    answered = answer(judged_by_itself(review(body, old, operation, **request)))
    assert answered["response"]["uid"] == "review-1"
    return answered["response"]


def reported(response: Mapping[str, Any]) -> str:
    assert not response["allowed"]
    assert response["status"]["code"] == 422
    return str(response["status"]["message"])


def with_spec(body: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    return {**body, "spec": {**body["spec"], **spec}}


@pytest.mark.short(60)
@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_bad_job_is_refused_with_what_onyx_validate_says(path: Path) -> None:
    text = path.read_text("utf-8")
    expected = [line[10:] for line in text.splitlines() if line.startswith("# expect: ")]
    try:
        sent = json.loads(json.dumps(yaml.safe_load(text)))
    except (yaml.YAMLError, TypeError, ValueError):
        assert path.stem in NEVER_SENT
        return
    if path.stem in NEVER_SENT | READ_OTHERWISE:
        assert judged(sent)["uid"] == "review-1"
        return
    message = reported(judged(sent))
    for each in expected:
        said, _, hint = each.partition(" ~ ")
        assert said.strip() in message
        assert hint in message


def test_a_good_job_passes_without_a_word() -> None:
    assert judged(job()) == {"uid": "review-1", "allowed": True}


def test_every_problem_has_a_line_of_its_own() -> None:
    body = with_spec(job("flights"), guarantee="maybe", workflw=[])

    assert reported(judged(body)).splitlines() == [
        "OnyxJob flights has 2 problems:",
        '- spec.guarantee: is "maybe", but must be at-most-once, at-least-once or exactly-once',
        "- spec.workflw: is not a key of a job (did you mean workflow?)",
    ]


def test_a_wrong_option_of_a_plugin_is_refused() -> None:
    body = job()
    body["spec"]["catalog"][0]["options"]["partition"] = 2

    told_of = "spec.catalog[0].options.partition: is not known (did you mean partitions?)"
    assert told_of in reported(judged(body))


def test_a_job_by_reference_passes() -> None:
    spec = {"jobRef": {"configMap": "flights", "key": "job.yaml"}}

    assert judged({**job(), "spec": spec})["allowed"]


@pytest.mark.parametrize("spec", [{}, SMALL, WHOLE], ids=["empty", "small", "whole"])
def test_a_good_cluster_passes_without_a_word(spec: Mapping[str, Any]) -> None:
    assert judged(cluster(spec)) == {"uid": "review-1", "allowed": True}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"replica": 2}, "spec.replica: is not a key of a cluster (did you mean replicas?)"),
        ({"tls": {"secretName": "other-namespace/tls"}}, "the name of a Kubernetes object"),
        (
            {"envFrom": [{"secretRef": {"name": "s3", "namespace": "other"}}]},
            "what it names is in the cluster's own namespace",
        ),
        ({"env": [{"name": "ONYX_TENANCY_ID", "value": "x"}]}, "use spec.tenancyId"),
        ({"settings": {"ONYX_LEAVE_TIMEOUT_S": "soon"}}, "expected a number"),
        ({"podTemplate": {"metadata": {"labels": {"a": "x" * 64}}}}, "must be a label"),
    ],
)
def test_a_bad_cluster_is_refused(spec: dict[str, Any], message: str) -> None:
    assert message in reported(judged(cluster(spec)))


@pytest.mark.parametrize(
    ("image", "warned"),
    [
        ("onyx-worker", True),
        ("registry:5000/onyx-worker", True),
        ("onyx-worker:latest", True),
        ("registry:5000/onyx-worker:1.0", False),
        ("onyx-worker@sha256:0123", False),
    ],
)
def test_an_image_that_names_no_version_is_warned_about(image: str, warned: bool) -> None:
    response = judged(cluster({"image": image}))

    assert response["allowed"]
    assert [each.partition(":")[0] for each in response.get("warnings", ())] == (
        ["spec.image"] if warned else []
    )


@pytest.mark.parametrize(
    ("policy", "point", "warned"),
    [
        ("KeepState", {"tasks": {"read": "initialize"}}, True),
        ("KeepState", {"from": "other"}, False),
        ("Drain", {"from": "other", "tasks": {"read": "initialize"}}, False),
    ],
)
def test_answers_that_would_count_again_are_warned_of(
    policy: str, point: Any, warned: bool
) -> None:
    response = judged(with_spec(job(), upgradePolicy=policy, upgrade=point))

    assert response["allowed"]
    told_of = [each.partition(":")[0] for each in response.get("warnings", ())]
    assert told_of == (["spec.upgrade"] if warned else [])


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        (cluster({"tenancyId": "a"}), cluster({"tenancyId": "b"}), "tenancyId"),
        (cluster({}), cluster({"tenancyId": "b"}), "tenancyId"),
        (
            cluster({"jobScheduler": "balanced"}),
            cluster({"jobScheduler": "greedy"}),
            "jobScheduler",
        ),
        (
            with_spec(job(), clusterRef="onyx"),
            with_spec(job(version=5), clusterRef="other"),
            "clusterRef",
        ),
    ],
)
def test_what_cannot_be_changed_is_refused(old: Any, new: Any, key: str) -> None:
    assert f"spec.{key}: cannot be changed (make another object)" in reported(
        judged(new, old, "UPDATE")
    )


def test_another_object_of_the_same_name_is_another_object() -> None:
    """What is created does not take the place of anything, so nothing is immutable yet."""
    assert judged(cluster({"tenancyId": "b"}, uid="another"))["allowed"]


BROKEN = with_spec(job(), workflow=[["a", "b"]])


def test_a_stored_object_may_be_bad_as_long_as_its_spec_stays() -> None:
    labelled = {**BROKEN, "metadata": {**BROKEN["metadata"], "labels": {"a": "b"}}}

    assert judged(labelled, BROKEN, "UPDATE")["allowed"]
    assert not judged(with_spec(BROKEN, guarantee="at-most-once"), BROKEN, "UPDATE")["allowed"]


def test_a_bad_object_that_is_being_deleted_can_lose_its_finalizer() -> None:
    going = {**BROKEN, "metadata": {"name": "job", "deletionTimestamp": "2026-01-01T00:00:00Z"}}

    assert judged(going, with_spec(job(), guarantee="at-most-once"), "UPDATE")["allowed"]


def test_a_status_that_a_user_wrote_is_not_ours_to_judge() -> None:
    assert judged({**job(), "status": {"phase": "Completed", "jobId": 3}})["allowed"]
    assert judged({**BROKEN}, job(), "UPDATE", subResource="status")["allowed"]


@pytest.mark.parametrize("operation", ["DELETE", "CONNECT"])
def test_only_what_writes_a_spec_is_judged(operation: str) -> None:
    assert judged(None, BROKEN, operation)["allowed"]


def test_another_kind_or_version_passes() -> None:
    assert judged({"apiVersion": "v1", "kind": "Pod", "metadata": {}})["allowed"]
    assert judged({**BROKEN, "apiVersion": "onyx.dev/v2"})["allowed"]


@pytest.mark.parametrize("request_name", ["", "flights-x7k2p"])
def test_a_name_that_is_yet_to_be_generated_is_no_problem(request_name: str) -> None:
    body = {**job(), "metadata": {"generateName": "flights-"}}

    assert judged(body, name=request_name)["allowed"]


@pytest.mark.parametrize("metadata", [{}, {"name": None}, {"generateName": 3}, "text", None])
def test_an_object_without_a_usable_name_is_refused(metadata: Any) -> None:
    assert "metadata.name" in reported(judged({**job(), "metadata": metadata}))


def test_keys_that_kubectl_may_have_made_of_other_words_are_warned_of() -> None:
    body = job()
    options = {"segments": [{"false": 1, "true": {"false": 2}}, {"n": 1}, *[{"false": 1}] * 9]}
    body["spec"]["catalog"][0]["options"] = options
    found = judged(body)
    assert found["allowed"]
    assert len(found["warnings"]) == 4
    assert found["warnings"][0].startswith(
        "spec.catalog[0].options.segments[0].false: is perhaps n, no or off in your file"
    )
    assert found["warnings"][1].startswith("spec.catalog[0].options.segments[0].true: is perhaps y")


@pytest.mark.parametrize(
    ("segments", "paths"),
    [
        ([{"countries": ["de", False, "se"]}], ["[0].countries[1]"]),
        ([{"country": "de"}, {"country": False}], ["[1].country"]),
        ([{"country": "de", "new": False}, {"country": "se", "new": True}], []),
        ([{"flags": [True, False], "mixed": [1, True]}, {"flags": True}], []),
    ],
)
def test_a_truth_value_where_its_neighbours_have_texts_is_warned_of(
    segments: list[Any], paths: list[str]
) -> None:
    body = job()
    body["spec"]["catalog"][0]["options"] = {"segments": segments}
    found = judged(body)
    assert found["allowed"]
    warned = [each.partition(": is perhaps ")[0] for each in found.get("warnings", ())]
    assert warned == [f"spec.catalog[0].options.segments{path}" for path in paths]


def test_words_of_a_cluster_are_warned_of_too() -> None:
    found = judged(cluster({"image": "onyx:1", "env": [{"name": "A", "value": "a", "true": "b"}]}))
    assert not found["allowed"]
    assert found["warnings"][0].startswith("spec.env[0].true: is perhaps y, yes or on")


@pytest.mark.parametrize("name", ["..", "../..", "a/b", "/etc", ".", "", "a" * 3_000, "a\nb"])
def test_a_job_id_that_is_no_name_is_refused(name: str) -> None:
    body = job()
    body["spec"]["metadata"] = {"jobId": name}
    assert "spec.metadata.jobId" in reported(judged(body))


def test_labels_at_the_limit_pass() -> None:
    labels = {"a" * 253 + "/" + "b" * 63: "c" * 63}
    annotations = {"note": "x" * 200_000}
    body = job()
    body["metadata"] |= {"labels": labels, "annotations": annotations}

    assert judged(body)["allowed"]


def test_a_message_ends_somewhere() -> None:
    edges = [[f"task{number}", "?" * 40] for number in range(1_000)]

    assert len(reported(judged(with_spec(job(), workflow=edges)))) <= MESSAGE_CHARACTERS_MAX


@pytest.mark.parametrize(
    ("malformed", "why"),
    [
        (None, "no AdmissionReview"),
        ([], "no AdmissionReview"),
        ({}, "no AdmissionReview"),
        ({"kind": "Pod"}, "no AdmissionReview"),
        ({"kind": "AdmissionReview"}, "not admission.k8s.io/v1"),
        ({**review({}), "apiVersion": "admission.k8s.io/v1beta1"}, "not admission.k8s.io/v1"),
        ({**review({}), "request": None}, "no request with a uid"),
        ({**review({}), "request": {"uid": 3}}, "no request with a uid"),
    ],
)
def test_what_is_no_review_is_refused_with_a_reason(malformed: Any, why: str) -> None:
    with pytest.raises(MalformedReview, match=why):
        judged_by_itself(malformed)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
PARTS = st.fixed_dictionaries(
    {"kind": st.sampled_from(["OnyxJob", "OnyxCluster"])},
    optional={
        "apiVersion": st.just("onyx.dev/v1beta1") | JSON,
        "metadata": JSON,
        "spec": JSON | st.dictionaries(st.sampled_from([*WHOLE, *job()["spec"]]), JSON),
    },
)


@given(PARTS | JSON, PARTS | JSON, st.sampled_from(["CREATE", "UPDATE"]) | JSON)
def test_whatever_is_sent_is_answered(body: Any, old: Any, operation: Any) -> None:
    response = judged(body, old, operation)

    assert response["allowed"] or response["status"]["message"]


@pytest.mark.parametrize("kind", [[], {}, None, 5, ["OnyxJob"]])
def test_an_object_whose_kind_is_no_word_is_none_of_ours(kind: object) -> None:
    request = {"uid": "1", "operation": "CREATE", "object": {**job(), "kind": kind}}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}

    assert judged_by_itself(review).body is None
