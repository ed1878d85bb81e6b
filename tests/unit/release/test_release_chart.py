"""`make package`: what Helm and registries take, with what Artifact Hub shows."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml
from release.chart import CHART, ReleaseError, changes, described, package
from release.images import version

TEXT = """\
# Changes

## 0.2.0, 2027-01-01

* **One**: a thing
  in two lines.
* Another.

## 0.1.0, not released

* The first.
"""


def test_the_points_of_a_version_are_below_its_heading() -> None:
    heading, points = changes(TEXT, "0.2.0")
    assert (heading, points) == (
        "0.2.0, 2027-01-01",
        ["**One**: a thing in two lines.", "Another."],
    )
    assert changes(TEXT, "0.1.0") == ("0.1.0, not released", ["The first."])


@pytest.mark.parametrize("absent", ["0.2", "0.3.0"])
def test_a_version_that_the_changes_do_not_speak_of_is_refused(absent: str) -> None:
    with pytest.raises(ReleaseError, match=f"below a heading `## {absent}`"):
        changes(TEXT, absent)


def annotation(key: str, **variables: str) -> Any:
    return yaml.safe_load(described(variables)["annotations"][f"artifacthub.io/{key}"])


def test_artifact_hub_is_told_of_definitions_examples_images_and_changes() -> None:
    kinds = {"OnyxCluster", "OnyxJob"}
    assert {each["kind"] for each in annotation("crds")} == kinds
    assert {each["version"] for each in annotation("crds")} == {"v1beta1"}
    assert {each["kind"] for each in annotation("crdsExamples")} == kinds
    assert [each["image"] for each in annotation("images", REGISTRY="r.example")] == [
        f"r.example/onyx-worker:{version()}",
        f"r.example/onyx-worker:{version()}-spark",
        f"r.example/onyx-zookeeper:{version()}",
        f"r.example/onyx-operator:{version()}",
    ]
    assert all(each["description"] for each in annotation("changes"))
    assert "**" not in str(annotation("changes"))


@pytest.fixture(scope="module")
def packaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return package(tmp_path_factory.mktemp("chart"), {})


def test_helm_takes_the_archive(packaged: tuple[Path, Path]) -> None:
    archive, _ = packaged
    chart = helm_python.Chart.load_archive(archive.read_bytes())
    rendered = chart.render({}, name="onyx", namespace="onyx")
    whole = helm_python.Chart.load(CHART).render({}, name="onyx", namespace="onyx")
    assert rendered == whole
    assert len(chart.crds) == 2
    with tarfile.open(archive) as packed:
        names = packed.getnames()
    assert names[0] == "onyx/Chart.yaml"
    assert "onyx/values/production.yaml" in names
    assert not [each for each in names if each.endswith((".tgz", ".helmignore"))]


def test_the_same_chart_is_the_same_archive(packaged: tuple[Path, Path], tmp_path: Path) -> None:
    for before, now in zip(packaged, package(tmp_path, {}), strict=True):
        assert before.read_bytes() == now.read_bytes()


def test_the_artifact_holds_what_it_names(packaged: tuple[Path, Path]) -> None:
    archive, artifact = packaged
    with tarfile.open(artifact) as found:
        files = {each.name: found.extractfile(each).read() for each in found}  # type: ignore[union-attr]

    def blob(entry: Any) -> bytes:
        content = files["blobs/" + entry["digest"].replace(":", "/")]
        assert len(content) == entry["size"]
        assert hashlib.sha256(content).hexdigest() == entry["digest"].removeprefix("sha256:")
        return content

    (entry,) = json.loads(files["index.json"])["manifests"]
    manifest = json.loads(blob(entry))
    (layer,) = manifest["layers"]
    assert blob(layer) == archive.read_bytes()
    assert json.loads(blob(manifest["config"]))["name"] == "onyx"
    assert entry["annotations"] == {"org.opencontainers.image.ref.name": version()}
