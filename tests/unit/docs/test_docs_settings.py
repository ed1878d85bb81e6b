"""The pages of settings have a row for each variable, with its default and its docstring."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import field

from onyx.model.reference.settings import rows
from onyx.settings import Settings, variables
from onyx_operator.settings import OperatorSettings


class DiskSettings(msgspec.Struct, frozen=True):
    folder: str = ""
    """Where it is."""
    spill: bool = False
    """Whether it is used
    at all."""


class SomeSettings(msgspec.Struct, frozen=True):
    workers_max: int = 4
    """Most workers."""
    disk: DiskSettings = field(default_factory=DiskSettings)
    engine: Settings = field(default_factory=Settings)


def test_a_variable_is_shown_with_its_default_and_its_docstring() -> None:
    assert list(rows(SomeSettings(), "ONYX_TEST")) == [
        "| `ONYX_TEST_WORKERS_MAX` | `4` | Most workers. |\n",
        "| `ONYX_TEST_DISK_FOLDER` |  | Where it is. |\n",
        "| `ONYX_TEST_DISK_SPILL` | `false` | Whether it is used at all. |\n",
    ]


def test_every_variable_that_is_read_is_on_the_page() -> None:
    page = list(rows(Settings(), "ONYX"))
    assert [row.split("`")[1] for row in page] == list(variables())


@pytest.mark.parametrize(
    ("settings", "prefix"), [(Settings(), "ONYX"), (OperatorSettings(), "ONYX_OPERATOR")]
)
def test_every_setting_is_described_by_a_sentence(settings: Any, prefix: str) -> None:
    for row in rows(settings, prefix):
        assert row.endswith(". |\n"), row
