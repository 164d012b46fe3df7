"""GROUP BY and DISTINCT of what has a key below that is none any more: of joins with groups, with distinct rows and with numbered ones. SQLite has the same
rows, and is the oracle."""

from __future__ import annotations

import itertools
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from meridian_cli import Meridian
from serving import serving

Row = tuple[int, int | None, int | None]
# With rows that are there twice, and NULLs in both columns.
ROWS: list[Row] = [(number % 9, None if number % 5 == 0 else number % 3, None if number % 4 == 0 else number % 2) for number in range(24)]
ONCE = {
    "distinct rows": "SELECT DISTINCT n FROM Wide",
    "groups": "SELECT n, COUNT(*) AS m FROM Wide GROUP BY n",
    "numbers of rows": "SELECT ROW_NUMBER() OVER (ORDER BY n, a, b) AS n FROM Wide",
}
JOINED = {
    "a cross join": "SELECT g.n AS k, w.a AS x, w.b AS y, COUNT(*) AS c FROM ({once}) g, Wide w GROUP BY g.n, w.a, w.b",
    "a left join": "SELECT g.n AS k, w.a AS x, w.b AS y, COUNT(*) AS c FROM ({once}) g LEFT JOIN Wide w ON w.n > g.n GROUP BY w.b, g.n, w.a",
    "the nullable side": "SELECT g.n AS k, w.a AS x, w.b AS y, COUNT(*) AS c FROM Wide w LEFT JOIN ({once}) g ON w.a > g.n GROUP BY w.a, w.b, g.n",
    "distinct rows": "SELECT DISTINCT g.n AS k, w.a AS x, w.b AS y, 1 AS c FROM ({once}) g JOIN Wide w ON w.n < g.n",
}
ABOVE = [
    *(f"SELECT {shown}SUM(c) FROM ({{joined}}) q GROUP BY {groups}" for shown in ("", "k, ") for groups in ("k", "k, x", "x, k, y", "y, k")),
    "SELECT y, SUM(c) FROM ({joined}) q GROUP BY x, y",
    "SELECT COUNT(*) FROM (SELECT DISTINCT k, x FROM ({joined}) q) z",
    "SELECT k FROM (SELECT DISTINCT k, x FROM ({joined}) q) z",
    "SELECT q.x, r.n FROM ({joined}) q JOIN (SELECT DISTINCT n FROM Wide) r ON q.k = r.n",
    "SELECT w.n FROM Wide w LEFT JOIN ({joined}) q ON w.n = q.k",
    "WITH q AS ({joined}) SELECT q.k, COUNT(*) FROM q JOIN q p ON q.k = p.k GROUP BY q.k, p.x, q.y",
    "SELECT k, (SELECT COUNT(*) FROM Wide w WHERE w.n < q.x) FROM ({joined}) q",
]


@pytest.fixture(scope="module")
def connection(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[pymysql.connections.Connection]:
    """A connection to the rows."""
    directory: Path = tmp_path_factory.mktemp("keys")
    file = directory / "Wide.csv"
    lines = (",".join("" if value is None else str(value) for value in row) for row in ROWS)
    file.write_text("\n".join(["n,a,b", *lines]) + "\n")
    meridian.must("load", "--data", directory / "data", "--db", "sky", "--table", "Wide", "--kind", "replicated", file)
    with serving(meridian, directory / "data") as server, server.connect(database="sky") as connected:
        yield connected


@pytest.fixture(scope="module")
def oracle() -> sqlite3.Connection:
    """The same rows in SQLite."""
    connected = sqlite3.connect(":memory:")
    connected.execute("CREATE TABLE Wide (n, a, b)")
    connected.executemany("INSERT INTO Wide VALUES (?, ?, ?)", ROWS)
    return connected


@pytest.mark.parametrize(("once", "joined"), list(itertools.product(ONCE, JOINED)))
def test_what_is_a_key_below_a_join_is_none_above(
    connection: pymysql.connections.Connection, oracle: sqlite3.Connection, once: str, joined: str
) -> None:
    for above in ABOVE:
        sql = above.format(joined=JOINED[joined].format(once=ONCE[once]))
        with connection.cursor() as cursor:
            cursor.execute(sql)
            found = Counter(tuple(None if value is None else int(value) for value in row) for row in cursor.fetchall())
        assert found == Counter(oracle.execute(sql).fetchall()), sql


def test_columns_that_a_group_determines_need_not_be_grouped_by(connection: pymysql.connections.Connection, oracle: sqlite3.Connection) -> None:
    sql = "SELECT q.k, q.x, COUNT(*) FROM (SELECT n AS k, MAX(a) AS x FROM Wide GROUP BY n) q, Wide w GROUP BY q.k"
    with connection.cursor() as cursor:
        cursor.execute(sql)
        assert Counter(cursor.fetchall()) == Counter(oracle.execute(sql).fetchall())
