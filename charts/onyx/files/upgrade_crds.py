"""Apply the custom resource definitions of this release: what Helm does not do on an upgrade.

Usage: python upgrade_crds.py FOLDER
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

import yaml

from onyx_operator.api_client import cluster_configuration
from onyx_operator.kube import Kube, Resource
from onyx_operator.settings import KubeSettings

DEFINITIONS = Resource(
    "apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions"
)


async def main(folder: str) -> int:
    with contextlib.closing(Kube(KubeSettings(), cluster_configuration())) as kube:
        for file in sorted(Path(folder).glob("*.yaml")):
            definition = yaml.safe_load(file.read_text())
            await kube.apply(DEFINITIONS, definition, "onyx-chart")
            print(f"applied {definition['metadata']['name']}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1])))
