"""What a worker asks of the process that runs a stage, and what that answers: JSON both ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from onyx.structs import prepared


@prepared
class StageRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run of a stage."""

    stage: str
    """`package.module:name` of a function DataFrame -> DataFrame."""
    parts: tuple[str, ...]
    """Parquet files to read, absolute paths. May be empty if `schema` is given."""
    target: str
    """Directory to write the result to; it does not exist yet, its parent does."""
    result_format: str = "parquet"
    """`parquet` or `jsonl`."""
    schema: str | None = None
    """Spark's DDL of the segments (`row BIGINT, delay DOUBLE`); None takes it from the parts."""
    master: str = "local[*]"
    spark_conf: dict[str, str] = msgspec.field(default_factory=dict)
    name: str = "onyx stage"
    """Shown by Spark."""
    parent_pid: int = 0
    """The process that asks; the stage does not outlive it. 0: nobody to watch."""


class StageFailure(msgspec.Struct, frozen=True):
    """Why a run failed."""

    message: str
    """For the person who wrote the stage, with the places of the traceback that are theirs."""
    by_user: bool
    """The stage itself failed; otherwise Spark could not run it."""


@prepared
class StageReply(msgspec.Struct, frozen=True):
    """The only thing that a stage's process writes to its standard output."""

    failure: StageFailure | None = None


class StageRunner(Protocol):
    """Runs a stage to its end: `launcher.run_in_process` in production."""

    def __call__(self, request: StageRequest, timeout_s: float, wanted: Callable[[], bool]) -> None:
        """Write the result to `request.target`.

        Raises:
            UserFunctionError: the stage raised or took longer than `timeout_s`.
            Unavailable: Spark could not be started, or its process died.
            Fenced: `wanted` became false, and the run was ended.
        """
        ...
