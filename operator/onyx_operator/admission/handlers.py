"""The kopf handlers of admission: thin, all decisions are made elsewhere."""

from __future__ import annotations

import kopf

from onyx_operator.context import Operator


def register(registry: kopf.OperatorRegistry, operator: Operator) -> None:
    """Add the handlers to kopf's registry."""
