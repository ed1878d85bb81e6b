"""Triggers of a job: when windows fire, and what is done then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from onyx.model import names
from onyx.model.job.types import Time, WindowName
from onyx.model.keys.compound import Amount, ListOf
from onyx.model.keys.key import EMPTY, Key
from onyx.model.keys.kinds import Choice, Function, Name, Share


@dataclass(frozen=True, slots=True)
class Trigger:
    """When the extents of a window are handed on, and what becomes of their state."""

    window_id: Annotated[WindowName, Key(origin="trigger/window-id")]
    """Window that it belongs to."""
    type: Annotated[str, Function(names.TRIGGERS), Key(origin="trigger/on")]
    """What makes it fire."""
    id: Annotated[
        str | None,
        Name("trigger"),
        Key(origin="trigger/id", restriction="Unique among the triggers of a window."),
    ] = None
    """Name of the trigger, to address its state."""
    refinement: Annotated[
        str | None,
        Function(names.REFINEMENTS),
        Key(origin="trigger/refinement", restriction="Needed, unless postEvictor is [all]."),
    ] = None
    """What becomes of the state of an extent after firing."""
    sync: Annotated[
        str | None,
        Function(),
        Key(origin="trigger/sync", restriction="sync or emit, or both, must be given."),
    ] = None
    """Function (event, window, trigger, state event, state) that writes it somewhere."""
    emit: Annotated[str | None, Function(), Key(origin="trigger/emit", era="0.10+")] = None
    """Function of the same arguments; what it returns is sent on."""
    fire_all_extents: Annotated[bool, Key(origin="trigger/fire-all-extents?")] = False
    """Look at every extent of the group, not only at those of the segment."""
    threshold: Annotated[
        tuple[int, str] | None,
        Amount(names.ELEMENT_UNITS),
        Key(
            required_for=("segment",),
            origin="trigger/threshold",
            restriction="Only with type segment, or one of your own.",
        ),
    ] = None
    """Fires every so many segments."""
    period: Annotated[
        Time | None,
        Key(
            required_for=("timer",),
            origin="trigger/period",
            restriction="Only with type timer, or one of your own.",
        ),
    ] = None
    """Fires every period."""
    pred: Annotated[
        str | None,
        Function(),
        Key(
            required_for=("punctuation",),
            origin="trigger/pred",
            restriction="Only with type punctuation, or one of your own.",
        ),
    ] = None
    """Function (trigger, state event) that says when to fire."""
    watermark_percentage: Annotated[
        float | None,
        Share(),
        Key(
            required_for=("percentile-watermark",),
            origin="trigger/watermark-percentage",
            restriction="Only with type percentile-watermark, or one of your own.",
        ),
    ] = None
    """Share of an extent's width that the watermark must have passed."""
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
    """Whether the trigger keeps a state of its own, uses the window's, or both."""
    post_evictor: Annotated[
        tuple[str, ...],
        ListOf(Choice(("all", "none")), items_min=1),
        Key(
            origin="trigger/post-evictor",
            era="0.10+",
            restriction="all and none exclude each other.",
        ),
    ] = ("none",)
    """[all]: the state of an extent is dropped after firing."""
    options: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """Whatever the trigger's functions need, by keys of your own."""
    doc: Annotated[str, Key(origin="trigger/doc")] = ""
    """Free text."""
