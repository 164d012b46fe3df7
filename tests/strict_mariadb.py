"""MariaDB as users' tables are compared with it: in strict mode, with transactions, so that a statement is done as a whole or not at all."""

from __future__ import annotations

import decimal
import shutil
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from testbed.mariadb import SERVER, MariaDB

STRICT = "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,TIME_ROUND_FRACTIONAL"


def strict_mariadb(directory: Path) -> Iterator[MariaDB]:
    """A server whose connection uses a database ann."""
    if not Path(SERVER).exists() or shutil.which("mariadb-install-db") is None:
        pytest.skip("MariaDB is not installed: run scripts/setup tests.")
    server = MariaDB(directory)
    for statement in ("CREATE DATABASE ann", "USE ann", f"SET sql_mode = '{STRICT}'", "SET default_storage_engine = InnoDB"):
        server.do(statement)
    yield server
    server.stop()


def outcome(connection: pymysql.connections.Connection, statement: str) -> int | tuple[int, str]:
    """How many rows a statement has changed, or the number of its error and the sentence."""
    try:
        with connection.cursor() as cursor:
            return cursor.execute(statement)
    except pymysql.MySQLError as error:
        return int(error.args[0]), str(error.args[1])


def rows(connection: pymysql.connections.Connection, query: str) -> list[tuple[object, ...]]:
    """The rows of a query in an order that is the same on both sides: floats with the digits that a FLOAT has."""
    with connection.cursor() as cursor:
        cursor.execute(query)
        return sorted((tuple(map(comparable, row)) for row in cursor.fetchall()), key=repr)


def comparable(value: object) -> object:
    """A value of which two servers write the same digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, decimal.Decimal):
        return str(value)
    return value
