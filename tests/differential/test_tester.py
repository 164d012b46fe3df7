"""That the tester sees what it is for: a tester that finds nothing tests nothing."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator

import duckdb
import numpy as np
import pytest

from differential.databases import World, WorldMaker, duckdb_of
from differential.engines import Oracle, OracleFails, Rows, TooLarge
from differential.grammar import Grammar
from differential.shrinking import shrink, size
from differential.tree import Aggregate, Crossmatch, Exists, InQuery, Join, Query, Select, Table, Window, kinds_of, walk
from differential.trials import Tally, Trying, variants
from differential.verdict import compare, whole
from differential.writing import as_prepared, for_duckdb, for_meridian, number
from oracle import separation_degrees, unit_vectors


@pytest.fixture(scope="module")
def world() -> World:
    return WorldMaker(7).make()


@pytest.fixture(scope="module")
def duck(world: World) -> Oracle:
    return Oracle(world)


def each_statement(world: World, count: int) -> Iterator[Query]:
    """The first statements of a seed, made as they are asked for."""
    return (Grammar(world, f"test/{number}").statement() for number in range(count))


def statements(world: World, count: int) -> list[Query]:
    """The first statements of a seed."""
    return list(each_statement(world, count))


def test_a_seed_gives_the_same_world_and_statements_again(world: World) -> None:
    again = WorldMaker(7).make()
    assert all(one.rows.equals(other.rows) for one, other in zip(world.tables, again.tables))
    assert [for_meridian(one) for one in statements(world, 50)] == [for_meridian(one) for one in statements(again, 50)]


def test_duckdb_understands_nearly_all_statements(world: World, duck: Oracle) -> None:
    failed = []
    for query in statements(world, 60):
        try:
            rows = duck.execute(whole(query)[0])
        except TooLarge:
            continue
        except OracleFails as failure:
            failed.append(f"{failure}: {for_duckdb(query, duck.places)}")
            continue
        assert all(len(row) == len(kinds_of(query)) for row in rows[:1])
    assert len(failed) <= 2, failed


# So many statements have to do: all forms are met long before.
ENOUGH = 10_000


def test_every_kind_of_join_meets_every_kind_of_table(world: World) -> None:
    kinds = {(one.shape.database, one.shape.name): one.shape.options.get("kind", "file") for one in world.tables}
    loaded = ("director", "child", "match", "replicated")
    missing = {(how, l, r) for how in ("inner", "left", "right", "full") for l in loaded for r in loaded}
    for query in each_statement(world, ENOUGH):
        for _, node in walk(query):
            if isinstance(node, Join) and isinstance(node.left, Table) and isinstance(node.right, Table):
                left, right = (kinds.get((side.database or "", side.name), "common") for side in (node.left, node.right))
                missing.discard((node.how, left, right))
        if not missing:
            return
    assert not missing


def test_the_outer_table_of_a_subquery_is_of_every_kind(world: World) -> None:
    kinds = {one.shape.name: one.shape.options.get("kind", "file") for one in world.tables}
    pairs = [("replicated", "child"), ("child", "replicated"), ("director", "child")]
    missing = {(form, negated, *pair) for form in ("Exists", "InQuery") for negated in (False, True) for pair in pairs}
    for query in each_statement(world, ENOUGH):
        if isinstance(query, Select) and isinstance(query.source, Table) and query.where is not None:
            for _, node in walk(query.where):
                if isinstance(node, (Exists, InQuery)) and isinstance(node.query, Select) and isinstance(node.query.source, Table):
                    missing.discard((type(node).__name__, node.negated, kinds.get(query.source.name), kinds.get(node.query.source.name)))
        if not missing:
            return
    assert not missing


def test_separations_are_those_of_unit_vectors(duck: Oracle) -> None:
    rng = random.Random(5)
    edges = [(0.0, 90.0), (0.0, -90.0), (0.0, 0.0), (360.0 - 1e-10, 0.0), (180.0, 0.0), (359.9, 89.999)]
    places = edges + [(rng.uniform(0, 360), rng.uniform(-90, 90)) for _ in range(30)]
    listed = ", ".join(f"({ra!r}::DOUBLE, {dec!r}::DOUBLE)" for ra, dec in places)
    asked = f"WITH p(ra, d) AS (VALUES {listed}) SELECT a.ra, a.d, b.ra, b.d, separation(a.ra, a.d, b.ra, b.d) FROM p a, p b"
    rows = duck.connection.execute(asked).fetchall()
    assert len(rows) == len(places) ** 2
    for ra1, dec1, ra2, dec2, found in rows:
        vectors = [unit_vectors(np.array([ra]), np.array([dec])) for ra, dec in ((ra1, dec1), (ra2, dec2))]
        assert found == pytest.approx(separation_degrees(*vectors)[0], rel=1e-9, abs=1e-13)


def test_a_row_too_many_one_too_few_and_a_wrong_order_are_seen(world: World, duck: Oracle) -> None:
    judged = 0
    for query in statements(world, 60):
        try:
            everything = duck.execute(whole(query)[0])
        except OracleFails:
            continue
        taken = whole(query)[1]
        if len(everything) > 2000:
            continue
        right = everything[taken]
        assert compare(query, right, everything, taken) is None
        if right and not any(isinstance(node, (Aggregate, Window)) for _, node in walk(query)):
            assert compare(query, [*right, right[0]], everything, taken) is not None
            assert compare(query, right[1:], everything, taken) is not None
            judged += 1
    assert judged > 8


def test_an_answer_is_excused_only_if_duckdb_gives_it_too(world: World, duck: Oracle) -> None:
    trying = Trying(None, duck, Tally())  # type: ignore[arg-type]
    judged = 0
    for query in statements(world, 60):
        unlimited, taken = whole(query)
        try:
            everything = duck.execute(unlimited)
        except OracleFails:
            continue
        right = everything[taken]
        tied = any(isinstance(node, Crossmatch) for _, node in walk(query))
        if right and not tied and len(everything) < 500:
            assert trying.excuse(query, unlimited, [*right, right[0]], taken) is None
            judged += 1
    assert judged > 8


def test_shrinking_leaves_what_fails(world: World, duck: Oracle) -> None:
    """As if every statement with a NOT EXISTS failed."""

    def fails(made: tuple[Query, ...]) -> bool:
        try:
            duck.execute(whole(made[0])[0])
        except OracleFails:
            return False
        return any(isinstance(node, Exists) and node.negated for _, node in walk(made[0]))

    shrunk = 0
    for query in each_statement(world, 400):
        if fails((query,)) and shrunk < 1:
            (small,) = shrink((query,), fails, 60)
            assert fails((small,)) and size(small) <= 14, for_meridian(small)
            shrunk += 1
    assert shrunk == 1


def test_variants_have_the_same_form(world: World) -> None:
    for at, query in enumerate(statements(world, 30)):
        made = variants(query, random.Random(at))
        assert len({size(one) for one in made}) == 1
        for one in made:
            text, parameters = as_prepared(one)
            if "'" not in text and not any(isinstance(parameter, (str, datetime.date)) for parameter in parameters):
                shown = iter("NULL" if parameter is None else number(parameter) for parameter in parameters)
                assert "".join(next(shown) if letter == "?" else letter for letter in text) == for_meridian(one)


def test_worlds_hold_what_is_awkward() -> None:
    worlds = [WorldMaker(seed).make() for seed in range(4)]
    tables = {table.shape.name: table.rows for table in worlds[0].tables}
    objects, sources = tables["Object"], tables["Source"]
    keys = set(objects["objectId"].to_pylist())
    assert {90.0, -90.0} <= set(objects["decl"].to_pylist()) and 0.0 in objects["ra"].to_pylist()
    assert sources["objectId"].null_count and sources["ra"].null_count
    assert any(key is not None and key not in keys for key in sources["objectId"].to_pylist())
    assert len({table.shape.options.get("stripes") for world in worlds for table in world.tables}) > 3
    connection: duckdb.DuckDBPyConnection = duckdb_of(worlds[1])
    rows: Rows = connection.execute('SELECT count(*) FROM sky."Hollow"').fetchall()
    assert rows == [(0,)]
