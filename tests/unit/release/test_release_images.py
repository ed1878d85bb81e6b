"""`make images`: which commands build what, and what is refused before anything is built."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from release.images import IMAGES, ROOT, commands, version, why_impossible

NAMES = [
    *("onyx-worker:dev", "onyx-worker:dev-spark", "onyx-zookeeper:dev", "onyx-operator:dev"),
    *("onyx-flights:dev", "onyx-flights:dev-spark"),
]


def built(*platforms: str, engine: str = "podman", **variables: str) -> list[list[str]]:
    return list(commands(engine, variables, platforms, "c0ffee"))


def after(command: list[str], flag: str) -> str:
    return command[command.index(flag) + 1]


def test_images_have_names_by_registry_and_tag_or_one_by_one() -> None:
    found = [after(each, "--tag") for each in built()]
    assert found == [f"localhost/{name}" for name in NAMES]
    assert after(built(REGISTRY="", TAG="0.1.0")[1], "--tag") == "onyx-worker:0.1.0-spark"
    assert after(built(REGISTRY="r.example/team")[0], "--tag") == "r.example/team/onyx-worker:dev"
    assert after(built(TAG="2", WORKER_IMAGE="mine:1")[0], "--tag") == "mine:1"


def test_an_example_is_built_on_the_image_that_was_just_built() -> None:
    *_, plain, spark = built(WORKER_IMAGE="mine:1")
    assert after(plain, "--build-arg") == "WORKER=mine:1"
    assert after(spark, "--build-arg") == "WORKER=localhost/onyx-worker:dev-spark"


def test_each_image_says_its_version_and_where_it_comes_from() -> None:
    for command in built(SOURCE="https://source.example/onyx"):
        labels = {b for a, b in pairwise(command) if a == "--label"}
        assert labels == {
            f"org.opencontainers.image.version={version()}",
            "org.opencontainers.image.revision=c0ffee",
            "org.opencontainers.image.source=https://source.example/onyx",
        }
    assert not [each for each in built()[0] if "image.source" in each]


def test_flags_go_to_the_engine() -> None:
    (first, *_) = built(engine="docker", BUILD_FLAGS="--volume '/a b:/c'")
    assert first[:4] == ["docker", "build", "--volume", "/a b:/c"]


def test_several_platforms_are_one_name() -> None:
    both = ("linux/amd64", "linux/arm64")
    podman, docker = built(*both)[0], built(*both, engine="docker")[0]
    assert after(podman, "--platform") == after(docker, "--platform") == "linux/amd64,linux/arm64"
    assert after(podman, "--manifest") == after(docker, "--tag") == "localhost/onyx-worker:dev"
    assert "--manifest" not in built("linux/arm64")[0]


@pytest.mark.parametrize(
    ("engine", "platforms", "said"),
    [
        ("podman", ["linux/amd64"], ""),
        ("podman", ["linux/amd64", "linux/arm64"], "cannot run programs of linux/arm64: install"),
        ("docker", ["linux/amd64", "linux/arm64"], ""),
        ("docker", ["linux/s390x"], "linux/s390x is none that the packages of Onyx have"),
        ("podman", ["arm64"], "arm64 is none that the packages of Onyx have"),
    ],
)
def test_a_platform_that_cannot_be_built_for_is_refused(
    engine: str, platforms: list[str], said: str, tmp_path: Path
) -> None:
    why = why_impossible(engine, platforms, "x86_64", tmp_path)
    assert said in why if said else why == ""


def test_an_emulator_makes_it_possible(tmp_path: Path) -> None:
    (tmp_path / "qemu-aarch64").touch()
    assert why_impossible("podman", ["linux/arm64"], "x86_64", tmp_path) == ""


def test_every_target_is_a_stage() -> None:
    for image in IMAGES:
        stages = re.findall(r"^FROM .* AS (\S+)$", (ROOT / image.dockerfile).read_text(), re.M)
        assert not image.target or image.target in stages
