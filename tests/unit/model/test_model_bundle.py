"""Bundles: parts of a job made by a library."""

from __future__ import annotations

import pytest

from onyx.errors import ManifestError
from onyx.model.bundle import add_task
from onyx.model.keys.kinds import Count, Text
from onyx.model.keys.section import Key, Section

READ = {"name": "read", "type": "input", "batchSize": 10, "plugin": "lib.s3:source"}
S3 = Section(
    "S3 options",
    "Options of a source.",
    (Key("bucket", Text(), "Where.", required=True), Key("part_size", Count(1), "How large.")),
)


def test_a_bundle_is_added_to_a_copy_of_the_spec() -> None:
    spec = {"workflow": [["read", "write"]], "catalog": [{"name": "write"}]}
    calls = {"task": "read", "calls": "lib.s3:calls"}
    after = add_task(spec, {"task": READ, "lifecycles": [calls]})
    assert after["catalog"] == [{"name": "write"}, READ]
    assert after["lifecycles"] == [calls]
    assert spec == {"workflow": [["read", "write"]], "catalog": [{"name": "write"}]}


@pytest.mark.parametrize(
    ("bundle", "told"),
    [
        ({"task": {**READ, "batchSize": 0}}, "task.batchSize: is the number 0"),
        ({"task": READ, "lifecycles": [{"task": "read"}]}, "lifecycles[0].calls: is missing"),
        ({"lifecycles": []}, "is nothing (null), but must be a mapping"),
        ({"task": READ, "lifecycle": []}, "lifecycle: is not a part of a bundle"),
        ({"task": READ}, "task.options.bucket: is missing"),
        (
            {"task": {**READ, "options": {"bucket": "b", "partsize": 1}}},
            "task.options.partsize: is not a key of a S3 options (did you mean partSize?)",
        ),
    ],
)
def test_a_wrong_bundle_is_refused_by_its_own_paths(bundle: dict[str, object], told: str) -> None:
    with pytest.raises(ManifestError) as caught:
        add_task({}, bundle, {"catalog": S3})
    assert told in str(caught.value)


def test_options_that_are_as_declared_are_taken() -> None:
    task = {**READ, "options": {"bucket": "b", "partSize": 5}}
    assert add_task({}, {"task": task}, {"catalog": S3}) == {"catalog": [task]}
