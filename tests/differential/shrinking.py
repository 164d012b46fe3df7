"""Makes a failing statement smaller, and then the rows that it fails on, for as long as it fails in the same way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa

from differential.databases import World
from differential.tree import (
    Aggregate, Apply, Column, Constant, Crossmatch, Derived, Exists, Expr, InList, InQuery, Item, Join, Node, Path, Query, Select, SetQuery,
    Source, Table, Window, With, put, size, walk,
)  # fmt: skip

# An edit makes another statement of one; the same edit is made in all variants of a trial, which have one form.
Edit = Callable[[Query], Query]
SIMPLE = {"int": 1, "real": 1.5, "text": "a", "time": "2010-06-15 00:00:01", "date": "2010-06-15", "bool": True}


def at_path(query: Node, path: Path) -> Node:
    """What is at a path."""
    for name, at in path:
        query = getattr(query, name) if at is None else getattr(query, name)[at]
    return query


def field_edits(node: Node) -> Iterator[dict[str, object]]:
    """Fields of a node in smaller forms."""
    match node:
        case Select():
            for name in ("where", "having", "area", "offset"):
                if getattr(node, name) is not None:
                    yield {name: None}
            if node.limit is not None:
                yield {"limit": None, "offset": None, "order": ()}
                yield {"limit": None, "offset": None}
            elif node.order:
                yield {"order": ()}
            for name in ("is_distinct", "is_rollup"):
                if getattr(node, name):
                    yield {name: False}
            if node.groups and not node.is_rollup:
                yield {"groups": (), "having": None}
        case SetQuery() if node.order:
            yield {"order": (), "limit": None}
        case Join() if node.how not in ("cross", "comma", "inner"):
            yield {"how": "inner"}
        case Aggregate() if node.distinct and len(node.args) == 1:
            yield {"distinct": False}
        case Window() if node.partition:
            yield {"partition": ()}
        case Exists() | InQuery() | InList() if node.negated:
            yield {"negated": False}
        case Table() if node.is_qualified and node.database == "sky":
            yield {"is_qualified": False}


def below(node: Node, kind: str, path: Path = ()) -> Iterator[Path]:
    """Where expressions of a kind are below an expression, outside of its subqueries."""
    for name, at, child in node.children():
        if isinstance(child, Expr):
            if child.kind == kind:
                yield (*path, (name, at))
            yield from below(child, kind, (*path, (name, at)))


def replacements(node: Node, path: Path) -> Iterator[Path | Node]:
    """What may stand in the place of a node: nodes below it, as paths from it, or new ones."""
    match node:
        case Join():
            yield (("left", None),)
            yield (("right", None),)
        case SetQuery():
            yield (("left", None),)
            yield (("right", None),)
        case With():
            yield (("body", None),)
            yield from ((("tables", at), ("query", None)) for at in range(len(node.tables)))
        case Select() if isinstance(node.source, Derived):
            yield (("source", None), ("query", None))
        case Derived() if isinstance(node.query, Select) and isinstance(node.query.source, Table) and path[-1][0] in ("left", "right"):
            yield (("query", None), ("source", None))
        case Expr():
            yield from below(node, node.kind)
            in_place = path[-1][0] in ("groups", "order", "partition", "using")
            if not in_place and not (isinstance(node, Constant) and node.role is None):
                yield Constant(node.kind, SIMPLE[node.kind])
                if node.kind == "bool":
                    yield Constant("bool", False)


def removals(node: Node) -> Iterator[tuple[str, int]]:
    """Entries that a tuple of a node can do without."""
    match node:
        case Select():
            if len(node.items) > 1:
                yield from (("items", at) for at in range(len(node.items)))
            if len(node.groups) > 1:
                yield from (("groups", at) for at in range(len(node.groups)))
            if len(node.order) > 1 and node.limit is None:
                yield from (("order", at) for at in range(len(node.order)))
        case InList() if len(node.among) > 1:
            yield from (("among", at) for at in range(len(node.among)))
        case With() if len(node.tables) > 1:
            yield from (("tables", at) for at in range(len(node.tables)))


def edits(query: Query) -> Iterator[Edit]:
    """All edits of a statement."""
    for path, node in walk(query):
        for fields in field_edits(node):
            yield lambda q, path=path, fields=fields: put(q, path, replace(at_path(q, path), **fields))  # type: ignore[misc]
        for new in replacements(node, path):
            if isinstance(new, Node):
                yield lambda q, path=path, new=new: put(q, path, new)  # type: ignore[misc]
            else:
                yield lambda q, path=path, new=new: put(q, path, at_path(at_path(q, path), new))  # type: ignore[misc]
        for entry in removals(node):
            yield lambda q, path=path, entry=entry: put(q, (*path, entry), None)  # type: ignore[misc]
        if isinstance(node, InQuery) and len(node.tested) > 1:
            for at in range(len(node.tested)):
                yield lambda q, path=path, at=at: put(q, path, without_value(at_path(q, path), at))  # type: ignore[misc]


def without_value(node: Node, at: int) -> Node:
    """An IN of several values with one less."""
    assert isinstance(node, InQuery) and isinstance(node.query, Select)
    keep = [n for n in range(len(node.tested)) if n != at]
    items = tuple(node.query.items[n] for n in keep)
    return replace(node, tested=tuple(node.tested[n] for n in keep), query=replace(node.query, items=items))


def fits(query: Query) -> bool:
    """Whether a statement is one that the grammar could make: what chance decides is not asked, and columns are of its tables."""
    for path, node in walk(query):
        nested = bool(path) and path != (("body", None),)
        if isinstance(node, Select) and nested and node.limit is not None and not node.order:
            return False
    return True


def shrink(variants: tuple[Query, ...], fails: Callable[[tuple[Query, ...]], bool], seconds: float) -> tuple[Query, ...]:
    """The smallest statement found, in all its variants, that still fails."""
    give_up = time.monotonic() + seconds
    while True:
        candidates = []
        for edit in edits(variants[0]):
            try:
                made = tuple(edit(query) for query in variants)
            except (AttributeError, IndexError, AssertionError, TypeError):
                # The variants are different at this place: the edit is of the first alone.
                continue
            if all(isinstance(query, Query) for query in made) and size(made[0]) <= size(variants[0]) and made != variants and fits(made[0]):
                candidates.append(made)
        candidates.sort(key=lambda made: size(made[0]))
        for made in candidates:
            if time.monotonic() > give_up:
                return variants
            if weight(made) < weight(variants) and fails(made):
                variants = made
                break
        else:
            return variants


def weight(variants: tuple[Query, ...]) -> tuple[int, int]:
    """How large a statement is: its nodes, and what else is in it."""
    query = variants[0]
    extras = 0
    for _, node in walk(query):
        extras += isinstance(node, Select) * (node.is_distinct + node.is_rollup) if isinstance(node, Select) else 0  # type: ignore[attr-defined]
        extras += node.how != "inner" if isinstance(node, Join) else 0
        extras += bool(getattr(node, "negated", False)) + bool(getattr(node, "distinct", False)) + bool(getattr(node, "is_qualified", False))
        extras += isinstance(node, Constant) and node.role is not None
        # A constant needs no table.
        extras += isinstance(node, Column)
    return size(query), extras


def tables_of(variants: tuple[Query, ...], world: World) -> list[int]:
    """The tables that a statement needs to be loaded, directors before their children."""
    names = {(n.database, n.name) for query in variants for _, n in walk(query) if isinstance(n, Table) and n.database}
    # A view comes after what it reads.
    for shape in reversed([table.shape for table in world.tables]):
        if (shape.database, shape.name) in names and shape.query is not None:
            names.update((shape.database, name) for name in shape.read)
    # So does a table after its directors, of which one may have a director too.
    for shape in reversed([table.shape for table in world.tables]):
        if (shape.database, shape.name) in names and "director" in shape.options:
            names.update((shape.database, name) for name in str(shape.options["director"]).split(","))
    needed = {at for at, table in enumerate(world.tables) if (table.shape.database, table.shape.name) in names}
    if all(world.tables[at].shape.database != "sky" for at in needed):
        # The database that statements are asked in has to be there.
        needed.add(next(at for at, one in enumerate(world.tables) if one.shape.name == "Hollow"))
    return sorted(needed)


def shrink_rows(world: World, fails: Callable[[World], bool], seconds: float) -> World:
    """The world with the fewest rows found that the statement still fails on."""
    give_up = time.monotonic() + seconds
    portion = 2
    while time.monotonic() < give_up:
        progress = False
        for at in sorted(range(len(world.tables)), key=lambda one: -world.tables[one].rows.num_rows):
            count = world.tables[at].rows.num_rows
            step = max(1, -(-count // portion))
            first = 0
            while first < world.tables[at].rows.num_rows and time.monotonic() < give_up:
                rows = world.tables[at].rows
                kept = pa.concat_tables([rows.slice(0, first), rows.slice(first + step)])
                smaller = world.with_rows(at, kept)
                if kept.num_rows < rows.num_rows and fails(smaller):
                    world, progress = smaller, True
                else:
                    first += step
        if not progress:
            if portion > max(table.rows.num_rows for table in world.tables):
                break
            portion *= 2
    return world


def skeleton(query: Query, world: World) -> str:
    """The form of a statement without its names and constants, by which failures are told apart."""
    kinds = {(one.shape.database, one.shape.name): str(one.shape.options.get("kind", "file")) for one in world.tables}
    words = []
    for path, node in walk(query):
        match node:
            case Table():
                words.append(kinds.get((node.database or "", node.name), "common"))
            case Constant():
                words.append("?")
            case Column():
                words.append(node.kind)
            case Apply():
                words.append(node.operator)
            case Join():
                words.append(node.how)
            case Aggregate() | Window():
                words.append(node.function)
            case Item() | Source():
                words.append(node.find if isinstance(node, Crossmatch) else "")
            case _:
                words.append(type(node).__name__ + ("!" if getattr(node, "negated", False) else ""))
    return " ".join(word for word in words if word)
