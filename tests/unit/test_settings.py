"""Settings read from variables."""

from __future__ import annotations

import re

import pytest

from onyx.base.variables import misspelt
from onyx.codec.refusals import SEGMENT_BYTES_MAX
from onyx.errors import SettingsError
from onyx.replica.scheduling.allocation import JOB_SCHEDULERS as IMPLEMENTED
from onyx.settings import (
    FRAME_BYTES_MIN,
    FRAME_OVERHEAD_BYTES,
    JOB_SCHEDULERS,
    Settings,
    from_environment,
    to_environment,
    variables,
)


def test_every_job_scheduler_that_may_be_set_exists() -> None:
    assert set(JOB_SCHEDULERS) == set(IMPLEMENTED)


def test_a_job_scheduler_that_does_not_exist_is_refused_by_name() -> None:
    message = "ONYX_JOB_SCHEDULER='fair': expected balanced, greedy, percentage"
    with pytest.raises(SettingsError, match=re.escape(message)):
        from_environment({"ONYX_JOB_SCHEDULER": "fair"})


def test_all_wrong_variables_are_reported_at_once() -> None:
    with pytest.raises(SettingsError) as raised:
        from_environment(
            {
                "ONYX_TRANSPORT_PORT": "70000",
                "ONYX_TRANSPORT_SHORT_CIRCUIT": "maybe",
                "ONYX_LEAVE_TIMEOUT_S": "soon",
                "ONYX_ZOOKEEPER_SERVER_ID": "one",
            }
        )

    assert str(raised.value).splitlines() == [
        "ONYX_LEAVE_TIMEOUT_S='soon': expected a number",
        "ONYX_ZOOKEEPER_SERVER_ID='one': expected a whole number",
        "ONYX_TRANSPORT_PORT='70000': expected ports up to 65535, such as 7700, 7700-7709 or "
        "7700,7710-7719",
        "ONYX_TRANSPORT_SHORT_CIRCUIT='maybe': expected true or false",
    ]


def test_settings_come_back_from_the_variables_they_make() -> None:
    settings = Settings(
        tenancy_id="t",
        job_scheduler="percentage",
        modules=("a", "b.c"),
        fn_params={"add": [42, {"deep": None}], "other": []},
    )
    assert from_environment(to_environment(settings)) == settings


@pytest.mark.parametrize("text", ["{", "[1]", '{"add": 42}'])
def test_arguments_of_functions_that_are_no_lists_by_task_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="ONYX_FN_PARAMS="):
        from_environment({"ONYX_FN_PARAMS": text})


def test_the_largest_segment_fits_into_the_smallest_frame() -> None:
    assert SEGMENT_BYTES_MAX + FRAME_OVERHEAD_BYTES + 2 * 8 <= FRAME_BYTES_MIN
    with pytest.raises(SettingsError, match="BYTES_MAX='1000': expected a whole number >= 2200000"):
        from_environment({"ONYX_TRANSPORT_FRAME_BYTES_MAX": "1000"})


def test_a_variable_that_is_nearly_a_setting_is_told() -> None:
    given = {
        "ONYX_STATE_CHUNK_INTERVAL": "5",
        "ONYX_STATE_CHUNK_INTERVAL_S": "5",
        "ONYX_PEERS": "3",
        "ONYX_ZOOKEEPER_SERVICE_HOST": "10.0.0.1",
        "ONYX_ZOOKEEPER_PORT_2181_TCP_ADDR": "10.0.0.1",
        "ONYX_OPERATOR_NAMESPACES": "a",
        "ONYX_OF_MINE": "x",
    }
    assert misspelt(given, variables(), "ONYX") == [
        "ONYX_STATE_CHUNK_INTERVAL is no setting and is ignored: is it ONYX_STATE_CHUNK_INTERVAL_S?"
    ]
