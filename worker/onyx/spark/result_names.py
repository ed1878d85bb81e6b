"""Names in the folders of results, for whoever looks at such a folder and writes none."""

from __future__ import annotations

SUFFIX = ".parquet"
MANIFEST = "_onyx.json"
"""Beside files: which of them count. Readers of Parquet folders leave such names out."""
