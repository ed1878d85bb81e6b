"""Fixtures of what is attacked: the operator with a fake API server."""

from __future__ import annotations

from tests.operator.conftest import api as api
from tests.operator.conftest import logs as logs
