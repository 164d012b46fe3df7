"""Subqueries as values that depend on the row outside, by whatever condition, in items, conditions, aggregates, groups and sort keys. SQLite, which asks
them for one row after the other, is the oracle."""

from __future__ import annotations

import json
import os
import random
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from meridian_cli import Meridian
from serving import serving

SEEDS = [int(seed) for seed in os.environ.get("MERIDIAN_DEPENDENT_SEEDS", "1,2,3,4,5").split(",")]
STATEMENTS = 40

COLUMNS = {
    "Stars": {"id": "BIGINT NOT NULL", "ra": "DOUBLE NOT NULL", "decl": "DOUBLE NOT NULL", "a": "INT", "b": "INT", "n": "INT NOT NULL"},
    "Epochs": {"epoch": "BIGINT NOT NULL", "id": "BIGINT", "a": "INT", "b": "INT", "n": "INT NOT NULL"},
    "Wide": {"id": "BIGINT", "a": "INT", "b": "INT", "n": "INT NOT NULL"},
    "Empty": {"id": "BIGINT", "a": "INT", "b": "INT", "n": "INT NOT NULL"},
}
KINDS = {
    "Stars": ("--kind", "director", "--key", "id", "--ra", "ra", "--dec", "decl", "--stripes", 20, "--sub-stripes", 2),
    "Epochs": ("--kind", "child", "--key", "id", "--director", "Stars"),
    "Wide": ("--kind", "replicated"),
    "Empty": ("--kind", "replicated", "--allow-empty"),
}
Row = tuple[object, ...]


def rows_of(rng: random.Random, table: str) -> list[Row]:
    """Rows with small values, many of them equal or NULL; some of the replicated ones there twice."""

    def small() -> list[int | None]:
        return [rng.choice([None, 0, 1, 2, 3, 4]), rng.choice([None, 1, 2, 3]), rng.randrange(4)]

    match table:
        case "Stars":
            return [(key, rng.uniform(0, 360), rng.uniform(-60, 60), *small()) for key in range(45)]
        case "Epochs":
            return [(number, rng.choice([*range(50), None]), *small()) for number in range(70)]
        case "Wide":
            rows = [(rng.choice([*range(6), None]), *small()) for _ in range(9)]
            return rows + rows[:3]
    return []


TABLES = {table: rows_of(random.Random(table), table) for table in COLUMNS}


@pytest.fixture(scope="module")
def connection(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[pymysql.connections.Connection]:
    """A connection to the tables."""
    directory = tmp_path_factory.mktemp("dependent")
    data: Path = directory / "data"
    for name, rows in TABLES.items():
        file, schema = directory / f"{name}.csv", directory / f"{name}.json"
        lines = (",".join("" if value is None else str(value) for value in row) for row in rows)
        file.write_text("\n".join([",".join(COLUMNS[name]), *lines]) + "\n")
        schema.write_text(json.dumps({"columns": [{"name": column, "type": declared} for column, declared in COLUMNS[name].items()]}))
        meridian.must("load", "--data", data, "--db", "sky", "--table", name, *KINDS[name], "--schema", schema, file)
    with serving(meridian, data) as server, server.connect(database="sky") as connected:
        yield connected


@pytest.fixture(scope="module")
def oracle() -> sqlite3.Connection:
    """The same rows in SQLite."""
    connected = sqlite3.connect(":memory:")
    for name, rows in TABLES.items():
        connected.execute(f"CREATE TABLE {name} ({', '.join(COLUMNS[name])})")
        connected.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(COLUMNS[name]))})", rows)
    return connected


def check(connection: pymysql.connections.Connection, oracle: sqlite3.Connection, sql: str) -> None:
    """Compares the rows, each as often as it is there."""
    with connection.cursor() as cursor:
        try:
            cursor.execute(sql)
        except pymysql.err.MySQLError as error:
            raise AssertionError(f"{sql}\n{error}") from None
        ours = cursor.fetchall()
    expected = oracle.execute(sql).fetchall()
    # SUM gives a DECIMAL.
    plain = [tuple(value if value is None else float(value) for value in row) for row in ours]
    wanted = [tuple(value if value is None else float(value) for value in row) for row in expected]
    if "ORDER BY s" in sql:
        assert plain == wanted, sql
    assert Counter(plain) == Counter(wanted), sql


def condition(rng: random.Random, inner: str, outer: str) -> str:
    """A condition of a subquery's WHERE on its row and the row outside."""
    one, two = (rng.choice(["a", "b", "n", "id"]) for _ in range(2))
    return rng.choice(
        [
            f"{inner}.{one} = {outer}.{two}", f"{inner}.id = {outer}.id", f"{inner}.{one} < {outer}.{two}", f"{inner}.{one} <> {outer}.{two}",
            f"({inner}.{one} = {outer}.{two} OR {inner}.n > {outer}.n)", f"{inner}.{one} + {outer}.{two} > 3", f"{outer}.{two} > 1",
            f"({inner}.{one} = {outer}.{two}) IS NULL", f"{inner}.{one} IN (1, {outer}.{two})", f"{outer}.{two} IN (SELECT w.{one} FROM Wide w WHERE w.n > 1)",
            f"({inner}.n > {outer}.n OR {outer}.{two} NOT IN (SELECT w.{one} FROM Wide w WHERE w.n = {inner}.n AND w.{one} IS NOT NULL))",
        ]
    )  # fmt: skip


def where(rng: random.Random, inner: str, outer: str, depth: int) -> str:
    """A WHERE that depends on the row outside, and now and then has a subquery that does."""
    parts = [condition(rng, inner, outer) for _ in range(rng.choice([1, 1, 2]))]
    if rng.random() < 0.3:
        parts.append(f"{inner}.n {rng.choice(['<', '>='])} {rng.randrange(4)}")
    if depth > 0 and rng.random() < 0.3:
        nearest = rng.choice([inner, outer])
        parts.append(truth(rng, nearest, depth - 1, f"{inner}{depth}"))
    return f" WHERE {' AND '.join(parts)}"


def source(rng: random.Random, inner: str) -> str:
    """A FROM whose columns are named by `inner`."""
    table = rng.choice(["Stars", "Epochs", "Wide", "Wide", "Empty"])
    if rng.random() < 0.15:
        other = rng.choice(["Stars", "Wide"])
        return f"{table} AS {inner} {rng.choice(['JOIN', 'LEFT JOIN'])} {other} AS {inner}o ON {inner}.a = {inner}o.a"
    return f"{table} AS {inner}"


def value(rng: random.Random, outer: str, depth: int, inner: str) -> str:
    """A subquery with one value."""
    rows = f"FROM {source(rng, inner)}{where(rng, inner, outer, depth)}"
    total = rng.choice(
        ["COUNT(*)", f"COUNT({inner}.a)", f"MAX({inner}.a)", f"MIN(COALESCE({inner}.b, 9))", f"SUM({inner}.n)", f"COUNT(DISTINCT {inner}.a)"]
    )
    match rng.randrange(8):
        case 0:
            return f"(SELECT {total} {rows} GROUP BY {rng.choice(['NULL', '1 + 1'])} HAVING COUNT(*) > {rng.randrange(3)})"
        case 1:
            return f"(SELECT COALESCE({total}, {outer}.n) {rows})"
        case 2:
            return f"(SELECT {total} + {outer}.n {rows})"
        case 3:
            return f"(SELECT SUM({inner}.n + {outer}.n) {rows})"
        case 4:
            offset = rng.choice(["", "", " OFFSET 1"])
            column = rng.choice(["a", "b", "n"])
            # Rows that are equal in all that is sorted by have the same value.
            return f"(SELECT {inner}.{column} {rows} ORDER BY {inner}.{column} {rng.choice(['ASC', 'DESC'])} LIMIT 1{offset})"
    return f"(SELECT {total} {rows})"


def truth(rng: random.Random, outer: str, depth: int, inner: str) -> str:
    """EXISTS or IN, or a comparison with a value."""
    rows = f"FROM {source(rng, inner)}{where(rng, inner, outer, depth)}"
    negated = rng.choice(["", "", "NOT "])
    group = f"GROUP BY {inner}.a HAVING COUNT(*) > {rng.randrange(3)}"
    match rng.randrange(9):
        case 0 | 1 | 2:
            return f"{negated}EXISTS (SELECT 1 {rows})"
        case 3:
            return f"{negated}EXISTS (SELECT {inner}.a {rows} {group})"
        case 4:
            return f"{negated}EXISTS (SELECT {rng.choice(['COUNT(*)', f'MAX({inner}.a)'])} {rows})"
        case 5:
            # (SQLite 3.40 leaves out a DISTINCT within EXISTS, whatever the OFFSET.)
            return f"{negated}EXISTS (SELECT {inner}.b {rows} GROUP BY {inner}.b LIMIT 1 OFFSET {rng.randrange(2)})"
        case 6 | 7:
            column = rng.choice([f"{inner}.a", f"{inner}.b", f"{inner}.n + 0", f"DISTINCT {inner}.a"])
            return f"{outer}.{rng.choice(['a', 'b', 'n'])} {negated}IN (SELECT {column} {rows})"
    return f"{value(rng, outer, depth, inner)} {rng.choice(['=', '<', '>=', '<>'])} {rng.randrange(4)}"


def statement(rng: random.Random) -> str:
    """A statement with one or two such subqueries in one of the places where they can be."""
    table = rng.choice(["Stars", "Stars", "Epochs", "Wide", "(SELECT id, MAX(a) AS a, MIN(b) AS b, COUNT(*) AS n FROM Epochs GROUP BY id)"])
    asked, counted = truth(rng, "o", 1, "i"), value(rng, "o", 1, "v")
    few = f" WHERE o.n < {rng.randrange(1, 5)}" if rng.random() < 0.4 else ""
    match rng.randrange(10):
        case 0 | 1:
            return f"SELECT o.id, o.a, {counted} AS c FROM {table} AS o{few}"
        case 2 | 3:
            return f"SELECT o.id, {asked} AS c, {counted} AS d FROM {table} AS o{few}"
        case 4:
            return f"SELECT o.id, o.n FROM {table} AS o WHERE {asked}"
        case 5:
            return f"SELECT o.id, o.n FROM {table} AS o WHERE o.n = {rng.randrange(4)} OR {asked}"
        case 6:
            return f"SELECT o.id, o.n FROM {table} AS o WHERE o.n >= 1 AND NOT ({asked} AND o.a > 1) AND {counted} > 1"
        case 7:
            return f"SELECT SUM({counted}), SUM(CASE WHEN {asked} THEN 1 ELSE 0 END) FROM {table} AS o{few}"
        case 8:
            return f"SELECT {asked} AS c, COUNT(*) FROM {table} AS o{few} GROUP BY {asked}"
    return f"SELECT o.id, {counted} AS s FROM {table} AS o{few} ORDER BY s, o.id, o.a, o.b, o.n"


@pytest.mark.parametrize("seed", SEEDS)
def test_random_statements(connection: pymysql.connections.Connection, oracle: sqlite3.Connection, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(STATEMENTS):
        check(connection, oracle, statement(rng))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id, EXISTS (SELECT 1 FROM Wide w WHERE w.a < s.a) FROM Stars s",
        "SELECT id, a IN (SELECT b FROM Wide w WHERE w.n > s.n) FROM Stars s",
        "SELECT id, (SELECT COUNT(*) FROM Epochs e WHERE e.a < s.a) FROM Stars s",
        "SELECT id, (SELECT COUNT(*) FROM Epochs e WHERE e.id = s.id AND e.a < s.a) FROM Stars s",
        "SELECT id, (SELECT e.a FROM Epochs e WHERE e.id = s.id ORDER BY e.a DESC LIMIT 1) FROM Stars s",
        "SELECT id, (SELECT MAX(a) FROM Stars WHERE Stars.n < s.n) FROM Stars s",
        "SELECT id FROM Stars s WHERE EXISTS (SELECT COUNT(*) FROM Epochs e WHERE e.id = s.id)",
        "SELECT id FROM Stars s WHERE 0 IN (SELECT COUNT(*) FROM Epochs e WHERE e.id = s.id)",
        "SELECT id FROM Stars s WHERE EXISTS (SELECT 1 FROM Epochs e WHERE e.id = s.id LIMIT 1 OFFSET 1)",
        "SELECT id, EXISTS (SELECT b FROM Wide w WHERE w.a = s.a GROUP BY b HAVING COUNT(*) > 0) FROM Stars s",
        "SELECT id, (SELECT COUNT(*) FROM Wide w WHERE w.a < s.a AND EXISTS (SELECT 1 FROM Wide x WHERE x.b > w.b AND x.n <> s.n)) FROM Stars s",
        # The rows outside are computed once: they are no others where they are joined.
        "SELECT COUNT(*), SUM(c = (SELECT COUNT(*) FROM Wide w WHERE w.a < t.a)) FROM (SELECT s.a, (SELECT COUNT(*) FROM Wide w WHERE w.a < s.a) AS c FROM Stars s LIMIT 7) t",
    ],
)
def test_statements(connection: pymysql.connections.Connection, oracle: sqlite3.Connection, sql: str) -> None:
    check(connection, oracle, sql)


def test_what_cannot_be_joined_is_said(connection: pymysql.connections.Connection) -> None:
    for sql, words in [
        ("SELECT id, EXISTS (SELECT 1 FROM Wide w WHERE w.a < s.a UNION ALL SELECT 1 FROM Wide w WHERE w.b = s.b) FROM Stars s", "within a UNION is not supported"),
        ("SELECT id, EXISTS (SELECT COUNT(*) FROM Wide w WHERE w.a < s.a GROUP BY b WITH ROLLUP) FROM Stars s", "ROLLUP is not supported"),
    ]:
        with connection.cursor() as cursor, pytest.raises(pymysql.err.MySQLError) as raised:
            cursor.execute(sql)
        assert raised.value.args[0] == 1235 and words in raised.value.args[1] and "join the tables" in raised.value.args[1]


def test_rows_of_a_key_are_joined_in_pieces(connection: pymysql.connections.Connection) -> None:
    """A director's key tells its rows apart, so that each piece has the values of its own rows."""
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN SELECT id, (SELECT COUNT(*) FROM Epochs e WHERE e.id = s.id AND e.a < s.a) FROM Stars s")
        plan = "\n".join(str(row[-1]) for row in cursor.fetchall())
    phases = [line for line in plan.splitlines() if "ChunkPhase" in line]
    assert len(phases) == 1 and "WindowAgg" not in plan, plan


def test_a_set_that_depends_on_the_row_is_looked_at_once(connection: pymysql.connections.Connection, oracle: sqlite3.Connection) -> None:
    """Each of its values once, not once for each of its rows: that is below the loop over pairs."""
    sql = "SELECT COUNT(*) FROM Stars s WHERE s.n NOT IN (SELECT e.n FROM Epochs e, Wide w WHERE e.n < s.a)"
    check(connection, oracle, sql)
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {sql}")
        plan = dict(cursor.fetchall())["physical_plan"]
    assert "AggregateExec: mode=Partial, gby=[n@0 as value_0]" in plan.partition("NestedLoopJoinExec")[2], plan
