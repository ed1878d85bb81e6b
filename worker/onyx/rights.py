"""What the owner of a worker lets jobs name.

A job is data, and its author need not be trusted with the worker: code, files and variables of the
process are its owner's. What a job names of these is looked at where it is used, in the worker,
because only the worker knows what its owner has allowed.
"""

from __future__ import annotations

import msgspec

from onyx.settings import Settings
from onyx.structs import prepared


@prepared
class Rights(msgspec.Struct, frozen=True):
    """What jobs may name of the worker that runs them."""

    spark_conf: tuple[str, ...] = ()
    """Patterns of settings of Spark that they may set besides harmless ones."""


def rights_of(settings: Settings) -> Rights:
    """What jobs may name of a worker with these settings."""
    return Rights(spark_conf=settings.spark_conf_allowed)
