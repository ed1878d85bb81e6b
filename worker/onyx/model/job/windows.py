"""Windows of a job: how segments are gathered and aggregated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from onyx.model import names
from onyx.model.job.types import TaskName, TimeOrElements, WindowName
from onyx.model.keys.compound import Aggregation, Amount, ListOf
from onyx.model.keys.key import EMPTY, Key
from onyx.model.keys.kinds import Choice, Count

BOUNDED = ("fixed", "sliding", "session")
"""Types of windows whose extents end."""


@dataclass(frozen=True, slots=True)
class Window:
    """How segments of a task are gathered into extents and aggregated."""

    id: Annotated[WindowName, Key(origin="window/id", restriction="Unique in the job.")]
    """Name of the window."""
    task: Annotated[
        TaskName, Key(origin="window/task", restriction="A function, reduce or output task.")
    ]
    """Task whose segments it gathers."""
    type: Annotated[Literal["fixed", "sliding", "global", "session"], Key(origin="window/type")]
    """Shape of the extents."""
    aggregation: Annotated[
        str | tuple[str, ...],
        Aggregation(),
        Key(
            origin="window/aggregation",
            restriction="sum, min, max, average, collect-by-key and collect-key-value take one "
            "key; conj and count none.",
        ),
    ]
    """What is computed over an extent: by name, or name and keys of the segment."""
    window_key: Annotated[
        str | None, Key(required_for=("fixed", "sliding", "session"), origin="window/window-key")
    ] = None
    """Key of a segment that holds its place, usually a time."""
    min_value: Annotated[int, Count(), Key(origin="window/min-value")] = 0
    """Smallest place; extents are numbered from there."""
    session_key: Annotated[
        str | None, Key(allowed_for=("session",), origin="window/session-key")
    ] = None
    """Key that tells the sessions of a session window apart."""
    range: Annotated[
        TimeOrElements | None,
        Key(
            required_for=("fixed", "sliding"),
            allowed_for=("fixed", "sliding"),
            origin="window/range",
        ),
    ] = None
    """Width of an extent."""
    slide: Annotated[
        TimeOrElements | None,
        Key(
            required_for=("sliding",),
            allowed_for=("sliding",),
            origin="window/slide",
            restriction="In the kind of unit of range, and not larger than range.",
        ),
    ] = None
    """Distance between the starts of two extents."""
    init: Annotated[
        Any,
        Key(
            origin="window/init",
            restriction="Needed by min and max, which have no first state of their own.",
        ),
    ] = None
    """First state."""
    timeout_gap: Annotated[
        TimeOrElements | None,
        Key(required_for=("session",), allowed_for=("session",), origin="window/timeout-gap"),
    ] = None
    """Gap without segments that ends a session."""
    allowed_lateness: Annotated[
        tuple[int, str] | None,
        Amount(names.TIME_UNITS + names.ELEMENT_UNITS, number_min=0),
        Key(allowed_for=BOUNDED, restriction="In the kind of unit of range or timeoutGap."),
    ] = None
    """How far the watermark may be past the end of an extent before the extent is dropped and
    segments that belong to it are late. Without it, extents stay and nothing is ever late."""
    late_to: Annotated[
        TaskName | None,
        Key(
            allowed_for=BOUNDED,
            restriction="A child of the window's task; needs allowedLateness. Besides late "
            "segments this child gets only what flow conditions that name it send "
            "there.",
        ),
    ] = None
    """Child of the task that late segments are sent to. Without it they are dropped and
    counted."""
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
    """What is kept: a running state, or the ordered log of updates."""
    options: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """Whatever the aggregation needs, by keys of your own."""
    doc: Annotated[str, Key(origin="window/doc")] = ""
    """Free text."""
