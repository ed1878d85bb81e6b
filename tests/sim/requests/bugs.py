from __future__ import annotations
from contextlib import contextmanager

NAMES = ()


@contextmanager
def planted(bug):
    yield
