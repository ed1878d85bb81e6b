"""`make package`: the chart as an archive, as Helm takes it, and as an artifact of a registry.

What Artifact Hub shows is written on the way: definitions with examples, images, changes. In the
source it would be four copies of what stands elsewhere. The archive has no times in it. The
artifact is a layout (OCI) in one file, which `oras cp --from-oci-layout` and `skopeo copy
oci-archive:...` send; `helm push` takes the archive and makes the same of it. Needs no helm.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import sys
import tarfile
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml

from release.images import IMAGES, ROOT, version

CHART = ROOT / "charts" / "onyx"
CHANGES = ROOT / "CHANGELOG.md"
_EXAMPLES = ("docs/operations/install.md", "docs/operations/clusters.md")
"""Pages whose first example is a whole object."""
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.cncf.helm.config.v1+json"
_LAYER = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"


class ReleaseError(Exception):
    """What is to be released does not fit together."""


def changes(text: str, of: str) -> tuple[str, list[str]]:
    """The heading and the points of a version in the changes.

    Raises:
        ReleaseError: there are none.
    """
    found = re.search(rf"^## ({re.escape(of)}(?![.\w]).*)\n((?:(?!## ).*\n?)*)", text, re.MULTILINE)
    points = [] if found is None else re.split(r"^\* ", found[2], flags=re.MULTILINE)[1:]
    if found is None or not points:
        raise ReleaseError(f"CHANGELOG.md has no points below a heading `## {of}`")
    return found[1].strip(), [" ".join(each.split()) for each in points]


def described(variables: Mapping[str, str]) -> dict[str, Any]:
    """`Chart.yaml` with what Artifact Hub shows.

    Args:
        variables: names of images, as `make images` takes them.
    """
    chart: dict[str, Any] = yaml.safe_load((CHART / "Chart.yaml").read_text())
    _, points = changes(CHANGES.read_text(), version())
    own = [each for each in IMAGES if not each.on]
    images = [
        {"name": each.repository + each.suffix, "image": each.name({"TAG": version(), **variables})}
        for each in own
    ]
    found = {
        "operator": "true",
        "category": "streaming-messaging",
        "crds": _yaml([_definition(path) for path in sorted((CHART / "crds").glob("*.yaml"))]),
        "crdsExamples": _yaml([_example(path) for path in _EXAMPLES]),
        "images": _yaml(images),
        "changes": _yaml([{"kind": "added", "description": _plain(each)} for each in points]),
    }
    return {**chart, "annotations": {f"artifacthub.io/{key}": each for key, each in found.items()}}


def _yaml(value: object) -> str:
    return yaml.safe_dump(value, sort_keys=False, width=100)


def _plain(markdown: str) -> str:
    return re.sub(r"\*\*|`", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", markdown))


def _definition(path: Path) -> dict[str, str]:
    body = yaml.safe_load(path.read_text())
    (stored,) = (each for each in body["spec"]["versions"] if each["storage"])
    says = stored["schema"]["openAPIV3Schema"]["description"]
    names = body["spec"]["names"]
    return {
        "kind": names["kind"],
        "version": stored["name"],
        "name": body["metadata"]["name"],
        "displayName": re.sub(r"(?<=[a-z])(?=[A-Z])", " ", names["kind"]),
        "description": says,
    }


def _example(path: str) -> Any:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / path).read_text(), re.DOTALL)
    return yaml.safe_load(blocks[0])


def package(into: Path, variables: Mapping[str, str]) -> tuple[Path, Path]:
    """Write the archive and the artifact; their paths."""
    chart = described(variables)
    archive = into / f"onyx-{chart['version']}.tgz"
    into.mkdir(parents=True, exist_ok=True)
    archive.write_bytes(_archive(chart))
    artifact = into / f"onyx-{chart['version']}.oci.tar"
    artifact.write_bytes(_artifact(chart, archive.read_bytes()))
    return archive, artifact


def _archive(chart: Mapping[str, Any]) -> bytes:
    ignored = (CHART / ".helmignore").read_text().split()
    paths = [path.relative_to(CHART) for path in sorted(CHART.rglob("*")) if path.is_file()]
    kept = [each for each in paths if not any(fnmatch(each.name, what) for what in ignored)]
    files = {f"onyx/{each}": (CHART / each).read_bytes() for each in kept}
    # Helm wants the description of the chart first.
    first = {"onyx/Chart.yaml": _yaml(dict(chart)).encode()}
    return gzip.compress(_tar({**first, **files, **first}.items()), mtime=0)


def _artifact(chart: Mapping[str, Any], archive: bytes) -> bytes:
    blobs: dict[str, bytes] = {}

    def blob(kind: str, content: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    marks = {
        "title": chart["name"],
        "version": chart["version"],
        "description": chart["description"],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": blob(_CONFIG, json.dumps(chart).encode()),
        "layers": [blob(_LAYER, archive)],
        "annotations": {f"org.opencontainers.image.{key}": each for key, each in marks.items()},
    }
    entry = blob(_MANIFEST, json.dumps(manifest).encode())
    entry["annotations"] = {"org.opencontainers.image.ref.name": chart["version"]}
    layout = {
        "oci-layout": json.dumps({"imageLayoutVersion": "1.0.0"}).encode(),
        "index.json": json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode(),
    }
    return _tar([*layout.items(), *blobs.items()])


def _tar(files: Iterable[tuple[str, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def main() -> int:
    """`python -m release.chart FOLDER`; its exit code."""
    for path in package(Path(sys.argv[1]), os.environ):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
