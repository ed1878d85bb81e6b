"""A job begins with a savepoint of another one, exact to the last row: from a bucket, in another
namespace and tenancy, while the saved job goes on; and from the volume, in the place of a job that
was suspended. The bucket is in a pod, of the gateway that `make objects` builds."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator

import pytest
from tests.cluster import binaries
from tests.e2e.kube import Kube, until
from tests.e2e.programs import give, serve
from tests.e2e.release import NAME, Release, conditions
from tests.e2e.windowed import GROUPS, Windowed, expected, expected_counts, with_counts

SEGMENTS = 6_000
STORE, PORT = "store", 7070
BUCKET = "s3://savepoints"
_ENV = {
    "AWS_ENDPOINT_URL": f"http://{STORE}.NAMESPACE.svc:{PORT}",
    "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "access-key",
    "AWS_SECRET_ACCESS_KEY": "secret-key",
}
VALUES = (
    *("--set", "tls.enabled=false"),
    *("--set", "watchNamespaces={NAMESPACE,NAMESPACE-away}"),
    *("--set-json", f"cluster.env={json.dumps([{'name': n, 'value': _ENV[n]} for n in _ENV])}"),
)
_GATEWAY = (
    *("--port", f":{PORT}", "--quiet", "--access", "access-key", "--secret", "secret-key"),
    *("posix", "--sidecar", "/data/store/metadata", "/data/store/data"),
)
_MAKE_BUCKET = """
from onyx.storage.objects.connection import connect
connect().create_bucket(Bucket="savepoints")
"""
_WRITE = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"


def prepare(kube: Kube) -> None:
    """The operator looks after another namespace too, which must be there."""
    kube.kubectl("create", "namespace", f"{kube.namespace}-away")


@pytest.fixture(scope="module", autouse=True)
def _no_namespace_stays(installed: Release) -> Iterator[None]:
    yield
    other = f"{installed.kube.namespace}-away"
    installed.kube.kubectl("delete", "namespace", other, "--wait=false")


@pytest.fixture
def away(release: Release) -> Iterator[Release]:
    """The same workers in that namespace, in a tenancy of their own, and a bucket for both."""
    program = binaries.program("versitygw")
    if not program.exists():
        pytest.skip("the object store has not been built: make objects")
    kube = Kube(f"{release.kube.namespace}-away")
    for kind, name in ("configmap", "onyx-code"), ("pvc", f"{NAME}-data"), ("oc", NAME):
        copied = release.kube.get(kind, name)
        copied["metadata"] = {"name": name}
        for each in "volumeName", "zookeeper", "podTemplate":
            copied.get("spec", {}).pop(each, None)
        kube.apply(copied)
    give(release, program, "store/metadata", "store/data")
    serve(release.kube, STORE, program, PORT, _GATEWAY)
    until(lambda: not release.kube.python(release.worker(), _MAKE_BUCKET), "there is a bucket")
    kube.wait(f"oc/{NAME}", "Ready")
    yield Release(kube)
    kube.kubectl("delete", "oj,oc", "--all", "--timeout=60s")


def test_a_job_goes_on_in_another_namespace_with_a_savepoint_from_a_bucket(
    release: Release, away: Release
) -> None:
    assert_missing_is_said(away)
    saved, other = Windowed(release, "saved", SEGMENTS), Windowed(away, "other", SEGMENTS)
    release.kube.apply(with_counts(saved.manifest(per_second=200)))
    saved.await_more()
    windows, counts = saved.written(), saved.counted()

    place = savepoint(release, "saved", f"{BUCKET}/onyx")
    saved.assert_unfinished()
    declared = {"upgradePolicy": "KeepState", "upgrade": {"savepoint": place}}
    away.kube.apply(with_counts(other.manifest(per_second=1_000, **declared)))
    away.await_completed("other")

    assert away.kube.get("oj", "other")["status"]["savepoint"] == place
    assert_end(other.written(), expected(SEGMENTS), windows)
    assert_end(other.counted().elements(), expected_counts(SEGMENTS).elements(), counts)
    saved.assert_exact()
    assert saved.counted() == expected_counts(SEGMENTS)


def test_a_suspended_job_and_the_one_that_takes_its_place_have_each_row_once(
    release: Release,
) -> None:
    first, second = Windowed(release, "first", SEGMENTS), Windowed(release, "second", SEGMENTS)
    release.kube.apply(with_counts(first.manifest(per_second=200)))
    first.await_more()
    first.await_more()
    patch = ("--type", "merge", "--patch", '{"spec":{"desiredState":"Suspended"}}')
    release.kube.kubectl("patch", "oj", "first", *patch)
    until(lambda: release.kube.phase("first") == "Suspended", "it is suspended")

    place = savepoint(release, "first", "savepoints")
    release.kube.kubectl("delete", "oj", "first", "--timeout=60s")
    submit(release, second, place)

    both = sorted([*first.written(), *second.written()])
    assert both == expected(SEGMENTS)
    assert first.counted() + second.counted() == expected_counts(SEGMENTS)
    assert first.written(), "a part of it was done before"


def savepoint(release: Release, job: str, to: str) -> str:
    """Save a job, by the command in a worker's pod; the place."""
    asked = ("onyx", "savepoint", job, "--to", to, "--name", "noon", "--json")
    return str(json.loads(in_worker(release, *asked))["savepoint"])


def submit(release: Release, job: Windowed, place: str) -> None:
    """Submit a job that begins with a savepoint, by the command in a worker's pod; it completes."""
    manifest = json.dumps(with_counts(job.manifest(per_second=1_000)))
    write = ("python", "-c", _WRITE, "/data/job.json")
    release.kube.kubectl("exec", "--stdin", release.worker(), "--", *write, given=manifest)
    in_worker(release, "onyx", "submit", "/data/job.json", "--from", place, "--wait")


def in_worker(release: Release, *command: str) -> str:
    return release.kube.kubectl("exec", release.worker(), "--", *command)


def assert_missing_is_said(release: Release) -> None:
    """A job whose savepoint is not there says so, and where it has been looked for."""
    place = f"{BUCKET}/onyx/none"
    declared = {"upgradePolicy": "KeepState", "upgrade": {"savepoint": place}}
    job = Windowed(release, "misled", SEGMENTS)
    job.start(per_second=200, **declared)
    refused = lambda: conditions(release.kube.get("oj", "misled"), "Validated")  # noqa: E731
    until(
        lambda: [each["reason"] for each in refused()] == ["SavepointRefused"],
        "workers have not found it",
    )
    status = release.kube.get("oj", "misled")["status"]
    assert status["phase"] == "Pending"
    assert f"there is no savepoint {place}" in status["message"]
    release.kube.kubectl("delete", "oj", "misled", "--timeout=60s")


def assert_end(
    found: Iterable[tuple[int, ...]],
    whole: Iterable[tuple[int, ...]],
    before: Container[tuple[int, ...]],
) -> None:
    """Of each group the last rows are there, each once, and none that was written before."""
    rows, wanted = sorted(found), sorted(whole)
    assert not [each for each in rows if each in before]
    for group in range(GROUPS):
        last = [each for each in rows if each[0] == group]
        assert 0 < len(last) < len(wanted) / GROUPS
        assert last == [each for each in wanted if each[0] == group][-len(last) :]
