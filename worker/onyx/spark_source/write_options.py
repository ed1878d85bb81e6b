"""The options of `format("onyx")` where rows are written into a job.

Spark gives all values as text and all keys in lower case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import msgspec

from onyx.base.structs import prepared
from onyx.requests.request import SEGMENTS_MAX, TIMEOUT_S_MAX, WRITE_CHARACTERS_MAX
from onyx.spark_source.options import converted

TIMEOUT_S = 300.0


@prepared
class WriteOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Into which input rows go, and how."""

    job: str | None = None
    """Id of the job, or its name if only one job of this name runs."""
    task: str = ""
    """The input with `plugin: requests`; it may be left out if the job has only one."""
    workers: str | None = None
    """Addresses of workers, `host:port[,host:port]`. Any of them will do."""
    zookeeper: str | None = None
    """In place of `workers`: the workers are looked up where the query is planned."""
    tenancy: str | None = None
    """With `zookeeper`; without it `ONYX_TENANCY_ID`."""
    ack: Literal["journal", "ack"] = "journal"
    """When a batch counts as written: when its rows are in the journal of the input, or when all
    that follows from them is durable."""
    id: str | None = None
    """The id of a write that is no stream: the same write is taken once under one id."""
    batch_rows: Annotated[int, msgspec.Meta(ge=1, le=SEGMENTS_MAX)] = 50_000
    """Rows of one request, at most."""
    timeout: Annotated[float, msgspec.Meta(gt=0, le=TIMEOUT_S_MAX)] = TIMEOUT_S
    """Seconds to try for each request, and for the commit of a batch."""
    checkpoint_location: str | None = None
    """The checkpoint of the query. Spark hands it over; it is not used here."""

    def wrong(self) -> Iterator[str]:
        """What is wrong beyond the types of the options."""
        if not self.job:
            yield "option 'job' is missing: the job that takes the rows"
        if self.workers is not None and self.zookeeper is not None:
            yield "give either 'workers' or 'zookeeper'"
        if self.id is not None and not 0 < len(self.id) <= WRITE_CHARACTERS_MAX:
            yield f"an 'id' has 1 to {WRITE_CHARACTERS_MAX} characters"


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Options as Spark hands them over.

    Raises:
        UserError: one is unknown, missing or not of its type.
    """
    return converted(given, WriteOptions)
