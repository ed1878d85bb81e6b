"""What an expression of SQL may say, so that the result depends on nothing but the row.

The trees are those of DuckDB's own parser. Whatever is not named here is refused, so that a later
version of DuckDB cannot add a way out.

**Growth.** Some functions of DuckDB make much of little: a number is all that `range(1000000000)`
needs. The limit of memory of DuckDB does not hold for what a function makes. So a call of such a
function is replaced by a macro that looks at the number first, and fails for the row; and a text
with one is run on few rows at a time. Where the number is written and small, nothing is replaced.
Within a lambda, which is called for each value of a list, only such numbers are allowed.

What a lambda makes of a list by itself has no bound here: the time limit of a statement holds for
it, and a process that dies of memory names its segments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from onyx.model.report import nearest

Node = Mapping[str, Any]
Functions = Mapping[str, tuple[frozenset[str], frozenset[str | None]]]
"""By name, the types of a function and how stable its results are, as the engine says."""


def words(text: str) -> frozenset[str]:
    """The words of a text, of which there are too many to quote each."""
    return frozenset(text.split())


ROW = "__row__"
UNNEST = "unnest"
_OF_BATCH = (
    "which rows come together in a batch changes from run to run: aggregate in a window, or in a "
    "Spark stage"
)
_OF_ROW = "a row must have the same result each time: compute it before the job, or in fn"
_CLASSES = words(
    "BETWEEN CASE CAST COLLATE COLUMN_REF COMPARISON CONJUNCTION CONSTANT FUNCTION LAMBDA OPERATOR "
    "TYPE"
)
_REFUSED = {
    "SUBQUERY": f"has a query within a query; {_OF_BATCH}",
    "WINDOW": f"has a window function (over), which looks at several rows; {_OF_BATCH}",
    "STAR": "has * or COLUMNS(...) within an expression; name the columns",
    "PARAMETER": "has a parameter ($ or ?); write the value",
    "POSITIONAL_REFERENCE": "has a column by its number (#); name it",
}
_TIMES = words(
    "+ - century date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc day "
    "dayname dayofmonth dayofweek dayofyear decade era generate_series hour isodow isoyear julian "
    "last_day make_timestamptz microsecond millennium millisecond minute month monthname quarter "
    "range second strftime time_bucket timezone timezone_hour timezone_minute week weekday "
    "weekofyear year yearweek"
)
"""Functions that depend on the time zone of the connection, which is UTC."""
_MACROS = words(
    "array_append array_pop_back array_pop_front array_prepend array_push_back array_push_front "
    "array_reverse array_to_string array_to_string_comma_default date_add days_in_month fdiv "
    "fmod generate_subscripts if json list_any_value list_append list_approx_count_distinct "
    "list_avg list_bit_and list_bit_or list_bit_xor list_bool_and list_bool_or list_count "
    "list_entropy list_first list_histogram list_kurtosis list_kurtosis_pop list_last list_mad "
    "list_max list_median list_min list_mode list_prepend list_product list_reverse list_sem "
    "list_skewness list_stddev_pop list_stddev_samp list_string_agg list_sum list_var_pop "
    "list_var_samp map_contains_entry map_contains_value md5_number_lower md5_number_upper nullif "
    "round_even roundbankers split_part"
)
"""Macros of DuckDB that look at their arguments only."""
_OF_LISTS = words(
    "apply array_apply array_filter array_reduce array_transform filter list_apply list_filter "
    "list_reduce list_transform reduce"
)
"""Functions whose arguments may be lambdas. Elsewhere `a -> b` takes a value out of JSON."""
_KEYWORD = "LAMBDA_KEYWORD"
"""How a parsed lambda says that it was written `lambda x: ...`."""
_ELAPSED = "age"
"""A function that counts to the time of day when it gets one argument."""
_CHANGING = words("current_localtime current_localtimestamp version")
"""Functions that DuckDB takes to be constant, which hold for one process only."""
_OF_ENGINE = words(
    "bitstring_byte_comparable can_cast_implicitly combine create_sort_key finalize invoke "
    "json_deserialize_sql json_serialize_plan json_serialize_sql parse_duckdb_log_message "
    "timetz_byte_comparable to_aggregate_state variant_bytes_to_variant variant_comparator "
    "variant_normalize variant_to_parquet_variant vertex_extract"
)
"""Functions by which DuckDB works: they trust their arguments."""
_INTERNAL = "__internal"
_RAISES = "error"
"""A function that fails for a row, which is what its author wants."""


class Refused(Exception):
    """Why a text cannot be run on a batch."""

    def __init__(self, why: str, hint: str = "") -> None:
        super().__init__(f"{why}; {hint}" if hint else why)


class Grammar(msgspec.Struct, frozen=True):
    """The language, by the functions of an engine."""

    functions: Functions
    table: str
    """The name, or the alias, of the table that expressions may put before a column."""

    def references(self, node: Node, in_where: bool = False) -> Iterator[str]:
        """The columns that an expression names.

        Args:
            in_where: of a condition, where a row does not become several.

        Raises:
            Refused: it is not an expression about one row.
        """
        yield from self._of(node, frozenset(), in_where)

    def name_of(self, node: Node) -> str | None:
        """The column that an expression is, and nothing else; None if it is more."""
        names = self._path(node) if node.get("class") == "COLUMN_REF" else ()
        return names[0] if len(names) == 1 else None

    def _of(self, node: Node, bound: frozenset[str], in_where: bool) -> Iterator[str]:
        kind = node["class"]
        if kind not in _CLASSES:
            raise Refused(_REFUSED.get(kind, f"has {kind.lower()}, which is not supported"))
        if kind == "COLUMN_REF":
            yield from self._reference(node, bound)
            return
        if kind == "FUNCTION":
            self._check_function(node, in_where)
        if kind == "OPERATOR" and node["type"] == "GROUPING_FUNCTION":
            raise Refused(f"has grouping(); {_OF_BATCH}")
        of_list = kind == "FUNCTION" and node["function_name"].lower() in _OF_LISTS
        for child in _children(node):
            if of_list and child["class"] == "LAMBDA" and child["syntax_type"] != _KEYWORD:
                raise Refused("has a function as x -> ...", "write lambda x: ...")
            if child["class"] == "LAMBDA" and child["syntax_type"] == _KEYWORD:
                names = frozenset(map(str.lower, _lambda_names(child["lhs"])))
                yield from self._of(child["expr"], bound | names, in_where)
            else:
                yield from self._of(child, bound, in_where)

    def _reference(self, node: Node, bound: frozenset[str]) -> Iterator[str]:
        name = self._path(node)[0]
        if name == ROW:
            raise Refused(f"names {ROW}, which Onyx adds by itself; leave it out")
        if name.lower() not in bound:
            yield name

    def _path(self, node: Node) -> tuple[str, ...]:
        """The parts of a column's name, without the table."""
        names: tuple[str, ...] = tuple(node["column_names"])
        qualified = len(names) > 1 and names[0].lower() == self.table.lower()
        return names[1:] if qualified else names

    def _check_function(self, node: Node, in_where: bool) -> None:
        name = node["function_name"].lower()
        types, stability = self.functions.get(name, (frozenset(), frozenset()))
        if name == UNNEST:
            if in_where:
                raise Refused("has unnest in where; take a subset of the list: list_filter(...)")
            return
        if not types:
            raise Refused(f"has the unknown function {name}", nearest(name, self.functions))
        if "aggregate" in types or "table_macro" in types:
            raise Refused(f"has the aggregate {name}; {_OF_BATCH}")
        if "window" in types:
            raise Refused(
                f"has the window function {name}, which looks at several rows; {_OF_BATCH}"
            )
        if node.get("distinct") or node.get("filter") or node["order_bys"].get("orders"):
            raise Refused(f"has distinct, filter or order by within {name}; {_OF_BATCH}")
        if name in _OF_ENGINE or name.startswith(_INTERNAL) or not _is_about_rows(name, types):
            raise Refused(f"has the function {name}, which is not about a row")
        if _is_about_today(node, name, stability):
            raise Refused(f"has {name}, whose result is another one each time; {_OF_ROW}")


def _is_about_rows(name: str, types: frozenset[str]) -> bool:
    return name in _MACROS if "macro" in types else "scalar" in types


def _is_about_today(node: Node, name: str, stability: frozenset[str | None]) -> bool:
    """Whether a function gives another result at another time, or by chance."""
    if name == _ELAPSED:
        return len(node.get("arguments", ())) < 2
    declared = stability <= {"CONSISTENT", None} or name in _TIMES or name == _RAISES
    return name in _CHANGING or not declared


def _children(node: Node) -> Iterator[Node]:
    """The expressions directly below a node, wherever it keeps them."""
    for value in node.values():
        yield from _nodes(value)


def _nodes(value: Any) -> Iterator[Node]:
    if isinstance(value, dict):
        if "class" in value:
            yield value
        else:
            for each in value.values():
                yield from _nodes(each)
    elif isinstance(value, list):
        for each in value:
            yield from _nodes(each)


def _lambda_names(node: Node) -> Iterator[str]:
    """The parameters of a lambda: a name, or a row of names."""
    if node["class"] == "COLUMN_REF":
        yield node["column_names"][0]
    for child in _children(node):
        yield from _lambda_names(child)


MADE_MAX = 100_000
"""Values of a list, or characters of a text, that one call may make."""
SMALL_MAX = 100
"""A number up to which a call is as any other."""
ROWS_AT_ONCE = 16
"""Rows for which such calls are computed together."""
_PREFIX = "onyx_guarded_"
_NUMBERS: Mapping[str, tuple[int, ...]] = {
    "range": (0, 1, 2),
    "generate_series": (0, 1, 2),
    "repeat": (1,),
    "lpad": (1,),
    "rpad": (1,),
    "list_resize": (1,),
    "array_resize": (1,),
}
"""By function, which of its arguments say how much it makes."""
_FORMATS = frozenset({"format", "printf"})
_WIDE = re.compile(r"\d{4}|\{[^}]*\{|\*")
"""A width of more than three digits, or one that is an argument."""


def _macros() -> str:
    """The macros, as statements."""
    within = "onyx_within"
    made = [
        f"CREATE MACRO {within}(made, given) AS CASE WHEN made > {MADE_MAX} THEN "
        f"error('a function makes more than {MADE_MAX} values or characters of a row') "
        "ELSE given END",
        "CREATE MACRO onyx_span(a, b) AS coalesce("
        "abs(try_cast(b::VARCHAR AS DOUBLE) - try_cast(a::VARCHAR AS DOUBLE)), "
        "abs(epoch(try_cast(b::VARCHAR AS TIMESTAMPTZ)) - "
        "epoch(try_cast(a::VARCHAR AS TIMESTAMPTZ))))",
        "CREATE MACRO onyx_step(s) AS nullif(coalesce(abs(try_cast(s::VARCHAR AS DOUBLE)), "
        "abs(epoch(try_cast(s::VARCHAR AS INTERVAL)))), 0)",
    ]
    made += [
        f"CREATE MACRO {_PREFIX}{name}(a) AS {name}({within}(abs(a::DOUBLE), a)), "
        f"(a, b) AS {name}(a, {within}(onyx_span(a, b), b)), "
        f"(a, b, s) AS {name}(a, {within}(onyx_span(a, b) / onyx_step(s), b), s)"
        for name in ("range", "generate_series")
    ]
    made += [
        f"CREATE MACRO {_PREFIX}repeat(x, n) AS "
        f"repeat(x, {within}(strlen(x::VARCHAR) * n::DOUBLE, n))"
    ]
    made += [
        f"CREATE MACRO {_PREFIX}{name}(x, n, p) AS {name}(x, {within}(n, n), p)"
        for name in ("lpad", "rpad")
    ]
    made += [
        f"CREATE MACRO {_PREFIX}{name}(x, n) AS {name}(x, {within}(n, n)), (x, n, v) AS "
        f"{name}(x, {within}(n * greatest(1, coalesce(strlen(v::VARCHAR), 1)), n), v)"
        for name in ("list_resize", "array_resize")
    ]
    return "; ".join(made)


MACROS = _macros()


class Guarded:
    """A tree of an expression, in which calls that may make much are replaced."""

    def __init__(self) -> None:
        self.makes_much = False
        """Whether there is such a call."""

    def tree(self, value: Any, in_lambda: bool = False) -> Any:
        """Replace the calls in a tree.

        Raises:
            Refused: what a call makes cannot be bounded.
        """
        # Without comprehensions, which would be two more calls for each of `DEPTH_MAX` levels, and
        # Python has a thousand of them.
        if isinstance(value, list):
            return list(map(partial(self.tree, in_lambda=in_lambda), value))
        if not isinstance(value, dict):
            return value
        inside = in_lambda or value.get("class") == "LAMBDA"
        node: dict[str, Any] = {}
        for key, each in value.items():
            node[key] = self.tree(each, inside)
        if value.get("class") == "FUNCTION":
            return self._call(node, in_lambda)
        return node

    def _call(self, node: dict[str, Any], in_lambda: bool) -> dict[str, Any]:
        name = node["function_name"].lower()
        given = [each["expression"] for each in node.get("arguments", ())]
        if name in _FORMATS and given and not _is_narrow(given[0]):
            raise Refused(
                f"has {name} with a width of more than 999, or one that is not written in the text"
            )
        numbers = _NUMBERS.get(name)
        if numbers is None or all(_is_small(each) for each in _chosen(given, numbers)):
            return node
        if in_lambda:
            raise Refused(
                f"has {name} in a lambda with a number above {SMALL_MAX}, or one that is computed: "
                "it would make as much for each value of a list"
            )
        self.makes_much = True
        guarded = f"{_PREFIX}{name}"
        return {**node, "function_name": guarded, "qualified_name": {"path": [guarded]}}


def _chosen(given: list[Node], numbers: tuple[int, ...]) -> list[Node]:
    return [given[at] for at in numbers if at < len(given)]


def _is_small(node: Node) -> bool:
    """Whether an argument is a number that is written in the text, and small."""
    literal = node.get("literal", {})
    text = str(literal.get("text", ""))
    return literal.get("kind") == "INTEGER" and text.isdecimal() and int(text) <= SMALL_MAX


def _is_narrow(node: Node) -> bool:
    literal = node.get("literal", {})
    return literal.get("kind") == "STRING" and not _WIDE.search(str(literal.get("text", "")))
