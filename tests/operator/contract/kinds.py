"""The kinds of the contract tests: widgets, and our own kinds under a group of the tests.

The other group keeps these tests apart from an Onyx that is installed in the same cluster; schemas
and rules are the very same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

GROUP = "contract.onyx.dev"
FILES = sorted((Path(__file__).parents[3] / "crds").glob("*.yaml"))
_WIDGETS = Path(__file__).parent / "widgets.yaml"


def our_definitions() -> dict[str, dict[str, Any]]:
    """Our CRDs as they are, by kind."""
    loaded = [yaml.safe_load(file.read_text()) for file in FILES]
    return {each["spec"]["names"]["kind"]: each for each in loaded}


def definitions() -> list[dict[str, Any]]:
    """What a server of the contract tests serves."""
    return [yaml.safe_load(_WIDGETS.read_text()), *map(_moved, our_definitions().values())]


def _moved(crd: dict[str, Any]) -> dict[str, Any]:
    names = {
        key: each
        for key, each in crd["spec"]["names"].items()
        if key not in ("shortNames", "categories")
    }
    spec = {**crd["spec"], "group": GROUP, "names": names}
    return {**crd, "metadata": {"name": f"{names['plural']}.{GROUP}"}, "spec": spec}
