"""Statements that are prepared under a name, as texts: PREPARE, EXECUTE and DEALLOCATE PREPARE, beside MariaDB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import mysql.connector
import pymysql
import pytest

from meridian_cli import Meridian
from strict_mariadb import outcome, rows, strict_mariadb
from test_users import PASSWORD, Site, site_of_ann_and_bob
from testbed.mariadb import MariaDB


@pytest.fixture(scope="module")
def site(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_of_ann_and_bob(meridian, tmp_path_factory.mktemp("named"), 50) as site:
        yield site


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    yield from strict_mariadb(tmp_path_factory.mktemp("named_mariadb"))


# What is executed on both, in turns; each has the same outcome: rows of a result, the number of changed rows, or the number of an error.
TOLD_THE_SAME = [
    "CREATE TABLE t (id BIGINT NOT NULL, name VARCHAR(20), flux DOUBLE, day DATE)",
    "PREPARE put FROM 'INSERT INTO t VALUES (?, ?, ?, ?)'",
    "SET @id = 1, @name = 'it''s \\\\ \"so\"', @flux = -1.5e-30, @day = '2026-11-28'",
    "EXECUTE put USING @id, @name, @flux, @day",
    "SET @id = @id + 1, @name = NULL, @flux = NULL, @day = NULL",
    "EXECUTE put USING @id, @name, @flux, @day",
    "EXECUTE PUT USING @id, @never_set, @flux, @day",
    "EXECUTE put USING @id",
    "EXECUTE put",
    "EXECUTE nobody",
    "PREPARE pick FROM \"SELECT id, name, flux, day FROM t WHERE id >= ? ORDER BY id, name LIMIT ?\"",
    "SET @least = 1, @rows = 2",
    "EXECUTE pick USING @least, @rows",
    "SET @least = 2, @rows = 1",
    "EXECUTE pick USING @least, @rows",
    # A name that is given again, and one whose statement is wrong: the former is gone.
    "PREPARE pick FROM 'SELECT COUNT(*) FROM t'",
    "EXECUTE pick",
    "PREPARE pick FROM 'SELECT none FROM t'",
    "EXECUTE pick",
    "SET @text = 'SELECT ? + 1, ''?'', -- ?\\n 2'",
    "PREPARE `from variable` FROM @text",
    "EXECUTE `from variable` USING @least",
    "EXECUTE `from variable` USING @never_set",
    "DEALLOCATE PREPARE `from variable`",
    "DEALLOCATE PREPARE `from variable`",
    "DROP PREPARE put",
    "EXECUTE put USING @id, @name, @flux, @day",
    "PREPARE p FROM 'PREPARE q FROM ''SELECT 1'''",
    "PREPARE p FROM 'EXECUTE q'",
    "PREPARE p FROM 'DEALLOCATE PREPARE q'",
    "PREPARE p FROM 'SELECT 1; SELECT 2'",
    "PREPARE p FROM 'SELEC 1'",
    "PREPARE p",
    "PREPARE p FROM 1",
    "EXECUTE",
    "DEALLOCATE p",
    "PREPARE p FROM 'SET @x = ?'",
    "SET @value = 'a'",
    "EXECUTE p USING @value",
    "SELECT @x",
    "PREPARE p FROM 'UPDATE t SET flux = ? WHERE id = ?'",
    "EXECUTE p USING @least, @least",
    "SELECT id, flux FROM t",
]


def told(connection: pymysql.connections.Connection, statement: str) -> object:
    found = outcome(connection, statement)
    if isinstance(found, tuple):
        return found[0]
    if statement.startswith(("SELECT", "EXECUTE pick", "EXECUTE `")):
        return rows(connection, statement)
    return found


def test_outcomes_are_mariadbs(site: Site, mariadb: MariaDB) -> None:
    with site.connect("ann", database="ann") as ann:
        for statement in TOLD_THE_SAME:
            assert told(ann, statement) == told(mariadb.connection, statement), statement
        pymysql.connections.Connection.query(ann, "DROP TABLE t")


def test_sentences_say_what_to_do(site: Site) -> None:
    with site.connect("ann") as ann:
        for statement, number, sentence in (
            ("EXECUTE s", 1243, "there is no prepared statement s: PREPARE s FROM"),
            ("PREPARE s FROM @nothing", 1065, "@nothing is NULL"),
            ("PREPARE s FROM 'EXECUTE s'", 1295, "cannot be prepared"),
            ("PREPARE s FROM 'SELECT 1; SELECT 2'", 1064, "one statement at a time"),
            ("PREPARE s FROM ''", 1065, "there is no statement"),
        ):
            found = outcome(ann, statement)
            assert isinstance(found, tuple) and found[0] == number and sentence in found[1], found
        outcome(ann, "PREPARE s FROM 'SELECT ?, ?'")
        assert "has 2 parameters, and EXECUTE gives 1" in str(outcome(ann, "EXECUTE s USING @a"))


def test_headings_are_those_of_the_text(site: Site) -> None:
    with site.connect("ann", database="sky") as ann, ann.cursor() as cursor:
        cursor.execute("PREPARE s FROM 'SELECT ? + 1, COUNT(*) AS n FROM Star WHERE id < ?'")
        cursor.execute("SET @a = 5, @b = 10")
        cursor.execute("EXECUTE s USING @a, @b")
        assert [column[0] for column in cursor.description or ()] == ["? + 1", "n"]
        assert cursor.fetchall() == ((6, 10),)


def test_they_are_of_their_connection_alone(site: Site) -> None:
    with site.connect("ann") as one, site.connect("ann") as other:
        assert outcome(one, "PREPARE s FROM 'SELECT 1'") == 0
        assert outcome(one, "EXECUTE s") == 1
        assert outcome(other, "EXECUTE s") == (1243, str(outcome(other, "EXECUTE s")[1]))  # type: ignore[index]
    connection = mysql.connector.connect(host="127.0.0.1", port=site.server.port, user="ann", password=PASSWORD, use_pure=True)
    with connection, connection.cursor() as cursor:
        cursor.execute("PREPARE s FROM 'SELECT 1'")
        connection.cmd_reset_connection()
        with pytest.raises(mysql.connector.Error) as raised:
            cursor.execute("EXECUTE s")
        assert raised.value.errno == 1243


def test_the_binary_protocol_prepares_none_of_them(site: Site) -> None:
    connection = mysql.connector.connect(host="127.0.0.1", port=site.server.port, user="ann", password=PASSWORD, use_pure=True)
    with connection, connection.cursor(prepared=True) as cursor:
        with pytest.raises(mysql.connector.Error) as raised:
            cursor.execute("EXECUTE s USING ?", (1,))
        assert raised.value.errno in (1064, 1295), raised.value
        with pytest.raises(mysql.connector.Error) as raised:
            cursor.execute("DEALLOCATE PREPARE s")
        assert raised.value.errno == 1295


def test_rights_are_those_of_whoever_executes(site: Site) -> None:
    """They are looked at when it is prepared and whenever it is executed; passwords in it are not shown."""
    with site.connect("boss") as boss, site.connect("ann") as ann:
        assert outcome(ann, "PREPARE s FROM 'SELECT COUNT(*) FROM sky.Star'") == 0
        assert outcome(ann, "EXECUTE s") == 1
        outcome(boss, "REVOKE SELECT ON sky.* FROM ann")
        try:
            refused = outcome(ann, "EXECUTE s")
            assert isinstance(refused, tuple) and refused[0] in (1044, 1142), refused
        finally:
            outcome(boss, "GRANT SELECT ON sky.* TO ann")
        assert outcome(ann, "EXECUTE s") == 1
        assert outcome(ann, "PREPARE s FROM 'CREATE USER eve IDENTIFIED BY ''abc def ghi'''") == 0
        assert outcome(ann, "EXECUTE s")[0] == 1227  # type: ignore[index]
