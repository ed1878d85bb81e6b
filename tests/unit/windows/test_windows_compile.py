"""What is checked before a window runs: each error names window, trigger and what to do."""

import pytest

from onyx.errors import UserError
from onyx.model.job import CatalogEntry, Job, Trigger, Window
from onyx.windows.compile import compile_windows

MINUTE = (1, "minutes")
GATHER = CatalogEntry("gather", "function", 1)


def nothing():
    return None


def half():
    return {"create_state_update": lambda *_: None}


def no_init():
    return {"create_state_update": lambda *_: None, "apply_state_update": lambda *_: None}


def misspelt():
    return {**no_init(), "inti": lambda *_: None}


FUNCTIONS = {f"app:{each.__name__}": each for each in (nothing, half, no_init, misspelt)}


def compiled(window=None, trigger=None, entry=GATHER, read=None):
    keys = {"type": "fixed", "aggregation": "count", "window_key": "at", "range": MINUTE}
    windows = (Window("w", "gather", **{**keys, **(window or {})}),)
    triggers = (Trigger("w", id="t", **{"type": "watermark", **(trigger or {})}),)
    source = read or CatalogEntry("read", "input", 1)
    job = Job("job", (("read", "gather"),), (source, entry), windows=windows, triggers=triggers)
    return compile_windows(job, "gather", FUNCTIONS.__getitem__)


def test_a_task_without_windows_has_nothing_to_run():
    assert compile_windows(Job("job", (), (GATHER,)), "gather", FUNCTIONS.__getitem__) is None


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ({"aggregation": "app:nothing"}, "app:nothing must return a dict with create_state_update"),
        ({"aggregation": "app:half"}, "app:half returns no apply_state_update; add them"),
        ({"aggregation": "app:no_init"}, "app:no_init returns no init; add it, or give the window"),
        ({"aggregation": "app:misspelt"}, "returns 'inti', which is not a function that is known"),
        (
            {"type": "session", "range": None, "timeout_gap": MINUTE, "aggregation": "app:no_init",
             "init": 0},
            "app:no_init has no super_aggregation",
        ),
        (
            {"type": "session", "range": None, "timeout_gap": MINUTE,
             "storage_strategy": ("ordered-log",)},
            "a session window cannot keep an ordered-log",
        ),
        (
            {"type": "global", "range": None, "window_key": None,
             "storage_strategy": ("ordered-log",)},
            "an ordered-log needs a windowKey",
        ),
    ],
)  # fmt: skip
def test_an_aggregation_that_cannot_do_what_is_asked_is_refused(window, message):
    with pytest.raises(UserError) as caught:
        compiled(window)
    assert "window w of task gather" in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize("key", ["type", "refinement"])
def test_calls_of_a_trigger_are_checked_as_well(key):
    with pytest.raises(UserError, match=r"trigger t of window w of task gather: app:nothing must"):
        compiled(trigger={key: "app:nothing"})


def test_a_delay_that_outlasts_the_lateness_is_an_error():
    window = {"allowed_lateness": MINUTE}
    assigning = CatalogEntry("read", "input", 1, watermark_key="at")
    compiled(window, {"delay": MINUTE}, read=assigning)
    with pytest.raises(UserError, match="trigger t has a delay that is longer than"):
        compiled(window, {"delay": (2, "minutes")}, read=assigning)


def test_units_are_numbers_afterwards():
    window = compiled({"allowed_lateness": (2, "seconds")}, {"delay": (1, "second")}).windows[0]
    assert (window.lateness, window.triggers[0].delay) == (2_000, 1_000)


@pytest.mark.parametrize(
    ("entry", "grouped"),
    [
        (GATHER, False),
        (CatalogEntry("gather", "function", 1, group_by_key="k"), True),
        (CatalogEntry("gather", "function", 1, group_by_fn="app:nothing"), True),
    ],
)
def test_it_is_known_whether_the_task_is_grouped(entry, grouped):
    assert compiled(entry=entry).grouped is grouped


@pytest.mark.parametrize(
    ("read", "of_segments"),
    [
        ({}, True),
        ({"watermark_key": "at"}, False),
        ({"assign_watermark_fn": "app:nothing"}, False),
    ],
)
def test_the_segments_are_the_watermark_where_nobody_assigns_one(read, of_segments):
    window = compiled(read=CatalogEntry("read", "input", 1, **read)).windows[0]
    assert window.watermark_of_segments is of_segments
