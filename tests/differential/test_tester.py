"""That the tester sees what it is for: a tester that finds nothing tests nothing."""

from __future__ import annotations

import datetime
import io
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import astropy.io.votable
import astropy.table
import duckdb
import numpy as np
import pytest

from differential.adql import ALIKE, FORMS, SPECIALITIES, SUBSTITUTES, adapted, has_adql, written_out
from differential.cases import as_json, read
from differential.databases import World, WorldMaker, duckdb_of
from differential.dialects import ADQL, MYSQL, for_duckdb, for_meridian
from differential.engines import Oracle, OracleFails, Rejection, Rows, TooLarge
from differential.grammar import Grammar
from differential.operators import AGGREGATES, OPERATORS, WINDOWS, Operator
from differential.run import Plan, WorldRun
from differential.shrinking import shrink, size, tables_of
from differential.tap import plain_text, rows_of, value_at
from differential.tree import (
    Aggregate, Column, Constant, Crossmatch, Exists, InQuery, Item, Join, Query, Select, SetQuery, SortKey, Table, Window, kinds_of, walk,
)  # fmt: skip
from differential.trials import Tally, Trying, trials, variants
from differential.verdict import allowed, compare, whole
from differential.writing import as_prepared, number
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


# So many statements have to do: the rarest form is met four times among them.
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


# What is asked in ADQL.


def statements_in_adql(world: World, count: int) -> list[Query]:
    """Those of the first statements of a seed that can be asked in ADQL, as they are asked there."""
    made = (adapted(query, random.Random(at), world.places()) for at, query in enumerate(each_statement(world, count)))
    return [query for query in made if has_adql(query)]


def test_all_functions_have_a_form_in_adql_or_a_substitute_of_their_kinds() -> None:
    known: dict[str, Operator] = {**OPERATORS, **AGGREGATES, **{name: operator for name, (operator, _) in WINDOWS.items()}}
    assert len(known) == len(OPERATORS) + len(AGGREGATES) + len(WINDOWS)
    assert known.keys() == FORMS.keys() | ALIKE | SUBSTITUTES.keys() and not FORMS.keys() & ALIKE
    assert all(known[name].meridian for name in ALIKE)
    for old, new in [*SUBSTITUTES.items(), *((old, new) for old, those in SPECIALITIES.items() for new in those)]:
        assert known[old].kind == known[new].kind and len(known[new].args) <= len(known[old].args), (old, new)
        assert new in FORMS or new in ALIKE


def test_most_statements_can_be_asked_in_adql_and_duckdb_understands_them(world: World, duck: Oracle) -> None:
    made, failed = statements_in_adql(world, 80), []
    assert len(made) > 60
    for query in made:
        text = for_meridian(query, ADQL)
        assert "`" not in text and "LIMIT" not in text and "<=>" not in text and "IF(" not in text.replace("NULLIF(", "")
        try:
            duck.execute(whole(query)[0], dialect=ADQL)
        except TooLarge:
            continue
        except OracleFails as failure:
            failed.append(f"{failure}: {for_duckdb(query, duck.places, dialect=ADQL)}")
    assert len(failed) <= 2, failed


def test_what_is_asked_in_mysql_is_the_same_with_adql_and_without(world: World) -> None:
    run = WorldRun(Plan(Path(), 3, 0, None, 1, 0, 0, 0, None), 0, frozenset())
    in_adql = 0
    for at, query in enumerate(statements(world, 60)):
        place = f"3/0/{at}"
        made = run.trials(query, place, world.places())
        in_mysql = [trial for trial in made if trial.dialect == MYSQL]
        assert in_mysql == trials(query, random.Random(f"{place}/trials"))
        in_adql += len(made) > len(in_mysql)
    assert 4 < in_adql < 24
    run.plan = replace(run.plan, all_in_adql=True)
    assert all(trial.dialect == ADQL and trial.way != "prepared" for trial in run.trials(query, place, world.places()))


def test_variants_in_adql_have_the_same_form(world: World) -> None:
    for at, query in enumerate(statements_in_adql(world, 30)):
        assert len({size(one) for one in variants(query, random.Random(at))}) == 1
        assert all(has_adql(one) for one in variants(query, random.Random(at)))


def test_adql_has_rows_first_names_in_quotes_and_backslashes_as_they_are() -> None:
    table = Table("sky", "Object", "t3")
    name = Column("text", "t3", "name")
    texts = Select((Item(name, "c1"), Item(Constant("text", "it's a\\b", "text"), "c2")), table)
    limited = replace(texts, order=(SortKey(Column("text", None, "c1"), True),), limit=Constant("int", 5), offset=Constant("int", 2), is_distinct=True)
    written = """SELECT DISTINCT TOP 5 t3."name" AS c1, 'it''s a\\b' AS c2 FROM "sky"."Object" AS t3 ORDER BY c1 DESC OFFSET 2"""
    assert for_meridian(limited, ADQL) == written
    both = SetQuery("UNION ALL", texts, texts, (SortKey(Column("text", None, "c1"), False),), Constant("int", 7))
    one = for_meridian(texts, ADQL)
    assert for_meridian(both, ADQL) == f"SELECT TOP 7 * FROM ({one} UNION ALL {one}) AS whole ORDER BY c1"


def test_null_is_last_in_adql_and_first_in_mysql(duck: Oracle) -> None:
    name = Column("text", "t1", "name")
    query = Select((Item(name, "c1"),), Table("sky", "Object", "t1"), order=(SortKey(name, False),))
    assert duck.execute(query)[0] == (None,)
    rows = duck.execute(query, dialect=ADQL)
    assert rows[0] != (None,) and rows[-1] == (None,)


def test_an_area_written_out_restricts_the_same_rows(world: World, duck: Oracle) -> None:
    compared = 0
    for query in each_statement(world, ENOUGH):
        if not isinstance(query, Select) or query.area is None or query.limit is not None:
            continue
        made = written_out(query, world.places())
        if made.area is not None:
            continue
        try:
            rows = duck.execute(query)
            assert compare(query, duck.execute(made), rows, slice(None)) is None, for_meridian(query)
        except OracleFails:
            continue
        compared += bool(rows)
        if compared > 5:
            return
    assert compared > 5


def test_errors_by_tap_are_allowed_by_their_sentences() -> None:
    for status in (400, 200):
        assert allowed(Rejection(status, "the declination 91.5 is outside of -90 to 90 degrees; give degrees within that range"))
        assert not allowed(Rejection(status, "[return_type] SUM not supported for Null"))
    assert not allowed(Rejection(500, "the declination 91.5 is outside of -90 to 90 degrees; give degrees within that range"))


def test_a_votable_is_read_to_the_last_bit() -> None:
    table = astropy.table.Table(
        {
            "n": np.ma.array([-(2**63), 2**63 - 1, 7], mask=[False, False, True]), "x": np.array([5e-324, -0.1, 1e308]), "y": np.array([0.1, 2, 3], np.float32),
            "name": np.array(["Ωmega", "", "a\\b"], object),
        }
    )  # fmt: skip
    written = io.BytesIO()
    astropy.io.votable.from_table(table).to_xml(written, tabledata_format="binary2")
    y = float(np.float32(0.1))
    assert rows_of(written.getvalue()) == [
        (-(2**63), 5e-324, y, "Ωmega"), (2**63 - 1, -0.1, 2.0, ""), (None, 1e308, 3.0, "a\\b"),
    ]  # fmt: skip
    assert [value_at(b"TF", at, {"datatype": "boolean"}) for at in (0, 1)] == [(True, 1), (False, 2)]
    time = {"datatype": "char", "arraysize": "*", "xtype": "timestamp"}
    assert plain_text("2010-06-15T00:00:01", time) == datetime.datetime(2010, 6, 15, 0, 0, 1)
    assert plain_text("2010-06-15", time) == datetime.date(2010, 6, 15)
    assert plain_text(str(2**64 - 1), {"datatype": "char", "arraysize": "*"}) == 2**64 - 1


def test_a_case_says_in_which_dialect_it_is_asked(world: World, tmp_path: Path) -> None:
    few = World(tuple(table for table in world.tables if table.shape.name == "Filter"))
    (tmp_path / "case.json").write_text(as_json("a story", few, ["SELECT 1 AS n"], [[(1,)]], ADQL), encoding="utf-8")
    (tmp_path / "old.json").write_text(as_json("a story", few, ["SELECT 1"], [[(1,)]]).replace('"dialect": "mysql",', ""), encoding="utf-8")
    assert read(tmp_path / "case.json").dialect == ADQL and read(tmp_path / "old.json").dialect == MYSQL
    assert read(tmp_path / "case.json").expected == [[(1,)]]


def test_a_match_of_a_childs_rows_is_loaded_after_the_childs_director(world: World) -> None:
    """A case of such a table was saved without the director, and could not be loaded."""
    query = Select((Item(Constant("int", 1), "c1"),), Table("sky", "SourceMatch", "t1"))
    assert [world.tables[at].shape.name for at in tables_of((query,), world)] == ["Object", "Source", "SourceMatch"]
