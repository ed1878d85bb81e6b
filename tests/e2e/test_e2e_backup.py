"""ZooKeeper's volume is lost and a backup restored: jobs go on with the state that they had."""

from __future__ import annotations

import json

from tests.e2e.kube import Kube, until
from tests.e2e.release import WORKERS, Release
from tests.e2e.windowed import Windowed, expected_counts, with_counts

VALUES = (
    *("--set", "backup.enabled=true"),
    *("--set", "backup.to=backups"),
    *("--set", "backup.keep=2"),
    *("--set-string", "backup.schedule=0 0 1 1 *"),
    *("--set", "backup.resources.requests.cpu=20m"),
)
"""On the volume of the workers, which is not the one that is lost; by hand, which needs no hour."""
CRON_JOB = "onyx-backup"
SEGMENTS = 16_000


def test_windows_and_keyed_state_are_exact_when_zookeepers_volume_was_lost(
    release: Release,
) -> None:
    kube, job = release.kube, Windowed(release, "restored", SEGMENTS)
    kube.apply(with_counts(job.manifest(per_second=200)))
    job.await_more()
    id = kube.get("oj", "restored")["status"]["jobId"]

    run(kube, "backup-now")
    job.await_more()
    kube.kubectl("scale", "oc/onyx", "--replicas=0")
    until(lambda: not kube.list("pods", WORKERS), "the workers have gone")
    job.assert_unfinished()
    lose_zookeepers_volume(kube)
    until(lambda: kube.phase("restored") == "Unknown", "the operator knows that the log is lost")
    run(kube, "restore-now", "restore", "backups", "--discard-later")
    kube.kubectl("scale", "oc/onyx", "--replicas=2")
    release.await_ready()

    job.assert_exact()
    assert kube.get("oj", "restored")["status"]["jobId"] == id
    assert job.counted() == expected_counts(SEGMENTS)


def run(kube: Kube, name: str, *arguments: str) -> None:
    """A job as the CronJob makes it, perhaps with other arguments, to its end."""
    template = ("create", "job", name, f"--from=cronjob/{CRON_JOB}", "--dry-run=client")
    job = json.loads(kube.kubectl(*template, "--output", "json"))
    if arguments:
        job["spec"]["template"]["spec"]["containers"][0]["args"] = list(arguments)
    kube.apply(job)
    kube.wait(f"job/{name}", "complete")


def lose_zookeepers_volume(kube: Kube) -> None:
    """The server comes back with an empty one."""
    server = "statefulset/onyx-zookeeper"
    kube.kubectl("scale", server, "--replicas=0")
    until(lambda: not kube.list("pods", "app.kubernetes.io/component=zookeeper"), "it has gone")
    kube.kubectl("delete", "pvc", "data-onyx-zookeeper-0", "--ignore-not-found", "--wait")
    kube.kubectl("scale", server, "--replicas=1")
    kube.kubectl("rollout", "status", server, "--timeout=120s", timeout_s=180)
