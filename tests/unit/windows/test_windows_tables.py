"""What a manifest may name is what there is: window types, triggers and aggregations."""

from typing import get_args, get_type_hints

from onyx.model import kinds
from onyx.model.job.windows import Window
from onyx.windows.aggregations import table as aggregations
from onyx.windows.triggers import table as triggers
from onyx.windows.types.table import TYPES


def test_every_window_type_of_the_model_has_a_class():
    assert sorted(TYPES) == sorted(kinds.WINDOWS)
    assert sorted(TYPES) == sorted(get_args(get_type_hints(Window)["type"]))


def test_every_trigger_of_the_model_has_a_class():
    assert sorted(triggers.BUILT_IN) == sorted(kinds.TRIGGERS)


def test_every_aggregation_of_the_model_has_a_class():
    assert sorted(aggregations.BUILT_IN) == sorted(kinds.AGGREGATIONS)
