"""Images into the node: what podman or docker has built here, and the pause image of every pod.

The pause image holds one file, catatonit, which is linked statically and can do just that (`-P`).
It is written as an archive, so that a node needs no program that builds images.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.commands import ClusterError, run, succeeds
from tests.cluster.layout import STATE

PAUSE_IMAGE = "localhost/pause:1"
LOAD_TIMEOUT_S = 600.0
_NAMESPACE = "k8s.io"


def import_pause_image(socket: Path) -> None:
    """Make the pause image and put it where containerd finds it."""
    archive = STATE / "pause.tar"
    program = shutil.which("catatonit")
    if program is None:
        raise ClusterError("catatonit is not installed")
    archive.write_bytes(_archive(Path(program).read_bytes()))
    _ctr(socket, "images", "import", str(archive))


def load_images(names: Sequence[str], socket: Path) -> None:
    """Copy images of this machine's podman or docker into the node, what they share only once.

    Raises:
        ClusterError: there is no such image, or neither program.
    """
    archive = STATE / "images.tar"
    archive.unlink(missing_ok=True)
    engine = engine_here()
    together = ["--multi-image-archive"] if engine == "podman" else []
    try:
        run(engine, "save", *together, "--output", archive, *names, timeout_s=LOAD_TIMEOUT_S)
        _ctr(socket, "images", "import", str(archive))
    finally:
        archive.unlink(missing_ok=True)
    for name in names:
        if engine == "podman" and name_in_pods(name) != name:
            tag = ("images", "tag", "--force", f"localhost/{name}", name_in_pods(name))
            _ctr(socket, *tag)


def name_in_pods(name: str) -> str:
    """What Kubernetes makes of an image's name; podman keeps one without a registry as its own."""
    first, slash, _ = name.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first):
        return name
    return f"docker.io/{name}" if slash else f"docker.io/library/{name}"


def engine_here() -> str:
    """`docker` where its daemon answers, else `podman`."""
    return "docker" if succeeds("docker", "info") else "podman"


def _ctr(socket: Path, *arguments: str) -> None:
    command = ("ctr", "--address", str(socket), "--namespace", _NAMESPACE, *arguments)
    run(*command, timeout_s=LOAD_TIMEOUT_S)


def _archive(program: bytes) -> bytes:
    """An image archive as `docker save` writes it, with one layer of one file."""
    layer = _tar({"pause": (program, 0o755)})
    configuration = {
        "architecture": _architecture(),
        "os": "linux",
        "config": {"Entrypoint": ["/pause", "-P"], "User": "65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [PAUSE_IMAGE], "Layers": ["layer.tar"]}]
    return _tar(
        {
            "config.json": (json.dumps(configuration).encode(), 0o644),
            "manifest.json": (json.dumps(manifest).encode(), 0o644),
            "layer.tar": (layer, 0o644),
        }
    )


def _tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _architecture() -> str:
    machine = subprocess.run(["uname", "-m"], capture_output=True, text=True, check=True)
    return {"x86_64": "amd64", "aarch64": "arm64"}[machine.stdout.strip()]
