"""Random statements about tables of a user's own, beside MariaDB: after each both have the same rows. Some of the tables are kept whole,
some are children of the catalogue's director, some are directors, which are joined with it and with each other.

MERIDIAN_SEED chooses others, MERIDIAN_OWN_STATEMENTS how many.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from meridian_cli import Meridian
from own_table_statements import Statements, Table
from serving import serving
from small_tables import load_stars_and_bands
from strict_mariadb import outcome, rows, strict_mariadb
from test_users import PASSWORD, Site, must
from testbed.mariadb import MariaDB

SEED = int(os.environ.get("MERIDIAN_SEED", "20261126"))
COUNT = int(os.environ.get("MERIDIAN_OWN_STATEMENTS", "150"))
# A value that its column cannot hold: which of several is told first is not the same.
OF_VALUES = {1048, 1062, 1264, 1265, 1292, 1364, 1366, 1406}
STARS = 400


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    """The server with which statements are compared."""
    for server in strict_mariadb(tmp_path_factory.mktemp("mariadb")):
        server.do("CREATE DATABASE sky")
        server.do("CREATE TABLE sky.Star (id INT PRIMARY KEY, version INT)")
        server.do(f"INSERT INTO sky.Star VALUES {', '.join(f'({n}, 1)' for n in range(STARS))}")
        yield server


@pytest.fixture(scope="module")
def site(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    data = load_stars_and_bands(meridian, tmp_path_factory.mktemp("random"), STARS)
    must(meridian, data, "add", "ann", password=PASSWORD)
    must(meridian, data, "grant", "ann", "--read", "sky")
    with serving(meridian, data) as server:
        yield Site(meridian, data, server)


def number(result: int | tuple[int, str]) -> int:
    """The number of an error; 0 if there was none."""
    if isinstance(result, int):
        return 0
    return 1366 if result[0] in OF_VALUES else result[0]


def test_both_have_the_same_rows(site: Site, mariadb: MariaDB) -> None:
    statements = Statements(SEED)
    done: list[str] = []
    with site.connect("ann", database="ann") as ann:
        for _ in range(COUNT):
            statement = statements.next()
            done.append(statement.text)
            told = ";\n".join([f"seed {SEED}", *(text for text in done if f"{statement.table} " in f"{text} ")][-40:])
            expected, found = outcome(mariadb.connection, statement.theirs or statement.text), outcome(ann, statement.text)
            assert number(expected) == number(found), f"MariaDB: {expected}, here: {found}\n{told}"
            if isinstance(expected, int) and not statement.text.startswith("UPDATE"):
                assert found == expected, told
            if not isinstance(expected, int):
                continue
            table = statement.after.get(statement.table)
            if table is None:
                statements.done(statement, 0)
                continue
            same(ann, mariadb, f"SELECT {table.names()} FROM {table.name}", told)
            if len(done) % 4 == 0:
                joined(ann, mariadb, table, statement.after, told)
            statements.done(statement, len(rows(mariadb.connection, f"SELECT id FROM {table.name}")))
    site.meridian.must("check", "--data", site.data)


def joined(ann: pymysql.connections.Connection, mariadb: MariaDB, table: Table, tables: dict[str, Table], told: str) -> None:
    """Joins of a table with the catalogue and with the others."""
    same(ann, mariadb, f"SELECT COUNT(*), COUNT(s.id), SUM(t.id) FROM {table.name} t LEFT JOIN sky.Star s ON t.id = s.id", told)
    same(ann, mariadb, f"SELECT COUNT(*), SUM(s.id) FROM sky.Star s WHERE s.id NOT IN (SELECT id FROM {table.name} WHERE id IS NOT NULL)", told)
    for other in tables:
        same(ann, mariadb, f"SELECT COUNT(*), SUM(a.id) FROM {table.name} a JOIN {other} b ON a.id = b.id", told)


def same(ann: pymysql.connections.Connection, mariadb: MariaDB, query: str, told: str) -> None:
    expected, found = rows(mariadb.connection, query), rows(ann, query)
    differing = [row for row in found if row not in expected] + [row for row in expected if row not in found]
    assert found == expected, f"here, then MariaDB: {differing}\n{told}"
