"""Manifests as YAML, in the form in which people write them.

Text is quoted where any reader of YAML might take it for something else: kubectl reads the same
file by older rules than Onyx.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from onyx.builder.values import Plain
from onyx.model.parsing.job import parse_file
from onyx.model.parsing.text import read_text
from onyx.model.report import Report

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*(:[A-Za-z0-9_./-]+)*( [A-Za-z0-9_./-]+)*\Z")
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
COLUMNS_MAX = 100


class _Writer(yaml.SafeDumper):
    """Quotes with care, and writes the value for an alias."""

    def ignore_aliases(self, data: Any) -> bool:
        """Whether equal parts are written out: always."""
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """Text, in quotes if it needs them."""
        plain = _PLAIN.match(data) is not None and data.lower() not in _WORDS
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=None if plain else '"')


_Writer.add_representer(str, _Writer.represent_str)


def written(manifest: Mapping[str, Any]) -> str:
    """A manifest as text."""
    return yaml.dump(
        manifest, Dumper=_Writer, sort_keys=False, default_flow_style=None, width=COLUMNS_MAX
    )


def read(text: str | bytes, source: str) -> Plain:
    """The manifest of a job in a text, YAML or JSON.

    Raises:
        ManifestError: it is not valid; with every problem, each with path, file and line.
    """
    parse_file(text, source)
    value, _ = read_text(text, Report())
    assert isinstance(value, dict), "what has been parsed is a mapping"
    return value
