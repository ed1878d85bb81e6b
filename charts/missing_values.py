"""The defaults that templates fill in for values that a release does not have.

`helm upgrade --reuse-values` renders a new chart with the values of the release, so what has come
since is missing. Templates cannot read `values.yaml`, therefore its copy in `files/`. A value that
null takes away is missing as well, and on purpose, so the copy has none of `REMOVABLE`: all of them
have been there since the first release, so that only null can have taken them.
"""

from __future__ import annotations

from typing import Any

import yaml

REMOVABLE = (
    "cluster.replicas",
    "cluster.resources",
    "operator.resources",
    "zookeeper.resources",
    "podSecurityContext",
    "securityContext",
)
_HEAD = (
    "# Generated from values.yaml by `python -m charts.generate`; see templates/_defaults.tpl.\n"
)


def defaults(text: str) -> str:
    """The file, from the text of `values.yaml`."""
    values: dict[str, Any] = yaml.safe_load(text)
    for path in REMOVABLE:
        *parents, last = path.split(".")
        inner = values
        for key in parents:
            inner = inner[key]
        del inner[last]
    return _HEAD + yaml.safe_dump(values, sort_keys=False, width=100)
