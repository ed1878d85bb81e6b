"""A bill of materials is what its schema allows, and has all that is there."""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from typing import Any

import pytest
from release.bill import bill

pytest.importorskip("cyclonedx", reason="bills are checked with the versions of constraints.txt")

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

Bill = dict[str, Any]
STATUS = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.41-12+deb13u1
Description: library
 of lines

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1
"""


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Bill:
    """Of an image that has a shared library and no list of packages."""
    root = tmp_path_factory.mktemp("root")
    folder = root / "usr" / "lib" / "x86_64-linux-gnu"
    folder.mkdir(parents=True)
    (folder / "libone.so.1").write_bytes(b"one")
    (folder / "text").write_bytes(b"text")
    return bill("onyx-worker", "0.1.0", root, root / "status")


@pytest.fixture(scope="module")
def with_list(tmp_path_factory: pytest.TempPathFactory) -> Bill:
    """Of an image that has such a list."""
    status = tmp_path_factory.mktemp("debian") / "status"
    status.write_text(STATUS)
    return bill("onyx-worker", "0.1.0", status=status)


def named(found: Bill, name: str) -> Any:
    return next(each for each in found["components"] if each["name"] == name)


def test_it_is_what_the_schema_allows(without: Bill, with_list: Bill) -> None:
    for found in (without, with_list):
        wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(found))
        assert wrong is None, wrong


def test_it_has_packages_and_what_they_need(without: Bill) -> None:
    kazoo = f"pkg:pypi/kazoo@{version('kazoo')}"
    assert named(without, "kazoo")["purl"] == kazoo
    assert named(without, "msgspec")["version"] == version("msgspec")
    needs = {each["ref"]: each["dependsOn"] for each in without["dependencies"]}
    assert kazoo in needs[f"pkg:pypi/onyx-on-kubernetes@{version('onyx-on-kubernetes')}"]
    assert {each["bom-ref"] for each in without["components"]} == set(needs["onyx-worker"])


def test_it_has_the_jars_inside_of_packages(without: Bill) -> None:
    assert named(without, "zookeeper-jute")["version"].startswith("3.")


def test_it_has_debians_packages_or_the_libraries_themselves(
    without: Bill, with_list: Bill
) -> None:
    library = named(without, "/usr/lib/x86_64-linux-gnu/libone.so.1")
    digest = hashlib.sha256(b"one").hexdigest()
    assert library["hashes"] == [{"alg": "SHA-256", "content": digest}]
    assert named(with_list, "libc6")["purl"] == "pkg:deb/debian/libc6@2.41-12%2Bdeb13u1?arch=amd64"
    others = {each["name"] for each in with_list["components"]}
    assert not others & {"gone", library["name"], "text"}


def test_other_things_have_another_bill(without: Bill, with_list: Bill) -> None:
    assert without["serialNumber"] != with_list["serialNumber"]
