"""Names of column types in a manifest."""

from __future__ import annotations

import re

import pytest

from onyx.model.column_types import ColumnType, parse_type

INT = ColumnType("int64")


def list_of(item: ColumnType) -> ColumnType:
    return ColumnType("list", fields=(("", item),))


def struct_of(**fields: ColumnType) -> ColumnType:
    return ColumnType("struct", fields=tuple(fields.items()))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("int64", INT),
        (" decimal( 10,2 ) ", ColumnType("decimal", (10, 2))),
        ("list<list<int64>>", list_of(list_of(INT))),
        ("struct<a: int64, b:string>", struct_of(a=INT, b=ColumnType("string"))),
    ],
)
def test_a_name_of_a_type_is_read(text, kind):
    assert parse_type(text) == kind


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no type"),
        ("integer", "is no type: 'integer'"),
        ("int64 int64", "goes on with 'int64'"),
        ("list<int64", "has 'nothing' where '>' must be"),
        ("decimal(40, 2)", "at most 38 digits"),
        ("decimal(2, 3)", "at most 38 digits"),
        ("decimal(a, 3)", "without two numbers"),
        ("struct<a: int64, a: int64>", "'a' where a new name must be"),
        ("struct<>", "where a new name must be"),
        ("int64;", "has ';', which no type has"),
        ("list<" * 40 + "int64" + ">" * 40, "nested deeper than 16"),
        ("x" * 2000, "has 2000 characters"),
    ],
)
def test_what_is_no_type_is_refused_with_the_reason(text, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        parse_type(text)
