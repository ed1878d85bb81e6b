"""Requests over HTTP while the cluster changes: each that was answered is in the output once.

Clients in a pod of their own send over the Service, with TLS and a token, to five jobs: behind a
table, keyed state, a processor, a join of streams and a loop. Each sends a request again under its
id until it is answered for good, so what a client has learned can be held against the output
(`histories`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from tests.e2e.kube import Kube, image, until
from tests.e2e.load import Ended, sending
from tests.e2e.release import ROOT, Release
from tests.support.jobs.histories import violations
from tests.support.jobs.requests_under_kills import KINDS, manifest

VALUES = (
    *("--set", "cluster.http.enabled=true"),
    *("--set", "cluster.http.tlsSecretName=shown-to-clients"),
    *("--set", "cluster.peersPerWorker=16"),
    *("--set", "cluster.processesPerWorker=2"),
    *("--set", "cluster.grpc.enabled=true"),
    *("--set-json", 'cluster.networkPolicy.clientsFrom=[{"podSelector": {}}]'),
    *("--set", "cluster.modules={requests_job}"),
    *(
        "--set-file",
        f"cluster.code.files.requests_job\\.py={ROOT / 'tests/chaos/requests_job.py'}",
    ),
)
TOKEN = "that-of-the-clients"
AUTHORITY = trustme.CA()
EXPECTED = {200, 202, 429, 503, 504}
NO_ANSWER = 0


def prepare(kube: Kube) -> None:
    """The certificate that workers show to clients."""
    issued = AUTHORITY.issue_cert(f"onyx-worker-http.{kube.namespace}.svc")
    shown = {
        "tls.crt": b"".join(each.bytes() for each in issued.cert_chain_pems).decode(),
        "tls.key": issued.private_key_pem.bytes().decode(),
    }
    kube.apply({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
                "metadata": {"name": "shown-to-clients"}, "stringData": shown})  # fmt: skip


def lost(release: Release) -> None:
    """A worker is lost as with its machine."""
    release.kube.delete_at_once("pod", release.worker(1))
    release.await_ready()


def scaled(release: Release) -> None:
    """There is another worker for a while."""
    for replicas in 3, 2:
        release.kube.kubectl("scale", "oc/onyx", f"--replicas={replicas}")
        release.await_ready(workers=replicas)


def rolled(release: Release) -> None:
    """All workers are replaced, one after the other."""
    again = {"spec": {"podTemplate": {"metadata": {"annotations": {"again": "1"}}}}}
    release.kube.kubectl("patch", "oc/onyx", "--type=merge", "--patch", json.dumps(again))
    release.await_ready()


def gone_for_a_while(release: Release) -> None:
    """There is no worker at all, and then there are two again."""
    release.kube.kubectl("scale", "oc/onyx", "--replicas=0")
    until(lambda: release.kube.list("pods", "onyx.dev/cluster=onyx") == [], "no worker is left")
    release.kube.kubectl("scale", "oc/onyx", "--replicas=2")
    release.await_ready()


def upgraded(release: Release) -> None:
    """Each job is replaced by another version that goes on with its state."""
    for kind in KINDS:
        old = release.kube.get("oj", kind)["status"]["jobId"]
        release.kube.apply(job(kind, "upgraded", version=1))
        until(
            lambda kind=kind, old=old: release.goes_on_from(kind, old),
            f"another version of {kind} runs",
        )


CHANGES: dict[str, Callable[[Release], None]] = {
    each.__name__.replace("_", "-"): each
    for each in (lost, scaled, rolled, gone_for_a_while, upgraded)
}


BREAKING = ("lost", "gone-for-a-while")
"""Changes in which a client may find nobody, or lose who was about to answer."""


@pytest.mark.parametrize("change", CHANGES)
def test_each_answered_request_is_there_once(release: Release, change: str) -> None:
    kube = release.kube
    _write_token(release)
    for kind in KINDS:
        kube.apply(job(kind, change))
    until(lambda: all(kube.phase(kind) == "Running" for kind in KINDS), "all jobs run")
    urls = [ways_in(kube, kind)["http"] for kind in KINDS]
    flights = image("FLIGHTS_IMAGE")

    with sending(kube, flights, urls, TOKEN, AUTHORITY.cert_pem.bytes().decode()) as load:
        load.await_more(len(KINDS))
        CHANGES[change](release)
        load.await_more(len(KINDS))
        ended = load.stop()

    told = Counter(status for each in ended for status in each.statuses)
    unanswered = {NO_ANSWER} if change in BREAKING else set()
    assert set(told) <= EXPECTED | unanswered, (told, _reasons(ended))
    for number, (kind, through) in enumerate(KINDS.items()):
        history = [each.operation for each in ended if each.job == number]
        rows = release.rows(f"requests/{change}/{kind}/out")
        assert violations(history, Counter(row["n"] for row in rows)) == [], kind
        through.checked(rows)
    kube.kubectl("delete", "oj", "--all", "--timeout=60s")


def test_a_client_over_grpc_finds_the_job_by_its_status(release: Release) -> None:
    kube = release.kube
    _write_token(release)
    kube.apply(job("loop", "grpc"))
    until(lambda: kube.phase("loop") == "Running", "the job runs")
    way = ways_in(kube, "loop")
    address, tenancy = way["grpc"], way["tenancy"]
    segment = json.dumps({"n": 2, "key": 2})
    shown = ["--token-file", "/data/tokens", "--tenancy", tenancy]

    answer = kube.kubectl(
        *("exec", release.worker(), "--", "onyx", "append", "loop", "--worker", address),
        *(*shown, "--segment", segment),
    )

    assert "1 segment" in answer
    assert [row["laps"] for row in release.rows("requests/grpc/loop/out")] == [2]


def ways_in(kube: Kube, job: str) -> dict[str, str]:
    """Where the status of a job says that clients find it."""
    (way,) = kube.get("oj", job)["status"]["requests"]
    found: dict[str, str] = way
    return found


def job(kind: str, change: str, version: int = 0) -> dict[str, Any]:
    """A job that takes requests over HTTP, with a token, and what they go through. Versions differ
    in what cannot change while a job runs."""
    made = manifest(Path("requests") / change / kind, through=KINDS[kind])
    made["metadata"]["name"] = kind
    made["spec"]["upgradePolicy"] = "KeepState"
    taking, *_, writing = made["spec"]["catalog"]
    writing["options"]["rollSeconds"] += version
    taking["plugin"] = "http"
    taking["options"]["tokenFile"] = "tokens"
    return made


def _write_token(release: Release) -> None:
    program = "import pathlib, sys; pathlib.Path('/data/tokens').write_text(sys.argv[1])"
    release.kube.python(release.worker(), program, TOKEN)


def _reasons(ended: list[Ended]) -> Counter[tuple[int, str]]:
    """Why what was not expected has come."""
    return Counter(
        (status, reason)
        for each in ended
        for status, reason in zip(each.statuses, each.reasons, strict=True)
        if status not in EXPECTED
    )
