"""A select from the batch, taken apart: what the engine computes, and which columns go on as they
are.

`select *, km / hours as speed from segments where km > 10` asks the engine for `__row__` and the
speed of some rows. The other columns are taken from the batch by these rows: they keep their types,
also those that the engine lacks, and cost no conversion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from onyx.sql.engine import DEPTH_MAX, TABLE, Engine
from onyx.sql.grammar import ROW, Grammar, Guarded, Node, Refused, words

_FORM = f"write `select ... from {TABLE}`, and `where ...` if you like"  # noqa: S608
_AGAINST_BATCH = (
    "it would be about the rows that happen to come together in a batch, and these change from run "
    "to run: aggregate in a window, or in a Spark stage"
)
_MODIFIERS = {"LIMIT_MODIFIER": "limit", "LIMIT_PERCENT_MODIFIER": "limit",
              "ORDER_MODIFIER": "order by", "DISTINCT_MODIFIER": "distinct"}  # fmt: skip
_CLAUSES = {"group_expressions": "group by", "group_sets": "group by", "having": "having",
            "qualify": "qualify", "sample": "a sample"}  # fmt: skip
_READ = words("type select_list from_table where_clause aggregate_handling modifiers cte_map")
_READ |= _CLAUSES.keys()
_SOURCES = {
    "JOIN": f"joins {TABLE}; {_AGAINST_BATCH}. To make several rows of a list, select unnest(list)",
    "SUBQUERY": "reads from a query within a query; one select does all",
    "EMPTY": f"reads from nothing; {_FORM}",
    "EXPRESSION_LIST": f"reads from values; {_FORM}",
    "TABLE_FUNCTION": "reads with the table function {}, and nothing may be read but "
    f"{TABLE}: the rows of the batch",
}
_OF_TABLE = frozenset(("type", "alias", "table_name", "qualified_name", "query_location",
                       "query_location_length"))  # fmt: skip
_OF_STAR = frozenset(("class", "type", "query_location", "query_location_length", "relation_name",
                      "exclude_list", "replace_list", "rename_list"))  # fmt: skip


class Star(msgspec.Struct, frozen=True):
    """All columns of the batch."""

    without: frozenset[str]
    """In lower case, as all names here that a batch is asked for."""
    renamed: Mapping[str, str]
    replaced: Mapping[str, int]
    """By column, the position of what the engine computes instead."""


class Passed(msgspec.Struct, frozen=True):
    """A column of the batch as it is."""

    column: str
    name: str | None
    """None: as it is called in the batch."""


class Computed(msgspec.Struct, frozen=True):
    """What the engine computes."""

    name: str
    position: int


Item = Star | Passed | Computed


class Statement(msgspec.Struct, frozen=True):
    """A select that depends on one row at a time."""

    items: tuple[Item, ...]
    query: str
    """What the engine runs: `__row__`, and what is computed, by position."""
    columns: tuple[str, ...]
    """The columns that the engine reads, as the text has them; some may be aliases."""
    aliases: frozenset[str]
    """Names that the text gives, in lower case."""
    computes: bool
    """Whether anything is left for the engine; not for columns of all rows."""
    makes_much: bool
    """Whether a function in it may make much of a row, so that few are computed at once."""


def read_statement(text: str, engine: Engine, before: int = 0) -> Statement:
    """Take a text apart.

    Args:
        before: characters that the user has not written, and does not count.

    Raises:
        Refused: it is no select that can be run on a batch.
    """
    tree = _parsed(text, engine, before)
    node = tree["statements"][0]["node"]
    grammar = Grammar(engine.functions(), _table(node))
    where = node.get("where_clause")
    chosen = () if where is None else tuple(grammar.references(where, in_where=True))
    reading = _Reading(grammar, node["select_list"], chosen)
    asked = {"class": "COLUMN_REF", "type": "COLUMN_REF", "column_names": [ROW]}
    guarded = Guarded()
    node = {**node, "select_list": [asked, *reading.computed]}
    tree["statements"][0]["node"] = guarded.tree(node)
    if guarded.makes_much:
        engine.guard()
    return Statement(
        tuple(reading.items),
        engine.write(tree),
        tuple(dict.fromkeys((*reading.references, *chosen))),
        frozenset(reading.aliases),
        computes=where is not None or bool(reading.computed),
        makes_much=guarded.makes_much,
    )


def _parsed(text: str, engine: Engine, before: int) -> dict[str, Any]:
    """The tree of one select."""
    tree = engine.parse(text)
    if tree["error"]:
        said, position = str(tree["error_message"]), tree.get("position")
        if "expression depth" in said:
            raise Refused(f"is nested too deep: more than {DEPTH_MAX} levels")
        if "Only SELECT" in said:
            raise Refused(f"is not a select; {_FORM}")
        where = "" if position is None else f" (character {int(position) - before + 1})"
        raise Refused(f"has a {said}{where}" if said.startswith("syntax") else f"{said}{where}")
    statements = tree.get("statements", [])
    if len(statements) != 1:
        raise Refused(f"has {len(statements) or 'no'} statements, and must be one select")
    return dict(tree)


def _table(node: Node) -> str:
    """The name of the batch in a select that has nothing but columns and a condition."""
    if node["type"] != "SELECT_NODE":
        raise Refused(f"combines several selects (union, except, intersect); {_FORM}")
    for modifier in node.get("modifiers", ()):
        what = _MODIFIERS.get(modifier["type"], "a modifier")
        raise Refused(f"has {what}; {_AGAINST_BATCH}")
    for key, what in _CLAUSES.items():
        if node.get(key):
            raise Refused(f"has {what}; {_AGAINST_BATCH}")
    if node.get("aggregate_handling", "STANDARD_HANDLING") != "STANDARD_HANDLING":
        raise Refused(f"has group by; {_AGAINST_BATCH}")
    if node.get("cte_map"):
        raise Refused(f"has with; {_FORM}")
    for key in node.keys() - _READ:
        raise Refused(f"has {key.replace('_', ' ')}, which is not supported; {_FORM}")
    source = node.get("from_table", {"type": "EMPTY"})
    if source["type"] != "BASE_TABLE":
        said = _SOURCES.get(source["type"], f"does not read from a table; {_FORM}")
        function = source.get("function", {}).get("function_name", "")
        raise Refused(said.format(function))
    name = source["table_name"]
    if name.lower() != TABLE or len(source["qualified_name"]["path"]) != 1:
        raise Refused(f"reads from {name}, and there is nothing but {TABLE}: the rows of the batch")
    for key in source.keys() - _OF_TABLE:
        raise Refused(f"has {key.replace('_', ' ')} behind {TABLE}, which is not supported")
    return str(source.get("alias", name))


class _Reading:
    """The items of a select, one after the other."""

    def __init__(self, grammar: Grammar, nodes: list[Node], chosen: Iterable[str]) -> None:
        """`chosen`: columns that the condition names."""
        self.items: list[Item] = []
        self.computed: list[Node] = []
        self.references: list[str] = []
        """Columns that the engine reads."""
        self._grammar = grammar
        expressions = [node for node in nodes if node["class"] != "STAR"]
        named = [each for node in expressions for each in grammar.references(node)]
        self._named = {name.lower() for name in (*named, *chosen)}
        self.aliases = {node["alias"].lower() for node in expressions if "alias" in node}
        for node in nodes:
            self.items.append(self._star(node) if node["class"] == "STAR" else self._item(node))
        _check_names(self.items)

    def _item(self, node: Node) -> Item:
        column, alias = self._grammar.name_of(node), node.get("alias")
        if column is not None and not self._by_alias(column, alias):
            return Passed(column, alias)
        name = alias or (node["column_names"][-1] if node["class"] == "COLUMN_REF" else None)
        if name is None:
            raise Refused("computes a column without a name; write `... as name`")
        return Computed(name, self._compute(node, name))

    def _by_alias(self, column: str, alias: str | None) -> bool:
        """Whether another expression names the column by its alias, or it is an alias itself."""
        if alias is None or alias.lower() == column.lower():
            return column.lower() in self.aliases and alias is None
        return alias.lower() in self._named or column.lower() in self.aliases

    def _star(self, node: Node) -> Star:
        if node.get("columns") or node.get("expr"):
            raise Refused("has COLUMNS(...) or * with a condition; name the columns")
        for key in node.keys() - _OF_STAR:
            raise Refused(f"has * with {key.replace('_', ' ')}, which is not supported")
        relation = node.get("relation_name", self._grammar.table)
        if relation.lower() != self._grammar.table.lower():
            raise Refused(f"has {relation}.*, and there is nothing but {TABLE}")
        replaced = {
            each["key"].lower(): self._compute(each["value"], f"__replaced_{number}__")
            for number, each in enumerate(node.get("replace_list", ()))
        }
        renamed = {
            each["key"]["column"].lower(): each["value"] for each in node.get("rename_list", ())
        }
        return Star(frozenset(map(str.lower, node.get("exclude_list", ()))), renamed, replaced)

    def _compute(self, node: Node, name: str) -> int:
        self.references += self._grammar.references(node)
        self.computed.append({**node, "alias": name})
        return len(self.computed) - 1


def _check_names(items: Iterable[Item]) -> None:
    names: set[str] = set()
    for item in items:
        if isinstance(item, Star):
            continue
        name = item.name if isinstance(item, Computed) else item.name or item.column
        if name == ROW:
            raise Refused(f"calls a column {ROW}, which Onyx adds by itself; leave it out")
        if name in names:
            raise Refused(f"has two columns called {name}; give one of them another name")
        names.add(name)
