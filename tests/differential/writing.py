"""Writes a statement's tree as text: for Meridian in MySQL's dialect, or for DuckDB so that it means the same. adql.py has the writers for ADQL.

All writers share what is the same. DuckDB's writes out what DuckDB has not: areas, crossmatches, `IN` of several values.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable

from differential import values
from differential.operators import AGGREGATES, OPERATORS, WINDOWS, Operator
from differential.tree import (
    Aggregate, Apply, Area, Column, Constant, Crossmatch, Derived, Exists, InList, InQuery, Item, Join, Node, Quantified, Query,
    ScalarQuery, Select, SetQuery, SortKey, Star, Table, Window, With,
)  # fmt: skip

JOINS = {
    "inner": "JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "FULL JOIN", "cross": "CROSS JOIN", "comma": ",",
    "natural": "NATURAL JOIN", "natural left": "NATURAL LEFT JOIN", "natural right": "NATURAL RIGHT JOIN", "natural full": "NATURAL FULL JOIN",
}  # fmt: skip
FILES = "file"
PARAMETER = re.compile("\x01(\\d+)\x02")
# The position columns of partitioned tables, by database and name.
Places = dict[tuple[str, str], tuple[str, str]]


class Writer:
    """What both dialects have in common."""

    def write(self, node: Node) -> str:
        """The text of a node."""
        method: Callable[[Node], str] = getattr(self, f"_{type(node).__name__.lower()}")
        return method(node)

    def _list(self, nodes: tuple[Node, ...]) -> str:
        return ", ".join(self.write(node) for node in nodes)

    def name(self, name: str) -> str:
        """An identifier."""
        return name

    def template(self, name: str, operator: Operator) -> str:
        """The form of an operator in this dialect."""
        raise NotImplementedError

    def _column(self, node: Column) -> str:
        name = self.name(node.name)
        return name if node.alias is None else f"{node.alias}.{name}"

    def _apply(self, node: Apply) -> str:
        operator = OPERATORS[node.operator]
        return self.template(node.operator, operator).format(*map(self.write, node.args))

    def _inlist(self, node: InList) -> str:
        return f"({self.write(node.tested)} {'NOT ' * node.negated}IN ({self._list(node.among)}))"

    def _aggregate(self, node: Aggregate) -> str:
        operator = AGGREGATES[node.function]
        text = self.template(node.function, operator)
        if node.distinct:
            text = text.replace("(", "(DISTINCT ", 1)
        return text.format(*map(self.write, node.args))

    def _window(self, node: Window) -> str:
        operator, _ = WINDOWS[node.function]
        call = self.template(node.function, operator).format(*map(self.write, node.args))
        parts = [f"PARTITION BY {self._list(node.partition)}"] if node.partition else []
        parts += [f"ORDER BY {self._list(node.order)}"] if node.order else []
        parts += [node.frame] if node.frame else []
        return f"{call} OVER ({' '.join(parts)})"

    def _exists(self, node: Exists) -> str:
        return f"({'NOT ' * node.negated}EXISTS ({self.write(node.query)}))"

    def _inquery(self, node: InQuery) -> str:
        tested = self._list(node.tested)
        tested = tested if len(node.tested) == 1 else f"({tested})"
        return f"({tested} {'NOT ' * node.negated}IN ({self.write(node.query)}))"

    def _quantified(self, node: Quantified) -> str:
        return f"({self.write(node.tested)} {node.comparison} {node.quantifier} ({self.write(node.query)}))"

    def _scalarquery(self, node: ScalarQuery) -> str:
        return f"({self.write(node.query)})"

    def _item(self, node: Item) -> str:
        return f"{self.write(node.expr)} AS {node.name}" if node.has_alias else self.write(node.expr)

    def _star(self, _: Star) -> str:
        return "*"

    def _derived(self, node: Derived) -> str:
        return f"({self.write(node.query)}) {node.alias}"

    def _join(self, node: Join) -> str:
        right = self.write(node.right)
        right = f"({right})" if isinstance(node.right, Join) else right
        word = JOINS[node.how]
        text = f"{self.write(node.left)}{'' if word == ',' else ' '}{word} {right}"
        if node.using:
            return f"{text} USING ({', '.join(map(self.name, node.using))})"
        return text if node.on is None else f"{text} ON {self.write(node.on)}"

    def conditions(self, node: Select) -> list[str]:
        """What stands in WHERE, joined by AND."""
        return [self.write(node.where)] if node.where else []

    def group_conditions(self, node: Select) -> list[str]:
        """What stands in HAVING, joined by AND."""
        return [self.write(node.having)] if node.having else []

    def grouping(self, node: Select) -> str:
        """The GROUP BY."""
        raise NotImplementedError

    def _select(self, node: Select) -> str:
        text = f"SELECT {'DISTINCT ' * node.is_distinct}{self.top(node.limit)}{self._list(node.items)}"
        if node.source is not None:
            text += f" FROM {self.from_clause(node)}"
        if conditions := self.conditions(node):
            text += f" WHERE {' AND '.join(conditions)}"
        if node.groups:
            text += f" GROUP BY {self.grouping(node)}"
        if conditions := self.group_conditions(node):
            text += f" HAVING {' AND '.join(conditions)}"
        return text + self.ending(node.order, node.limit, node.offset)

    def from_clause(self, node: Select) -> str:
        """What stands in FROM."""
        assert node.source is not None
        return self.write(node.source)

    def top(self, limit: Constant | None) -> str:
        """What says at the head of a SELECT how many rows it gives, in a dialect that says it there."""
        return ""

    def ending(self, order: tuple[SortKey, ...], limit: Constant | None, offset: Constant | None = None) -> str:
        """ORDER BY and LIMIT."""
        text = f" ORDER BY {self._list(order)}" if order else ""
        text += f" LIMIT {limit.value}" if limit is not None else ""
        return text + (f" OFFSET {offset.value}" if limit is not None and offset is not None else "")

    def _part(self, query: Query) -> str:
        """One side of a UNION."""
        plain = isinstance(query, Select) and not query.order and query.limit is None
        return self.write(query) if plain else f"({self.write(query)})"

    def _setquery(self, node: SetQuery) -> str:
        text = f"{self._part(node.left)} {node.operator} {self._part(node.right)}"
        return text + self.ending(node.order, node.limit)

    def _with(self, node: With) -> str:
        tables = ", ".join(f"{table.name} AS ({self.write(table.query)})" for table in node.tables)
        return f"WITH {tables} {self.write(node.body)}"


def escaped(text: str, marks: dict[str, str]) -> str:
    """A text in single quotes, with what must be escaped."""
    return "'" + "".join(marks.get(letter, letter) for letter in text) + "'"


class MeridianWriter(Writer):
    """MySQL's dialect. With `parameters`, constants that have a role are put there, and their numbers between marks into the text."""

    def __init__(self, parameters: list[object] | None = None) -> None:
        self.parameters = parameters
        # What the SELECT that is written calls its items, and the table whose name it leaves out.
        self.shown: dict[str, str] = {}
        self.bare: str | None = None

    def _select(self, node: Select) -> str:
        before = self.shown, self.bare
        self.shown = {item.name: item.shown for item in node.items if isinstance(item, Item) and item.shown}
        self.bare = getattr(node.source, "alias", None) if node.is_bare else None
        text = super()._select(node)
        self.shown, self.bare = before
        return text

    def _item(self, node: Item) -> str:
        if not node.shown or not node.has_alias:
            return super()._item(node)
        return f"{self.write(node.expr)} AS {node.shown}"

    def _column(self, node: Column) -> str:
        if node.alias is None:
            return self.shown.get(node.name, node.name)
        return node.name if node.alias == self.bare else super()._column(node)

    def template(self, name: str, operator: Operator) -> str:
        return operator.meridian

    def _constant(self, node: Constant) -> str:
        if self.parameters is not None and node.role is not None:
            value: object = node.value
            if node.role in values.WRITTEN_AS_TEXT:
                value = None if value is None else str(value)
            elif node.kind in ("time", "date") and isinstance(value, str):
                read = datetime.datetime if node.kind == "time" else datetime.date
                value = read.fromisoformat(value)
            self.parameters.append(value)
            return f"\x01{len(self.parameters) - 1}\x02"
        if node.value is None:
            return "NULL"
        if node.kind == "text":
            return escaped(str(node.value), {"'": "''", "\\": "\\\\"})
        if node.role in values.WRITTEN_AS_TEXT:
            return f"'{node.value}'"
        if node.kind in ("time", "date"):
            return f"{'TIMESTAMP' if node.kind == 'time' else 'DATE'} '{node.value}'"
        if isinstance(node.value, bool):
            return "TRUE" if node.value else "FALSE"
        return number(node.value)

    def _sortkey(self, node: SortKey) -> str:
        return f"{self.write(node.expr)}{' DESC' * node.descending}"

    def _table(self, node: Table) -> str:
        if node.database == FILES:
            return f"read_{node.name.rpartition('.')[2]}('{node.name}') {node.alias}"
        name = f"{node.database}.{node.name}" if node.is_qualified else node.name
        return f"{name} {node.alias}"

    def _area(self, node: Area) -> str:
        return f"qserv_areaspec_{node.shape}({self._list(node.numbers)})"

    def conditions(self, node: Select) -> list[str]:
        return ([self._area(node.area)] if node.area else []) + super().conditions(node)

    def grouping(self, node: Select) -> str:
        return self._list(node.groups) + " WITH ROLLUP" * node.is_rollup

    def _side(self, node: Table | Derived) -> str:
        if isinstance(node, Derived):
            return f"({self.write(node.query)})"
        text = self._table(node)
        return text[: text.rindex(" ")]

    def _crossmatch(self, node: Crossmatch) -> str:
        assert isinstance(node.left, (Table, Derived)) and isinstance(node.right, (Table, Derived))
        args = [self._side(node.left), self._side(node.right), self.write(node.radius)]
        if node.function == "nearest":
            args += [str(node.neighbours.value)] if node.neighbours else []
        else:
            args += [f"'{node.find}'", f"'{node.join}'"]
        return f"{node.function}({', '.join(args)}) {node.alias}"


TYPES = {"int": "BIGINT", "real": "DOUBLE", "text": "VARCHAR", "time": "TIMESTAMP", "date": "DATE", "bool": "BOOLEAN"}
FOUND = {
    "all": "row_number() OVER () > 0",
    "best": "s = min(s) OVER (PARTITION BY l_id) AND s = min(s) OVER (PARTITION BY r_id)",
    "best1": "row_number() OVER (PARTITION BY l_id ORDER BY s, r_id {tied}) <= {at_most}",
    "best2": "row_number() OVER (PARTITION BY r_id ORDER BY s, l_id {tied}) <= {at_most}",
}
REGIONS = {"circle": "is_in_circle({}, {}, {})", "box": "is_in_box({}, {}, {})", "poly": "(in_polygon({}, {}, [{}]) = 1)"}


class DuckWriter(Writer):
    """DuckDB's dialect. `places` says which tables an area restricts; of equally near rows the first ones are found, or the last ones."""

    def __init__(self, places: Places, takes_last: bool = False) -> None:
        self.places = places
        self.tied = "DESC" if takes_last else "ASC"
        self.area: Area | None = None

    def name(self, name: str) -> str:
        return f'"{name}"'

    def template(self, name: str, operator: Operator) -> str:
        return operator.duckdb

    def _constant(self, node: Constant) -> str:
        if node.value is None:
            return f"NULL::{TYPES[node.kind]}"
        if isinstance(node.value, bool):
            return "TRUE" if node.value else "FALSE"
        return f"{escaped(str(node.value), {chr(39): chr(39) * 2})}::{TYPES[node.kind]}"

    def _sortkey(self, node: SortKey) -> str:
        return f"{self.write(node.expr)} {'DESC NULLS LAST' if node.descending else 'ASC NULLS FIRST'}"

    def from_clause(self, node: Select) -> str:
        # The area is of this FROM's own tables alone, not of those in its subqueries.
        before, self.area = self.area, node.area
        text = super().from_clause(node)
        self.area = before
        return text

    def _derived(self, node: Derived) -> str:
        before, self.area = self.area, None
        text = super()._derived(node)
        self.area = before
        return text

    def _table(self, node: Table) -> str:
        if node.database is None:
            return f"{node.name} {node.alias}"
        name = f'{node.database}."{node.name}"'
        place = self.places.get((node.database, node.name))
        if self.area is None or place is None:
            return f"{name} {node.alias}"
        numbers = self._list(self.area.numbers)
        inside = REGIONS[self.area.shape].format(self.name(place[0]), self.name(place[1]), numbers)
        return f"(SELECT * FROM {name} WHERE {inside}) {node.alias}"

    def grouping(self, node: Select) -> str:
        groups = self._list(node.groups)
        return f"ROLLUP ({groups})" if node.is_rollup else groups

    def group_conditions(self, node: Select) -> list[str]:
        # MySQL's ROLLUP of no rows has no total.
        return super().group_conditions(node) + ["COUNT(*) > 0"] * node.is_rollup

    def _inquery(self, node: InQuery) -> str:
        if len(node.tested) == 1:
            return super()._inquery(node)
        names = [f"v{at}" for at in range(len(node.tested))]
        rows = f"(SELECT COUNT(*) FROM ({self.write(node.query)}) among({', '.join(names)}) WHERE {{}})"
        equal = " AND ".join(f"({self.write(tested)}) = among.{name}" for tested, name in zip(node.tested, names))
        found, unknown = rows.format(equal), rows.format(f"({equal}) IS NULL")
        text = f"(CASE WHEN {found} > 0 THEN TRUE WHEN {unknown} > 0 THEN NULL ELSE FALSE END)"
        return f"(NOT {text})" if node.negated else text

    def _crossmatch(self, node: Crossmatch) -> str:
        l_ra, l_dec, r_ra, r_dec = map(self.name, node.positions)
        separation = f"separation(l.{l_ra}, l.{l_dec}, r.{r_ra}, r.{r_dec}) * 3600"
        at_most = node.neighbours.value if node.neighbours else 1
        columns = []
        for name, side, inner in node.columns:
            given = "c.s" if side == "s" else f"{side}.{self.name(inner)}"
            columns.append(f"{given} AS {self.name(name)}")
        joined = {
            "1and2": "c JOIN l ON l.l_id = c.l_id JOIN r ON r.r_id = c.r_id",
            "all1": "l LEFT JOIN (c JOIN r ON r.r_id = c.r_id) ON l.l_id = c.l_id",
            "1not2": "l WHERE l_id NOT IN (SELECT l_id FROM c)",
        }[node.join]
        side = "{0} AS MATERIALIZED (SELECT row_number() OVER () AS {0}_id, * FROM {1})"
        # A crossmatch is no table of the FROM that an area restricts.
        before, self.area = self.area, None
        sides = [side.format("l", self.write(node.left)), side.format("r", self.write(node.right))]
        self.area = before
        return (
            f"(WITH {', '.join(sides)}, p AS MATERIALIZED (SELECT l_id, r_id, {separation} AS s FROM l, r "
            f"WHERE {separation} <= {self.write(node.radius)}), c AS MATERIALIZED (SELECT * FROM p QUALIFY "
            f"{FOUND[node.find].format(at_most=at_most, tied=self.tied)}) SELECT {', '.join(columns)} FROM {joined}) {node.alias}"
        )


def number(value: object) -> str:
    """An integer or a double as Meridian is given it. A double of all its digits without an exponent were a decimal, which is compared with an
    integer digit by digit."""
    return f"{value!r}e0" if isinstance(value, float) and 1e15 <= abs(value) < 1e16 else repr(value)


def as_prepared(query: Query) -> tuple[str, list[object]]:
    """A statement with `?` in the places of constants, and these."""
    parameters: list[object] = []
    marked = MeridianWriter(parameters).write(query)
    # An operator may be written with its arguments in another order than they have.
    order = [int(number) for number in PARAMETER.findall(marked)]
    return PARAMETER.sub("?", marked), [parameters[at] for at in order]
