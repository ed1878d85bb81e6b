"""Sizes of the images, and time to ready and memory at rest of the pods on a real cluster.

    make cluster cluster-images
    KUBECONFIG=~/.cache/onyx-cluster/state/kubeconfig python -m benchmarks.kubernetes [--quick]

It installs the chart in a namespace of its own. The size of an image is given twice: unpacked, as
the engine lists it, and with gzip, as it is pulled. Time to ready is from the creation of a pod to
its condition, in whole seconds as Kubernetes keeps them, with the image on the node already. Memory
is what the container's processes have resident. Goals of memory are what the chart's pods ask for.
"""

from __future__ import annotations

import argparse
import subprocess
import time
import uuid
import zlib
from collections.abc import Sequence
from datetime import datetime
from statistics import median
from typing import Any

from benchmarks.figures import Figure, Measured, Options, Size, parser, run
from release.images import BY_VARIABLE
from tests.cluster.images import engine_here
from tests.e2e.kube import Kube, image, until
from tests.e2e.release import WORKERS, Release

UNPACKED_GOALS_MB = {
    "WORKER_IMAGE": 400,
    "SPARK_IMAGE": 1_500,
    "ZOOKEEPER_IMAGE": 300,
    "OPERATOR_IMAGE": 310,
}
READY_GOAL_S = 15.0
REST_S = 30.0
_BLOCK_BYTES = 1 << 20
_RESIDENT = """
import pathlib, re
found = [path.read_text() for path in pathlib.Path("/proc").glob("[0-9]*/status")]
print(sum(int(re.search(r"VmRSS:\\s+(\\d+)", text)[1]) for text in found if "VmRSS" in text))
"""


def image_figures(variable: str) -> list[Figure]:
    """Size of one image, unpacked and compressed."""
    name, goal_mb = image(variable), UNPACKED_GOALS_MB[variable]
    engine = engine_here()
    command = [engine, "image", "inspect", "--format", "{{.Size}}", name]
    unpacked = int(subprocess.run(command, capture_output=True, check=True).stdout)
    sizes = {"unpacked": unpacked, "as pulled": _compressed_bytes(engine, name)}
    title = BY_VARIABLE[variable].repository + BY_VARIABLE[variable].suffix
    return [
        Figure(f"image {title}, {how}", size / 1e6, "MB", goal_mb) for how, size in sizes.items()
    ]


def _compressed_bytes(engine: str, name: str) -> int:
    packer, size = zlib.compressobj(6), 0
    with subprocess.Popen([engine, "save", name], stdout=subprocess.PIPE) as saved:
        assert saved.stdout is not None
        while block := saved.stdout.read(_BLOCK_BYTES):
            size += len(packer.compress(block))
    assert saved.returncode == 0, f"{engine} cannot save {name}"
    return size + len(packer.flush())


def seconds_to_ready(pod: Any) -> float:
    """From the creation of a pod to its readiness."""
    (ready,) = [each for each in pod["status"]["conditions"] if each["type"] == "Ready"]
    times = (pod["metadata"]["creationTimestamp"], ready["lastTransitionTime"])
    created, became = (datetime.fromisoformat(each.replace("Z", "+00:00")) for each in times)
    return (became - created).total_seconds()


def start_again(release: Release, pod: str) -> float:
    """Delete a worker's pod; seconds to ready of the one that replaces it."""
    before = release.kube.get("pod", pod)["metadata"]["uid"]
    release.kube.kubectl("delete", "pod", pod)
    until(lambda: release.kube.get("pod", pod)["metadata"]["uid"] != before, f"a new {pod}")
    release.kube.wait(f"pod/{pod}", "Ready")
    return seconds_to_ready(release.kube.get("pod", pod))


def memory_figures(release: Release) -> list[Figure]:
    """Resident memory of a worker, the operator and ZooKeeper, after a rest."""
    (operator,) = release.kube.list("pods", "app.kubernetes.io/component=operator")
    pods = {
        "a worker with 4 peers": (release.worker(), 1024),
        "the operator": (operator["metadata"]["name"], 128),
        "ZooKeeper": (release.zookeeper(), 384),
    }
    return [
        Figure(f"memory at rest of {what}", int(release.kube.python(pod, _RESIDENT)) / 1024, "MiB",
               goal)
        for what, (pod, goal) in pods.items()
    ]  # fmt: skip


def measure(options: argparse.Namespace) -> Measured:
    full = options.size is Size.FULL
    figures = [each for name in UNPACKED_GOALS_MB for each in image_figures(name)] if full else []
    kube = Kube(f"onyx-figures-{uuid.uuid4().hex[:6]}")
    kube.kubectl("create", "namespace", kube.namespace)
    try:
        release = Release(kube)
        release.install()
        first = [seconds_to_ready(each) for each in kube.list("pods", WORKERS)]
        times = [start_again(release, release.worker()) for _ in range(options.repeats)]
        figures.append(
            Figure("worker pod, created to ready", median(times), "s", READY_GOAL_S,
                   best=min(times), note=f"with operator and ZooKeeper: {max(first):.0f} s")
        )  # fmt: skip
        time.sleep(REST_S)
        figures += memory_figures(release)
        kube.helm("uninstall", "onyx", "--wait")
    finally:
        kube.kubectl("delete", "namespace", kube.namespace, timeout_s=300)
    return Measured(figures, {"seconds_to_ready": times})


def options() -> Options:
    made = parser(__doc__)
    made.sized("--repeats", 5, 1, 1)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
