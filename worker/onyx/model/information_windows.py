"""The information model of windows and triggers: the part of the table in `information`."""

from __future__ import annotations

from onyx.model import names
from onyx.model.job import Trigger, Window
from onyx.model.keys.compound import Aggregation, Amount, ListOf
from onyx.model.keys.kinds import Anything, Choice, Count, Flag, Function, Name, Share, Text
from onyx.model.keys.section import Key, Section, doc_key, options_key

_TIME = Amount(names.TIME_UNITS)
_TIME_OR_ELEMENTS = Amount(names.TIME_UNITS + names.ELEMENT_UNITS)

_BOUNDED = ("fixed", "sliding", "session")

WINDOW = Section(
    "window",
    "How segments of a task are gathered into extents and aggregated.",
    (
        Key(
            "id", Name("window"), "Name of the window.",
            required=True, origin="window/id", restriction="Unique in the job.",
        ),
        Key(
            "task", Name("task"), "Task whose segments it gathers.",
            required=True, origin="window/task", restriction="A function, reduce or output task.",
        ),
        Key(
            "type", Choice(("fixed", "sliding", "global", "session")), "Shape of the extents.",
            required=True, origin="window/type",
        ),
        Key(
            "aggregation", Aggregation(),
            "What is computed over an extent: by name, or name and keys of the segment.",
            required=True, origin="window/aggregation",
            restriction="sum, min, max, average, collect-by-key and collect-key-value take one "
            "key; conj and count none.",
        ),
        Key(
            "window_key", Text(), "Key of a segment that holds its place, usually a time.",
            required_for=("fixed", "sliding", "session"), origin="window/window-key",
        ),
        Key(
            "min_value", Count(), "Smallest place; extents are numbered from there.",
            default=0, origin="window/min-value",
        ),
        Key(
            "session_key", Text(), "Key that tells the sessions of a session window apart.",
            allowed_for=("session",), origin="window/session-key",
        ),
        Key(
            "range", _TIME_OR_ELEMENTS, "Width of an extent.",
            required_for=("fixed", "sliding"), allowed_for=("fixed", "sliding"),
            origin="window/range",
        ),
        Key(
            "slide", _TIME_OR_ELEMENTS, "Distance between the starts of two extents.",
            required_for=("sliding",), allowed_for=("sliding",), origin="window/slide",
            restriction="In the kind of unit of range, and not larger than range.",
        ),
        Key(
            "init", Anything(), "First state.", origin="window/init",
            restriction="Needed by min and max, which have no first state of their own.",
        ),
        Key(
            "timeout_gap", _TIME_OR_ELEMENTS, "Gap without segments that ends a session.",
            required_for=("session",), allowed_for=("session",), origin="window/timeout-gap",
        ),
        Key(
            "allowed_lateness", Amount(names.TIME_UNITS + names.ELEMENT_UNITS, number_min=0),
            "How far the watermark may be past the end of an extent before the extent is dropped "
            "and segments that belong to it are late. Without it, extents stay and nothing is "
            "ever late.",
            allowed_for=_BOUNDED, era="ours",
            restriction="In the kind of unit of range or timeoutGap.",
        ),
        Key(
            "late_to", Name("task"),
            "Child of the task that late segments are sent to. Without it they are dropped and "
            "counted.",
            allowed_for=_BOUNDED, era="ours",
            restriction="A child of the window's task; needs allowedLateness. Besides late "
            "segments this child gets only what flow conditions that name it send there.",
        ),
        Key(
            "storage_strategy",
            ListOf(Choice(("incremental", "ordered-log", "extents")), items_min=1),
            "What is kept: a running state, or the ordered log of updates.",
            default=("incremental",), origin="window/storage-strategy", era="0.10+",
            restriction="Not extents, which are kept in any case; a session or sliding window "
            "cannot keep an ordered log.",
        ),
        options_key("the aggregation needs"),
        doc_key("window/doc"),
    ),
    Window,
)  # fmt: skip

TRIGGER = Section(
    "trigger",
    "When the extents of a window are handed on, and what becomes of their state.",
    (
        Key(
            "window_id", Name("window"), "Window that it belongs to.",
            required=True, origin="trigger/window-id",
        ),
        Key(
            "type", Function(names.TRIGGERS), "What makes it fire.",
            required=True, origin="trigger/on",
        ),
        Key(
            "id", Name("trigger"), "Name of the trigger, to address its state.",
            origin="trigger/id", restriction="Unique among the triggers of a window.",
        ),
        Key(
            "refinement", Function(names.REFINEMENTS),
            "What becomes of the state of an extent after firing.",
            origin="trigger/refinement", restriction="Needed, unless postEvictor is [all].",
        ),
        Key(
            "sync", Function(),
            "Function (event, window, trigger, state event, state) that writes it somewhere.",
            origin="trigger/sync", restriction="sync or emit, or both, must be given.",
        ),
        Key(
            "emit", Function(), "Function of the same arguments; what it returns is sent on.",
            origin="trigger/emit", era="0.10+",
        ),
        Key(
            "fire_all_extents", Flag(),
            "Look at every extent of the group, not only at those of the segment.",
            default=False, origin="trigger/fire-all-extents?",
        ),
        Key(
            "threshold", Amount(names.ELEMENT_UNITS), "Fires every so many segments.",
            required_for=("segment",), origin="trigger/threshold",
            restriction="Only with type segment, or one of your own.",
        ),
        Key(
            "period", _TIME, "Fires every period.",
            required_for=("timer",), origin="trigger/period",
            restriction="Only with type timer, or one of your own.",
        ),
        Key(
            "pred", Function(), "Function (trigger, state event) that says when to fire.",
            required_for=("punctuation",), origin="trigger/pred",
            restriction="Only with type punctuation, or one of your own.",
        ),
        Key(
            "watermark_percentage", Share(),
            "Share of an extent's width that the watermark must have passed.",
            required_for=("percentile-watermark",), origin="trigger/watermark-percentage",
            restriction="Only with type percentile-watermark, or one of your own.",
        ),
        Key(
            "delay", _TIME, "How far the watermark must be past the end of an extent.",
            origin="trigger/delay", era="0.10+",
            restriction="Only with type watermark, or one of your own; not longer than "
            "allowedLateness of the window.",
        ),
        Key(
            "state_context",
            ListOf(Choice(("trigger-state", "window-state")), items_min=1),
            "Whether the trigger keeps a state of its own, uses the window's, or both.",
            default=("trigger-state",), origin="trigger/state-context", era="0.10+",
            restriction="Only with a type of your own.",
        ),
        Key(
            "post_evictor", ListOf(Choice(("all", "none")), items_min=1),
            "[all]: the state of an extent is dropped after firing.",
            default=("none",), origin="trigger/post-evictor", era="0.10+",
            restriction="all and none exclude each other.",
        ),
        options_key("the trigger's functions need"),
        doc_key("trigger/doc"),
    ),
    Trigger,
)  # fmt: skip
