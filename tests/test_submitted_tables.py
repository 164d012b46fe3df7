"""Tables that submitted queries make: `SUBMIT CREATE TABLE ... AS SELECT`, also where the server is killed on the way."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from meridian_cli import Meridian
from serving import Server, serving, wait_until
from small_tables import load_stars_and_bands
from test_own_layouts import kind
from test_own_tables import number, rows
from test_users import PASSWORD, Site, must


class Faulty(Meridian):
    """The program, which kills itself in a phase of the first load."""

    fault = ""

    def start(self, *arguments: object, env: dict[str, str] | None = None, **options: object) -> subprocess.Popen[bytes]:
        return super().start(*arguments, env={**(env or {}), "MERIDIAN_FAULT": self.fault}, **options)


@pytest.fixture(scope="module")
def site(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    data = load_stars_and_bands(meridian, tmp_path_factory.mktemp("submitted"), 300)
    for name in ("ann", "bob"):
        must(meridian, data, "add", name, password=PASSWORD)
    must(meridian, data, "grant", "ann", "--read", "sky")
    with serving(meridian, data) as server:
        yield Site(meridian, data, server)


def ended(connection: pymysql.connections.Connection, query: object) -> tuple[object, ...]:
    """The state of a query that has ended, its error and its rows."""

    def state() -> tuple[object, ...]:
        (row,) = rows(connection, f"SELECT STATE, ERROR_CODE, ROWS FROM information_schema.QUERIES WHERE ID = {query}")
        return row

    wait_until(lambda: state()[0] in ("COMPLETED", "FAILED", "ABORTED"), 60, f"query {query} ends")
    return state()


def submit(connection: pymysql.connections.Connection, statement: str) -> object:
    (row,) = rows(connection, f"SUBMIT {statement}")
    return row[0]


def test_a_submitted_query_makes_a_table(site: Site) -> None:
    with site.connect("ann", database="ann") as ann:
        query = "SELECT id, ra, `dec` FROM sky.Star WHERE id < 200"
        # What a client shows of a result does not cut a table.
        ann.cursor().execute("SET sql_select_limit = 10")
        job = submit(ann, f"CREATE TABLE kept AS {query}")
        assert ended(ann, job) == ("COMPLETED", None, 200)
        ann.cursor().execute("SET sql_select_limit = DEFAULT")
        assert rows(ann, "SELECT * FROM kept") == rows(ann, query)
        assert kind(ann, "kept") == "child"
        assert rows(ann, f"SELECT * FROM qserv_result({job})") == rows(ann, query)
        (statement,) = rows(ann, f"SELECT STATEMENT FROM information_schema.QUERIES WHERE ID = {job}")
        assert statement == (f"CREATE TABLE kept AS {query}",)
        assert ended(ann, submit(ann, f"CREATE TABLE IF NOT EXISTS kept AS {query}")) == ("COMPLETED", None, 200)
        assert ended(ann, submit(ann, f"CREATE TABLE parted PARTITION BY DIRECTOR (id, ra, `dec`) AS {query}"))[0] == "COMPLETED"
        assert kind(ann, "parted") == "director"
        for wrong, code in {
            f"CREATE TABLE kept AS {query}": 1050,
            f"CREATE TABLE sky.kept AS {query}": 1142,
            "CREATE TABLE more AS SELECT nothing FROM sky.Star": 1054,
            "CREATE TABLE more (id INT)": 1290,
            "INSERT INTO kept VALUES (1, 2, 3)": 1290,
            "DROP TABLE kept": 1290,
            "CREATE TABLE more PARTITION BY HASH (id) AS SELECT 1": 1064,
        }.items():
            assert number(ann, f"SUBMIT {wrong}") == code, wrong
        failed = submit(ann, "CREATE TABLE twice PARTITION BY DIRECTOR (id, ra, `dec`) AS SELECT 1 AS id, ra, `dec` FROM sky.Star")
        assert ended(ann, failed)[:2] == ("FAILED", 1062)
        assert rows(ann, "SHOW TABLES FROM ann") == [("kept",), ("parted",)]
    with site.connect("bob") as bob:
        assert number(bob, f"SUBMIT CREATE TABLE kept AS {query}") == 1142


@pytest.mark.parametrize("phase", ["begun", "chunks-written", "before-publish", "after-publish"])
def test_a_table_is_there_once_though_the_server_is_killed(meridian: Meridian, tmp_path: Path, phase: str) -> None:
    data = load_stars_and_bands(meridian, tmp_path, 100)
    must(meridian, data, "add", "ann", password=PASSWORD)
    must(meridian, data, "grant", "ann", "--read", "sky")
    faulty = Faulty(meridian.binary)
    faulty.fault = f"{phase}:kill"
    server = Server(faulty, data)
    with server.connect(user="ann", password=PASSWORD, database="ann") as ann:
        job = submit(ann, "CREATE TABLE t AS SELECT id, ra, `dec` FROM sky.Star WHERE id < 80")
    server.process.wait(60)
    with serving(meridian, data) as server, server.connect(user="ann", password=PASSWORD, database="ann") as ann:
        assert ended(ann, job) == ("COMPLETED", None, 80)
        assert rows(ann, "SELECT COUNT(*), COUNT(DISTINCT id) FROM t") == [(80, 80)]
    meridian.must("check", "--data", data)
