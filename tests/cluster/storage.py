"""Persistent volumes: a provisioner that makes a folder of this machine a volume.

Kubernetes' own hostPath provisioner makes folders that only root can write, and takes no notice of
`fsGroup`; volumes of type `local` do. So this process, as provisioners do, watches for claims of
its class, makes a volume bound to each, and removes what has been released. A claim may be
ReadWriteMany, since there is one node.

    python -m tests.cluster.storage KUBECONFIG FOLDER
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Any

from kubernetes import client, config, watch
from tests.cluster.layout import NODE_NAME

CLASS = "onyx-local"
PROVISIONER = "onyx.dev/local"
WATCH_S = 10
"""Longest time until a released volume is removed: its release follows that of the claim."""
RETRY_S = 1.0


def main() -> None:
    config.load_kube_config(sys.argv[1])
    folder = Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    core = client.CoreV1Api()
    _make_class()
    while True:
        try:
            _serve(core, folder)
        except (client.ApiException, OSError) as error:
            print(f"watching again after: {error}", flush=True)
            time.sleep(RETRY_S)


def _serve(core: client.CoreV1Api, folder: Path) -> None:
    """Look at every claim and volume, then again after each change of a claim or volume."""
    while True:
        claims = core.list_persistent_volume_claim_for_all_namespaces()
        for claim in claims.items:
            if claim.spec.storage_class_name == CLASS and claim.status.phase == "Pending":
                _make_volume(core, folder, claim)
        for volume in core.list_persistent_volume().items:
            if volume.spec.storage_class_name == CLASS and volume.status.phase == "Released":
                core.delete_persistent_volume(volume.metadata.name)
                shutil.rmtree(folder / volume.metadata.name, ignore_errors=True)
        _await_change(core, claims.metadata.resource_version)


def _await_change(core: client.CoreV1Api, since: str) -> None:
    stream = watch.Watch()
    for _ in stream.stream(
        core.list_persistent_volume_claim_for_all_namespaces,
        resource_version=since,
        timeout_seconds=WATCH_S,
    ):
        stream.stop()


def _make_volume(core: client.CoreV1Api, folder: Path, claim: Any) -> None:
    name = f"local-{claim.metadata.uid}"
    path = folder / name
    path.mkdir(exist_ok=True)
    reference = {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "namespace": claim.metadata.namespace,
        "name": claim.metadata.name,
        "uid": claim.metadata.uid,
    }
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE_NAME]}
    spec = {
        "accessModes": claim.spec.access_modes,
        "capacity": {"storage": claim.spec.resources.requests["storage"]},
        "claimRef": reference,
        "local": {"path": str(path)},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": CLASS,
    }
    try:
        core.create_persistent_volume({"metadata": {"name": name}, "spec": spec})
    except client.ApiException as error:
        if error.status != 409:
            raise


def _make_class() -> None:
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    body = {
        "metadata": {"name": CLASS, "annotations": default},
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
    }
    try:
        client.StorageV1Api().create_storage_class(body)
    except client.ApiException as error:
        if error.status != 409:
            raise


if __name__ == "__main__":
    main()
