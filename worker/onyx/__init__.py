"""Onyx: masterless, data-driven stream and batch processing.

A job is plain data. Virtual peers coordinate only through a totally ordered log in ZooKeeper,
fold it into the same replica, and exchange segments directly. Start with `docs/architecture.md`.
"""

from onyx.functions.retry import FAIL, Retry
from onyx.functions.returning import ack_return

__all__ = ["FAIL", "Retry", "__version__", "ack_return"]

__version__ = "0.1.0"
