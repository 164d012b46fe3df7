"""Statements as trees, so that they can be written in two dialects, varied and made smaller.

A node is a frozen dataclass; its children are the nodes in its fields, alone or in tuples. An expression has a kind, which is what
its values are: `int`, `real`, `text`, `time`, `date` or `bool`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass

# Where a node is in a tree: the fields, and the places in tuples, on the way to it.
Path = tuple[tuple[str, int | None], ...]
Value = int | float | str | None


@dataclass(frozen=True)
class Node:
    """A part of a statement."""

    def children(self) -> Iterator[tuple[str, int | None, Node]]:
        """The nodes right below, with the field that each is in and its place there if it is one of several."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Node):
                yield field.name, None, value
            elif isinstance(value, tuple):
                for at, entry in enumerate(value):
                    if isinstance(entry, Node):
                        yield field.name, at, entry


@dataclass(frozen=True)
class Expr(Node):
    """What has a value."""

    kind: str


@dataclass(frozen=True)
class Column(Expr):
    """A column of a table of the FROM, or one of the SELECT's own by its name alone."""

    alias: str | None
    name: str


@dataclass(frozen=True)
class Constant(Expr):
    """A value as it is written. `role` says what it may be exchanged for (see values.py); without one it stays."""

    value: Value
    role: str | None = None


@dataclass(frozen=True)
class Apply(Expr):
    """An operator or a function of one value for each argument: a name in the table of operators.py."""

    operator: str
    args: tuple[Expr, ...]


@dataclass(frozen=True)
class InList(Expr):
    """A value among several."""

    tested: Expr
    among: tuple[Expr, ...]
    negated: bool


@dataclass(frozen=True)
class Aggregate(Expr):
    """An aggregate: a name in the table of operators.py."""

    function: str
    args: tuple[Expr, ...]
    distinct: bool = False


@dataclass(frozen=True)
class SortKey(Node):
    """An expression to sort by."""

    expr: Expr
    descending: bool


@dataclass(frozen=True)
class Window(Expr):
    """A function over a window: a name in the table of operators.py."""

    function: str
    args: tuple[Expr, ...]
    partition: tuple[Expr, ...]
    order: tuple[SortKey, ...]
    frame: str | None = None


@dataclass(frozen=True)
class Query(Node):
    """What gives rows."""


@dataclass(frozen=True)
class Exists(Expr):
    """Whether a subquery has rows."""

    query: Query
    negated: bool


@dataclass(frozen=True)
class InQuery(Expr):
    """Values, one or several side by side, among the rows of a subquery."""

    tested: tuple[Expr, ...]
    query: Query
    negated: bool


@dataclass(frozen=True)
class Quantified(Expr):
    """A value compared with any or all of a subquery's."""

    tested: Expr
    comparison: str
    quantifier: str
    query: Query


@dataclass(frozen=True)
class ScalarQuery(Expr):
    """The only value of a subquery."""

    query: Query


@dataclass(frozen=True)
class Source(Node):
    """What stands in a FROM."""


@dataclass(frozen=True)
class Table(Source):
    """A loaded table, a file, or a common table (which has no database)."""

    database: str | None
    name: str
    alias: str
    is_qualified: bool = False


@dataclass(frozen=True)
class Derived(Source):
    """A subquery in a FROM."""

    query: Query
    alias: str


@dataclass(frozen=True)
class Join(Source):
    """Two sources joined. `how`: inner, left, right, full, cross, comma, natural, natural left and so on."""

    how: str
    left: Source
    right: Source
    on: Expr | None = None
    using: tuple[str, ...] = ()


@dataclass(frozen=True)
class Crossmatch(Source):
    """`nearest()` or `crossmatch()` of two sides. `columns` are what it gives: its name, and the side's name of it."""

    function: str
    left: Source
    right: Source
    radius: Constant
    neighbours: Constant | None
    find: str
    join: str
    alias: str
    positions: tuple[str, str, str, str]
    columns: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Area(Node):
    """`qserv_areaspec_<shape>(...)`: restricts every partitioned table of a FROM, each by its own position."""

    shape: str
    numbers: tuple[Constant, ...]


@dataclass(frozen=True)
class Item(Node):
    """An entry of a SELECT's list. Without its alias nothing can name it. `shown` is what Meridian is given for a name, if it is another."""

    expr: Expr
    name: str
    has_alias: bool = True
    shown: str = ""


@dataclass(frozen=True)
class Star(Node):
    """All columns: their kinds in order."""

    kinds: tuple[str, ...]


@dataclass(frozen=True)
class Select(Query):
    """A SELECT. `order` alone never leaves out rows: `limit` does. With `is_bare` Meridian is given columns without their table's name."""

    items: tuple[Item | Star, ...]
    source: Source | None = None
    area: Area | None = None
    where: Expr | None = None
    groups: tuple[Expr, ...] = ()
    is_rollup: bool = False
    having: Expr | None = None
    order: tuple[SortKey, ...] = ()
    limit: Constant | None = None
    offset: Constant | None = None
    is_distinct: bool = False
    is_bare: bool = False


@dataclass(frozen=True)
class SetQuery(Query):
    """Two queries put together by `operator`, ordered by columns of the first."""

    operator: str
    left: Query
    right: Query
    order: tuple[SortKey, ...] = ()
    limit: Constant | None = None


@dataclass(frozen=True)
class CommonTable(Node):
    """A query of a WITH and its name."""

    name: str
    query: Query


@dataclass(frozen=True)
class With(Query):
    """A query with common tables."""

    tables: tuple[CommonTable, ...]
    body: Query


def walk(node: Node, path: Path = ()) -> Iterator[tuple[Path, Node]]:
    """All nodes of a tree, a node before those below it."""
    yield path, node
    for name, at, child in node.children():
        yield from walk(child, (*path, (name, at)))


def put(node: Node, path: Path, new: object) -> Node:
    """The tree with what is at `path` exchanged for `new`; `None` takes an entry out of a tuple."""
    if not path:
        assert isinstance(new, Node)
        return new
    (name, at), rest = path[0], path[1:]
    value = getattr(node, name)
    if at is None:
        return dataclasses.replace(node, **{name: put(value, rest, new) if rest else new})
    entries = list(value)
    changed = put(entries[at], rest, new) if rest else new
    entries[at : at + 1] = [] if changed is None else [changed]
    return dataclasses.replace(node, **{name: tuple(entries)})


def changed(node: Node, change: Callable[[Node], Node]) -> Node:
    """The tree with each node exchanged for what `change` makes of it, those below first."""
    fields: dict[str, object] = {}
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if isinstance(value, Node):
            fields[field.name] = changed(value, change)
        elif isinstance(value, tuple) and any(isinstance(entry, Node) for entry in value):
            fields[field.name] = tuple(changed(e, change) if isinstance(e, Node) else e for e in value)
    return change(dataclasses.replace(node, **fields) if fields else node)


def size(node: Node) -> int:
    """How many nodes a tree has."""
    return sum(1 for _ in walk(node))


def first_select(query: Query) -> Select:
    """The SELECT that names the columns of a query."""
    while not isinstance(query, Select):
        query = query.body if isinstance(query, With) else query.left  # type: ignore[attr-defined]
    return query


def kinds_of(query: Query) -> list[str]:
    """The kinds of a query's columns."""
    kinds: list[str] = []
    for item in first_select(query).items:
        kinds += item.kinds if isinstance(item, Star) else [item.expr.kind]
    return kinds


def outermost(query: Query) -> Select | SetQuery:
    """The query whose ORDER BY and LIMIT are the statement's."""
    while isinstance(query, With):
        query = query.body
    assert isinstance(query, (Select, SetQuery))
    return query


def with_outermost(query: Query, new: Select | SetQuery) -> Query:
    """The statement with its outermost query exchanged."""
    if isinstance(query, With):
        return dataclasses.replace(query, body=with_outermost(query.body, new))
    return new
