"""Building the images on a plain machine, where podman is the engine.

The Dockerfiles need nothing of this. It is about the machine: podman's settings where a process may
not raise its limits, its own bundle of authorities for the builds, the network of the machine
instead of one that changes its packet filter, and a stand-in for the base image, made from
Debian's packages, where no registry of images can be reached.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

from release.images import IMAGES
from tests.cluster.commands import ClusterError, run, succeeds
from tests.cluster.components import IMAGE_PACKAGES
from tests.cluster.images import engine_here
from tests.cluster.layout import CACHE
from tests.cluster.packages import install

BASE = "docker.io/library/python:3.13-slim-trixie"
BUILD_TIMEOUT_S = 1800.0
PULL_TIMEOUT_S = 120.0
_SUITE = "trixie"
_UNNEEDED = (
    *("usr/share/doc", "usr/share/info", "usr/share/locale", "usr/share/man"),
    *("var/cache/apt/archives", "var/lib/apt/lists"),
)
_ROOT = Path(__file__).parents[2]
_AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
_SETTINGS = """\
[containers]
default_ulimits = ["nofile=1024:4096", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
"""


def build_images() -> list[str]:
    """Build all images by `make images`; their names.

    Raises:
        ClusterError: there is no engine, or a build failed.
    """
    engine = engine_here()
    flags = _prepare_podman() if engine == "podman" else ""
    command = ["make", "images", f"ENGINE={engine}", f"BUILD_FLAGS={flags}"]
    if subprocess.run(command, cwd=_ROOT, timeout=BUILD_TIMEOUT_S, check=False).returncode != 0:
        raise ClusterError("the images could not be built: see above")
    return [each.name(os.environ) for each in IMAGES]


def _prepare_podman() -> str:
    """Everything that podman misses on this machine; the flags of its builds."""
    install(IMAGE_PACKAGES)
    if not shutil.which("podman"):
        raise ClusterError("there is no running docker, and no podman is installed")
    CACHE.mkdir(parents=True, exist_ok=True)
    settings = CACHE / "containers.conf"
    settings.write_text(_SETTINGS)
    os.environ["CONTAINERS_CONF"] = str(settings)
    _ensure_base()
    trusted = f"--volume {_AUTHORITIES}:{_AUTHORITIES}:ro" if _AUTHORITIES.exists() else ""
    return f"--network host {trusted}"


def _ensure_base() -> None:
    if succeeds("podman", "image", "exists", BASE):
        return
    with contextlib.suppress(ClusterError):
        run("podman", "pull", BASE, timeout_s=PULL_TIMEOUT_S)
        return
    print(f"{BASE} cannot be pulled: making a stand-in from Debian's packages", flush=True)
    folder = CACHE / "base"
    try:
        _make_base(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _mirror() -> str:
    """Where apt on this machine finds Debian, which has that suite too."""
    asked = ("apt-get", "indextargets", "--format", "$(ORIGIN) $(SUITE) $(REPO_URI)")
    found = [line.split() for line in run(*asked).splitlines()]
    mirrors = [each[-1] for each in found if each[0] == "Debian" and "-" not in each[1]]
    if not mirrors:
        raise ClusterError("apt has no source of Debian, of which the base image is made")
    return mirrors[0]


def _make_base(folder: Path) -> None:
    """A minimal Debian with its Python, which is the same version, named as the real base does."""
    packages = "--include=python3,python3-venv,python3-pip,ca-certificates"
    command = ("debootstrap", "--variant=minbase", packages, _SUITE, folder, _mirror())
    run(*command, timeout_s=BUILD_TIMEOUT_S)
    (folder / "usr/lib/python3.13/EXTERNALLY-MANAGED").unlink()
    (folder / "usr/bin/python").symlink_to("python3")
    for each in _UNNEEDED:
        shutil.rmtree(folder / each)
    archive = CACHE / "base.tar"
    try:
        run("tar", "-C", folder, "-cf", archive, ".", timeout_s=BUILD_TIMEOUT_S)
        run("podman", "import", archive, BASE, timeout_s=BUILD_TIMEOUT_S)
    finally:
        archive.unlink(missing_ok=True)
