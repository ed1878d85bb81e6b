"""ZooKeeper is away while jobs run: the cluster and its jobs say so, and why, within seconds; and
all goes on when it is back. Seconds are printed."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.e2e.kube import CommandError, Kube, until
from tests.e2e.release import Release, conditions

SERVERS = "statefulset/onyx-zookeeper"
SAID_S = 60.0
"""Ten seconds are meant; the machine of the tests may have much else to do."""
BALLAST = "/var/lib/zookeeper/ballast"
DISK_MIB = 63
IN_MEMORY = (
    *("--set", "zookeeper.persistence.enabled=false"),
    *("--set", f"zookeeper.persistence.size={DISK_MIB}Mi"),
    *("--post-renderer", "sed"),
    *(
        "--post-renderer-args",
        rf"s/^\( *\)sizeLimit: {DISK_MIB}Mi$/&\n\1medium: Memory/",
    ),
)
"""A disk that ends where its size says, on whatever cluster, and survives all but its pod."""
_FILL = f"""
with open("{BALLAST}", "wb", buffering=0) as ballast:
    while True:
        ballast.write(bytes(65_536))
"""
_FREE = f"import os; os.remove('{BALLAST}')"


@pytest.fixture
def release(nodes: None, kube: Kube, request: pytest.FixtureRequest) -> Iterator[Release]:
    """A release with the values that the test names."""
    found = Release(kube)
    found.install(*request.param)
    yield found
    found.remove()


@pytest.mark.parametrize("release", [("--set", "zookeeper.replicas=3")], indirect=True, ids=["3"])
def test_a_lost_majority_is_said_and_passes(release: Release) -> None:
    kube, squares = release.kube, release.start_squares("unled", per_second=100)
    squares.await_some()

    kube.kubectl("scale", SERVERS, "--replicas=1")
    for number in 1, 2:
        kube.kubectl("wait", f"pod/onyx-zookeeper-{number}", "--for=delete", "--timeout=60s")
    assert_said(release, "unled", "NoQuorum", "no quorum")

    kube.kubectl("scale", SERVERS, "--replicas=3")
    assert_passes(release, "unled")
    squares.assert_goes_on()
    squares.stop_and_assert_whole()


@pytest.mark.parametrize("release", [IN_MEMORY], indirect=True, ids=["small"])
def test_a_full_disk_is_said_and_passes(release: Release) -> None:
    kube, squares = release.kube, release.start_squares("full", per_second=100)
    squares.await_some()

    server = release.zookeeper()
    with pytest.raises(CommandError, match="No space left on device"):
        kube.python(server, _FILL)
    assert_said(release, "full", "DiskFull", "disk full")

    kube.python(server, _FREE)
    assert_passes(release, "full")
    (container,) = kube.get("pod", server)["status"]["containerStatuses"]
    assert container["restartCount"] == 0, "it says why for as long as it lasts"
    squares.assert_goes_on()
    squares.stop_and_assert_whole()


def assert_said(release: Release, job: str, reason: str, words: str) -> None:
    """The cluster has the reason in its condition, and the job in its message."""
    since_s = time.monotonic()
    until(lambda: reachable(release)[1] == reason, f"the cluster says {reason}", SAID_S)
    cluster_s = time.monotonic() - since_s
    until(lambda: words in says(release, job), f"the job says {words}", SAID_S)
    job_s = time.monotonic() - since_s
    print(f"{reason}: said by the cluster after {cluster_s:.1f} s, by the job after {job_s:.1f} s")
    assert reachable(release)[0] == "False"


def assert_passes(release: Release, job: str) -> None:
    until(lambda: reachable(release) == ("True", "Connected"), "the log is followed again")
    until(lambda: release.kube.phase(job) == "Running", "the job runs")


def reachable(release: Release) -> tuple[str, str]:
    """Status and reason of the condition."""
    found = conditions(release.kube.get("oc", "onyx"), "ZooKeeperReachable")
    return (str(found[0]["status"]), str(found[0]["reason"])) if found else ("", "")


def says(release: Release, job: str) -> str:
    """What a job says in words, in its message or in a condition."""
    status = release.kube.get("oj", job)["status"]
    return " ".join([status["message"], *(each["message"] for each in status["conditions"])])
