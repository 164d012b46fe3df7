"""Conditions without columns beside others: on the only row of an aggregate they decide whether it is there, however often it is asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from meridian_cli import Meridian
from serving import serving

# A wording is planned with placeholders when it is asked for the second time.
TIMES = 4


@pytest.fixture(scope="module")
def connection(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[pymysql.connections.Connection]:
    """A connection to a director of five rows and a table without rows."""
    directory = tmp_path_factory.mktemp("constants")
    data: Path = directory / "data"
    stars = directory / "stars.csv"
    stars.write_text("id,ra,dec,n\n" + "".join(f"{n},{n * 60},{n},{n % 2}\n" for n in range(5)))
    meridian.must("load", "--data", data, "--db", "sky", "--table", "Star", "--key", "id", "--ra", "ra", "--dec", "dec", stars)
    empty = directory / "empty.csv"
    empty.write_text("id,n\n")
    meridian.must("load", "--data", data, "--db", "sky", "--table", "Empty", "--kind", "replicated", "--allow-empty", empty)
    with serving(meridian, data) as server, server.connect(database="sky") as connected:
        yield connected


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        ("SELECT SUM(n) FROM Star HAVING COUNT(*) <> {a} AND COUNT(*) < NULL", 0),
        ("SELECT COUNT(*) FROM Star HAVING COUNT(*) < {b} AND {a} > {b}", 0),
        ("SELECT COUNT(*) FROM Star HAVING COUNT(*) < {b} AND {a} < {b}", 1),
        ("SELECT COUNT(*) FROM Empty HAVING COUNT(*) < {b} AND {a} > {b}", 0),
        ("SELECT COUNT(*) FROM Star WHERE {a} > {b} HAVING COUNT(*) < {b}", 1),
        ("SELECT * FROM (SELECT COUNT(*) AS m FROM Star WHERE n = 0) t WHERE t.m < {b} AND {a} > {b}", 0),
        ("SELECT * FROM (SELECT COUNT(*) AS m FROM Star) t WHERE t.m < {b} AND NULL", 0),
        ("SELECT n, COUNT(*) FROM Star GROUP BY n HAVING COUNT(*) < {b} AND {a} > {b}", 0),
        ("SELECT n, COUNT(*) FROM Star GROUP BY n HAVING COUNT(*) < {b} AND {a} < {b}", 2),
        ("SELECT a.id FROM Star a LEFT JOIN Star b ON a.id = b.id WHERE {a} > {b} AND a.dec < {b}", 0),
        ("SELECT a.id FROM Star a RIGHT JOIN Star b ON a.id = b.id WHERE {a} > {b} AND b.dec < {b}", 0),
        ("SELECT (SELECT MAX(id) FROM Star HAVING {a} > {b} AND MAX(id) < {b}) AS v FROM Star", 5),
    ],
)
def test_a_condition_without_columns_is_not_forgotten(connection: pymysql.connections.Connection, statement: str, rows: int) -> None:
    """With other numbers each time, which keep the outcome."""
    cursor = connection.cursor()
    for number in range(TIMES):
        asked = statement.format(a=10 + number, b=40 + number)
        cursor.execute(asked)
        found = cursor.fetchall()
        assert len(found) == rows, asked
        if "AS v" in statement:
            assert {row[0] for row in found} == {None}, asked
