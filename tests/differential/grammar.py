"""Random statements over the tables of a world, the same for the same seed."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace

from differential import values
from differential.databases import Field, TableShape, World
from differential.expressions import Expressions
from differential.operators import AGGREGATES, is_exact
from differential.scope import Entry, Scope, pairs
from differential.tree import (
    Aggregate, Apply, Area, Column, CommonTable, Constant, Crossmatch, Derived, Exists, Expr, InList, InQuery, Item, Join, Quantified, Query,
    ScalarQuery, Select, SetQuery, SortKey, Source, Star, Table, With, changed, walk,
)  # fmt: skip
from differential.writing import FILES

# So many pairs of rows may be looked at.
MOST_PAIRS = 150_000
MOST_SUBQUERIES = 3
MOST_TABLES = 6
SCALARS = {
    "int": [name for name, one in AGGREGATES.items() if one.kind == "int" and "two" not in name],
    "real": ["min_real", "max_real", "sum_tame"],
    "text": ["min_text", "max_text"],
}


@dataclass(frozen=True)
class Common:
    """A common table that a FROM may name."""

    name: str
    fields: tuple[Field, ...]
    rows: int


class Grammar:
    """Makes statements."""

    def __init__(self, world: World, seed: str) -> None:
        self.random = random.Random(seed)
        rows = {(table.shape.database, table.shape.name): table.rows.num_rows for table in world.tables}
        for shape in (table.shape for table in world.tables if table.shape.query is not None):
            rows[shape.database, shape.name] = sum(rows[shape.database, name] for name in shape.read)
        self.tables = [(table.shape, rows[table.shape.database, table.shape.name]) for table in world.tables]
        self.expressions = Expressions(self.random)
        self.expressions.subquery = self.subquery
        self.expressions.scalar = self.scalar
        self.chance = self.expressions.chance
        self._begin()

    def _begin(self) -> None:
        self.aliases = self.subqueries = 0
        self.common: list[Common] = []
        self.with_files = self.chance(0.06)

    def statement(self) -> Query:
        """The next statement."""
        self._begin()
        shape = self.random.choices([self.query, self.sets, self.with_common, self.lookup, self.regrouped], [66, 12, 10, 8, 4])[0]
        return shape()

    def alias(self) -> str:
        """A new alias."""
        self.aliases += 1
        return f"t{self.aliases}"

    # Queries.

    def query(self, top: bool = True) -> Query:
        """A SELECT of any shape."""
        source, scope = self.source()
        made = self.random.choices([self.rows, self.groups, self.total, self.windows, self.distinct, self.all_columns], [32, 22, 16, 9, 8, 5])[0](source, scope)
        made = self.restricted(made, 0.06)
        if top and self.chance(0.35):
            made = self.ordered(made)
            return self.named_like_columns(made, scope) if self.chance(0.4) else made
        if top and self.chance(0.1):
            return self.named_like_columns(made, scope)
        return self.without_aliases(made) if top and self.chance(0.25) else made

    def without_aliases(self, select: Select) -> Select:
        """The same without names, and now and then with an entry twice."""
        items = [replace(item, has_alias=False) if isinstance(item, Item) and self.chance(0.8) else item for item in select.items]
        if self.chance(0.15) and isinstance(items[0], Item):
            items.append(items[0])
        return replace(select, items=tuple(items))

    def named_like_columns(self, select: Select, scope: Scope) -> Select:
        """The same with an item that has the name of a column of the tables which is named in GROUP BY, HAVING or ORDER BY as well."""
        aliases = {entry.alias for entry in scope.entries if entry.alias is not None}
        parts = [*select.groups, *(key.expr for key in select.order), *([select.having] if select.having is not None else [])]
        named = {node.name for part in parts for _, node in walk(part) if isinstance(node, Column) and node.alias in aliases}
        shown = {item.expr.name for item in select.items if isinstance(item, Item) and isinstance(item.expr, Column)}
        if any(isinstance(node, Column) and node.alias is None for part in parts for _, node in walk(part)):
            # A name alone would be that of two items, which is an error.
            shown |= {item.name for item in select.items if isinstance(item, Item)}
        places = [at for at, item in enumerate(select.items) if isinstance(item, Item)]
        if not places or not (free := sorted(named - shown)):
            return select
        items, at = list(select.items), self.random.choice(places)
        items[at] = replace(items[at], shown=self.random.choice(free))  # type: ignore[type-var]
        is_alone = not isinstance(select.source, Join) and not any(isinstance(node, Query) for item in (*items, *parts) for _, node in walk(item))
        # A name alone in ORDER BY is the item.
        is_alone &= not any(isinstance(key.expr, Column) and key.expr.alias is not None for key in select.order)
        return replace(select, items=tuple(items), is_bare=is_alone and select.where is None and self.chance(0.5))

    def lookup(self) -> Query:
        """What is asked most often: a row by its key, the rows or the number of rows in a small part of the sky."""
        shape, rows = self.random.choice([one for one in self.tables if one[0].is_partitioned])
        alias = self.alias()
        scope = Scope([Entry(alias, shape.fields, shape, rows)])
        source = Table(shape.database, shape.name, alias, shape.database != "sky")
        keys = [one for one in scope.columns("int") if one.field.domain in ("object", "reference", "star", "source")]
        texts = [one for one in scope.columns("text") if one.field.domain == "label"]
        where: Expr | None = None
        if texts and self.chance(0.7):
            where = self.expressions.compared("text", "eq", texts[0].column, self.expressions.constant("text"))
            if self.chance(0.3):
                where = InList("bool", texts[0].column, tuple(self.expressions.constant("text") for _ in range(self.random.randint(1, 4))), False)
        elif keys and self.chance(0.7):
            key = self.random.choice(keys)
            role = self.expressions.maybe_text("key")
            where = self.expressions.compared("int", "eq", key.column, self.expressions.constant(role))
            if self.chance(0.2):
                among = tuple(self.expressions.constant(role) for _ in range(self.random.randint(1, 4)))
                where = InList("bool", key.column, among, False)
        elif scope.positions():
            where = self.expressions.region(scope)
        if where is None or self.chance(0.2):
            other = self.expressions.condition(scope, 2)
            where = other if where is None else Apply("bool", self.random.choice(["and", "and", "or"]), (where, other))
        if self.chance(0.25):
            return Select(self.named([self.expressions.aggregate(scope, ["count_all", "count", "max_int", "min_real"])]), source, where=where)
        if self.chance(0.3) and not shape.has_text_key:
            return Select((Star(tuple(one.kind for one in shape.fields)),), source, where=where)
        return Select(self.named([self.expressions.item(scope) for _ in range(self.random.randint(1, 3))]), source, where=where)

    def where(self, scope: Scope) -> Expr | None:
        """A WHERE, perhaps."""
        return self.expressions.condition(scope) if self.chance(0.75) else None

    def named(self, exprs: list[Expr]) -> tuple[Item, ...]:
        """Expressions with names."""
        return tuple(Item(expr, f"c{at}") for at, expr in enumerate(exprs, 1))

    def rows(self, source: Source, scope: Scope) -> Select:
        """Rows."""
        items = self.named([self.expressions.item(scope) for _ in range(self.random.randint(1, 4))])
        return Select(items, source, where=self.where(scope))

    def all_columns(self, source: Source, scope: Scope) -> Select:
        """All columns of a FROM that has each once."""
        if not stars_alike(source) or any(entry.shape is not None and entry.shape.has_text_key for entry in scope.entries):
            return self.rows(source, scope)
        kinds = tuple(one.kind for entry in scope.entries for one in entry.fields)
        return Select((Star(kinds),), source, where=self.where(scope))

    def distinct(self, source: Source, scope: Scope) -> Select:
        """Rows, each once."""
        items = [self.expressions.value(scope, "grouped") for _ in range(self.random.randint(1, 3))]
        return Select(self.named(items), source, where=self.where(scope), is_distinct=True)

    def groups(self, source: Source, scope: Scope) -> Select:
        """Aggregates by group."""
        groups = []
        for _ in range(self.random.choice([1, 1, 1, 2, 2, 3])):
            column = self.expressions.column(scope, "grouped")
            if column is not None and column not in groups and self.chance(0.8):
                groups.append(column)
            elif self.chance(0.5) and (value := self.grouped_value(scope)) is not None:
                groups += [value] if value not in groups else []  # type: ignore[list-item]
            elif (small := self.expressions.column(scope, "small")) is not None:
                computed = Apply("int", "mod", (small, Constant("int", self.random.randint(2, 4))))
                groups += [computed] if computed not in groups else []  # type: ignore[list-item]
        if not groups:
            return self.total(source, scope)
        aggregates = [self.expressions.aggregate(scope) for _ in range(self.random.randint(1, 3))]
        having = self.having(scope) if self.chance(0.3) else None
        shown: list[Expr] = [group for group in groups if self.chance(0.9)]
        where = self.where(scope)
        return Select(
            self.named([*shown, *aggregates]), source, where=where, groups=tuple(groups), is_rollup=self.chance(0.12), having=having
        )

    def regrouped(self) -> Query:
        """Groups of the groups of a join with rows that are there once: what is a key of these is none of the others."""
        source, key = self.once()
        right, other = self.relation()
        pairs_of_rows = key.rows * other.rows
        how = self.random.choice(["cross", "comma", "inner", "left", "right"]) if pairs_of_rows < MOST_PAIRS / 3 else "inner"
        on = None if how in ("cross", "comma") else self.join_condition(Scope([key]), other, Scope([key, other]), pairs_of_rows)
        found = [one.column for one in Scope([key]).columns("any")]
        found += [one for one in (self.expressions.column(Scope([other]), "grouped") for _ in range(2)) if one is not None]
        columns = list(dict.fromkeys(found))
        grouped = self.counted(Join(how, source, right, on), Scope([key, other]), columns)
        alias = self.alias()
        groups = [Column(one.kind, alias, f"c{at}") for at, one in enumerate(columns, 1)]
        count = Field(f"c{len(columns) + 1}", "big", "")
        groups = self.random.sample(groups, self.random.randint(1, len(groups)))
        shown = [one for one in groups if self.chance(0.5)]
        return self.counted(Derived(grouped, alias), Scope([Entry(alias, (count,), None, other.rows)]), groups, shown)

    def once(self) -> tuple[Source, Entry]:
        """The values of a column, each once."""
        source, scope = self.source(most=1)
        column = self.expressions.column(scope, "grouped")
        if column is None:
            return self.once()
        alias = self.alias()
        role = next(one.field.role for one in scope.columns("any") if one.column == column)
        values = Select(self.named([column]), source, groups=(column,))
        if self.chance(0.5):
            values = replace(values, groups=(), is_distinct=True)
        return Derived(values, alias), Entry(alias, (Field("c1", role, ""),), None, scope.entries[0].rows)

    def counted(self, source: Source, scope: Scope, groups: list[Column], shown: list[Column] | None = None) -> Select:
        """How many rows each group has, and perhaps another aggregate."""
        aggregates = [self.expressions.aggregate(scope, ["count_all"])]
        if self.chance(0.5):
            aggregates.append(self.expressions.aggregate(scope))
        items = self.named([*(groups if shown is None else shown), *aggregates])
        where = self.where(scope) if self.chance(0.2) else None
        return Select(items, source, where=where, groups=tuple(groups))

    def grouped_value(self, scope: Scope) -> Expr | None:
        """What is computed of each row by itself, from its columns."""
        made = self.expressions.value(scope, self.random.choice(["int", "text", "bool"]))
        inside = [node for _, node in walk(made)]
        is_of_row = not any(isinstance(node, Query) for node in inside) and any(isinstance(node, Column) for node in inside)
        if not is_of_row or isinstance(made, Column):
            return None
        # It stands in the list, too: its constants stay the same when those of the statement change.
        return changed(made, lambda node: replace(node, role=None) if isinstance(node, Constant) else node)  # type: ignore[return-value]

    def having(self, scope: Scope) -> Expr:
        """A condition on a group."""
        counted = self.expressions.aggregate(scope, ["count_all", "count", "max_int", "min_int", "sum_truth"])
        made: Expr = Apply("bool", f"{self.random.choice(['gt', 'le', 'ne'])}_number", (counted, self.expressions.constant("small")))
        if self.chance(0.2):
            other = self.expressions.aggregate(scope, ["count_all", "max_real"])
            made = Apply("bool", self.random.choice(["and", "or"]), (made, Apply("bool", "lt_number", (other, self.expressions.constant("tame")))))
        return made

    def total(self, source: Source, scope: Scope) -> Select:
        """Aggregates of all rows."""
        aggregates: list[Expr] = [self.expressions.aggregate(scope) for _ in range(self.random.randint(1, 4))]
        having = self.having(scope) if self.chance(0.06) else None
        return Select(self.named(aggregates), source, where=self.where(scope), having=having)

    def windows(self, source: Source, scope: Scope) -> Select:
        """Rows with window functions."""
        made = [self.expressions.window(scope) for _ in range(self.random.choice([1, 1, 2]))]
        items = [self.expressions.item(scope), *(window for window in made if window is not None)]
        return Select(self.named(items), source, where=self.where(scope))

    def ordered(self, select: Select) -> Select:
        """A SELECT with ORDER BY of what it gives and perhaps a LIMIT, or with a LIMIT alone."""
        names = [item for item in select.items if isinstance(item, Item) and is_exact(item.expr)]
        keys = self.random.sample(names, min(len(names), self.random.randint(1, 2)))
        plain = not select.groups and not any(isinstance(item.expr, Aggregate) for item in names)
        order = []
        for item in keys:
            by_name = not plain or self.chance(0.7) or isinstance(item.expr, Constant)
            order.append(SortKey(Column(item.expr.kind, None, item.name) if by_name else item.expr, self.chance(0.4)))
        limit = self.expressions.constant("count") if self.chance(0.6) else None
        offset = self.expressions.constant("count") if limit is not None and self.chance(0.3) else None
        return replace(select, order=tuple(order), limit=limit, offset=offset)

    def exact_rows(self, kinds: list[str]) -> Select:
        """Rows of given kinds whose values are exact."""
        source, scope = self.source()
        items = [self.expressions.value(scope, kind, 1) for kind in kinds]
        made = Select(self.named(items), source, where=self.where(scope), is_distinct=self.chance(0.1))
        return made

    def sets(self) -> Query:
        """Two or three queries put together."""
        kinds = self.random.choices(["int", "int", "real", "text", "time", "date"], k=self.random.randint(1, 3))
        made: Query = self.exact_rows(kinds)
        for _ in range(self.random.choice([1, 1, 1, 2])):
            operator = self.random.choice(["UNION", "UNION ALL", "UNION ALL", "EXCEPT", "INTERSECT"])
            if isinstance(made, SetQuery):
                # INTERSECT binds more tightly: a set in a set stands in parentheses, as a derived table.
                made = self.from_derived(made, kinds)
            made = SetQuery(operator, made, self.exact_rows(kinds))
        if isinstance(made, SetQuery) and self.chance(0.3):
            order = (SortKey(Column(kinds[0], None, "c1"), self.chance(0.4)),)
            made = replace(made, order=order, limit=self.expressions.constant("count") if self.chance(0.6) else None)
        return made

    def from_derived(self, query: Query, kinds: list[str]) -> Select:
        """All columns of a derived table."""
        alias = self.alias()
        columns: list[Expr] = [Column(kind, alias, f"c{at}") for at, kind in enumerate(kinds, 1)]
        return Select(self.named(columns), Derived(query, alias))

    def with_common(self) -> Query:
        """A query with common tables, most of which it names twice."""
        tables = []
        for number in range(self.random.choice([1, 1, 2])):
            query, fields, rows = self.inner()
            name = f"w{number + 1}"
            tables.append(CommonTable(name, query))
            self.common.append(Common(name, fields, rows))
        body = self.query() if self.chance(0.85) else self.sets()
        return With(tuple(tables), body)

    def inner(self) -> tuple[Query, tuple[Field, ...], int]:
        """A query that gives exact columns, what they are, and about how many rows it has."""
        if self.chance(0.06):
            return self.literals()
        source, scope = self.source(most=2)
        rows = max((entry.rows for entry in scope.entries), default=1)
        shape = self.random.choices(["columns", "groups", "distinct", "first", "union"], [40, 25, 10, 15, 10])[0]
        columns = scope.columns("any")
        chosen = self.random.sample(columns, min(len(columns), self.random.randint(1, 5)))
        if shape == "first" and (unique := scope.unique()) is not None:
            chosen = [*unique, *(one for one in chosen if one not in unique)]
        fields = [replace(one.field, name=f"c{at}", is_unique=False) for at, one in enumerate(chosen, 1)]
        items = self.named([one.column for one in chosen])
        select = Select(items, source, where=self.where(scope), is_distinct=shape == "distinct")
        if shape == "first" and scope.unique() is not None:
            order = [SortKey(one.column, self.chance(0.4)) for one in scope.unique() or []]
            select = replace(select, order=tuple(order), limit=self.expressions.constant("count"))
        if shape == "groups":
            groups = chosen[: self.random.randint(1, 2)]
            aggregates = [self.expressions.aggregate(scope, ["count_all", "count", "max_int", "min_text", "max_real"]) for _ in range(2)]
            items = self.named([*(one.column for one in groups), *aggregates])
            roles = {"int": "big", "real": "wild", "text": "text"}
            fields = [*fields[: len(groups)], *(Field(f"c{at}", roles[one.kind], "") for at, one in enumerate(aggregates, len(groups) + 1))]
            select = replace(select, items=items, groups=tuple(one.column for one in groups))
        elif len(scope.entries) == 1 and scope.unique() and shape == "columns":
            fields = [replace(new, is_unique=one.field.is_unique) for new, one in zip(fields, chosen)]
        if shape == "union":
            other = replace(select, where=self.where(scope))
            return SetQuery(self.random.choice(["UNION", "UNION ALL"]), select, other), tuple(fields), rows * 2
        return select, tuple(fields), rows

    def literals(self) -> tuple[Query, tuple[Field, ...], int]:
        """Rows that are written out, one SELECT each."""
        roles = self.random.choices(["small", "key", "key", "tame", "text"], k=self.random.randint(1, 3))
        count = self.random.randint(1, 4)
        made: Query | None = None
        for _ in range(count):
            constants = [self.expressions.constant(role) for role in roles]
            if made is not None:
                constants = [replace(one, value=None, role=None) if self.chance(0.12) else one for one in constants]
            row = Select(self.named([*constants]))
            made = row if made is None else SetQuery(self.random.choice(["UNION ALL", "UNION ALL", "UNION"]), made, row)
        assert made is not None
        return made, tuple(Field(f"c{at}", role, "") for at, role in enumerate(roles, 1)), count

    # Where rows come from.

    def source(self, most: int = 3) -> tuple[Source, Scope]:
        """A FROM of one to some tables."""
        count = min(self.random.choices([1, 2, 3], [45, 43, 12])[0], most)
        source, entry = self.relation()
        scope = Scope([entry])
        for at in range(1, count):
            right, other = self.relation()
            source = self.join(source, right, scope, other, is_last=at == count - 1)
            scope.entries.append(other)
        if are_known(source) and (merged := merged_columns(source, {entry.alias: entry.fields for entry in scope.entries})):
            scope.entries.append(Entry(None, tuple(merged), None, scope.entries[0].rows))
        return source, scope

    def relation(self) -> tuple[Source, Entry]:
        """A table, a derived one, a common one or a crossmatch."""
        if self.common and self.chance(0.65):
            common, alias = self.random.choice(self.common), self.alias()
            return Table(None, common.name, alias), Entry(alias, common.fields, None, common.rows)
        if self.aliases < MOST_TABLES and self.chance(0.14):
            query, fields, rows = self.inner()
            alias = self.alias()
            return Derived(query, alias), Entry(alias, fields, None, rows)
        if self.chance(0.07):
            return self.crossmatch()
        shape, rows = self.table()
        alias = self.alias()
        return Table(shape.database, shape.name, alias, shape.database != "sky" or self.chance(0.15)), Entry(alias, shape.fields, shape, rows)

    def table(self, positions: bool = False) -> tuple[TableShape, int]:
        """A table of the world."""
        found = [one for one in self.tables if self.with_files or not one[0].is_file]
        found = [one for one in found if one[0].position] if positions else found
        weights = {"Object": 5, "Source": 4, "Hollow": 0.4}
        return self.random.choices(found, [weights.get(one[0].name, 2) for one in found])[0]

    def join(self, left: Source, right: Source, scope: Scope, other: Entry, is_last: bool) -> Source:
        """Two sources joined."""
        pairs_of_rows = max(entry.rows for entry in scope.entries) * other.rows
        naturals = ["natural", "natural left", "natural right", "natural full"]
        how = self.random.choices(["inner", "left", "right", "full", "cross", "comma", *naturals], [26, 18, 14, 15, 5, 8, 4, 2, 2, 2])[0]
        both = Scope([*scope.entries, other])
        common = pairs(scope.columns("any"), Scope([other]).columns("any"))
        seen = visible(left, {entry.alias: entry.fields for entry in scope.entries})[0]
        if how in naturals:
            shared = [one.name.lower() for one in other.fields if seen[one.name.lower()]]
            may_merge = (len(scope.entries) == 1 or are_known(Join(how, left, right))) and are_comparable(shared, both)
            if shared and may_merge and all(seen[name] == 1 for name in shared) and not any(name in ("ra", "decl", "dec") for name in shared):
                return Join(how, left, right)
            how = "inner"
        if how in ("cross", "comma") and (not is_last or pairs_of_rows > MOST_PAIRS / 3):
            how = "inner"
        if how in ("cross", "comma"):
            return Join(how, left, right)
        same = [a.field.name for a, b in common if a.field.name == b.field.name and seen[a.field.name.lower()] == 1]
        is_alone = len(scope.entries) == 1 and how != "full"
        if same and (is_alone or are_known(Join(how, left, right))) and self.chance(0.12 if len(scope.entries) == 1 else 0.3):
            return Join(how, left, right, None, (self.random.choice(same),))
        return Join(how, left, right, self.join_condition(scope, other, both, pairs_of_rows))

    def join_condition(self, scope: Scope, other: Entry, both: Scope, pairs_of_rows: int) -> Expr:
        """An ON."""
        right = Scope([other])
        places, right_places = scope.positions(), right.positions()
        if places and right_places and pairs_of_rows < MOST_PAIRS and self.chance(0.25):
            (ra1, dec1, _), (ra2, dec2, _) = self.random.choice(places), right_places[0]
            made: Expr = self.expressions.nearness(ra1, dec1, ra2, dec2)
        elif found := pairs(scope.columns("any"), right.columns("any")):
            one, two = self.random.choice(found)
            kind = "text" if one.field.kind == "text" else "number" if one.field.kind == "int" else one.field.kind
            made = Apply("bool", f"eq_{kind}", (one.column, two.column))
            if len(found) > 1 and self.chance(0.12):
                one, two = self.random.choice([pair for pair in found if pair != (one, two)])
                kind = "text" if one.field.kind == "text" else "number" if one.field.kind == "int" else one.field.kind
                made = Apply("bool", "and", (made, Apply("bool", f"eq_{kind}", (one.column, two.column))))
        elif pairs_of_rows > MOST_PAIRS / 3 and (numbers := (scope.columns("number"), right.columns("number"))) and all(numbers):
            one, two = map(self.random.choice, numbers)
            made = Apply("bool", "eq_number", (one.column, two.column))
        else:
            made = self.expressions.condition(both, 2)
        if self.chance(0.25):
            made = Apply("bool", "and", (made, self.expressions.condition(self.random.choice([both, right, scope]), 2)))
        return made

    def crossmatch(self) -> tuple[Source, Entry]:
        """`nearest()` or `crossmatch()`. Where chance decides which row is taken, its columns are not given."""
        (left, l_shape, l_rows), (right, r_shape, _) = self.side(), self.side()
        function = self.random.choice(["nearest", "crossmatch", "crossmatch"])
        find = "best1" if function == "nearest" else self.random.choice(["all", "best", "best1", "best2"])
        join = "1and2" if function == "nearest" or find == "best2" else self.random.choice(["1and2", "all1", "1not2"])
        neighbours = Constant("int", self.random.randint(1, 4)) if function == "nearest" and self.chance(0.5) else None
        columns, fields = crossmatch_columns(l_shape, r_shape, join, find)
        assert l_shape.position and r_shape.position
        alias = self.alias()
        made = Crossmatch(
            function, left, right, self.expressions.constant("arcsec"), neighbours, find, join, alias, (*l_shape.position, *r_shape.position), columns
        )
        return made, Entry(alias, fields, None, l_rows)

    def side(self) -> tuple[Table | Derived, TableShape, int]:
        """One side of a crossmatch."""
        shape, rows = self.table(positions=True)
        alias = self.alias()
        table = Table(shape.database, shape.name, alias, shape.database != "sky")
        if self.chance(0.75):
            return table, shape, rows
        items = tuple(Item(Column(one.kind, alias, one.name), one.name) for one in shape.fields)
        where = self.expressions.condition(Scope([Entry(alias, shape.fields, shape, rows)]), 2)
        return Derived(Select(items, table, where=where), self.alias()), shape, rows

    def may_have_area(self, source: Source) -> bool:
        """Whether a FROM has a table that an area restricts, and nothing else than tables."""
        if isinstance(source, Join):
            natural = source.how.startswith("natural") or source.using
            sides = self.may_have_area(source.left), self.may_have_area(source.right)
            return not natural and (any(sides))
        return isinstance(source, Table) and source.database is not None and any(
            shape.database == source.database and shape.name == source.name and shape.position and shape.is_partitioned for shape, _ in self.tables
        )

    def restricted(self, made: Select, share: float = 0.2) -> Select:
        """The same of an area, now and then, if its tables have positions."""
        return replace(made, area=self.area()) if made.source is not None and self.chance(share) and self.may_have_area(made.source) else made

    def area(self) -> Area:
        """A `qserv_areaspec_*`."""
        match self.random.choice(["circle", "box", "poly"]):
            case "circle":
                return Area("circle", (self.expressions.constant("ra"), self.expressions.constant("dec"), self.expressions.constant("radius")))
            case "box":
                south, north = sorted([self.expressions.constant("dec"), self.expressions.constant("dec")], key=lambda one: float(one.value or 0))
                return Area("box", (self.expressions.constant("ra"), south, self.expressions.constant("ra"), north))
        return Area("poly", self.expressions.triangle())

    # Subqueries in expressions.

    def correlated(self, scope: Scope) -> tuple[Source, Scope, Expr | None]:
        """A FROM for a subquery, and its WHERE, which names a column of the query around it, mostly."""
        source, inner = self.source(most=1 if self.chance(0.8) else 2)
        inner.outer = scope
        conditions: list[Expr] = []
        found = pairs(inner.columns("any"), scope.columns("any"))
        near = inner.positions() and scope.positions()
        if near and self.chance(0.12) and inner.entries[0].rows * max(entry.rows for entry in scope.entries) < MOST_PAIRS:
            (ra1, dec1, _), (ra2, dec2, _) = self.random.choice(scope.positions()), self.random.choice(inner.positions())
            conditions.append(self.expressions.nearness(ra1, dec1, ra2, dec2))
        elif found and self.chance(0.8):
            one, two = self.random.choice(found)
            kind = "text" if one.field.kind == "text" else "number" if one.field.kind == "int" else one.field.kind
            sign = "eq" if self.chance(0.65) else self.random.choice(["ne", "lt", "le", "gt", "ge"])
            conditions.append(Apply("bool", f"{sign}_{kind}", (one.column, two.column)))
        if self.chance(0.15) and (outside := self.expressions.column(scope, "small")) and (inside := self.expressions.column(inner, "small")):
            conditions.append(Apply("bool", self.random.choice(["ne_number", "lt_number", "ge_number"]), (inside, outside)))
        if self.chance(0.4):
            conditions.append(self.expressions.condition(inner, 2))
        if self.chance(0.06):
            # A condition on the row outside alone, or on both beside OR.
            conditions.append(self.expressions.condition(Scope([*inner.entries, *scope.entries]) if self.chance(0.5) else scope, 2))
        if not conditions:
            return source, inner, None
        return source, inner, conditions[0] if len(conditions) == 1 else Apply("bool", "and", tuple(conditions))

    def _may_ask(self) -> bool:
        if self.subqueries >= MOST_SUBQUERIES or self.aliases >= MOST_TABLES:
            return False
        self.subqueries += 1
        return True

    def subquery(self, scope: Scope) -> Expr | None:
        """EXISTS, IN or a quantified comparison."""
        if not scope.entries or not self._may_ask():
            return None
        shape = self.random.choices(["exists", "in", "in of several", "quantified"], [45, 40, 8, 7])[0]
        if shape == "exists":
            return Exists("bool", self.restricted(self.asked(*self.correlated(scope))), self.chance(0.4))
        source, inner, where = self.correlated(scope) if self.chance(0.25) else self.uncorrelated()
        found = pairs(scope.columns("any"), inner.columns("any"))
        if not found:
            return None
        count = 2 if shape == "in of several" and len(found) > 1 else 1
        chosen = self.random.sample(found, count)
        query = Select(self.named([two.column for _, two in chosen]), source, where=where, is_distinct=self.chance(0.06))
        if self.chance(0.06) and chosen[0][0].field.role == "small":
            total = self.expressions.aggregate(inner, ["count_all", "count", "max_int"])
            query = replace(query, items=self.named([total, *(two.column for _, two in chosen[1:])]), is_distinct=False)
            query = replace(query, groups=tuple(two.column for _, two in chosen[1:]), having=self.having(inner) if self.chance(0.3) else None)
        query = self.restricted(query)
        if shape == "quantified" and chosen[0][0].field.kind == "int":
            word = self.random.choice(["ANY", "ALL"])
            return Quantified("bool", chosen[0][0].column, self.random.choice(["=", "<>", "<", ">=", ">"]), word, query)
        return InQuery("bool", tuple(one.column for one, _ in chosen), query, self.chance(0.4))

    def asked(self, source: Source, inner: Scope, where: Expr | None) -> Select:
        """What EXISTS asks for: rows mostly, or groups, or a total, which has a row of no rows."""
        group = self.expressions.column(inner, "grouped")
        match self.random.choices(["rows", "groups", "total"], [80, 12, 8])[0]:
            case "groups" if group is not None:
                having = self.having(inner) if self.chance(0.8) else None
                return Select((Item(group, "c1"),), source, where=where, groups=(group,), having=having)
            case "total":
                total = self.expressions.aggregate(inner, ["count_all", "max_int", "min_text"])
                return Select((Item(total, "c1"),), source, where=where, having=self.having(inner) if self.chance(0.5) else None)
        return Select((Item(Constant("int", 1), "c1"),), source, where=where)

    def uncorrelated(self) -> tuple[Source, Scope, Expr | None]:
        """A FROM for a subquery that stands for itself."""
        source, inner = self.source(most=1 if self.chance(0.8) else 2)
        return source, inner, self.expressions.condition(inner, 1) if self.chance(0.6) else None

    def scalar(self, scope: Scope, kind: str) -> Expr | None:
        """The only value of a subquery."""
        if not scope.entries or not self._may_ask():
            return None
        source, inner, where = self.correlated(scope) if self.chance(0.7) else self.uncorrelated()
        column, unique = self.expressions.column(inner, "number" if kind == "real" else kind), inner.unique()
        if column is not None and column.kind == kind and unique is not None and len(unique) == 1 and self.chance(0.2):
            # A row by its key, of which there is one at most.
            key, outer = unique[0].column, self.expressions.column(scope, "int")
            if outer is not None and key.kind == "int":
                found: Expr = Apply("bool", "eq_number", (key, outer))
                found = found if where is None else Apply("bool", "and", (where, found))
                return ScalarQuery(kind, Select((Item(column, "c1"),), source, where=found))
        if column is not None and column.kind == kind and unique and self.chance(0.15):
            order = tuple(SortKey(one.column, self.chance(0.4)) for one in unique)
            offset = Constant("int", 1) if self.chance(0.2) else None
            return ScalarQuery(kind, Select((Item(column, "c1"),), source, where=where, order=order, limit=Constant("int", 1), offset=offset))
        total: Expr = self.expressions.aggregate(inner, SCALARS[kind])
        if kind == "int" and self.chance(0.15):
            # A value of the row outside beside the total, or what becomes of it where there are no rows.
            column = self.expressions.column(scope, "small")
            total = Apply("int", "coalesce_int", (total, column or Constant("int", 7)))
        having = self.having(inner) if self.chance(0.12) else None
        return ScalarQuery(kind, self.restricted(Select((Item(total, "c1"),), source, where=where, having=having)))


def stars_alike(source: Source) -> bool:
    """Whether `*` gives the columns of both sides one after the other."""
    if isinstance(source, Join):
        return not source.using and not source.how.startswith("natural") and stars_alike(source.left) and stars_alike(source.right)
    return not isinstance(source, Crossmatch)


def are_comparable(names: list[str], scope: Scope) -> bool:
    """Whether columns of these names have values that both engines compare."""
    kinds = [{one.kind for entry in scope.entries for one in entry.fields if one.name.lower() == name} for name in names]
    return all(len(those) == 1 or those <= {"int", "real", "bool"} for those in kinds)


def are_known(source: Source) -> bool:
    """Whether Meridian knows the columns of what is joined before it plans a statement: those of functions it does not."""
    return not any(isinstance(node, Crossmatch) or (isinstance(node, Table) and node.database == FILES) for _, node in walk(source))


def visible(source: Source, fields: dict[str | None, tuple[Field, ...]]) -> tuple[Counter[str], set[str]]:
    """How many columns each name means by itself, and the names of those that joins have made one of several; names in small letters."""
    if isinstance(source, Crossmatch):
        return Counter(name.lower() for name, _, _ in source.columns), set()
    if not isinstance(source, Join):
        return Counter(one.name.lower() for one in fields[source.alias]), set()  # type: ignore[attr-defined]
    (left, merged), (right, merged_right) = visible(source.left, fields), visible(source.right, fields)
    natural = set(left) & set(right) if source.how.startswith("natural") else set()
    common = natural | {name.lower() for name in source.using}
    both = left + right
    both.subtract(common)
    return both, merged | merged_right | common


def merged_columns(source: Source, fields: dict[str | None, tuple[Field, ...]]) -> list[Field]:
    """The columns that joins have made one of several of the same kind, which their names alone mean."""
    count, merged = visible(source, fields)
    found = []
    for name in sorted(name for name in merged if count[name] == 1):
        those = [one for of_table in fields.values() for one in of_table if one.name.lower() == name]
        if len({(one.kind, one.role) for one in those}) == 1:
            found.append(replace(those[0], is_unique=False))
    return found


def crossmatch_columns(
    left: TableShape, right: TableShape, join: str, find: str
) -> tuple[tuple[tuple[str, str, str], ...], tuple[Field, ...]]:
    """What a crossmatch gives, and which of it is determined where several rows are equally near."""
    columns: list[tuple[str, str, str]] = []
    fields: list[Field] = []
    alone = join == "1not2"
    sides = [("l", left, right, "_1")] + ([] if alone else [("r", right, left, "_2")])
    undetermined = {"best1": "r", "best2": "l"}.get(find, "")
    for side, shape, other, suffix in sides:
        names = {one.name.lower() for one in other.fields}
        for one in shape.fields:
            name = one.name + suffix * (one.name.lower() in names and not alone)
            columns.append((name, side, one.name))
            if side != undetermined:
                fields.append(replace(one, name=name, is_unique=False))
    if not alone:
        columns.append(("separation", "s", ""))
        fields.append(Field("separation", "inexact", ""))
    return tuple(columns), tuple(fields)
