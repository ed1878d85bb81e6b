"""Windows of a job: how segments are gathered and aggregated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import field

from onyx.model import names
from onyx.model.job.types import TaskName, TimeOrElements, WindowName
from onyx.model.keys.compound import AggregationName, ListOf
from onyx.model.keys.durations import Amount
from onyx.model.keys.key import EMPTY, Key
from onyx.model.keys.kinds import Choice, Integer

BOUNDED = ("fixed", "sliding", "session")
"""Types of windows whose extents end."""


class Window(msgspec.Struct, frozen=True):
    """An aggregation over segments of a task, grouped into extents."""

    id: Annotated[
        WindowName,
        Key(
            filled="the name of the task, if it has one window",
            origin="window/id",
            restriction="Unique in the job.",
        ),
    ]
    """Name of the window."""
    task: Annotated[
        TaskName, Key(origin="window/task", restriction="A function, reduce or output task.")
    ]
    """Task whose segments the window aggregates."""
    type: Annotated[Literal["fixed", "sliding", "global", "session"], Key(origin="window/type")]
    """Shape of the extents."""
    aggregation: Annotated[
        str | tuple[str, ...],
        AggregationName(),
        Key(
            origin="window/aggregation",
            restriction="sum, min, max, average, collect-by-key and collect-key-value take one "
            "key; conj and count none.",
        ),
    ]
    """What is computed over an extent: a name, or a name and keys of the segment."""
    batch_format: Annotated[
        Literal["dicts", "arrow"],
        Key(restriction="arrow only for an aggregation of your own, without an ordered log."),
    ] = "dicts"
    """What `create_state_update` of an aggregation of your own gets: `dicts` is a segment, `arrow`
    a pyarrow.RecordBatch with all segments of a batch that are in one extent and group. Of a
    session, or where triggers look at each segment, it has one row. `fold_array` gets a
    pyarrow.RecordBatch with the segments of all groups."""
    engine: Annotated[
        Literal["peers", "spark"],
        Key(
            restriction="spark for aggregations of Onyx over fixed, sliding and global windows, "
            "with timer and watermark triggers; not under guarantee at-most-once, nor with upgrade."
        ),
    ] = "peers"
    """What aggregates: the peers of the task, or Spark, from Parquet files that they write. The
    results are the same. A job with engine spark runs all of its windows itself."""
    window_key: Annotated[
        str | None,
        Key(
            required_for=BOUNDED,
            filled="the watermarkKey that all inputs before the task have, if extents are of time",
            origin="window/window-key",
        ),
    ] = None
    """Key of a segment by whose value it is assigned to extents, usually a time."""
    min_value: Annotated[
        int,
        Integer(),
        Key(origin="window/min-value", restriction="Only with type fixed or sliding."),
    ] = 0
    """Smallest value of windowKey; extents are aligned to it. A sliding window refuses segments
    below it; a fixed one has extents there too."""
    session_key: Annotated[
        str | None, Key(allowed_for=("session",), origin="window/session-key")
    ] = None
    """Key by whose value segments belong to different sessions."""
    range: Annotated[
        TimeOrElements | None,
        Key(
            required_for=("fixed", "sliding"),
            allowed_for=("fixed", "sliding", "global"),
            origin="window/range",
            restriction="No effect with type global.",
        ),
    ] = None
    """Length of an extent."""
    slide: Annotated[
        TimeOrElements | None,
        Key(
            required_for=("sliding",),
            allowed_for=("sliding",),
            origin="window/slide",
            restriction="In the kind of unit of range, and not larger than range.",
        ),
    ] = None
    """Distance between the starts of two successive extents."""
    init: Annotated[
        Any,
        Key(
            filled="of min and max, the first number that comes",
            origin="window/init",
            restriction="Only for min, max or an aggregation of your own.",
        ),
    ] = None
    """Initial state of an extent. min and max of what is no number need one, of the kind of the
    values."""
    timeout_gap: Annotated[
        TimeOrElements | None,
        Key(required_for=("session",), allowed_for=("session",), origin="window/timeout-gap"),
    ] = None
    """Gap without segments after which a session ends."""
    allowed_lateness: Annotated[
        tuple[int, str] | None,
        Amount(names.TIME_UNITS + names.ELEMENT_UNITS, number_min=0),
        Key(allowed_for=BOUNDED, restriction="In the kind of unit of range or timeoutGap."),
    ] = None
    """How far the watermark may be past the end of an extent before the extent is dropped and its
    further segments are late. By default extents are never dropped, and no segment is late."""
    late_to: Annotated[
        TaskName | None,
        Key(
            allowed_for=BOUNDED,
            restriction="A task after the window's task, to which the edge is added; needs "
            "allowedLateness. Besides late segments it gets only what flow conditions that name "
            "it send there.",
        ),
    ] = None
    """Child of the task that gets late segments. By default they are dropped and counted."""
    storage_strategy: Annotated[
        tuple[str, ...],
        ListOf(Choice(("incremental", "ordered-log", "extents")), items_min=1),
        Key(
            origin="window/storage-strategy",
            era="0.10+",
            restriction="Not extents, which are kept in any case; a session or sliding window "
            "cannot keep an ordered log.",
        ),
    ] = ("incremental",)
    """What is stored for an extent: its state, or the ordered log of its updates."""
    options: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """Values for the aggregation, by keys of your own."""
    doc: Annotated[str, Key(origin="window/doc")] = ""
    """Free text."""
