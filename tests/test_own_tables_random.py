"""Random statements about tables of a user's own, beside MariaDB: after each both have the same rows.

MERIDIAN_SEED chooses others, MERIDIAN_OWN_STATEMENTS how many.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from meridian_cli import Meridian
from own_table_statements import Statements
from serving import serving
from small_tables import load_stars_and_bands
from strict_mariadb import outcome, rows, strict_mariadb
from test_users import PASSWORD, Site, must
from testbed.mariadb import MariaDB

SEED = int(os.environ.get("MERIDIAN_SEED", "20261126"))
COUNT = int(os.environ.get("MERIDIAN_OWN_STATEMENTS", "300"))
# A value that its column cannot hold: which of several is told first is not the same.
OF_VALUES = {1048, 1264, 1265, 1292, 1364, 1366, 1406}


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    """The server with which statements are compared."""
    yield from strict_mariadb(tmp_path_factory.mktemp("mariadb"))


@pytest.fixture(scope="module")
def site(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    data = load_stars_and_bands(meridian, tmp_path_factory.mktemp("random"), 20)
    must(meridian, data, "add", "ann", password=PASSWORD)
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
            expected, found = outcome(mariadb.connection, statement.text), outcome(ann, statement.text)
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
            statements.done(statement, len(rows(mariadb.connection, f"SELECT id FROM {table.name}")))


def same(ann: pymysql.connections.Connection, mariadb: MariaDB, query: str, told: str) -> None:
    expected, found = rows(mariadb.connection, query), rows(ann, query)
    differing = [row for row in found if row not in expected] + [row for row in expected if row not in found]
    assert found == expected, f"here, then MariaDB: {differing}\n{told}"
