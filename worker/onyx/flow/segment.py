"""A segment as a dict. In a module of its own, so that options of plugins can be read where neither
Arrow nor NumPy is wanted: by clients and by the operator."""

from __future__ import annotations

from typing import Any

Segment = dict[str, Any]
