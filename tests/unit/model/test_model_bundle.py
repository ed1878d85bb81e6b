"""Bundles: parts of a job made by a library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from onyx.errors import ManifestError, Problem
from onyx.model.bundle import add_task
from onyx.plugins.options import Options, check_options

READ = {"name": "read", "type": "input", "batchSize": 10, "plugin": "lib.s3:source"}


class S3Options(Options, frozen=True):
    bucket: str
    part_size: int = 1


def wrong_options(options: Mapping[str, Any]) -> Iterable[Problem]:
    return check_options(options, S3Options)[1]


def test_a_bundle_is_added_to_a_copy_of_the_spec() -> None:
    spec = {"workflow": [["read", "write"]], "catalog": [{"name": "write"}]}
    calls = {"task": "read", "calls": "lib.s3:calls"}
    after = add_task(spec, {"task": READ, "lifecycles": [calls]})
    assert after["catalog"] == [{"name": "write"}, READ]
    assert after["lifecycles"] == [calls]
    assert spec == {"workflow": [["read", "write"]], "catalog": [{"name": "write"}]}


@pytest.mark.parametrize(
    ("bundle", "message"),
    [
        ({"task": {**READ, "batchSize": 0}}, "task.batchSize: is the number 0"),
        ({"task": READ, "lifecycles": [{"task": "read"}]}, "lifecycles[0].calls: is missing"),
        ({"lifecycles": []}, "is nothing (null), but must be a mapping"),
        ({"task": READ, "lifecycle": []}, "lifecycle: is not a part of a bundle"),
        ({"task": READ}, "task.options.bucket: is missing"),
        (
            {"task": {**READ, "options": {"bucket": "b", "partsize": 1}}},
            "task.options.partsize: is not known (did you mean partSize?)",
        ),
    ],
)
def test_a_wrong_bundle_is_refused_by_its_own_paths(
    bundle: dict[str, object], message: str
) -> None:
    with pytest.raises(ManifestError) as caught:
        add_task({}, bundle, {"catalog": wrong_options})
    assert message in str(caught.value)


def test_options_that_are_as_declared_are_taken() -> None:
    task = {**READ, "options": {"bucket": "b", "partSize": 5}}
    assert add_task({}, {"task": task}, {"catalog": wrong_options}) == {"catalog": [task]}
