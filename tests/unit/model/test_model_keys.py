"""Every key of every manifest is described, named by the rule, and takes its own default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
import pytest

from onyx.model.cluster import CLUSTER
from onyx.model.keys.fields import section_of
from onyx.model.keys.key import NOT_A_KEY, Key
from onyx.model.keys.kinds import Integer
from onyx.model.keys.kubernetes import amount_of
from onyx.model.keys.section import Section, SectionEntries, SectionEntry
from onyx.model.manifest import DECLARATION, SPEC
from onyx.model.names import yaml_key
from onyx.model.report import Report


def within(section: Section) -> Iterator[Section]:
    yield section
    for key in section.keys:
        if isinstance(key.kind, SectionEntries | SectionEntry):
            yield from within(key.kind.section)


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        (2, "2"),
        ("1.5Ki", "1536"),
        ("2Gi", "2147483648"),
        ("1G", "1000000000"),
        ("500m", "0.5"),
        (".5k", "500"),
        ("1e3", "1000"),
        ("2E", "2000000000000000000"),
        ("128974848", "128974848"),
    ],
)
def test_amounts_are_read_as_kubernetes_reads_them(amount: int | str, expected: str) -> None:
    assert amount_of(amount) == Decimal(expected)


ALL = [each for section in (SPEC, DECLARATION, CLUSTER) for each in within(section)]
EACH = pytest.mark.parametrize("section", ALL, ids=lambda section: section.name)


@EACH
def test_a_key_is_described_by_a_sentence(section: Section) -> None:
    assert section.doc.endswith(".")
    for key in section.keys:
        assert key.doc.endswith("."), f"{key.yaml} needs a docstring below its field"
        assert key.era in ("both", "0.9", "0.10+")
        if key.allowed_for:
            assert set(key.required_for) <= set(key.allowed_for), key.yaml


@EACH
def test_no_key_or_word_is_a_boolean_of_yaml_1_1(section: Section) -> None:
    words = {key.yaml for key in section.keys}
    for key in section.keys:
        words |= set(getattr(key.kind, "words", ())) | set(getattr(key.kind, "short", ()))
    assert not words & {"on", "off", "yes", "no", "y", "n", "true", "false", "null"}


@EACH
def test_keys_of_onyx_are_named_by_the_mechanical_rule(section: Section) -> None:
    for key in section.keys:
        if key.origin and key.origin not in ("trigger/on", "resume-point"):
            namespace, _, name = key.origin.rpartition("/")
            name = f"{namespace}-{name}" if namespace == "acker" else name
            assert key.yaml == yaml_key(name.removesuffix("?").replace("-", "_"))


@EACH
def test_a_default_is_a_value_that_the_key_itself_takes(section: Section) -> None:
    for key in section.keys:
        if key.default in (None, ()) or isinstance(key.kind, SectionEntries | SectionEntry):
            continue
        value = list(key.default) if isinstance(key.default, tuple) else key.default
        value = dict(value) if isinstance(value, Mapping) else value
        report = Report()
        assert key.kind.read(value, key.yaml, report) == key.default
        assert not report


class SomePart(msgspec.Struct, frozen=True):
    """A part. More about it.

    Not on any page.
    """

    size: Annotated[int, Integer(1, 5, "pieces")]
    """How large
    it is."""


class SomeThing(msgspec.Struct, frozen=True):
    """A thing."""

    name: Annotated[str, NOT_A_KEY]
    parts: Annotated[tuple[SomePart, ...], Key(items_max=3)]
    shape: Literal["round", "square"] | None = None
    free_text: str = ""
    by_name: Mapping[str, bool] | None = None
    from_where: Annotated[Any, Key(yaml="from", allowed_for=("this",))] = None


def test_keys_follow_from_the_fields_of_a_class() -> None:
    thing = section_of(SomeThing)

    assert thing.name == "some thing"
    assert [key.yaml for key in thing.keys] == ["parts", "shape", "freeText", "byName", "from"]
    assert [key.yaml for key in thing.keys if key.required] == ["parts"]
    assert [key.kind.describe() for key in thing.keys] == [
        "a list, each a mapping with the keys of a some part",
        "round or square",
        "text",
        "a mapping from text to true or false",
        "any value",
    ]
    (parts, *_) = thing.keys
    assert isinstance(parts.kind, SectionEntries)
    assert parts.kind.section.doc == "A part. More about it."
    assert parts.kind.section.keys[0].doc == "How large it is."
    assert thing.build({"parts": [{"size": 2}]}, name="x") == SomeThing("x", (SomePart(2),))


def test_a_field_whose_kind_nobody_knows_is_refused() -> None:
    class Vague(msgspec.Struct, frozen=True):
        size: int

    with pytest.raises(TypeError, match="must stand in the field's annotation"):
        _ = section_of(Vague).keys
