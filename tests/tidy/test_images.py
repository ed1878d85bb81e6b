"""The Dockerfiles agree with the code: what an image leaves out is not imported there."""

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


IMPORT_SERVER = """
import sys
from importlib.metadata import packages_distributions
import onyx.cli.commands.zookeeper
names = packages_distributions()
tops = {name.partition(".")[0] for name in sys.modules}
print(*{each for top in tops for each in names.get(top, ())})
"""
OF_OTHERS = {"onyx-on-kubernetes", "setuptools", "typing_extensions"}


def listed(dockerfile: str, argument: str) -> set[str]:
    text = (ROOT / dockerfile).read_text()
    return set(re.findall(rf'{argument}="([^"]*)"', text)[0].split())


def left_out() -> set[str]:
    return listed("Dockerfile.operator", "WORKER_ONLY")


def test_the_image_of_workers_has_every_extra_that_jobs_may_need_but_spark() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (everything,) = project["optional-dependencies"]["all"]
    extras = set(re.findall(r"\[(.*)\]", everything)[0].split(","))

    assert listed("Dockerfile.worker", "EXTRAS") == extras - {"spark"}


def test_the_image_of_zookeeper_has_what_its_command_imports() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_SERVER], capture_output=True, text=True, check=True
    )

    imported = set(done.stdout.split()) - OF_OTHERS
    assert imported
    assert imported <= {each.replace("-", "_") for each in listed("Dockerfile.worker", "SERVER")}


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
