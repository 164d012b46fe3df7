"""Rows of several values among those of a subquery, with NULLs on both sides and wherever a condition can stand, as SQLite decides."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from meridian_cli import Meridian
from serving import serving

STATEMENTS = 30
COLUMNS = ("a", "b", "c", "n")


def rows_of(rng: random.Random, number: int) -> list[tuple[int, float, float, int | None, int | None, int | None, int]]:
    """Rows of a director: key, position, three values that may be NULL, and one that is not."""
    value = lambda: rng.choice([None, 1, 2, 3])  # noqa: E731
    return [(key, rng.uniform(0, 360), rng.uniform(-60, 60), value(), value(), value(), rng.randrange(4)) for key in range(number)]


TABLES = {name: rows_of(random.Random(seed), number) for seed, (name, number) in enumerate({"Stars": 40, "Wide": 12, "Empty": 0}.items())}


@pytest.fixture(scope="module")
def connection(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[pymysql.connections.Connection]:
    """A connection to a director and two replicated tables with the same columns."""
    directory = tmp_path_factory.mktemp("rows")
    data: Path = directory / "data"
    for name, rows in TABLES.items():
        file = directory / f"{name}.csv"
        lines = (",".join("" if value is None else str(value) for value in row) for row in rows)
        file.write_text("\n".join(["id,ra,decl,a,b,c,n", *lines]) + "\n")
        schema = directory / f"{name}.json"
        schema.write_text(json.dumps(SCHEMA))
        kind = ("--kind", "director", "--key", "id", "--ra", "ra", "--dec", "decl") if name == "Stars" else ("--kind", "replicated")
        meridian.must("load", "--data", data, "--db", "sky", "--table", name, *kind, "--schema", schema, "--allow-empty", file)
    with serving(meridian, data) as server, server.connect(database="sky") as connected:
        yield connected


SCHEMA = {
    "columns": [
        {"name": "id", "type": "BIGINT", "nullable": False},
        {"name": "ra", "type": "DOUBLE", "nullable": False},
        {"name": "decl", "type": "DOUBLE", "nullable": False},
        {"name": "a", "type": "INT"},
        {"name": "b", "type": "INT"},
        {"name": "c", "type": "BIGINT"},
        {"name": "n", "type": "INT", "nullable": False},
    ]
}


@pytest.fixture(scope="module")
def oracle() -> sqlite3.Connection:
    """The same rows in SQLite."""
    connected = sqlite3.connect(":memory:")
    for name, rows in TABLES.items():
        connected.execute(f"CREATE TABLE {name} (id INTEGER, ra REAL, decl REAL, a INTEGER, b INTEGER, c INTEGER, n INTEGER)")
        connected.executemany(f"INSERT INTO {name} VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    return connected


def membership(rng: random.Random, outer: str, depth: int) -> str:
    """Two or three columns of the table outside among those of a subquery, which may depend on the row outside."""
    width = rng.choice([2, 2, 2, 3])
    tested = ", ".join(f"{outer}.{name}" for name in rng.sample(COLUMNS, width))
    inner = f"{outer}i"
    fields = ", ".join(rng.choice([f"{inner}.{name}", f"{inner}.{name} + 0 AS {name}"]) for name in rng.sample(COLUMNS, width))
    where = rng.choice(
        ["", "", f" WHERE {inner}.n > {rng.randrange(3)}", f" WHERE {inner}.n = {outer}.n", f" WHERE {inner}.a IS NOT NULL AND {inner}.b IS NOT NULL"]
    )
    if depth > 0 and rng.random() < 0.3:
        where = f" WHERE {membership(rng, inner, depth - 1)}"
    union = f" UNION ALL SELECT {', '.join(['1', 'NULL', '2'][:width])}" if rng.random() < 0.15 and f"{outer}." not in where else ""
    return f"({tested}) {rng.choice(['IN', 'NOT IN'])} (SELECT {fields} FROM {rng.choice(list(TABLES))} AS {inner}{where}{union})"


def statement(rng: random.Random) -> str:
    """A statement with a membership in one of the places where it can be."""
    asked = membership(rng, "o", 1)
    table = rng.choice(["Stars", "Stars", "Wide", "Empty"])
    match rng.randrange(7):
        case 0 | 1:
            return f"SELECT o.id FROM {table} AS o WHERE {asked}"
        case 2:
            return f"SELECT o.id FROM {table} AS o WHERE NOT ({asked})"
        case 3:
            return f"SELECT o.id FROM {table} AS o WHERE {asked} OR o.n = 1"
        case 4:
            return f"SELECT o.id FROM {table} AS o WHERE ({asked}) IS NULL AND o.n < 3"
        case 5:
            return f"SELECT o.id, CASE WHEN {asked} THEN 'yes' ELSE 'no' END AS q FROM {table} AS o WHERE o.n > 0"
        case _:
            return f"SELECT o.n, SUM({asked}), COUNT({asked}) FROM {table} AS o GROUP BY o.n"


@pytest.mark.parametrize("seed", range(4))
def test_rows_among_a_subquerys_are_as_sqlite_has_them(
    connection: pymysql.connections.Connection, oracle: sqlite3.Connection, seed: int
) -> None:
    """In conditions, below NOT, OR and IS NULL, as values of items and aggregates, one within the other, and depending on the row outside."""
    rng = random.Random(seed)
    cursor = connection.cursor()
    for _ in range(STATEMENTS):
        asked = statement(rng)
        cursor.execute(asked)
        found = sorted(tuple(map(plain, row)) for row in cursor.fetchall())
        assert found == sorted(tuple(map(plain, row)) for row in oracle.execute(asked)), asked


def plain(value: object) -> str:
    """A value as text: sums are decimals here and integers there."""
    return "NULL" if value is None else str(value)


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("(1, 2) IN (SELECT 1, '2')", 1),
        ("('1', 2.0) IN (SELECT n, id FROM Stars WHERE n = 1 AND id = 2 UNION SELECT 1, 2)", 1),
        ("(1, 2) = ANY (SELECT 1, 2)", 1),
        ("(1, 2) <> ALL (SELECT 1, 3)", 1),
        ("(1, NULL) NOT IN (SELECT 2, 3)", 1),
        ("(1, NULL) NOT IN (SELECT 1, 3)", 0),
        ("ROW(1, 2) IN (SELECT 1, 2)", 1),
        ("(1, 2) IN (ROW(1, 2), (3, 4)) AND ROW(1, 2) = (1, 2) AND ROW(1, 2) = ANY (SELECT 1, 2)", 1),
        ("(0, 12) IN (SELECT n, COUNT(*) FROM Wide GROUP BY n UNION SELECT 0, COUNT(*) FROM Wide)", 1),
        ("(1, 2) NOT IN (SELECT n AS m, n AS k FROM Wide ORDER BY k)", 1),
    ],
)
def test_other_forms(connection: pymysql.connections.Connection, condition: str, rows: int) -> None:
    """Values of other types are compared as everywhere; ANY and ALL; a NULL matters only where the rest is equal."""
    cursor = connection.cursor()
    cursor.execute(f"SELECT 1 WHERE {condition}")
    assert len(cursor.fetchall()) == rows


@pytest.mark.parametrize(
    "condition", ["(1, 2) IN (SELECT 1)", "(1, 2) IN (SELECT 1, 2, 3)", "1 IN (SELECT 1, 2)", "(1, 2) IN (SELECT * FROM Stars)", "(1, 2) = (SELECT 1, 2, 3)", "(1, 2)"]
)
def test_rows_of_another_width_are_refused(connection: pymysql.connections.Connection, condition: str) -> None:
    """With MySQL's code, and a sentence that says what to do."""
    with pytest.raises(pymysql.err.OperationalError) as refused:
        connection.cursor().execute(f"SELECT 1 WHERE {condition}")
    assert refused.value.args[0] == 1241, refused.value
    assert "value" in refused.value.args[1] or "select one" in refused.value.args[1]
