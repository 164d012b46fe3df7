"""Statements that change tables of users' own, over HTTP (`POST /sql`) and by the command line at a server: they do what they do by MySQL's protocol."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pymysql
import pytest
import requests

from meridian_cli import Meridian
from serving import serving, wait_until
from small_tables import load_stars_and_bands
from test_server_client import run, told
from test_users import PASSWORD, Site, must, site_of_ann_and_bob

STARS = 300


@pytest.fixture(scope="module")
def site(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_of_ann_and_bob(meridian, tmp_path_factory.mktemp("changes-http"), STARS) as site:
        yield site


@pytest.fixture
def ann(site: Site) -> Iterator[pymysql.connections.Connection]:
    """Ann's connection; her tables are dropped afterwards."""
    with site.connect("ann", database="ann") as connection, connection.cursor() as cursor:
        yield connection
        cursor.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'ann'")
        for (table,) in cursor.fetchall():
            cursor.execute(f"DROP TABLE ann.`{table}`")


def send(site: Site, statement: str, name: str = "ann", **options: object) -> requests.Response:
    body = {"statement": statement, **options}
    return requests.post(site.server.url("/sql", format="csv"), json=body, auth=(name, PASSWORD), timeout=120)


def changed(site: Site, statement: str, **options: object) -> int:
    answer = send(site, statement, **options)
    assert answer.status_code == 200 and answer.headers["Content-Type"] == "application/json", (statement, answer.text)
    assert set(answer.json()) == {"rows_changed"}
    return int(answer.json()["rows_changed"])


def rows(connection: pymysql.connections.Connection, statement: str) -> list[tuple[object, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return sorted(cursor.fetchall(), key=repr)


# `{0}` is the table's name.
STATEMENTS = (
    "CREATE TABLE {0} AS SELECT id, ra, `dec`, version FROM sky.Star WHERE id < 50",
    "CREATE TABLE IF NOT EXISTS {0} (a INT)",
    "INSERT INTO {0} VALUES (1000, 10, 20, 3), (1001, 11, 21, 4)",
    "INSERT INTO {0} (id, ra, `dec`, version) SELECT id + 2000, ra, `dec`, 7 FROM sky.Star WHERE id BETWEEN 10 AND 19",
    "UPDATE {0} SET version = 7 WHERE id >= 1000",
    "UPDATE {0} SET version = version + 1, ra = ra WHERE id < 3",
    "DELETE FROM {0} WHERE id BETWEEN 20 AND 29",
    "ALTER TABLE {0} ADD COLUMN note VARCHAR(8) DEFAULT 'none'",
    "UPDATE {0} SET note = CONCAT('n', id) WHERE id < 5",
    "ALTER TABLE {0} RENAME COLUMN note TO remark",
    "ALTER TABLE {0} PARTITION BY NONE",
    "RENAME TABLE {0} TO {0}_b",
    "CREATE TABLE {0} LIKE {0}_b",
    "INSERT INTO {0} SELECT * FROM {0}_b",
    "DELETE FROM {0}_b",
    "TRUNCATE TABLE {0}_b",
    "ALTER TABLE {0} EXPIRE NEVER",
    "CREATE TABLE {0}_c (id BIGINT NOT NULL, at DATETIME, m DECIMAL(8,2))",
    "INSERT INTO {0}_c VALUES (1, '2026-11-20 08:00:00', 1.256), (2, NULL, -3)",
    "DROP TABLE {0}_b",
    "DROP TABLE IF EXISTS {0}_b",
)


def test_each_statement_does_what_it_does_by_mysql(site: Site, ann: pymysql.connections.Connection) -> None:
    """The same rows, and as many changed."""
    for statement in STATEMENTS:
        with ann.cursor() as cursor:
            expected = cursor.execute(statement.format("m"))
        assert changed(site, statement.format("h"), database="ann") == expected, statement
        tables = {str(name) for (name,) in rows(ann, "SHOW TABLES")}
        assert {name.replace("h", "m") for name in tables if name[0] == "h"} == {name for name in tables if name[0] == "m"}
        for name in (name for name in tables if name[0] == "m"):
            assert rows(ann, f"SELECT * FROM {name}") == rows(ann, f"SELECT * FROM {name.replace('m', 'h', 1)}"), (statement, name)
    with ann.cursor() as cursor:
        assert [cursor.execute(f"SELECT * FROM {name}") for name in ("h", "h_c")] == [52, 2]


def test_tables_are_in_the_own_database_if_none_is_named(site: Site, ann: pymysql.connections.Connection) -> None:
    assert changed(site, "CREATE TABLE t AS SELECT id FROM sky.Star WHERE id < 4") == 4
    assert changed(site, "DELETE FROM t WHERE id = 0", database="") == 1
    assert rows(ann, "SELECT id FROM ann.t") == [(1,), (2,), (3,)]
    refused = send(site, "INSERT INTO t VALUES (9)", database="sky")
    assert refused.status_code == 403 and "`ann`.t" in refused.json()["error"]


def test_mistakes_are_told_with_their_numbers(site: Site, ann: pymysql.connections.Connection) -> None:
    changed(site, "CREATE TABLE t (id INT NOT NULL)")
    for statement, status, code, words in [
        ("CREATE TABLE t (id INT)", 409, 1050, "already"),
        ("INSERT INTO t VALUES ('many')", 400, 1366, "many"),
        ("INSERT INTO t VALUES (NULL)", 400, 1048, "id"),
        ("INSERT INTO nothing VALUES (1)", 404, 1146, "ann.nothing"),
        ("DROP TABLE nothing", 400, 1051, "ann.nothing"),
        ("UPDATE t SET a = 1", 400, 1054, "a"),
        ("CREATE TABLE u AS SELECT raa FROM sky.Star", 400, 1054, "did you mean ra?"),
        ("DROP TABLE sky.Star", 403, 1142, "own database"),
        ("DELETE FROM bob.t", 403, 1142, "own database"),
        ("INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)", 400, 1064, "one statement"),
        ("LOAD DATA LOCAL INFILE 'x' INTO TABLE t", 400, 1235, "/load/NAME"),
        ("GRANT SELECT ON ann.t TO bob", 400, 1235, "GRANT is for connections"),
        ("CREATE TABLE", 400, 1064, ""),
    ]:
        answer = send(site, statement)
        told = answer.json()
        assert (answer.status_code, told["code"]) == (status, code) and words in told["error"], (statement, answer.status_code, told)
    for path, body in (("query", {"query": "DROP TABLE t"}), ("queries", {"statement": "DROP TABLE t"})):
        refused = requests.post(site.server.url(f"/{path}"), json={**body, "database": "ann"}, auth=("ann", PASSWORD), timeout=30)
        assert "POST /sql" in refused.json()["error"]
    assert rows(ann, "SHOW TABLES") == [("t",)] and rows(ann, "SELECT * FROM t") == []
    anonymous = requests.post(site.server.url("/sql"), json={"statement": "DROP TABLE ann.t"}, timeout=30)
    assert anonymous.status_code == 401


def test_what_is_stopped_changes_nothing(site: Site, ann: pymysql.connections.Connection) -> None:
    """By its time limit, by KILL, and by a client that hangs up."""
    slow = "CREATE TABLE t AS SELECT SLEEP(60) AS s"
    late = send(site, slow, time_limit=0.3)
    assert late.status_code == 400 and late.json()["code"] == 3024

    def runs() -> list[tuple[object, ...]]:
        return rows(ann, "SELECT ID FROM information_schema.PROCESSLIST WHERE INFO LIKE 'CREATE TABLE t%'")

    wait_until(lambda: not runs(), 20, "the statement ends at its limit")
    body = json.dumps({"statement": slow})
    token = must(site.meridian, site.data, "token", "ann").split()
    bearer = next(word for word in token if word.startswith("mrd_"))
    head = f"POST /sql HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {bearer}\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", site.server.http_port), timeout=60) as connection:
        connection.sendall((head + body).encode())
        wait_until(lambda: len(runs()) == 1, 20, "the statement runs")
    wait_until(lambda: not runs(), 20, "the statement ends with its client")
    with socket.create_connection(("127.0.0.1", site.server.http_port), timeout=60) as connection:
        connection.sendall((head + body).encode())
        wait_until(lambda: len(runs()) == 1, 20, "the statement runs")
        ((number,),) = runs()
        with ann.cursor() as cursor:
            cursor.execute(f"KILL QUERY {number}")
        assert b"1317" in connection.recv(1 << 16)
    assert rows(ann, "SHOW TABLES") == []


def test_owners_are_warned(site: Site, ann: pymysql.connections.Connection) -> None:
    changed(site, "CREATE TABLE t (id INT)")
    answer = send(site, "ALTER TABLE t EXPIRE INTERVAL 3 DAY")
    (warning,) = json.loads(answer.headers["Meridian-Warnings"])
    day = f"{datetime.now(UTC) + timedelta(days=3):%Y-%m-%d}"
    assert "ann.t is removed after" in warning and day in warning


def test_limits_hold(site: Site, ann: pymysql.connections.Connection) -> None:
    changed(site, "CREATE TABLE t AS SELECT id FROM sky.Star")
    must(site.meridian, site.data, "limit", "ann", "--stored", "1")
    try:
        full = send(site, "INSERT INTO t SELECT id FROM sky.Star")
        assert full.json()["code"] == 1226 and "DROP TABLE makes room" in full.json()["error"]
    finally:
        must(site.meridian, site.data, "limit", "ann", "--stored", "none")
    assert rows(ann, "SELECT COUNT(*) FROM t") == [(STARS,)]


def test_the_command_line_changes_tables_of_a_server(meridian: Meridian, site: Site, ann: pymysql.connections.Connection) -> None:
    def sql(*words: object) -> tuple[int, list[str], list[str]]:
        done = run(meridian, "sql", "--server", site.server.url(""), "--user", "ann", "--format", "csv", *words, MERIDIAN_PASSWORD=PASSWORD)
        return done.returncode, done.stdout.splitlines(), told(done.stderr)

    several = "CREATE TABLE ann.t AS SELECT id FROM sky.Star WHERE id < 3; INSERT INTO ann.t VALUES (7); SELECT id FROM ann.t ORDER BY id; DELETE FROM ann.t"
    assert sql(several) == (0, ["id", "0", "1", "2", "7"], ["3 rows changed", "1 row changed", "4 rows", "4 rows changed"])
    assert sql("--quiet", "INSERT INTO ann.t VALUES (8)") == (0, [], [])
    status, _, (error, *_) = sql("--db", "sky", "DROP TABLE Star")
    assert status == 1 and "error 1142 (42000)" in error and "own database" in error
    assert rows(ann, "SELECT * FROM t") == [(8,)]


def test_without_users_nobody_has_tables(meridian: Meridian, site: Site, tmp_path_factory: pytest.TempPathFactory) -> None:
    data = load_stars_and_bands(meridian, tmp_path_factory.mktemp("no-users"), 20)
    with serving(meridian, data) as server:
        answer = requests.post(server.url("/sql"), json={"statement": "CREATE TABLE t (id INT)"}, timeout=30)
        assert answer.status_code == 403 and answer.json()["code"] == 1290 and "meridian user add" in answer.json()["error"]
