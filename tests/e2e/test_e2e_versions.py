"""Objects that were stored under a former version of the definitions, after these are upgraded.

The definitions are those of a group of their own: nobody else's objects change. They need no node.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.kube import Kube, run, tool, until
from tests.e2e.release import CRDS
from tests.support.generated.crd_changes import RELEASED

SPEC = {
    "workflow": [["in", "out"]],
    "catalog": [
        {"name": "in", "type": "input", "plugin": "sequence", "batchSize": 10},
        {"name": "out", "type": "output", "plugin": "stdout", "batchSize": 10},
    ],
}


@pytest.fixture
def group(kube: Kube) -> Iterator[str]:
    """A group of the API with the OnyxJob of the last release."""
    name = f"{kube.namespace}.example"
    _define(RELEASED, name)
    yield name
    run([tool("kubectl"), "delete", "crd", f"onyxjobs.{name}"])


def test_a_job_of_the_last_release_is_there_under_the_new_version(kube: Kube, group: str) -> None:
    plural = f"onyxjobs.v1beta1.{group}"
    kube.apply(_job("old", f"{group}/v1alpha1"))

    _define(CRDS, group)

    found = until(lambda: kube.get(plural, "old"), "the new version is served")
    assert found["apiVersion"] == f"{group}/v1beta1"
    assert found["spec"]["workflow"] == SPEC["workflow"]
    phase = {"status": {"phase": "Running"}}
    patch = ["--subresource=status", "--type=merge", "--patch", json.dumps(phase)]
    kube.kubectl("patch", plural, "old", *patch)
    kube.apply(_job("other", f"{group}/v1alpha1"))  # with a warning
    running = ["--field-selector", "status.phase=Running", "--output", "name"]
    assert kube.kubectl("get", plural, *running).split() == [f"onyxjob.{group}/old"]


def _define(folder: Path, group: str) -> None:
    definition = yaml.safe_load((folder / "onyxjob.yaml").read_text("utf-8"))
    definition["metadata"]["name"] = f"onyxjobs.{group}"
    definition["spec"]["group"] = group
    del definition["spec"]["names"]["shortNames"], definition["spec"]["names"]["categories"]
    given = json.dumps(definition)
    run([tool("kubectl"), "apply", "--server-side", "--filename", "-"], given)
    run([tool("kubectl"), "wait", f"crd/onyxjobs.{group}", "--for=condition=Established"])


def _job(name: str, version: str) -> dict[str, Any]:
    return {"apiVersion": version, "kind": "OnyxJob", "metadata": {"name": name}, "spec": SPEC}
