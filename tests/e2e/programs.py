"""A server that a test needs in the cluster and no image has: its program is written to the volume
of the workers, and runs in a pod beside them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.kube import Kube, image
from tests.e2e.load import container_rights, pod_rights
from tests.e2e.release import NAME, Release

_WRITE = """
import base64, os, sys
with open(sys.argv[1], "wb") as program:
    program.write(base64.b64decode(sys.stdin.buffer.read()))
os.chmod(sys.argv[1], 0o755)
for folder in sys.argv[2:]:
    os.makedirs(folder, exist_ok=True)
"""


def give(release: Release, program: Path, *folders: str) -> None:
    """Write a program to the volume, and make folders there."""
    text = base64.b64encode(program.read_bytes()).decode()
    wanted = (f"/data/{program.name}", *(f"/data/{each}" for each in folders))
    command = ("exec", "--stdin", release.worker(), "--", "python", "-c", _WRITE, *wanted)
    release.kube.kubectl(*command, given=text)


def serve(kube: Kube, name: str, program: Path, port: int, arguments: Sequence[str]) -> None:
    """Run it in a pod that keeps what it has on that volume, and its name."""
    container = {
        "name": name,
        "image": image("WORKER_IMAGE"),
        "imagePullPolicy": "IfNotPresent",
        "command": [f"/data/{program.name}", *arguments],
        "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1},
        "securityContext": container_rights(),
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": f"{NAME}-data"}}
    spec = {"securityContext": pod_rights(), "containers": [container], "volumes": [volume]}
    metadata = {"name": name, "labels": {"app": name}}
    service = {"selector": {"app": name}, "ports": [{"port": port}]}
    kube.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    kube.apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service})
    kube.wait(f"pod/{name}", "Ready")
