"""The table of the information model and the dataclasses say the same."""

from __future__ import annotations

import dataclasses
import re

import pytest

from onyx.model.information import SECTIONS
from onyx.model.information_cluster import CLUSTER_SECTIONS
from onyx.model.information_declaration import DECLARATION, FAILURE_POLICY, JOB_REF
from onyx.model.information_upgrade import RESUME_POINT
from onyx.model.keys.section import Entries, Entry, Section
from onyx.model.names import yaml_key

EACH = pytest.mark.parametrize(
    "section",
    [*SECTIONS.values(), *CLUSTER_SECTIONS, DECLARATION, FAILURE_POLICY, JOB_REF, RESUME_POINT],
    ids=lambda section: section.name,
)


@EACH
def test_fields_and_defaults_are_those_of_the_table(section: Section) -> None:
    assert section.make is not None
    fields = {field.name: field for field in dataclasses.fields(section.make)}
    if section.name in ("job", "cluster"):
        del fields["name"]  # stands under the manifest's metadata
    assert set(fields) == {key.field for key in section.keys}
    for key in section.keys:
        field = fields[key.field]
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if key.required:
            assert default is dataclasses.MISSING, f"{key.name} is required"
        else:
            assert (default, type(default)) == (key.default, type(key.default)), key.name


@EACH
def test_keys_are_told_completely(section: Section) -> None:
    for key in section.keys:
        assert key.doc.endswith("."), f"{key.name}: a sentence"
        assert key.era in ("both", "0.9", "0.10+", "ours")
        assert (key.era == "ours") == (not key.origin), key.name
        if key.allowed_for:
            assert set(key.required_for) <= set(key.allowed_for), key.name


@EACH
def test_no_key_or_word_is_a_boolean_of_yaml_1_1(section: Section) -> None:
    words = {key.yaml for key in section.keys}
    for key in section.keys:
        words |= set(getattr(key.kind, "words", ())) | set(getattr(key.kind, "short", ()))
    assert not words & {"on", "off", "yes", "no", "y", "n", "true", "false", "null"}


@EACH
def test_keys_of_onyx_are_named_by_the_mechanical_rule(section: Section) -> None:
    for key in section.keys:
        if key.origin and key.origin != "trigger/on":
            namespace, _, name = key.origin.rpartition("/")
            name = f"{namespace}-{name}" if namespace == "acker" else name
            assert key.yaml == yaml_key(name.removesuffix("?").replace("-", "_"))


@EACH
def test_defaults_are_values_that_the_key_itself_takes(section: Section) -> None:
    from onyx.model.report import Report

    for key in section.keys:
        if key.default in (None, ()) or isinstance(key.kind, Entries | Entry):
            continue
        value = list(key.default) if isinstance(key.default, tuple) else key.default
        value = dict(value) if re.match("mapping", type(value).__name__) else value
        report = Report()
        assert key.kind.read(value, key.yaml, report) == key.default
        assert not report
