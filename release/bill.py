"""A bill of materials (CycloneDX 1.6) of the Python that runs this, and of what lies around it.

    python release/bill.py NAME VERSION > NAME.cdx.json

Python packages with what they need of each other, jars inside them, and Debian's packages; or the
shared libraries themselves, with digests, in an image that has no list of packages. It needs Python
alone, so that each image writes its own, and has no time in it, so that the same contents have the
same bill. Rejected: `cyclonedx-bom`, which each image would have to carry; and reading constraints,
which say what may be installed.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import sys
import uuid
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

Component = dict[str, Any]

DEBIAN = Path("/var/lib/dpkg/status")
SHARED = "usr/lib/*-linux-gnu/*.so*"
_JAR = re.compile(r"(?P<name>.+?)-(?P<version>\d[^/]*)\.jar")
_EDGE = re.compile(r"\s*([A-Za-z0-9._-]+)")


def bill(name: str, version: str, root: Path = Path("/"), status: Path = DEBIAN) -> Component:
    """The bill.

    Args:
        name: what it is of.
        version: of that.
        root: where shared libraries are looked for if there is no list of Debian's packages.
        status: the list of Debian's packages.
    """
    found = {_name(each): each for each in distributions()}
    packages = [_package(each) for _, each in sorted(found.items())]
    around = _of_debian(status) if status.exists() else _libraries(root)
    python = {"type": "platform", "name": "CPython", "version": platform.python_version()}
    components = [*packages, *_jars(found), {**python, "bom-ref": "python"}, *around]
    whole = {"type": "application", "name": name, "version": version, "bom-ref": name}
    needs = {_ref(each): sorted(_needed(each, found)) for _, each in sorted(found.items())}
    content = {
        "metadata": {"component": whole},
        "components": components,
        "dependencies": [
            {"ref": name, "dependsOn": [each["bom-ref"] for each in components]},
            *({"ref": ref, "dependsOn": others} for ref, others in needs.items()),
        ],
    }
    text = json.dumps(content, sort_keys=True)
    serial = uuid.uuid5(uuid.NAMESPACE_OID, text)
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1}
    return {**head, "serialNumber": f"urn:uuid:{serial}", **content}


def _name(each: Distribution) -> str:
    return _normal(each.metadata["Name"])


def _normal(name: str) -> str:
    """A name as the package index compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _ref(each: Distribution) -> str:
    return f"pkg:pypi/{_name(each)}@{quote(each.version)}"


def _package(each: Distribution) -> Component:
    found = {"type": "library", "bom-ref": _ref(each), "name": _name(each), "version": each.version}
    licences = each.metadata.get_all("License-Expression") or []
    terms = {"licenses": [{"expression": str(licence)} for licence in licences[:1]]}
    return {**found, "purl": _ref(each), **(terms if licences else {})}


def _needed(each: Distribution, found: dict[str, Distribution]) -> set[str]:
    """What is installed of what it needs without an extra."""
    plain = [text for text in each.requires or () if "extra ==" not in text]
    names = (match[1] for text in plain if (match := _EDGE.match(text)))
    known = map(_normal, names)
    return {_ref(found[name]) for name in known if name in found}


def _jars(found: dict[str, Distribution]) -> Iterator[Component]:
    """Jars below the places of packages, each once."""
    places = {Path(str(each.locate_file(""))).resolve() for each in found.values()}
    for path in sorted(each for place in places for each in place.rglob("*.jar")):
        match = _JAR.fullmatch(path.name)
        known = match.groupdict() if match else {"name": path.stem}
        yield {"type": "library", "bom-ref": f"jar:{path.name}", **known, "hashes": _digest(path)}


def _of_debian(status: Path) -> Iterator[Component]:
    for paragraph in status.read_text("utf-8").split("\n\n"):
        keys = dict(re.findall(r"^([A-Za-z-]+): (.*)$", paragraph, re.MULTILINE))
        if keys.get("Status", "").endswith(" installed"):
            name, version = keys["Package"], keys["Version"]
            purl = f"pkg:deb/debian/{name}@{quote(version)}?arch={keys['Architecture']}"
            place = {"type": "library", "bom-ref": purl, "purl": purl}
            yield {**place, "name": name, "version": version}


def _libraries(root: Path) -> Iterator[Component]:
    for path in sorted(root.glob(SHARED)):
        name = f"/{path.relative_to(root)}"
        yield {"type": "file", "bom-ref": f"file:{name}", "name": name, "hashes": _digest(path)}


def _digest(path: Path) -> list[Component]:
    return [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}]


if __name__ == "__main__":
    print(json.dumps(bill(sys.argv[1], sys.argv[2]), indent=1))
