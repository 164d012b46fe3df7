"""UPDATE, DELETE, TRUNCATE, ALTER TABLE and CREATE TABLE with columns, of tables of users' own: beside MariaDB with the same rows, by many
connections at once, and killed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from meridian_cli import Meridian
from serving import serving
from small_tables import load_stars_and_bands
from test_users import PASSWORD, Site, must
from testbed.mariadb import SERVER as MARIADB_SERVER
from testbed.mariadb import MariaDB

SEED = int(os.environ.get("MERIDIAN_SEED", "20261126"))
ROUNDS = int(os.environ.get("MERIDIAN_CHANGES", "60"))


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    """The server with which statements are compared."""
    if not Path(MARIADB_SERVER).exists() or shutil.which("mariadb-install-db") is None:
        pytest.skip("MariaDB is not installed: run scripts/setup tests.")
    server = MariaDB(tmp_path_factory.mktemp("mariadb"))
    server.do("CREATE DATABASE ann")
    server.do("USE ann")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def site(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Ann may read the database sky; the administrator is boss."""
    data = load_stars_and_bands(meridian, tmp_path_factory.mktemp("changes"), 400)
    must(meridian, data, "add", "boss", "--admin", password=PASSWORD)
    must(meridian, data, "add", "ann", password=PASSWORD)
    must(meridian, data, "grant", "ann", "--read", "sky")
    with serving(meridian, data) as server:
        yield Site(meridian, data, server)


@pytest.fixture
def ann(site: Site) -> Iterator[pymysql.connections.Connection]:
    """Ann's connection; her tables are dropped afterwards."""
    with site.connect("ann", database="ann") as connection:
        yield connection
    with site.connect("ann") as connection:
        for (table,) in execute(connection, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'ann'"):
            connection.cursor().execute(f"DROP TABLE ann.`{table}`")


def execute(connection: pymysql.connections.Connection, statement: str) -> list[tuple[object, ...]]:
    cursor = connection.cursor()
    cursor.execute(statement)
    return sorted(cursor.fetchall(), key=repr)


def number(connection: pymysql.connections.Connection, statement: str) -> tuple[int, str]:
    """MySQL's number of the error, and the sentence."""
    with pytest.raises(pymysql.err.MySQLError) as rejected:
        connection.cursor().execute(statement)
    return int(rejected.value.args[0]), str(rejected.value.args[1])


def do(connection: pymysql.connections.Connection, statement: str) -> int:
    """The rows that a statement has changed."""
    return connection.cursor().execute(statement)


# The columns of the table that random statements change.
COLUMNS = {"id": "BIGINT NOT NULL", "n": "INT", "d": "DOUBLE", "price": "DECIMAL(12,3)", "name": "VARCHAR(40)", "day": "DATE", "at": "DATETIME"}


class Statements:
    """Random statements about a table t of these columns."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.next_id = 0

    def value(self, column: str) -> str:
        if column != "id" and self.random.random() < 0.15:
            return "NULL"
        value = self.random.randrange(-40, 40)
        return {
            "id": str(abs(value)),
            "n": str(value),
            "d": f"{value / 8!r}e0",
            "price": f"{value / 4:.3f}",
            "name": f"'{self.random.choice(['a', 'Ab', 'b c', '', 'it''s'])}{value % 5}'",
            "day": f"'2026-0{value % 9 + 1}-1{value % 10}'",
            "at": f"'2026-0{value % 9 + 1}-1{value % 10} 0{value % 10}:30:00'",
        }[column]

    def row(self) -> str:
        self.next_id += 1
        return f"({self.next_id}, {', '.join(self.value(column) for column in list(COLUMNS)[1:])})"

    def condition(self) -> str:
        column = self.random.choice(list(COLUMNS))
        kind = self.random.randrange(7)
        if kind == 0:
            return f"{column} IS NULL"
        if kind == 1:
            return f"{column} IN ({self.value(column)}, {self.value(column)})"
        if kind == 2:
            return f"({self.condition()} {self.random.choice(['AND', 'OR'])} {self.condition()})"
        if kind == 3:
            return f"NOT ({self.condition()})"
        if kind == 4:
            return f"id % {self.random.randrange(2, 6)} = 1"
        if kind == 5:
            return "id IN (SELECT other.id FROM u AS other WHERE other.n > 0)"
        return f"{column} {self.random.choice(['=', '<', '>=', '<>'])} {self.value(column)}"

    def expression(self, column: str) -> str:
        kinds = {
            "id": ["id + 1000", "id * 2", "id"],
            "n": ["n + 1", "id % 7 - 3", "IF(n > 0, -n, 5)", "CHAR_LENGTH(name)", "n"],
            "d": ["d * 2", "n / 4e0", "COALESCE(d, 0) + 0.5e0", "SQRT(ABS(n))"],
            "price": ["price + 1.5", "price * 2", "n"],
            "name": ["CONCAT(name, 'x')", "UPPER(name)", "COALESCE(name, 'none')", "LEFT(name, 2)"],
            "day": ["day + INTERVAL 3 DAY", "DATE(at)", "day"],
            "at": ["at + INTERVAL 90 MINUTE", "at", "TIMESTAMP(day)"],
        }[column]
        return self.random.choice([*kinds, self.value(column)])

    def statement(self) -> str:
        kind = self.random.randrange(10)
        if kind < 3:
            return f"INSERT INTO t VALUES {', '.join(self.row() for _ in range(self.random.randrange(1, 9)))}"
        where = f" WHERE {self.condition()}" if self.random.random() < 0.9 else ""
        if kind < 8:
            columns = self.random.sample(list(COLUMNS)[1:], self.random.randrange(1, 4))
            assigned = ", ".join(f"{column} = {self.expression(column)}" for column in columns)
            return f"UPDATE t SET {assigned}{where}"
        return f"DELETE FROM t{where if self.random.random() < 0.97 else ''}"


@pytest.mark.parametrize("seed", [SEED, SEED + 1, SEED + 2])
def test_random_changes_beside_mariadb(ann: pymysql.connections.Connection, mariadb: MariaDB, seed: int) -> None:
    """Rows, and how many each statement has changed."""
    declared = ", ".join(f"{name} {declared}" for name, declared in COLUMNS.items())
    statements = Statements(seed)
    begin = [f"CREATE TABLE t ({declared})", "CREATE TABLE u (id BIGINT, n INT)", "INSERT INTO u VALUES (1, 5), (2, -5), (3, 7), (4, NULL)"]
    begin.append(f"INSERT INTO t VALUES {', '.join(statements.row() for _ in range(25))}")
    mariadb.do("DROP TABLE IF EXISTS t, u")
    for statement in begin:
        do(ann, statement)
        mariadb.do(statement)
    for _ in range(ROUNDS):
        statement = statements.statement()
        try:
            with mariadb.connection.cursor() as cursor:
                expected = cursor.execute(statement)
        except pymysql.MySQLError as error:
            # What MariaDB rejects changes nothing on either side.
            with pytest.raises(pymysql.MySQLError):
                do(ann, statement)
            assert error.args[0] in (1264, 1048), f"{statement}: {error}"
            continue
        changed = do(ann, statement)
        # MariaDB counts a NULL that is computed anew as another value.
        assert changed <= expected and (changed == expected or statement.startswith("UPDATE")), statement
        query = f"SELECT {', '.join(COLUMNS)} FROM t"
        assert execute(ann, query) == sorted(mariadb.execute(query).rows, key=repr), statement


def test_values_are_assigned_from_left_to_right(ann: pymysql.connections.Connection) -> None:
    do(ann, "CREATE TABLE t (a INT, b INT)")
    do(ann, "INSERT INTO t VALUES (1, 10), (2, 20)")
    assert do(ann, "UPDATE t SET a = a + 1, b = a * 100 WHERE t.a = 2") == 1
    assert execute(ann, "SELECT * FROM t") == [(1, 10), (3, 300)]
    assert do(ann, "UPDATE t AS x SET x.b = x.a, a = 0") == 2
    assert execute(ann, "SELECT * FROM t") == [(0, 1), (0, 3)]
    assert do(ann, "UPDATE t SET a = 0 WHERE b > 0") == 0
    # A subquery reads the table as it was before the statement.
    assert do(ann, "UPDATE t SET a = 5, b = (SELECT MAX(b) FROM t) WHERE b = 1") == 1
    assert execute(ann, "SELECT * FROM t") == [(0, 3), (5, 3)]
    assert do(ann, "UPDATE t SET a = 0, b = (SELECT MAX(b) FROM ann.t) WHERE a = 5") == 1
    assert execute(ann, "SELECT * FROM t") == [(0, 3), (0, 3)]


def test_who_counts_matched_rows_gets_them(site: Site, ann: pymysql.connections.Connection) -> None:
    do(ann, "CREATE TABLE t AS SELECT id FROM sky.Star WHERE id < 10")
    assert do(ann, "UPDATE t SET id = 5 WHERE id < 6") == 5
    with site.connect("ann", database="ann", client_flag=pymysql.constants.CLIENT.FOUND_ROWS) as connection:
        assert do(connection, "UPDATE t SET id = 5 WHERE id < 6") == 6


def test_tables_with_columns(site: Site, ann: pymysql.connections.Connection) -> None:
    statement = "CREATE TABLE t (id BIGINT NOT NULL, ra DOUBLE, `dec` DOUBLE, note VARCHAR(20), taken DATETIME) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"
    assert do(ann, statement) == 0
    assert number(ann, statement)[0] == 1050
    assert do(ann, statement.replace("TABLE t", "TABLE IF NOT EXISTS t")) == 0
    assert execute(ann, "SELECT COUNT(*) FROM t") == [(0,)]
    shown = dict((row[0], row[1:3]) for row in execute(ann, "SHOW COLUMNS FROM t"))
    assert shown == {"id": ("bigint", "NO"), "ra": ("double", "YES"), "dec": ("double", "YES"), "note": ("varchar(20)", "YES"), "taken": ("datetime", "YES")}
    assert do(ann, "INSERT INTO t (id, ra, `dec`, taken) SELECT id, ra, `dec`, '2026-11-20 08:00:00' FROM sky.Star") == 400
    # It has positions, and is crossmatched.
    assert execute(ann, "SELECT COUNT(*) FROM crossmatch(ann.t, sky.Star, 0.5)") == [(400,)]
    code, sentence = number(ann, "INSERT INTO t (ra) VALUES (1)")
    assert code == 1364 and "id" in sentence, (code, sentence)
    assert number(ann, "UPDATE t SET id = NULL")[0] == 1048
    code, sentence = number(ann, "UPDATE t SET ra = 'far away'")
    assert code == 1366 and '"far away" is not a valid' in sentence, sentence
    assert execute(ann, "SELECT COUNT(*), COUNT(note) FROM t") == [(400, 0)]


def test_columns_come_and_go(ann: pymysql.connections.Connection) -> None:
    do(ann, "CREATE TABLE t AS SELECT id, ra FROM sky.Star WHERE id < 4")
    do(ann, "ALTER TABLE t ADD COLUMN n INT, ADD label VARCHAR(10) DEFAULT 's', ADD COLUMN half DOUBLE DEFAULT 0.5")
    do(ann, "UPDATE t SET label = CONCAT(label, id)")
    assert execute(ann, "SELECT id, n, label, half FROM t") == [(n, None, f"s{n}", 0.5) for n in range(4)]
    do(ann, "ALTER TABLE t RENAME COLUMN label TO tag, DROP COLUMN n, DROP half")
    assert [row[0] for row in execute(ann, "SHOW COLUMNS FROM t")] == ["id", "ra", "tag"]
    assert execute(ann, "SELECT tag FROM t WHERE id = 2") == [("s2",)]
    for statement, code in {
        "ALTER TABLE t ADD id INT": 1060,
        "ALTER TABLE t DROP nothing": 1091,
        "ALTER TABLE t RENAME COLUMN nothing TO x": 1054,
        "ALTER TABLE t RENAME COLUMN id TO ra": 1060,
        "ALTER TABLE t DROP id, DROP ra, DROP tag": 1090,
        "ALTER TABLE t ADD x NONSENSE": 1064,
        "ALTER TABLE nothing ADD x INT": 1146,
    }.items():
        assert number(ann, statement)[0] == code, statement
    assert do(ann, "TRUNCATE TABLE t") == 0
    assert execute(ann, "SELECT COUNT(*) FROM t") == [(0,)] and len(execute(ann, "SHOW COLUMNS FROM t")) == 3


def test_tables_are_renamed(site: Site, ann: pymysql.connections.Connection) -> None:
    """With their rows of several parts, columns, lengths and defaults; the old name is free again."""
    do(ann, "CREATE TABLE t (id INT NOT NULL, ra DOUBLE, `dec` DOUBLE, s VARCHAR(4) DEFAULT 'new')")
    for n in range(3):
        do(ann, f"INSERT INTO t (id, ra, `dec`) VALUES ({n}, {n}, 5)")
    do(ann, "CREATE TABLE other AS SELECT 1 AS x")
    before = execute(ann, "SELECT * FROM t")
    assert do(ann, "RENAME TABLE t TO u") == 0
    assert execute(ann, "SELECT * FROM u") == before and number(ann, "SELECT * FROM t")[0] == 1146
    assert do(ann, "INSERT INTO u (id) VALUES (7)") == 1 and number(ann, "INSERT INTO u (id, s) VALUES (8, 'abcde')")[0] == 1406
    assert execute(ann, "SELECT s FROM u WHERE id = 7") == [("new",)]
    assert execute(ann, "SELECT COUNT(*) FROM crossmatch(ann.u, ann.u, 0.1)") == [(3,)]
    do(ann, "CREATE TABLE t AS SELECT 5 AS x")
    do(ann, "ALTER TABLE ann.u RENAME TO ann.`two words`")
    assert execute(ann, "SELECT COUNT(*) FROM `two words`") == [(4,)] and execute(ann, "SELECT x FROM t") == [(5,)]
    for statement, code in {
        "RENAME TABLE t TO other": 1050,
        "RENAME TABLE nothing TO x": 1146,
        "RENAME TABLE t TO sky.t": 1142,
        "RENAME TABLE sky.Band TO b": 1142,
        "RENAME TABLE t TO x, other TO t": 1235,
    }.items():
        assert number(ann, statement)[0] == code, statement
    with site.connect("boss") as boss:
        assert number(boss, "RENAME TABLE sky.Star TO sky.x")[0] == 1290
        assert number(boss, "RENAME TABLE ann.t TO sky.x")[0] == 1235
    assert execute(ann, "SHOW TABLES FROM ann") == [("other",), ("t",), ("two words",)]


def test_mistakes_change_nothing(site: Site, ann: pymysql.connections.Connection) -> None:
    do(ann, "CREATE TABLE t AS SELECT id, ra FROM sky.Star WHERE id < 4")
    before = execute(ann, "SELECT * FROM t")
    for statement, code in {
        "UPDATE t SET nothing = 1": 1054,
        "UPDATE t SET ra = nothing": 1054,
        "UPDATE t SET ra = 1 WHERE nothing = 2": 1054,
        "UPDATE nothing SET ra = 1": 1146,
        "UPDATE t SET ra = 1 LIMIT 2": 1235,
        "UPDATE t, t AS u SET t.ra = 1": 1235,
        "UPDATE t SET": 1064,
        "DELETE FROM t ORDER BY ra LIMIT 1": 1235,
        "DELETE FROM t WHERE": 1064,
        "DELETE FROM sky.Star": 1142,
        "UPDATE sky.Star SET ra = 1": 1142,
        "TRUNCATE sky.Band": 1142,
        "UPDATE t SET id = 9223372036854775807 + id": 1690,
    }.items():
        found, sentence = number(ann, statement)
        assert found == code, f"{statement}: {sentence}"
    assert execute(ann, "SELECT * FROM t") == before
    with site.connect("boss") as boss:
        code, sentence = number(boss, "UPDATE sky.Star SET ra = 1")
        assert code == 1290 and "meridian load --replace" in sentence


def test_a_stored_result_becomes_a_table(ann: pymysql.connections.Connection) -> None:
    query = execute(ann, "SUBMIT SELECT id, ra FROM sky.Star WHERE id < 30")[0][0]
    for _ in range(200):
        if execute(ann, f"SELECT STATE FROM information_schema.QUERIES WHERE ID = {query}") == [("COMPLETED",)]:
            break
    assert do(ann, f"CREATE TABLE kept FROM RESULT {query}") == 30
    assert execute(ann, "SELECT COUNT(*), MAX(id) FROM kept") == [(30, 29)]


def test_changes_at_once_lose_nothing(site: Site, ann: pymysql.connections.Connection) -> None:
    """Each reads what it replaces: additions of many connections all count, beside rows that are inserted."""
    do(ann, "CREATE TABLE t AS SELECT 0 AS kind, 0 AS n")
    errors: list[object] = []

    def work(connection: pymysql.connections.Connection, statements: list[str]) -> None:
        try:
            for statement in statements:
                assert do(connection, statement) == 1, statement
        except (AssertionError, pymysql.MySQLError) as error:
            errors.append(error)

    work_of = [["UPDATE t SET n = n + 1 WHERE kind = 0"] * 6] * 3 + [[f"INSERT INTO t VALUES (1, {n})" for n in range(6)]]
    connections = [site.connect("ann", database="ann") for _ in work_of]
    threads = [threading.Thread(target=work, args=pair) for pair in zip(connections, work_of)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for connection in connections:
        connection.close()
    assert not errors, errors
    assert execute(ann, "SELECT n FROM t WHERE kind = 0") == [(18,)]
    assert execute(ann, "SELECT n FROM t WHERE kind = 1") == [(n,) for n in range(6)]


def test_killed_changes_leave_the_old_table_or_the_new_one(meridian: Meridian, tmp_path: Path) -> None:
    data = load_stars_and_bands(meridian, tmp_path, 50)
    must(meridian, data, "add", "ann", password=PASSWORD)
    must(meridian, data, "grant", "ann", "--read", "sky")
    count = 0
    for attempt in range(5):
        with serving(meridian, data) as server:
            site = Site(meridian, data, server)
            with site.connect("ann", database="ann") as connection:
                do(connection, "CREATE TABLE IF NOT EXISTS t AS SELECT id, 0 AS n FROM sky.Star")
                found = execute(connection, "SELECT MIN(n), MAX(n), COUNT(*) FROM t")
                # The statement under way when the server was killed is there or not, as a whole.
                assert found in ([(count, count, 50)], [(count + 1, count + 1, 50)]), found
                count = int(found[0][0])  # type: ignore[call-overload]
                killer = threading.Timer(0.3 + 0.13 * attempt, os.kill, (server.process.pid, signal.SIGKILL))
                killer.start()
                try:
                    while True:
                        assert do(connection, "UPDATE t SET n = n + 1") == 50
                        count += 1
                except pymysql.err.MySQLError:
                    pass
                killer.join()
    done = meridian.run("check", "--data", data)
    assert done.status == 0, done.complaint + done.text


