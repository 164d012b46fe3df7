"""Rows sorted by what a window function gives, over frames that move with the row: in the order that SQLite finds."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from meridian_cli import Meridian
from serving import serving

# Key, a value that may be NULL and is there several times, a value that is not NULL.
ROWS = [(key, [None, 1, 2, 2, None, 3, 1][key % 7], key % 4) for key in range(24)]
FRAMES = ["ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", "ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING", "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING", "ROWS UNBOUNDED PRECEDING"]


@pytest.fixture(scope="module")
def connection(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[pymysql.connections.Connection]:
    """A connection to a director."""
    directory = tmp_path_factory.mktemp("windows")
    data: Path = directory / "data"
    rows = directory / "rows.csv"
    lines = (f"{key},{key * 14},{key},{'' if a is None else a},{n}\n" for key, a, n in ROWS)
    rows.write_text("id,ra,decl,a,n\n" + "".join(lines))
    meridian.must("load", "--data", data, "--db", "sky", "--table", "Star", "--key", "id", "--ra", "ra", "--dec", "decl", rows)
    with serving(meridian, data) as server, server.connect(database="sky") as connected:
        yield connected


@pytest.fixture(scope="module")
def oracle() -> sqlite3.Connection:
    """The same rows in SQLite."""
    connected = sqlite3.connect(":memory:")
    connected.execute("CREATE TABLE Star (id INTEGER, a INTEGER, n INTEGER)")
    connected.executemany("INSERT INTO Star VALUES (?, ?, ?)", ROWS)
    return connected


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("function", ["COUNT(a)", "COUNT(*)", "COUNT(n)", "MAX(a)", "MIN(a)", "MAX(n)", "MIN(n)"])
def test_results_of_windows_are_sorted(connection: pymysql.connections.Connection, oracle: sqlite3.Connection, function: str, frame: str) -> None:
    """With and without a partition, by the value itself, rising and falling, and by others."""
    cursor = connection.cursor()
    partitions, orders = ["", "PARTITION BY a ", "PARTITION BY n "], ["a, id", "a DESC, id", "n, id", "n DESC, id", "id DESC"]
    for partition, order, way in itertools.product(partitions, orders, ["", " DESC"]):
        asked = f"SELECT {function} OVER ({partition}ORDER BY {order} {frame}) AS w FROM Star ORDER BY w{way}"
        cursor.execute(asked)
        assert list(cursor.fetchall()) == oracle.execute(asked).fetchall(), asked


@pytest.mark.parametrize("first, second", [("MAX(n)", "MAX(n)"), ("MAX(1)", "MAX(0 + 1)"), ("LEAD(n, 1)", "LEAD(n, 2 - 1)"), ("SUM(0.5)", "SUM(1.5 - 1)")])
def test_windows_that_constants_make_equal(connection: pymysql.connections.Connection, oracle: sqlite3.Connection, first: str, second: str) -> None:
    """Both in the SELECT list, and one in ORDER BY alone."""
    cursor = connection.cursor()
    for asked in (
        f"SELECT {first} OVER (ORDER BY id) AS w, {second} OVER (ORDER BY id) AS v, id FROM Star ORDER BY id",
        f"SELECT {first} OVER (ORDER BY id) AS w, id FROM Star ORDER BY {second} OVER (ORDER BY id), id",
    ):
        cursor.execute(asked)
        assert [tuple(map(float_or_none, row)) for row in cursor.fetchall()] == [tuple(map(float_or_none, row)) for row in oracle.execute(asked)], asked


def float_or_none(value: object) -> float | None:
    return None if value is None else float(str(value))
