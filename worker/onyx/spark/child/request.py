"""What a stage is asked to do, and who follows it while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Watch:
    """Who follows a run. Called by the thread that waits for it."""

    wanted: Callable[[], bool] = lambda: True
    """Whether the run is still wanted; when not, it is cancelled."""


class StageRunner(Protocol):
    """Runs a stage to its end: `runner.run_in_child` in production."""

    def __call__(self, request: StageRequest, timeout_s: float, watch: Watch) -> None:
        """Write the result to `request.target`.

        Raises:
            UserFunctionError: the stage raised or took longer than `timeout_s`.
            Unavailable: Spark could not be started, or its process died.
            Fenced: the run was not wanted any more, and was ended.
        """
        ...
