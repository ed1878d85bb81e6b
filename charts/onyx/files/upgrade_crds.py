"""Apply the custom resource definitions of this release: what Helm does not do on an upgrade.

Usage: python upgrade_crds.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml
from kubernetes import client

from onyx_operator.kube import api_client, cluster_configuration


def main(folder: str) -> int:
    api = client.ApiextensionsV1Api(api_client(cluster_configuration()))
    for file in sorted(Path(folder).glob("*.yaml")):
        definition = yaml.safe_load(file.read_text())
        name = definition["metadata"]["name"]
        api.patch_custom_resource_definition(
            name,
            definition,
            field_manager="onyx-chart",
            force=True,
            _content_type="application/apply-patch+yaml",
        )
        print(f"applied {name}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
