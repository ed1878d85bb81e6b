"""A manifest as text, in the form in which people write it. Text is quoted where any reader of YAML
might take it for something else: kubectl reads the same file by older rules than Onyx.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

_PLAIN_TEXT = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*(:[A-Za-z0-9_./-]+)*( [A-Za-z0-9_./-]+)*\Z")
_YAML_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
COLUMNS_MAX = 100


def as_yaml(manifest: Mapping[str, Any]) -> str:
    """A manifest as text."""
    return yaml.dump(
        manifest,
        Dumper=_ManifestDumper,
        sort_keys=False,
        default_flow_style=None,
        width=COLUMNS_MAX,
    )


class _ManifestDumper(yaml.SafeDumper):
    """Quotes with care, and writes the value for an alias."""

    def ignore_aliases(self, data: Any) -> bool:
        """Whether equal parts are written out: always."""
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """Text, in quotes if it needs them."""
        plain = _PLAIN_TEXT.match(data) is not None and data.lower() not in _YAML_WORDS
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=None if plain else '"')


_ManifestDumper.add_representer(str, _ManifestDumper.represent_str)
