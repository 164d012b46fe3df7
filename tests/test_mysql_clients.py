"""`meridian serve` and the clients that people have: PyMySQL, MySQL's connector, SQLAlchemy, the command line client."""

from __future__ import annotations

import csv
import datetime
import decimal
import io
import os
import pty
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import mysql.connector
import pyarrow as pa
import pymysql
import pytest
import sqlalchemy
from pymysql.constants import CLIENT, FIELD_TYPE

from meridian_cli import Meridian, read_arrow, rows_of
from serving import SOON, Server, assert_still, serving, wait_until
from testbed import sky
from testbed.mariadb import SERVER as MARIADB_SERVER

EVERYTHING = "SELECT * FROM Extremes ORDER BY id"
# Pairs of all objects with all others: far more than a test waits for.
LONG = (
    "SELECT sum(scisql_angSep(a.ra_PS, b.decl_PS, c.ra_PS, a.decl_PS)) FROM Object a, Object b, Object c "
    "WHERE scisql_angSep(a.ra_PS, a.decl_PS, b.ra_PS, b.decl_PS) < 179"
)
COM_QUERY = 3


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The testbed's sky."""
    return sky.load(meridian, tmp_path_factory.mktemp("served"), sky.make_tables())


@pytest.fixture(scope="module")
def server(meridian: Meridian, data: Path) -> Iterator[Server]:
    """A server of it."""
    with serving(meridian, data, "--log", "warn,meridian_server=debug") as running:
        yield running


@pytest.fixture
def connection(server: Server) -> Iterator[pymysql.connections.Connection]:
    """A connection that has chosen the sky."""
    with server.connect(database="sky", client_flag=CLIENT.MULTI_STATEMENTS) as connected:
        yield connected


def execute(connection: pymysql.connections.Connection, statement: str, *values: object) -> list[tuple[object, ...]]:
    """The rows of an answer."""
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        return list(cursor.fetchall())


def rejected(connection: pymysql.connections.Connection, statement: str) -> tuple[int, str]:
    """The number and the sentence with which a statement is rejected."""
    with pytest.raises(pymysql.MySQLError) as raised:
        execute(connection, statement)
    number, sentence = raised.value.args
    return number, sentence


def of_the_program(meridian: Meridian, data: Path, statement: str) -> pa.Table:
    """What `meridian sql` answers."""
    outcome = meridian.must("sql", "--data", data, "--db", "sky", "--format", "arrow", statement)
    return read_arrow(outcome.stdout)


def as_sent(value: object) -> object:
    """A value of the program's as a client of MySQL gets it."""
    return int(value) if isinstance(value, bool) else value


# Values: what a client gets is what the program answers.


@pytest.mark.parametrize(
    "statement",
    [
        EVERYTHING,
        "SELECT * FROM Object ORDER BY objectId LIMIT 300",
        "SELECT * FROM Source ORDER BY sourceId LIMIT 300",
        "SELECT filterId, filterName, 1.5, 'a', NULL, 1 = 1, 0x41, DATE '2010-06-15', NOW() > '2020-01-01' FROM Filter ORDER BY 1",
        "SELECT count(*), sum(flags), avg(ra_PS), min(objectId), max(decl_PS) FROM Object",
        "SELECT sum(price), sum(big) FROM Extremes WHERE id IN (3, 5, 7)",
        "SELECT objectId FROM Object WHERE objectId = -99",
    ],
)
def test_values_are_those_of_the_program(
    meridian: Meridian, data: Path, connection: pymysql.connections.Connection, statement: str
) -> None:
    expected = of_the_program(meridian, data, statement)
    with connection.cursor() as cursor:
        cursor.execute(statement)
        assert [column[0] for column in cursor.description] == expected.column_names
        rows = list(cursor.fetchall())
    # Numbers of 32 bits come as the fewest digits that tell them apart.
    narrow = [pa.types.is_float32(field.type) for field in expected.schema]
    for ours, theirs in zip(rows, rows_of(expected), strict=True):
        for value, wanted, is_narrow in zip(ours, theirs, narrow, strict=True):
            if is_narrow and value is not None:
                value = pa.scalar(value, pa.float32()).as_py()
            assert value == as_sent(wanted), (ours, theirs)
            assert type(value) is type(as_sent(wanted))


def test_prepared_statements_give_the_same_values(server: Server, meridian: Meridian, data: Path) -> None:
    expected = of_the_program(meridian, data, EVERYTHING)
    with connector(server) as connected, connected.cursor(prepared=True) as cursor:
        cursor.execute(EVERYTHING)
        rows = list(cursor.fetchall())
    for ours, theirs in zip(rows, rows_of(expected), strict=True):
        for value, wanted in zip(ours, theirs, strict=True):
            if isinstance(wanted, bool):
                wanted = int(wanted)
            if isinstance(value, (bytes, bytearray)) and isinstance(wanted, str):
                value = value.decode()
            if isinstance(value, (bytes, bytearray)) and isinstance(wanted, int):
                value = int.from_bytes(value, "big")
            if isinstance(value, bytearray):
                value = bytes(value)
            assert value == wanted, (ours, theirs)


def test_types_are_those_of_mariadb(
    server: Server, connection: pymysql.connections.Connection, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The kinds of columns, as the protocol numbers them."""
    from testbed.mariadb import MariaDB
    from testbed.sides import mariadb_type

    if not Path(MARIADB_SERVER).exists() or shutil.which("mariadb-install-db") is None:
        pytest.skip("MariaDB is not installed: run scripts/setup tests.")
    mariadb = MariaDB(tmp_path_factory.mktemp("types"))
    try:
        mariadb.make_database("sky", [sky.make_extremes()], {})
        theirs = mariadb.execute(EVERYTHING).columns
    finally:
        mariadb.stop()
    with connection.cursor() as cursor:
        cursor.execute(EVERYTHING)
        ours = cursor._result.fields  # type: ignore[union-attr]
    for field, column in zip(ours, theirs, strict=True):
        assert mariadb_type(field.type_code, field.charsetnr == 63) == mariadb_type(column.type_code, column.binary), field.name


def test_columns_tell_what_they_are(connection: pymysql.connections.Connection) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT tiny, ubig, f, d, price, flag, day, at, txt, raw FROM Extremes LIMIT 1")
        fields = {field.name: field for field in cursor._result.fields}  # type: ignore[union-attr]
    assert fields["tiny"].type_code == FIELD_TYPE.TINY
    assert fields["ubig"].flags & 32 and not fields["tiny"].flags & 32
    assert (fields["price"].type_code, fields["price"].scale) == (FIELD_TYPE.NEWDECIMAL, 3)
    # A driver makes 1 and 0 of it; of a BIT(1) many make bytes.
    assert (fields["flag"].type_code, fields["flag"].length) == (FIELD_TYPE.TINY, 1)
    assert {row[0] for row in execute(connection, "SELECT flag FROM Extremes")} == {None, 0, 1}
    assert fields["txt"].charsetnr == 255 and fields["raw"].charsetnr == 63


# Statements.


def test_parameters_are_bound_as_they_are(server: Server) -> None:
    values = (
        7,
        -7,
        2**63 - 1,
        1.5,
        -0.1,
        "it's \\ \"quoted\" % ; -- ☄",
        None,
        decimal.Decimal("1.250"),
        datetime.date(2010, 6, 15),
        datetime.datetime(2010, 6, 15, 1, 2, 3, 250),
    )
    with connector(server) as connected, connected.cursor(prepared=True) as cursor:
        cursor.execute(f"SELECT {', '.join(['%s'] * len(values))}", values)
        (row,) = cursor.fetchall()
        for ours, bound in zip(row, values, strict=True):
            assert (float(ours) if isinstance(bound, decimal.Decimal) else ours) == bound
        # Programs give numbers of rows as texts and floats, too.
        for wanted, first in ((3, 1), ("3", "1"), (3.0, 1.0), (decimal.Decimal("3"), decimal.Decimal("1.0"))):
            for limits, bound in (("LIMIT ? OFFSET ?", (wanted, first)), ("LIMIT ?, ?", (first, wanted))):
                cursor.execute(f"SELECT objectId FROM Object ORDER BY objectId {limits}", bound)
                kept = [row[0] for row in cursor.fetchall()]
                cursor.execute("SELECT objectId FROM Object ORDER BY objectId OFFSET 1 ROWS FETCH NEXT 3 ROWS ONLY")
                assert kept == [row[0] for row in cursor.fetchall()] and len(kept) == 3
        for wrong in (1.5, "many", -1):
            with pytest.raises(mysql.connector.Error, match="LIMIT takes a number of rows"):
                cursor.execute("SELECT objectId FROM Object LIMIT ?", (wrong,))
                cursor.fetchall()
        for key in (433, 1, 434):
            cursor.execute("SELECT count(*), ? FROM Object WHERE objectId < ?", (key, key))
            (row,) = cursor.fetchall()
            assert row[1] == key
        assert [column[0] for column in cursor.description] == ["count(*)", "?"]


def test_a_prepared_statement_is_asked_again_and_again(server: Server, connection: pymysql.connections.Connection) -> None:
    keys = [row[0] for row in execute(connection, "SELECT objectId FROM Object ORDER BY objectId LIMIT 50")]
    with connector(server) as connected, connected.cursor(prepared=True) as cursor:
        for key in keys:
            cursor.execute("SELECT objectId FROM Object WHERE objectId = ?", (key,))
            assert cursor.fetchall() == [(key,)]


def test_wrong_prepared_statements_are_rejected(server: Server) -> None:
    with connector(server) as connected, connected.cursor(prepared=True) as cursor:
        with pytest.raises(mysql.connector.Error) as raised:
            cursor.execute("SELECT nosuch FROM Object")
        assert raised.value.errno == 1054
        with pytest.raises(mysql.connector.Error) as raised:
            cursor.execute("SELECT ? FROM", (1,))
        assert raised.value.errno == 1064
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == [(1,)]


def test_several_statements_give_several_answers(connection: pymysql.connections.Connection) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 AS a; SET @@sql_notes = 0; SELECT ';' AS b, 2 /* ; */; -- ; end")
        assert cursor.fetchall() == ((1,),)
        assert cursor.nextset() and cursor.description is None
        assert cursor.nextset() and cursor.fetchall() == ((";", 2),)
        assert not cursor.nextset()
        cursor.execute("SELECT 1; SELECT nosuch FROM Object; SELECT 3")
        with pytest.raises(pymysql.MySQLError) as raised:
            cursor.nextset()
        assert raised.value.args[0] == 1054
    assert execute(connection, "SELECT 4") == [(4,)]


def test_one_statement_at_a_time_unless_announced(server: Server) -> None:
    with server.connect() as connected:
        assert rejected(connected, "SELECT 1; SELECT 2")[0] == 1064
        assert execute(connected, "SELECT 1;") == [(1,)]


MISTAKES = {
    "SELECT nosuch FROM Object": (1054, "nosuch"),
    "SELECT GROUP_CONCAT(objectId ORDER BY 2) FROM Object": (1054, "no value number 2 to order by"),
    "SELECT GROUP_CONCAT(DISTINCT objectId ORDER BY objectId LIMIT 1) FROM Object": (1235, "but not LIMIT 1"),
    "SELECT 1 FROM Objekt": (1146, "Object"),
    "SELEC 1": (1064, "line 1"),
    "": (1065, "no statement"),
    "/* nothing */ ;": (1065, "no statement"),
    "SELECT nosuch(1)": (1305, "nosuch"),
    "DROP TABLE Object": (1290, "meridian load"),
    "INSERT INTO Object VALUES (1)": (1290, "meridian load"),
    "USE nowhere": (1049, "nowhere"),
    "SELECT @@sql_mod": (1193, "sql_mode"),
    "SELECT @row := @row + 1": (1235, "SET @row"),
    "SET @mine = nosuch": (1054, "nosuch"),
    "SET @mine = (SELECT objectId FROM Object)": (1242, "row"),
    "SELECT SLEEP(-1)": (1582, "seconds"),
    "SELECT JSON_TYPE('{oops')": (1105, "no JSON"),
    "SELECT JSON_EXTRACT('{}', 'a')": (1105, "begins with $"),
    "SELECT REGEXP_REPLACE('a', '(', '')": (3691, "cannot be read"),
    "SET sql_mode = 'ANSI_QUOTES'": (1231, "ANSI_QUOTES"),
    "SET time_zone = 'Europe/Berlin'": (1298, "Europe/Berlin"),
    "SET NAMES ucs2": (1115, "latin1"),
    "SET GLOBAL wait_timeout = 10": (1227, "wait_timeout"),
    "SET nosuch = 1": (1193, "nosuch"),
    "SET version = 5": (1238, "version"),
    "SET PASSWORD = 'x'": (1290, "meridian user add"),
    "KILL 999999": (1094, "999999"),
    "LOCK TABLES Object WRITE": (1290, "READ"),
    "SELECT * FROM read_csv('/etc/passwd')": (1290, "read_csv"),
    "SHOW NONSENSE": (1064, "DATABASES"),
    "SELECT 9223372036854775807 + 1": (1690, ""),
}


@pytest.mark.parametrize("statement", MISTAKES)
def test_mistakes_have_numbers_and_sentences(connection: pymysql.connections.Connection, statement: str) -> None:
    number, word = MISTAKES[statement]
    found, sentence = rejected(connection, statement)
    assert found == number and word.lower() in sentence.lower(), sentence
    assert execute(connection, "SELECT 1") == [(1,)], "the connection is not to be used any more"


def test_variables_of_users(server: Server, connection: pymysql.connections.Connection) -> None:
    execute(connection, "SET @ra = 56.75, @name := 'it''s', @n = 1 + 1, @d = 1e-3, @s = -12.50, @day = DATE '2026-01-02'")
    row = execute(connection, "SELECT @ra, @NAME, @n, @d, @s + 1, @day, @never, @n * 2")
    assert row == [(decimal.Decimal("56.75"), "it's", 2, 1e-3, decimal.Decimal("-11.50"), "2026-01-02", None, 4)]
    # The heading is what was typed, and other connections have variables of their own.
    with connection.cursor() as cursor:
        cursor.execute("SELECT @n")
        assert [column[0] for column in cursor.description] == ["@n"]
    with server.connect(database="sky") as other:
        assert execute(other, "SELECT @n") == [(None,)]
    # Values of tables, in conditions, lists, limits of cones and parameters.
    execute(connection, "SET @largest = (SELECT MAX(objectId) FROM Object), @count = (SELECT COUNT(*) FROM Object)")
    largest, count = execute(connection, "SELECT MAX(objectId), COUNT(*) FROM Object")[0]
    assert execute(connection, "SELECT @largest, @count") == [(largest, count)]
    assert execute(connection, "SELECT objectId FROM Object WHERE objectId = @largest") == [(largest,)]
    assert execute(connection, "SELECT COUNT(*) FROM Object WHERE objectId IN (@largest, @never)") == [(1,)]
    for value in (largest, largest - 1, largest):
        execute(connection, f"SET @largest = {value}")
        assert execute(connection, "SELECT COUNT(*) FROM Object WHERE objectId > @largest")[0][0] == (value < largest)
    # A submitted query has the values of the moment.
    query = execute(connection, "SUBMIT SELECT @largest AS a, '@largest' AS b")[0][0]
    execute(connection, "SET @largest = NULL")
    state = f"SELECT STATE FROM information_schema.QUERIES WHERE ID = {query}"
    wait_until(lambda: execute(connection, state) == [("COMPLETED",)], 20, "the query is completed")
    assert execute(connection, f"SELECT * FROM qserv_result({query})") == [(largest, "@largest")]


def test_sleeping_ends_with_the_statement(connection: pymysql.connections.Connection) -> None:
    begun = time.monotonic()
    assert execute(connection, "SELECT SLEEP(0.3)") == [(0,)]
    assert 0.3 <= time.monotonic() - begun < SOON
    execute(connection, "SET max_execution_time = 300")
    begun = time.monotonic()
    assert rejected(connection, "SELECT SLEEP(60)")[0] == 3024
    assert time.monotonic() - begun < SOON
    execute(connection, "SET max_execution_time = DEFAULT")
    begun = time.monotonic()
    assert execute(connection, "DO SLEEP(0.2), 1 + 1") == []
    assert time.monotonic() - begun >= 0.2
    assert rejected(connection, "DO nosuch(1)")[0] == 1305


def test_json_documents_are_read(connection: pymysql.connections.Connection) -> None:
    execute(connection, """SET @doc = '{"name": "M 31", "mags": [3.44, 4.36], "b": {"id": 7}}'""")
    assert execute(connection, "SELECT JSON_EXTRACT(@doc, '$.mags[1]'), JSON_LENGTH(@doc), JSON_KEYS(@doc)") == [
        ("4.36", 3, '["b", "mags", "name"]')
    ]
    table = "(SELECT @doc AS doc) AS t"
    assert execute(connection, f"SELECT doc->'$.name', doc->>'$.name', doc->'$.b.id' + 1 FROM {table}") == [('"M 31"', "M 31", 8.0)]
    for condition, holds in {
        "doc->'$.name' = 'M 31'": 1,
        "JSON_EXTRACT(doc, '$.b.id') = 7": 1,
        "doc->'$.name' IN ('M 33', 'M 31')": 1,
        "doc->>'$.b.id' > 7": 0,
        "JSON_CONTAINS(doc, '4.36', '$.mags')": 1,
        "doc->'$.nothing' IS NULL": 1,
    }.items():
        assert execute(connection, f"SELECT COUNT(*) FROM {table} WHERE {condition}") == [(holds,)], condition


def test_patterns_are_replaced_and_found(connection: pymysql.connections.Connection) -> None:
    execute(connection, "SET @name = '2MASS J00424433+4116085'")
    assert execute(connection, "SELECT REGEXP_REPLACE(@name, 'J([0-9]+)', '<$1>'), REGEXP_SUBSTR(@name, '[0-9]{7,}', 1, 2)") == [
        ("2MASS <00424433>+4116085", "4116085")
    ]
    assert execute(connection, "SELECT REGEXP_INSTR(@name, 'j', 1, 1, 0, 'i'), REGEXP_REPLACE(@name, '[0-9]', '')") == [(7, "MASS J+")]


def test_no_database_is_chosen(server: Server) -> None:
    with server.connect() as connected:
        assert execute(connected, "SELECT DATABASE(), SCHEMA()") == [(None, None)]
        assert rejected(connected, "SELECT count(*) FROM Filter")[0] == 1046
        assert rejected(connected, "SHOW TABLES")[0] == 1046
        assert execute(connected, "SELECT count(*) FROM sky.Filter")[0][0] > 0
        connected.select_db("SKY")
        assert execute(connected, "SELECT DATABASE()") == [("sky",)]
        assert execute(connected, "SELECT count(*) FROM Filter")[0][0] > 0
        execute(connected, "USE `information_schema`")
        assert ("TABLES",) in execute(connected, "SHOW TABLES")
        assert execute(connected, "SELECT count(*) FROM schemata WHERE schema_name = 'sky'") == [(1,)]
    with pytest.raises(pymysql.OperationalError) as raised:
        server.connect(database="nowhere")
    assert raised.value.args[0] == 1049


def test_what_a_connection_asks_of_itself(server: Server) -> None:
    with server.connect(database="sky") as one, server.connect(user="ann") as other:
        statement = "SELECT CONNECTION_ID(), USER(), CURRENT_USER, DATABASE(), VERSION(), @@version_comment, @@session.autocommit"
        first, second = execute(one, statement)[0], execute(other, statement)[0]
        assert first[0] == one.thread_id() and second[0] == other.thread_id()
        assert (first[1], second[1]) == ("tester@127.0.0.1", "ann@127.0.0.1")
        assert (first[3], second[3]) == ("sky", None)
        assert str(first[4]).startswith("8.0.") and "meridian" in str(first[4])
        # The same text is asked by several, again and again.
        for _ in range(4):
            for connected in (one, other):
                assert execute(connected, "SELECT CONNECTION_ID()") == [(connected.thread_id(),)]
        with one.cursor() as cursor:
            cursor.execute("SELECT @@session.sql_mode, database(), @@max_allowed_packet AS bytes")
            assert [column[0] for column in cursor.description] == ["@@session.sql_mode", "database()", "bytes"]
            assert cursor.fetchall()[0][2] == 64 << 20
        execute(one, "SELECT 1 FROM Object LIMIT 7")
        assert execute(one, "SELECT FOUND_ROWS(), ROW_COUNT(), LAST_INSERT_ID()") == [(7, -1, 0)]


def test_settings_are_remembered_and_honoured(connection: pymysql.connections.Connection) -> None:
    execute(connection, "SET SESSION sql_mode = 'STRICT_TRANS_TABLES', @@wait_timeout = 100, NAMES utf8mb4")
    assert execute(connection, "SELECT @@sql_mode, @@wait_timeout") == [("STRICT_TRANS_TABLES", 100)]
    execute(connection, "SET sql_mode = CONCAT(@@sql_mode, ',NO_ZERO_DATE')")
    assert execute(connection, "SHOW VARIABLES LIKE 'sql\\_mode'") == [("sql_mode", "STRICT_TRANS_TABLES,NO_ZERO_DATE")]
    # All of a statement's settings, or none.
    assert rejected(connection, "SET wait_timeout = 7, nosuch = 1")[0] == 1193
    assert execute(connection, "SELECT @@wait_timeout") == [(100,)]
    count = execute(connection, "SELECT count(*) FROM Object")[0][0]
    execute(connection, "SET sql_select_limit = 5")
    assert len(execute(connection, "SELECT objectId FROM Object")) == 5
    assert len(execute(connection, "SELECT objectId FROM Object LIMIT 8")) == 8
    assert execute(connection, "SELECT count(*) FROM Object") == [(count,)]
    assert execute(connection, "SELECT sum(1) FROM (SELECT objectId FROM Object) t") == [(count,)]
    execute(connection, "SET sql_select_limit = DEFAULT")
    assert len(execute(connection, "SELECT objectId FROM Object")) == count
    execute(connection, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    assert execute(connection, "SELECT @@transaction_isolation") == [("READ-COMMITTED",)]
    for nothing in ("BEGIN", "COMMIT", "START TRANSACTION READ ONLY", "ROLLBACK", "LOCK TABLES Object READ", "UNLOCK TABLES"):
        execute(connection, nothing)
    connection.autocommit(False)
    assert execute(connection, "SELECT @@autocommit") == [(0,)]


def test_a_time_limit_is_honoured(server: Server, connection: pymysql.connections.Connection) -> None:
    execute(connection, "SET max_execution_time = 300")
    begun = time.monotonic()
    assert rejected(connection, LONG)[0] == 3024
    assert time.monotonic() - begun < SOON
    execute(connection, "SET max_execution_time = 0")
    wait_until(server.is_idle, 10, "the statement ends")


# Lists.

LISTS = {
    "SHOW DATABASES": ("sky",),
    "SHOW SCHEMAS LIKE 's%'": ("sky",),
    "SHOW FULL TABLES": ("Object", "BASE TABLE"),
    "SHOW COLUMNS FROM Object LIKE 'objectId'": ("objectId", "bigint", "NO", "PRI", None, ""),
    "DESCRIBE Object objectid": ("objectId", "bigint", "NO", "PRI", None, ""),
    "DESC Object 'object%'": ("objectId", "bigint", "NO", "PRI", None, ""),
    "SHOW INDEX FROM Object": ("Object", 0, "PRIMARY", 1, "objectId"),
    "SHOW KEYS FROM sky.RefObject WHERE Key_name = 'PRIMARY'": ("RefObject", 0, "PRIMARY", 1, "refId"),
    "SHOW TABLE STATUS LIKE 'Filter'": ("Filter", "Meridian", 10),
    "SHOW CREATE DATABASE sky": ("sky",),
    "SHOW VARIABLES WHERE Variable_name = 'lower_case_table_names'": ("lower_case_table_names", "2"),
    "SHOW GLOBAL VARIABLES LIKE 'version_comment'": ("version_comment", "Meridian"),
    "SHOW SESSION STATUS LIKE 'Threads_running'": ("Threads_running", "1"),
    "SHOW GLOBAL STATUS LIKE 'uptime'": ("Uptime",),
    "SHOW COLLATION WHERE Charset = 'utf8mb4'": ("utf8mb4_nopad_bin", "utf8mb4", 1070),
    "SHOW CHARACTER SET": ("utf8mb4",),
    "SHOW STORAGE ENGINES": ("Meridian", "DEFAULT"),
    "SHOW PLUGINS": ("Meridian", "ACTIVE"),
    "SHOW PRIVILEGES": ("Select",),
    "SHOW GRANTS": ("GRANT SELECT ON *.* TO `tester`@`127.0.0.1`",),
}


@pytest.mark.parametrize("statement", LISTS)
def test_lists(connection: pymysql.connections.Connection, statement: str) -> None:
    beginning = LISTS[statement]
    rows = execute(connection, statement)
    assert beginning in [row[: len(beginning)] for row in rows], rows


# What clients and scripts of MySQL ask for, and its rows.
EXPECTED = {
    "SELECT COUNT(*) FROM information_schema.FILES": (0,),
    "SELECT COUNT(*) FROM information_schema.USER_PRIVILEGES WHERE privilege_type = 'SUPER'": (0,),
    "SELECT COUNT(*) FROM information_schema.SCHEMA_PRIVILEGES": (0,),
    "SELECT COUNT(*) FROM information_schema.TABLE_PRIVILEGES": (0,),
    "SELECT COUNT(*) FROM information_schema.COLUMN_PRIVILEGES": (0,),
    "SELECT COUNT(*) > 0 FROM information_schema.PROCESSLIST": (1,),
    "SELECT CONVERT_TZ('2026-01-01 12:00:00', '+00:00', '-05:30')": (datetime.datetime(2026, 1, 1, 6, 30),),
    "SELECT COUNT(*) FROM (SELECT objectId FROM Object ORDER BY objectId FETCH FIRST 2 ROWS ONLY) AS few": (2,),
    "/* first */ -- second\n# third\nSELECT 1": (1,),
    "SELECT SLEEP(0)": (0,),
}


@pytest.mark.parametrize("statement", EXPECTED)
def test_statements_that_clients_expect(connection: pymysql.connections.Connection, statement: str) -> None:
    assert execute(connection, statement) == [EXPECTED[statement]]


@pytest.mark.parametrize(
    "statement",
    ["WARNINGS", "ERRORS", "WARNINGS LIMIT 5", "TRIGGERS", "EVENTS FROM sky", "PROCEDURE STATUS", "FUNCTION STATUS LIKE 'a'", "OPEN TABLES"],
)
def test_lists_of_nothing_have_columns(connection: pymysql.connections.Connection, statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW {statement}")
        assert cursor.description and not cursor.fetchall()


# What programs say when they connect and look around, as their authors wrote it.
SAID_BY_PROGRAMS = """
/* mysql-connector-j-8.3.0 */SELECT  @@session.auto_increment_increment AS auto_increment_increment, @@character_set_client AS character_set_client, @@character_set_connection AS character_set_connection, @@character_set_results AS character_set_results, @@character_set_server AS character_set_server, @@collation_server AS collation_server, @@collation_connection AS collation_connection, @@init_connect AS init_connect, @@interactive_timeout AS interactive_timeout, @@license AS license, @@lower_case_table_names AS lower_case_table_names, @@max_allowed_packet AS max_allowed_packet, @@net_write_timeout AS net_write_timeout, @@performance_schema AS performance_schema, @@sql_mode AS sql_mode, @@system_time_zone AS system_time_zone, @@time_zone AS time_zone, @@transaction_isolation AS transaction_isolation, @@wait_timeout AS wait_timeout
SET character_set_results = NULL
SET autocommit=1
SET SQL_SELECT_LIMIT=200
SET SQL_SELECT_LIMIT=DEFAULT
SET session TRANSACTION READ WRITE
SELECT @@session.transaction_read_only
SHOW FULL TABLES FROM `sky` LIKE '%'
SHOW FULL COLUMNS FROM `Object` FROM `sky` LIKE '%'
SHOW KEYS FROM `Object` FROM `sky`
SHOW DATABASES LIKE 'sky'
SHOW ENGINES
SHOW CHARSET
SHOW COLLATION
SHOW PLUGINS
SHOW SESSION STATUS LIKE 'Ssl_cipher'
SHOW GLOBAL STATUS
SHOW GLOBAL VARIABLES
SHOW VARIABLES LIKE 'aurora\\_version'
SHOW SESSION VARIABLES LIKE 'lower_case_%'
SHOW SESSION VARIABLES WHERE Variable_name in ('version_comment', 'wait_timeout') OR Variable_name LIKE 'character%'
SHOW TABLE STATUS FROM `sky`
SHOW TABLE STATUS WHERE Name='Object'
SHOW CREATE TABLE `sky`.`Object`
SHOW TRIGGERS FROM `sky`
SHOW PROCEDURE STATUS WHERE Db='sky'
SHOW /*!50002 FULL */ TABLES
SHOW WARNINGS
/*!40101 SET NAMES utf8mb4 */
/*!40103 SET TIME_ZONE='+00:00' */
/*!40101 SET @@SQL_MODE := '' */
SET NAMES 'utf8mb4' COLLATE 'utf8mb4_0900_ai_ci'
SET CHARACTER SET utf8
SET SQL_SAFE_UPDATES=1
SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ
SET SESSION net_write_timeout=600000
SET sql_auto_is_null = 0
SET session_track_schema=1, session_track_system_variables='autocommit'
set @@session.max_join_size = 100000000000
SELECT current_user()
SELECT @@tx_isolation, @@sql_select_limit, @@lower_case_table_names
SELECT @@GLOBAL.version_comment, @@version_compile_os, @@hostname, @@port
SELECT DATABASE(), USER() LIMIT 1
SELECT /*!40001 SQL_NO_CACHE */ count(*) FROM `Object`
SELECT SCHEMA_NAME FROM information_schema.SCHEMATA
SELECT * FROM information_schema.COLUMNS WHERE TABLE_SCHEMA='sky' AND TABLE_NAME='Object' ORDER BY ORDINAL_POSITION
SELECT * FROM INFORMATION_SCHEMA.TABLE_CONSTRAINTS WHERE TABLE_SCHEMA='sky'
SELECT cc.CONSTRAINT_NAME, cc.TABLE_NAME FROM INFORMATION_SCHEMA.KEY_COLUMN_USAGE cc WHERE cc.TABLE_SCHEMA = DATABASE()
SELECT DISTINCT TABLESPACE_NAME, FILE_NAME, LOGFILE_GROUP_NAME, EXTENT_SIZE, INITIAL_SIZE, ENGINE FROM INFORMATION_SCHEMA.FILES WHERE FILE_TYPE = 'DATAFILE' ORDER BY TABLESPACE_NAME, LOGFILE_GROUP_NAME
SELECT SPECIFIC_SCHEMA, PARAMETER_NAME, DTD_IDENTIFIER, NUMERIC_PRECISION, CHARACTER_OCTET_LENGTH, ROUTINE_TYPE FROM INFORMATION_SCHEMA.PARAMETERS
SELECT GRANTEE, TABLE_SCHEMA, PRIVILEGE_TYPE, IS_GRANTABLE FROM INFORMATION_SCHEMA.SCHEMA_PRIVILEGES
SELECT GRANTEE, TABLE_NAME, PRIVILEGE_TYPE, IS_GRANTABLE FROM INFORMATION_SCHEMA.TABLE_PRIVILEGES
SELECT GRANTEE, COLUMN_NAME, PRIVILEGE_TYPE, IS_GRANTABLE FROM INFORMATION_SCHEMA.COLUMN_PRIVILEGES
"""


@pytest.mark.parametrize("statement", SAID_BY_PROGRAMS.strip().splitlines())
def test_what_programs_say_when_they_connect(connection: pymysql.connections.Connection, statement: str) -> None:
    execute(connection, statement)


def test_the_process_list_shows_who_asks_what(server: Server, connection: pymysql.connections.Connection) -> None:
    with server.connect(user="idle"):
        rows = execute(connection, "SHOW FULL PROCESSLIST")
    mine = [row for row in rows if row[0] == connection.thread_id()]
    assert [(row[1], row[3], row[4], row[7]) for row in mine] == [("tester", "sky", "Query", "SHOW FULL PROCESSLIST")]
    assert [row[4] for row in rows if row[1] == "idle"] == ["Sleep"]


# Ending what runs.


def long_statement(server: Server, **options: object) -> tuple[pymysql.connections.Connection, threading.Thread, list[object]]:
    """A connection that waits for a long statement, and what comes of it."""
    connected = server.connect(database="sky", **options)
    outcome: list[object] = []

    def wait() -> None:
        try:
            outcome.append(execute(connected, LONG))
        except (pymysql.MySQLError, OSError, AttributeError) as error:
            outcome.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: not server.is_idle(0.2), 20, "the statement runs")
    return connected, thread, outcome


@pytest.mark.parametrize("how", ["KILL QUERY", "KILL", "KILL CONNECTION", "mysqladmin"])
def test_kill_from_another_connection(server: Server, connection: pymysql.connections.Connection, how: str) -> None:
    victim, thread, outcome = long_statement(server)
    # A busy server answers others.
    begun = time.monotonic()
    connection.ping(reconnect=False)
    assert execute(server.connect(), "SELECT 1") == [(1,)]
    assert time.monotonic() - begun < SOON
    if how == "mysqladmin":
        connection.kill(victim.thread_id())
    else:
        execute(connection, f"{how} {victim.thread_id()}")
    thread.join(timeout=5)
    assert not thread.is_alive()
    assert isinstance(outcome[0], pymysql.MySQLError) and outcome[0].args[0] in (1317, 2013), outcome
    assert_still(server)
    if how == "KILL QUERY":
        assert execute(victim, "SELECT 2") == [(2,)]
    else:
        with pytest.raises(pymysql.MySQLError):
            execute(victim, "SELECT 2")
    if victim.open:
        victim.close()


def test_hanging_up_ends_the_statement(server: Server) -> None:
    victim, thread, _ = long_statement(server)
    victim._sock.shutdown(2)  # type: ignore[attr-defined]
    thread.join(timeout=5)
    assert_still(server)


def test_a_client_that_is_killed_ends_its_statement(server: Server) -> None:
    client = subprocess.Popen([*command_line(server), "-e", LONG], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: not server.is_idle(0.2), 20, "the statement runs")
    client.kill()
    client.wait()
    assert_still(server)


def test_closing_while_rows_come_ends_the_statement(server: Server) -> None:
    connected = server.connect(database="sky")
    statement = "SELECT a.objectId, b.objectId, REPEAT('x', 1000) FROM Object a, Object b, Object c"
    connected._execute_command(COM_QUERY, statement)  # type: ignore[attr-defined]
    # The first rows, then no more.
    for _ in range(100):
        connected._read_packet()  # type: ignore[attr-defined]
    connected._force_close()  # type: ignore[attr-defined]
    assert_still(server)


# The command line client.


def command_line(server: Server, *options: str) -> list[str]:
    """The command line client on a server."""
    program = shutil.which("mariadb") or shutil.which("mysql")
    if program is None:
        pytest.skip("There is no command line client: run scripts/setup tests.")
    return [program, "--no-defaults", "-h", "127.0.0.1", "-P", str(server.port), "-u", "tester", *options, "sky"]


def test_the_command_line_client(server: Server, meridian: Meridian, data: Path) -> None:
    statement = "SELECT objectId, ra_PS, flags, NULL AS n FROM Object WHERE objectId < 1000 ORDER BY objectId"
    answered = subprocess.run([*command_line(server, "--batch"), "-e", statement], capture_output=True, text=True, check=True)
    lines = list(csv.reader(io.StringIO(answered.stdout), delimiter="\t"))
    expected = of_the_program(meridian, data, statement)
    assert lines[0] == expected.column_names
    assert [(int(a), float(b)) for a, b, _, _ in lines[1:]] == [row[:2] for row in rows_of(expected)]
    script = "status\nuse sky\nSELECT count(*) FROM Filter;\ndescribe Filter;\nSHOW TABLES;\n\\u information_schema\nSELECT 'é';\n"
    answered = subprocess.run(command_line(server), input=script, capture_output=True, text=True, check=True)
    assert "meridian" in answered.stdout and "filterName" in answered.stdout and "é" in answered.stdout, answered.stdout
    wrong = subprocess.run([*command_line(server), "-e", "SELECT nosuch FROM Object"], capture_output=True, text=True, check=False)
    assert "1054" in wrong.stderr and "nosuch" in wrong.stderr


def test_completion_of_names_in_the_command_line_client(server: Server) -> None:
    # With --auto-rehash it asks for the columns of all tables by an old command.
    answered = subprocess.run(
        [*command_line(server, "--auto-rehash", "--batch"), "-e", "SELECT 1"], capture_output=True, text=True, check=True
    )
    assert answered.stdout.split() == ["1", "1"], answered.stderr


def test_ctrl_c_in_the_command_line_client(server: Server) -> None:
    ours, theirs = pty.openpty()
    client = subprocess.Popen(
        command_line(server, "--sigint-ignore=0"), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    try:
        os.write(ours, f"{LONG};\n".encode())
        wait_until(lambda: not server.is_idle(0.2), 20, "the statement runs")
        client.send_signal(signal.SIGINT)
        # The client has to connect once more for its KILL.
        wait_until(lambda: server.is_idle(0.3), 20, "the statement ends")
    finally:
        client.kill()
        client.wait()
        os.close(ours)


# MySQL's connector and SQLAlchemy.


def connector(server: Server, **options: object) -> mysql.connector.MySQLConnection:
    """A connection of MySQL's own connector, in Python."""
    settings = {"host": "127.0.0.1", "port": server.port, "user": "tester", "password": "x", "database": "sky"}
    return mysql.connector.connect(**settings, use_pure=True, ssl_disabled=True, **options)  # type: ignore[no-any-return]


@pytest.mark.parametrize("plugin", ["mysql_native_password", "caching_sha2_password", "mysql_clear_password"])
def test_mysqls_connector(server: Server, plugin: str) -> None:
    try:
        connected = connector(server, auth_plugin=plugin)
    except mysql.connector.Error as error:
        # The client's own rule: no plain password without TLS.
        assert plugin == "mysql_clear_password", error
        return
    with connected, connected.cursor() as cursor:
        cursor.execute("SELECT id, price, day, at, txt FROM Extremes WHERE id = 3")
        assert cursor.fetchall() == [
            (3, decimal.Decimal("0.000"), datetime.date(2000, 2, 29), datetime.datetime(2000, 2, 29, 12, 30, 15), "")
        ]
        connected.cmd_reset_connection()
        connected.cmd_change_user("other", "secret", "sky")
        cursor.execute("SELECT USER()")
        assert cursor.fetchall() == [("other@127.0.0.1",)]
        assert connected.cmd_statistics()["Threads"]
        connected.ping()


def test_mysqls_connector_reads_several_answers(server: Server) -> None:
    with connector(server) as connected, connected.cursor() as cursor:
        cursor.execute("SELECT 1; SELECT 2, 3")
        answers = []
        while True:
            answers.append(cursor.fetchall())
            if not cursor.nextset():
                break
        assert answers == [[(1,)], [(2, 3)]]


def test_sqlalchemy(server: Server) -> None:
    engine = sqlalchemy.create_engine(f"mysql+pymysql://tester@127.0.0.1:{server.port}/sky?charset=utf8mb4")
    inspector = sqlalchemy.inspect(engine)
    assert "sky" in inspector.get_schema_names()
    assert {"Object", "Source", "Extremes"} <= set(inspector.get_table_names())
    assert inspector.get_pk_constraint("Object")["constrained_columns"] == ["objectId"]
    assert not inspector.get_foreign_keys("Source") and not inspector.get_view_names()
    objects = sqlalchemy.Table("Object", sqlalchemy.MetaData(), autoload_with=engine)
    assert isinstance(objects.c.objectId.type, sqlalchemy.BigInteger)
    query = sqlalchemy.select(objects.c.objectId, objects.c.ra_PS).where(objects.c.decl_PS > 0).order_by(objects.c.objectId).limit(5)
    with engine.connect() as connected:
        rows = connected.execute(query).fetchall()
        assert len(rows) == 5 and rows == sorted(rows)
        assert connected.execute(sqlalchemy.text("SELECT :a + 1"), {"a": 41}).scalar() == 42
    with engine.connect().execution_options(isolation_level="READ COMMITTED") as connected:
        assert connected.execute(sqlalchemy.text("SELECT @@transaction_isolation")).scalar() == "READ-COMMITTED"
    engine.dispose()


# Much at once.


def test_answers_larger_than_memory_stream(meridian: Meridian, data: Path) -> None:
    rows, width = 400_000, 3_000
    statement = f"SELECT a.objectId, REPEAT('x', {width}) FROM Object a, Object b LIMIT {rows}"
    with serving(meridian, data, "--memory", "200M", "--cache", "0", "--threads", "2") as server:
        with server.connect(database="sky", cursorclass=pymysql.cursors.SSCursor) as connected:
            cursor = connected.cursor()
            cursor.execute(statement)
            most = count = 0
            for row in cursor:
                assert len(row[1]) == width
                count += 1
                if count % 10_000 == 0:
                    most = max(most, server.resident_bytes())
                if count == 50_000:
                    # Nobody takes rows: none are made.
                    assert_still(server)
        assert count == rows
    assert most < 700 << 20, f"{most >> 20} MiB for an answer of {rows * width >> 20} MiB"


def test_long_values_cross_packets(connection: pymysql.connections.Connection) -> None:
    text = "x" * (17 << 20)
    assert execute(connection, f"SELECT '{text}' AS t, length('{text}') AS n") == [(text, len(text))]


def test_two_hundred_connections_at_once(server: Server) -> None:
    failures: list[object] = []

    def use(number: int) -> None:
        try:
            with server.connect(database="sky") as connected:
                for at in range(5):
                    assert execute(connected, f"SELECT {number} + {at}") == [(number + at,)]
                    execute(connected, "SELECT count(*), sum(flags) FROM Object")
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
    assert not failures, failures[:3]
    wait_until(lambda: "Threads: 1 " in server_line(server), 10, "all have left")


def server_line(server: Server) -> str:
    """What the server says of itself."""
    with connector(server) as connected:
        statistics = connected.cmd_statistics()
    return f"Threads: {statistics['Threads']} "


def test_every_line_of_a_statements_log_has_its_number(server: Server, connection: pymysql.connections.Connection) -> None:
    rejected(connection, "SELECT nosuch FROM Object")
    wait_until(lambda: "no column nosuch" in server.log, 20, "it is logged")
    line = next(line for line in server.logged if "a statement ended" in line and "no column nosuch" in line)
    assert re.search(r"connection\{.*id.*\}.*statement\{.*query.*\}", re.sub(r"\x1b\[[0-9;]*m", "", line)), line


def test_json_documents_are_made(connection: pymysql.connections.Connection) -> None:
    for expression, expected in {
        "JSON_ARRAY()": "[]",
        "JSON_OBJECT()": "{}",
        "JSON_ARRAY(1, 'a\"b', NULL, 0.5, TRUE, 1 > 2, JSON_ARRAY('c'))": '[1, "a\\"b", null, 0.5, true, false, ["c"]]',
        "JSON_OBJECT('bb', 1, 'a', JSON_EXTRACT('{\"k\": [1,2]}', '$.k'), 'bb', 'last')": '{"a": [1, 2], "bb": "last"}',
        "JSON_OBJECT('day', DATE '2010-06-15', 'time', TIMESTAMP '2010-06-15 01:02:03')": '{"day": "2010-06-15", "time": "2010-06-15 01:02:03.000000"}',
        "JSON_ARRAY(JSON_EXTRACT('{}', '$.a'))": "[null]",
    }.items():
        assert execute(connection, f"SELECT {expression} AS made") == [(expected,)], expression
    rows = "(SELECT 1 AS g, 'p' AS k, 1 AS v UNION ALL SELECT 1, 'q', NULL UNION ALL SELECT 2, 'p', 5) AS t"
    assert execute(connection, f"SELECT g, JSON_OBJECTAGG(k, v), JSON_LENGTH(JSON_ARRAYAGG(v)) FROM {rows} GROUP BY g ORDER BY g") == [
        (1, '{"p": 1, "q": null}', 2),
        (2, '{"p": 5}', 1),
    ]
    assert execute(connection, f"SELECT JSON_ARRAYAGG(v), JSON_OBJECTAGG(k, v) FROM {rows} WHERE g > 9") == [(None, None)]
    for wrong, number in {"JSON_OBJECT('a')": 1582, "JSON_ARRAYAGG(1, 2)": 1582, "JSON_OBJECT(NULL, 1)": 1105}.items():
        assert rejected(connection, f"SELECT {wrong}")[0] == number, wrong
