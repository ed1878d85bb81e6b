"""`make images`: one table of the images, and the commands of docker or podman that build them.

    python -m release.images ENGINE [PLATFORM...]

The names come from `REGISTRY` and `TAG`, or one by one from variables (`WORKER_IMAGE=...`), further
flags from `BUILD_FLAGS`, the address of the source from `SOURCE`. Layers are shared: the stages of
one Dockerfile are built once. Several platforms need an emulator or, with docker, a builder that
has such machines; podman would fail in the middle of a build with "exec format error", so this is
looked at before.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
EMULATORS = Path("/proc/sys/fs/binfmt_misc")
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


class Image(NamedTuple):
    """One image and how it is built."""

    variable: str
    """Variable that gives it another name."""
    repository: str
    dockerfile: str
    target: str = ""
    """Stage of the Dockerfile; empty: the last."""
    context: str = "."
    on: str = ""
    """Variable of the image that it is built on."""
    suffix: str = ""
    """Of its tag."""

    def name(self, variables: Mapping[str, str]) -> str:
        """What it is called."""
        registry, tag = variables.get("REGISTRY", "localhost"), variables.get("TAG", "dev")
        default = f"{registry}{'/' if registry else ''}{self.repository}:{tag}{self.suffix}"
        return variables.get(self.variable) or default


_WORKER, _FLIGHTS = "Dockerfile.worker", ("examples/flights/Dockerfile", "", "examples/flights")
IMAGES = (
    Image("WORKER_IMAGE", "onyx-worker", _WORKER, "worker"),
    Image("SPARK_IMAGE", "onyx-worker", _WORKER, "worker-spark", suffix="-spark"),
    Image("ZOOKEEPER_IMAGE", "onyx-zookeeper", _WORKER, "zookeeper"),
    Image("OPERATOR_IMAGE", "onyx-operator", "Dockerfile.operator"),
    Image("FLIGHTS_IMAGE", "onyx-flights", *_FLIGHTS, on="WORKER_IMAGE"),
    Image("FLIGHTS_SPARK_IMAGE", "onyx-flights", *_FLIGHTS, on="SPARK_IMAGE", suffix="-spark"),
)
BY_VARIABLE = {each.variable: each for each in IMAGES}


def version() -> str:
    """The version of this source."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def labels(source: str, revision: str) -> dict[str, str]:
    """Labels of all images beside title and description. The licence is the owner's to choose."""
    found = {"version": version(), "revision": revision, "source": source}
    return {f"org.opencontainers.image.{key}": each for key, each in found.items() if each}


def commands(
    engine: str, variables: Mapping[str, str], platforms: Sequence[str], revision: str
) -> Iterator[list[str]]:
    """The commands that build all images, in order.

    Args:
        variables: names of images, flags, the source.
        platforms: `linux/arm64`; none: this machine's.
        revision: commit of the source.
    """
    marks = labels(variables.get("SOURCE", ""), revision)
    for image in IMAGES:
        name = image.name(variables)
        command = [engine, "build", *shlex.split(variables.get("BUILD_FLAGS", ""))]
        for key, each in marks.items():
            command += ["--label", f"{key}={each}"]
        if platforms:
            command += ["--platform", ",".join(platforms)]
        if image.target:
            command += ["--target", image.target]
        if image.on:
            base = BY_VARIABLE[image.on].name(variables)
            command += ["--build-arg", f"WORKER={base}"]
        # A name of podman's is one image, unless it is said to be a list of them.
        many = engine == "podman" and len(platforms) > 1
        command += ["--manifest" if many else "--tag", name]
        yield [*command, "--file", image.dockerfile, image.context]


def why_impossible(engine: str, platforms: Sequence[str], machine: str, emulators: Path) -> str:
    """Why images for these platforms cannot be built; empty if nothing is known against it.

    Args:
        engine: docker has builders of its own, and says itself what they cannot.
        machine: of this machine, as the kernel calls it.
        emulators: the folder where the kernel lists them.
    """
    for each in platforms:
        system, _, kind = each.partition("/")
        if system != "linux" or kind not in _MACHINES:
            known = ", ".join(f"linux/{kind}" for kind in _MACHINES)
            return f"PLATFORMS: {each} is none that the packages of Onyx have; they have {known}"
        wanted = _MACHINES[kind]
        runs = wanted == machine or (emulators / f"qemu-{wanted}").exists()
        if engine != "docker" and not runs:
            return (
                f"PLATFORMS: this machine ({machine}) cannot run programs of {each}: install an "
                "emulator that the kernel calls (qemu-user-static with binfmt-support), or build "
                "by docker with a builder that has one"
            )
    return ""


def build(engine: str, platforms: Sequence[str], variables: Mapping[str, str]) -> int:
    """Build all images; the exit code."""
    why = why_impossible(engine, platforms, platform.machine(), EMULATORS)
    if why:
        print(f"release.images: {why}", file=sys.stderr)
        return 1
    asked = ("git", "-C", str(ROOT), "rev-parse", "HEAD")
    revision = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    for command in commands(engine, variables, platforms, revision):
        print(shlex.join(command), flush=True)
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    wanted = [each for each in ",".join(sys.argv[2:]).split(",") if each]
    sys.exit(build(sys.argv[1], wanted, os.environ))
