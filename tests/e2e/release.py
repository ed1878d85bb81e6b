"""An installation of the chart in a namespace of its own, and what the tests ask of it."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.kube import WAIT_S, CommandError, Kube, image, until

NAME = "onyx"
ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "onyx"
CRDS = CHART / "crds"
HERE = Path(__file__).parent
WORKERS = "onyx.dev/cluster=onyx"
FLIGHTS = ROOT / "examples" / "flights"
PREFIXES = {
    "image": "WORKER_IMAGE",
    "spark.image": "SPARK_IMAGE",
    "zookeeper.image": "ZOOKEEPER_IMAGE",
    "operator.image": "OPERATOR_IMAGE",
}
"""Values of the chart that say an image: its variable."""
WITH_SPARK = (
    *("--set", f"cluster.image={image('FLIGHTS_SPARK_IMAGE')}"),
    *("--set-string", "cluster.sparkMemory=1536Mi"),
)
"""Arguments for workers that have a JVM beside them."""
PARTITIONS = 2
ENDLESS = 10_000_000


@dataclass(frozen=True)
class Written:
    """What a job has written."""

    rows: int
    distinct: int
    missing: int
    """Numbers that are not there though a later one of their partition is."""


class Release:
    """A release named `onyx`."""

    def __init__(self, kube: Kube) -> None:
        self.kube = kube

    # --- helm ------------------------------------------------------------------------------

    def install(self, *arguments: str, chart: Path = CHART) -> None:
        self.kube.helm("install", NAME, str(chart), *_values(), *arguments)
        self.await_ready()

    def install_operator(self, *arguments: str) -> None:
        """An operator and ZooKeeper, for clusters in other namespaces."""
        alone = ("--set", "cluster.create=false", "--set", "data.create=false")
        self.kube.helm("install", NAME, str(CHART), *_values(), *alone, *arguments)
        self._await_operator()

    def upgrade(self, *arguments: str) -> None:
        self.kube.helm("upgrade", NAME, str(CHART), *_values(), *arguments)

    def await_ready(self, workers: int = 2) -> None:
        """Wait until the operator is there and the pool has so many workers, all ready."""
        self._await_operator()
        until(lambda: self._is_whole(workers), f"{workers} workers are ready")

    def _await_operator(self) -> None:
        deployment = f"deployment/{self.operator}"
        self.kube.kubectl(
            "rollout", "status", deployment, f"--timeout={WAIT_S:.0f}s", timeout_s=2 * WAIT_S
        )
        until(self._is_admitted, "an OnyxJob is admitted")

    def _is_admitted(self) -> bool:
        """Whether the API server reaches the webhook: the proxy of its Service learns of an
        operator a moment after that is ready."""
        job = json.dumps(Squares(self, "admitted", 1).manifest(1))
        return bool(self.kube.kubectl("apply", "--dry-run=server", "--filename", "-", given=job))

    def _is_whole(self, workers: int) -> bool:
        cluster = self.kube.get("oc", NAME)
        status = cluster.get("status", {})
        return (
            status.get("observedGeneration") == cluster["metadata"]["generation"]
            and status.get("replicas") == status.get("readyReplicas") == workers
            and "True" in [each["status"] for each in conditions(cluster, "Ready")]
        )

    def remove(self) -> None:
        """Delete the jobs, which nothing holds, and what the chart has made. Its pods end while
        other tests run."""
        for removing in (
            lambda: self.kube.kubectl("delete", "oj", "--all", "--timeout=60s"),
            lambda: self.kube.helm("uninstall", NAME),
        ):
            with contextlib.suppress(CommandError):
                removing()

    # --- parts -----------------------------------------------------------------------------

    @property
    def operator(self) -> str:
        """Name of the operator's deployment."""
        found = self.kube.list("deployments", "app.kubernetes.io/component=operator")
        return str(found[0]["metadata"]["name"])

    def worker(self, number: int = 0) -> str:
        """Name of a worker's pod."""
        return f"{NAME}-worker-{number}"

    def zookeeper(self) -> str:
        found = self.kube.list("pods", "app.kubernetes.io/component=zookeeper")
        return str(found[0]["metadata"]["name"])

    def scale_operator(self, replicas: int) -> None:
        self.kube.kubectl("scale", f"deployment/{self.operator}", f"--replicas={replicas}")

    # --- jobs ------------------------------------------------------------------------------

    def start_squares(self, name: str, per_second: int, segments: int = ENDLESS) -> Squares:
        """Apply a job that goes on for `segments / per_second` seconds, or until it is stopped.

        An operator that a test before has taken away must be back: the API server asks its webhook
        for each change.
        """
        self._await_operator()
        squares = Squares(self, name, segments)
        self.kube.apply(squares.manifest(per_second))
        return squares

    def await_completed(self, job: str) -> None:
        """Wait until a job has completed; fails at once when it cannot any more."""
        until(lambda: self._has_ended(job), f"{job} has ended")
        found = self.kube.get("oj", job)
        assert found["status"]["phase"] == "Completed", found["status"]

    def _has_ended(self, job: str) -> bool:
        return self.kube.phase(job) in ("Completed", "Failed", "Invalid", "Stopped")

    def jobs_by_log(self) -> list[Any]:
        """What the log says of jobs, without the operator: `onyx jobs` in a worker's pod."""
        found: list[Any] = json.loads(
            self.kube.kubectl("exec", self.worker(), "--", "onyx", "jobs", "--json")
        )
        return found

    def goes_on_from(self, job: str, old: str) -> bool:
        """Whether a job runs and upgrades another one."""
        status = self.kube.get("oj", job)["status"]
        return status["phase"] == "Running" and status.get("upgradedFrom", {}).get("jobId") == old

    def rows(self, folder: str) -> list[dict[str, Any]]:
        """The rows of all JSON Lines in a folder of the shared volume."""
        lines = self.kube.tool(self.worker(), "rows", f"/data/{folder}").splitlines()
        return [json.loads(line) for line in lines if line]

    def prepare_flights(self) -> None:
        """Write the input of the flights job to the shared volume, from the image that has it."""
        self.kube.kubectl("exec", self.worker(), "--", "python", "/app/prepare.py", "/data")


class Squares:
    """A job of numbers and their squares: what of it is written can be counted."""

    def __init__(self, release: Release, name: str, segments: int) -> None:
        self.name = name
        self._release = release
        self._segments = segments

    def manifest(self, per_second: int) -> dict[str, Any]:
        options = {
            "segments": self._segments,
            "ratePerSecond": per_second,
            "partitions": PARTITIONS,
        }
        files = {"path": f"squares/{self.name}", "format": "jsonl", "rollSeconds": 1}
        batch = {"batchSize": 100}
        catalog = [
            {"name": "numbers", "type": "input", "plugin": "generator", "options": options},
            {"name": "square", "type": "function", "fn": "squares:square"},
            {"name": "write", "type": "output", "plugin": "files", "options": files},
        ]
        return {
            "apiVersion": "onyx.dev/v1beta1",
            "kind": "OnyxJob",
            "metadata": {"name": self.name},
            "spec": {
                "workflow": [["numbers", "square"], ["square", "write"]],
                "catalog": [{**each, **batch, "maxPeers": 2} for each in catalog],
            },
        }

    def written(self) -> Written:
        """What is in the output now; it becomes visible in parts."""
        pod, path = self._release.worker(), f"/data/squares/{self.name}"
        found = self._release.kube.tool(pod, "squares_written", path, str(PARTITIONS))
        return Written(*map(int, found.split()))

    def await_some(self) -> None:
        """Wait until the job has written something, and so is in the midst of its work."""
        until(lambda: self.written().rows > 0, f"{self.name} has written something")

    def assert_unfinished(self) -> None:
        """The fault that has just been made came before the end."""
        assert self.written().distinct < self._segments, "the job was too short for this test"

    def assert_goes_on(self) -> None:
        """After all that has happened to it, the job writes more."""
        before = self.written().distinct
        until(lambda: self.written().distinct > before, f"{self.name} writes more")

    def assert_whole(self) -> None:
        """The job completes and every number is there."""
        self._release.await_completed(self.name)
        found = self.written()
        assert (found.distinct, found.missing) == (self._segments, 0)

    def stop_and_assert_whole(self) -> None:
        """The job is drained, and every number is there up to the last one that it has read."""
        kube = self._release.kube
        patch = '{"spec":{"desiredState":"Stopped"}}'
        kube.kubectl("patch", "oj", self.name, "--type", "merge", "--patch", patch)
        until(lambda: kube.phase(self.name) == "Stopped", f"{self.name} is stopped")
        found, status = self.written(), kube.get("oj", self.name)["status"]
        assert found.missing == 0
        assert found.distinct >= status["progress"]["completed"] > 0, status


def conditions(found: Any, kind: str) -> list[Any]:
    """The conditions of an object of one type."""
    return [each for each in found.get("status", {}).get("conditions", []) if each["type"] == kind]


def _values() -> list[str]:
    found = ["--values", str(HERE / "values.yaml")]
    found += ["--set-file", f"cluster.code.files.squares\\.py={HERE / 'squares.py'}"]
    found += ["--set", f"cluster.image={image('FLIGHTS_IMAGE')}"]
    for prefix, variable in PREFIXES.items():
        registry, _, rest = image(variable).rpartition("/")
        repository, _, tag = rest.partition(":")
        parts = {"registry": registry, "repository": repository, "tag": tag}
        for key, value in parts.items():
            found += ["--set", f"{prefix}.{key}={value}"]
    return found
