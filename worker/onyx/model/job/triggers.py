"""Triggers of a job: when windows fire, and what is done then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import field

from onyx.model import names
from onyx.model.job.types import Time, WindowName
from onyx.model.keys.compound import ListOf
from onyx.model.keys.durations import Amount
from onyx.model.keys.key import EMPTY, Key
from onyx.model.keys.kinds import Choice, Fraction, Function, PartName
from onyx.model.kinds import EMIT_ROWS, TRIGGERS


class Trigger(msgspec.Struct, frozen=True):
    """When a window fires, what happens then, and what becomes of its state."""

    window_id: Annotated[
        WindowName, Key(filled="the only window of the job", origin="trigger/window-id")
    ]
    """Id of the window."""
    type: Annotated[str, Function(tuple(TRIGGERS)), Key(origin="trigger/on")]
    """When the trigger fires."""
    id: Annotated[
        str | None,
        PartName("trigger"),
        Key(origin="trigger/id", restriction="Unique among the triggers of a window."),
    ] = None
    """Name of the trigger, under which its own state is stored."""
    refinement: Annotated[
        str | None,
        Function(names.REFINEMENTS),
        Key(filled="accumulating, unless postEvictor is [all]", origin="trigger/refinement"),
    ] = None
    """What becomes of the state of an extent after it fired."""
    sync: Annotated[
        str | None,
        Function(),
        Key(origin="trigger/sync", restriction="Needed, or emit, if the task has no children."),
    ] = None
    """Function of (event, window, trigger, state event, state) that writes the state to an external
    system."""
    emit: Annotated[
        str | None,
        Function((EMIT_ROWS,)),
        Key(
            filled="rows, without sync, if the task of the window has children",
            origin="trigger/emit",
            era="0.10+",
        ),
    ] = None
    """Function of the same arguments that returns segments to send. `rows` needs no function: each
    group that fires becomes a segment with `group`, `lower`, `upper` and `state`."""
    batch_format: Annotated[
        Literal["dicts", "arrow"],
        Key(restriction="arrow only with a function in sync or emit."),
    ] = "dicts"
    """What sync and emit get as the state: `dicts` is that of one group, `arrow` a
    pyarrow.RecordBatch with a row for each group that fires at the same moment, with the columns
    `group`, `lower`, `upper` and `state`. emit returns a record batch then, or None."""
    fire_all_extents: Annotated[
        bool,
        Key(
            origin="trigger/fire-all-extents?",
            restriction="Not with type timer, which always fires all.",
        ),
    ] = False
    """Every extent of the group may fire, not only those of the segment."""
    fire_at_end: Annotated[
        Literal["always", "changed", "never"],
        Key(restriction="Not with a type of your own, whose functions say what fires."),
    ] = "always"
    """Which extents fire when the job ends: `always` all that there are, `changed` those that have
    got segments since the trigger fired for them last, `never` none."""
    threshold: Annotated[
        tuple[int, str] | None,
        Amount(names.ELEMENT_UNITS),
        Key(
            required_for=("segment",),
            origin="trigger/threshold",
            restriction="Only with type segment, or one of your own.",
        ),
    ] = None
    """Number of segments after which the trigger fires."""
    period: Annotated[
        Time | None,
        Key(
            required_for=("timer",),
            origin="trigger/period",
            restriction="Only with type timer, or one of your own.",
        ),
    ] = None
    """Interval at which the trigger fires."""
    pred: Annotated[
        str | None,
        Function(),
        Key(
            required_for=("punctuation",),
            origin="trigger/pred",
            restriction="Only with type punctuation, or one of your own.",
        ),
    ] = None
    """Function of (trigger, state event) that returns whether to fire."""
    watermark_percentage: Annotated[
        float | None,
        Fraction(),
        Key(
            required_for=("percentile-watermark",),
            origin="trigger/watermark-percentage",
            restriction="Only with type percentile-watermark, or one of your own.",
        ),
    ] = None
    """Share of an extent's length that the watermark must have passed."""
    delay: Annotated[
        Time | None,
        Key(
            origin="trigger/delay",
            era="0.10+",
            restriction="Only with type watermark, or one of your own; not longer than "
            "allowedLateness of the window.",
        ),
    ] = None
    """How far the watermark must be past the end of an extent."""
    state_context: Annotated[
        tuple[str, ...],
        ListOf(Choice(("trigger-state", "window-state")), items_min=1),
        Key(
            origin="trigger/state-context", era="0.10+", restriction="Only with a type of your own."
        ),
    ] = ("trigger-state",)
    """Whether the trigger has a state of its own, uses the state of the window, or both."""
    post_evictor: Annotated[
        tuple[str, ...],
        ListOf(Choice(("all", "none")), items_min=1),
        Key(
            origin="trigger/post-evictor",
            era="0.10+",
            restriction="all and none exclude each other.",
        ),
    ] = ("none",)
    """`[all]`: the state of an extent is dropped after it fired."""
    options: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """Values for the trigger's functions, by keys of your own."""
    doc: Annotated[str, Key(origin="trigger/doc")] = ""
    """Free text."""
