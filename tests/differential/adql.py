"""Statements in ADQL: how a tree is written for Meridian's ADQL, how DuckDB is asked for the same, and which trees can be asked so.

What a tree means is what MySQL's dialect makes of it; its ADQL means the same. Where a word means something else in ADQL, another stands for it:

- `/` of integers cuts off: it is MySQL's `DIV`, and MySQL's `/` divides a CAST to DOUBLE PRECISION;
- a condition is no number, and a number is none: `= 1`, `<> 0` and CASTs stand between them; `IF` is CASE;
- a backslash is a letter, and patterns have no escapes: DuckDB is asked for LIKE without ESCAPE;
- NULL sorts above all: DuckDB is asked for the rows in that order;
- regions are CONTAINS and INTERSECTS of POINT, CIRCLE and POLYGON; boxes of right ascensions and ellipses stay scisql's;
- names are in quotes, in capitals or as they were declared, small numbers from 10 on hexadecimal;
- TOP stands for LIMIT, of a set operation around it as a subquery: its own TOP would be its first SELECT's.

Beside ADQL's own it has what docs/sql.md says is accepted too: windows, functions of the query engine, `IS TRUE`, ANY and ALL, crossmatches.

Left out, since there is no ADQL for it: files, `IN` of several values. Of what else there is none, something of the same kinds is asked instead
(SUBSTITUTES); so is what ADQL alone has, in some statements (SPECIALITIES).
"""

from __future__ import annotations

import random
from dataclasses import replace

from differential import values
from differential.operators import COMPARISONS, WINDOWS, Operator
from differential.tree import (
    Aggregate, Apply, Area, Column, Constant, Crossmatch, Derived, Expr, InQuery, Join, Node, Query, Select, SetQuery, SortKey, Source, Table,
    Window, changed, walk,
)  # fmt: skip
from differential.writing import FILES, DuckWriter, MeridianWriter, Places, escaped, number

# Written in both dialects alike.
ALIKE = {
    *COMPARISONS, *WINDOWS, "and", "or", "not", "is_true", "is_false", "is_unknown", "is_null", "is_not_null", "between_number", "not_between_number",
    "between_time", "between_date", "like", "not_like", "is_one", "in_windows", "in_windows_by_factor", "in_windows_around", "in_plain_windows",
    "plus", "minus", "times", "negated", "abs", "case_int", "coalesce_int", "nullif_int", "plus_real", "minus_real", "times_real", "quotient_real",
    "negated_real", "abs_real", "floor", "sqrt", "case_mixed", "case_mixed_negated", "coalesce_real", "nullif_real", "upper", "first_letters",
    "coalesce_text", "nullif_text", "coalesce_time", "coalesce_date", "count_all", "count", "sum_int", "sum_tame", "avg_small", "avg_tame", "min_int",
    "max_int", "min_real", "max_real", "min_text", "max_text", "min_time", "max_time", "max_date", "variance",
}  # fmt: skip
_IF = "(CASE WHEN {0} THEN {1} ELSE {2} END)"
_CIRCLE = "POINT({0}, {1}), CIRCLE({2}, {3}, {4})"
# What ADQL has for the others.
FORMS = {
    "same_number": "({0} IS NOT DISTINCT FROM {1})", "same_text": "({0} IS NOT DISTINCT FROM {1})", "xor": "({0} <> {1})", "is_nonzero": "({0} <> 0)",
    "in_circle": f"(1 = CONTAINS({_CIRCLE}))", "outside_circle": f"(CONTAINS({_CIRCLE}) = 0)", "meets_circle": f"(INTERSECTS({_CIRCLE}) = 1)",
    "in_circle_around": "(1 = CONTAINS(POINT({0}, {1}), CIRCLE(POINT({2}, {3}), {4})))",
    "in_circle_of_system": "(CONTAINS(POINT('ICRS', {0}, {1}), CIRCLE('ICRS', {2}, {3}, {4})) > 0)",
    "in_box": "(scisql_s2PtInBox({0}, {1}, {2}, {3}, {4}, {5}) = 1)",
    "in_triangle": "(CONTAINS(POINT({0}, {1}), POLYGON({2}, {3}, {4}, {5}, {6}, {7})) = 1)",
    "in_ellipse": "(scisql_s2PtInEllipse({0}, {1}, {2}, {3}, {4}, {5}, {6}) = 1)",
    "near": "(DISTANCE({0}, {1}, {2}, {3}) < {4})", "near_or_at": "({4} >= DISTANCE(POINT({0}, {1}), POINT({2}, {3})))",
    "separation": "DISTANCE(POINT({0}, {1}), POINT({2}, {3}))", "magnitude": "(-2.5 * LOG10({0}) - 48.6)",
    "div": "({0} / {1})", "mod": "MOD({0}, {1})", "quotient": "(CAST({0} AS DOUBLE PRECISION) / {1})", "has_remainder": "(MOD({0}, {1}) <> 0)",
    "sign": "(CASE WHEN {0} > 0 THEN 1 WHEN {0} < 0 THEN -1 WHEN {0} = 0 THEN 0 END)",
    "length": "OCTET_LENGTH({0})", "characters": "CHAR_LENGTH({0})", "year": "EXTRACT(YEAR FROM {0})", "month": "EXTRACT(MONTH FROM {0})",
    "truth": "CAST({0} AS INTEGER)", "sum_truth": "SUM(CAST({0} AS INTEGER))", "sum_beside_cast": "(SUM({0}) + SUM(CAST({0} AS BIGINT)))", "if_int": _IF, "if_real": _IF, "if_text": _IF, "if_time": _IF,
    "if_mixed": "(CASE WHEN {0} THEN {1} ELSE {2} END + {3})", "ifnull_int": "COALESCE({0}, {1})",
    "greatest_int": "(CASE WHEN {0} >= {1} THEN {0} WHEN {0} < {1} THEN {1} END)", "least_int": "(CASE WHEN {0} <= {1} THEN {0} WHEN {0} > {1} THEN {1} END)",
    "ceil": "CEILING({0})", "truncate": "TRUNCATE({0})", "square": "POWER({0}, 2)", "of_eighths": "CAST({0} / 8.0 AS INTEGER)",
    "concat": "({0} || {1})", "lower": "LOWER({0})", "cut_text": "CAST({0} AS VARCHAR(3))", "date_of": "CAST({0} AS DATE)",
    "ilike": "({0} ILIKE {1})", "not_ilike": "({0} NOT ILIKE {1})", "matches": "(ivo_nocasematch({0}, {1}) = 1)",
    "overlaps": "(ivo_interval_overlaps({0}, {0}, {1}, {2}) = 1)", "is_said": "({0} = 'true')",
}  # fmt: skip
DUCKDB = {"like": "({0} LIKE {1})", "not_like": "({0} NOT LIKE {1})"}
SUBSTITUTES = {"has_bits": "has_remainder", "bit_or": "max_int", "bit_xor": "min_int", "list": "max_text", "count_two": "count"}
SPECIALITIES = {
    "like": ("ilike", "matches"), "not_like": ("not_ilike",), "in_circle": ("meets_circle", "in_circle_around", "in_circle_of_system"),
    "between_number": ("overlaps",), "is_one": ("is_said",), "abs": ("of_eighths",), "floor": ("truncate",), "ceil": ("truncate",),
    "sqrt": ("square",), "upper": ("lower",), "first_letters": ("cut_text",),
}  # fmt: skip
SPECIAL_SHARE = 0.4
# Of the joins that leave out rows of either side alone, a condition on a table may stand in WHERE.
PLAIN_JOINS = ("inner", "cross", "comma")


def spelled(name: str, alias: str) -> str:
    """A name in quotes, in capitals or as it was declared, which are all one name, the same for a table everywhere."""
    form = int("0" + "".join(filter(str.isdigit, alias))) % 3
    return [f'"{name}"', name.upper(), name][form]


class AdqlWriter(MeridianWriter):
    """ADQL, as Meridian is asked by TAP."""

    def template(self, name: str, operator: Operator) -> str:
        return FORMS[name] if name in FORMS else operator.meridian

    def _column(self, node: Column) -> str:
        if node.alias is None or node.alias == self.bare:
            return super()._column(node)
        return f"{node.alias}.{spelled(node.name, node.alias)}"

    def _constant(self, node: Constant) -> str:
        if node.kind == "text" and node.value is not None:
            return escaped(str(node.value), {"'": "''"})
        if node.role == "small" and isinstance(node.value, int) and node.value > 9:
            return hex(node.value)
        if values.WRITTEN_AS_TEXT.get(node.role or "") == "key" and node.value is not None:
            # A number beside a text is no comparison of ADQL's.
            return number(node.value)
        return super()._constant(node)

    def _named_table(self, node: Table) -> str:
        return ".".join(spelled(name, node.alias) for name in (node.database, node.name) if name is not None)

    def _table(self, node: Table) -> str:
        return f"{self._named_table(node) if node.database else node.name} AS {node.alias}"

    def _derived(self, node: Derived) -> str:
        return f"({self.write(node.query)}) AS {node.alias}"

    def _side(self, node: Table | Derived) -> str:
        return f"({self.write(node.query)})" if isinstance(node, Derived) else self._named_table(node)

    def top(self, limit: Constant | None) -> str:
        return f"TOP {limit.value} " if limit is not None else ""

    def ending(self, order: tuple[SortKey, ...], limit: Constant | None, offset: Constant | None = None) -> str:
        text = f" ORDER BY {self._list(order)}" if order else ""
        return text + (f" OFFSET {offset.value}" if limit is not None and offset is not None else "")

    def _setquery(self, node: SetQuery) -> str:
        if node.limit is None:
            return super()._setquery(node)
        inside = super()._setquery(replace(node, order=(), limit=None))
        return f"SELECT {self.top(node.limit)}* FROM ({inside}) AS whole{self.ending(node.order, node.limit)}"


class DuckWriterOfAdql(DuckWriter):
    """DuckDB's dialect, for what is asked in ADQL."""

    def template(self, name: str, operator: Operator) -> str:
        return DUCKDB[name] if name in DUCKDB else super().template(name, operator)

    def _sortkey(self, node: SortKey) -> str:
        return f"{self.write(node.expr)} {'DESC NULLS FIRST' if node.descending else 'ASC NULLS LAST'}"


def has_adql(query: Query) -> bool:
    """Whether a statement can be asked in ADQL."""
    for _, node in walk(query):
        match node:
            case Apply():
                known = node.operator in FORMS or node.operator in ALIKE
            case Aggregate() | Window():
                known = node.function in FORMS or node.function in ALIKE
            case InQuery():
                known = len(node.tested) == 1
            case Table():
                known = node.database != FILES
            case Select():
                known = not node.is_rollup
            case _:
                known = True
        if not known:
            return False
    return True


def adapted(query: Query, rng: random.Random, places: Places) -> Query:
    """The statement with something of ADQL's in the places of what ADQL has not, and with its specialities in some of the others; what stands
    there twice becomes the same twice."""
    taken = {old: rng.choice(new) for old, new in SPECIALITIES.items() if rng.random() < SPECIAL_SHARE} | SUBSTITUTES
    writes_areas_out = rng.random() < 0.5

    def change(node: Node) -> Node:
        match node:
            case Apply() if node.operator in taken:
                return replace(node, operator=taken[node.operator])
            case Aggregate() if node.function in taken:
                # Of several values the first.
                return replace(node, function=taken[node.function], args=node.args[:1])
            case Select():
                node = replace(node, is_rollup=False)
                return written_out(node, places) if writes_areas_out and node.area is not None else node
        return node

    made = changed(query, change)
    assert isinstance(made, Query)
    return made


def written_out(select: Select, places: Places) -> Select:
    """A SELECT with a condition on each of its tables in the place of its area; itself if its joins do not allow it, or its area's form."""
    area, conditions = select.area, []
    assert area is not None and select.source is not None
    operator = {"circle": "in_circle", "poly": "in_triangle"}.get(area.shape)
    tables = plainly_joined(select.source)
    if operator is None or tables is None:
        return select
    for table in tables:
        if (place := places.get((table.database or "", table.name))) is not None:
            ra, dec = (Column("real", table.alias, name) for name in place)
            conditions.append(Apply("bool", operator, (ra, dec, *area.numbers)))
    where: Expr | None = select.where
    for condition in conditions:
        where = condition if where is None else Apply("bool", "and", (condition, where))
    return replace(select, area=None, where=where)


def plainly_joined(source: Source) -> list[Table] | None:
    """The tables of a FROM, without those of subqueries; `None` if an outer join is among its joins."""
    match source:
        case Join():
            left, right = plainly_joined(source.left), plainly_joined(source.right)
            return None if source.how not in PLAIN_JOINS or left is None or right is None else left + right
        case Table():
            return [source]
        case Derived() | Crossmatch():
            return []
    return None
