"""The Dockerfiles agree with the code: what the operator's image leaves out is not imported."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES = {
    "grpcio": "grpc",
    "protobuf": "google.protobuf",
    "pyarrow": "pyarrow",
    "rich": "rich",
}
"""What the dependencies are imported as that the image leaves out."""
IMPORT_ALL = """
import importlib, pkgutil, sys
import onyx_operator
for found in pkgutil.walk_packages(onyx_operator.__path__, "onyx_operator."):
    importlib.import_module(found.name)
print(*sys.modules)
"""


def left_out() -> set[str]:
    text = (ROOT / "Dockerfile.operator").read_text()
    return set(re.findall(r'WORKER_ONLY="([^"]*)"', text)[0].split())


def test_what_the_operator_image_leaves_out_is_a_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[^\w-]", each)[0] for each in project["dependencies"]}

    assert left_out() == set(MODULES)
    assert left_out() <= names


def test_the_operator_imports_nothing_that_its_image_leaves_out() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, check=True
    )

    imported = set(done.stdout.split())
    assert "kopf" in imported
    assert imported & {MODULES[each] for each in left_out()} == set()
