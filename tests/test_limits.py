"""How much users may take: each limit by each protocol, what it says, and that it changes while the server runs."""

from __future__ import annotations

import json
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pymysql
import pytest

from meridian_cli import Meridian
from serving import SOON, serving, wait_until
from small_tables import load_stars_and_bands
from test_users import PASSWORD, Site, must, site_of_ann_and_bob, user

STARS = 400
LIMIT_REACHED = 1226


@pytest.fixture(scope="module")
def site(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_of_ann_and_bob(meridian, tmp_path_factory.mktemp("limits"), STARS) as site:
        yield site


@contextmanager
def limited(site: Site, whose: str, **limits: object) -> Iterator[None]:
    """Limits for as long as they are needed."""
    options = [word for name, value in limits.items() for word in (f"--{name}", value)]
    none = [word for name in limits for word in (f"--{name}", "none")]
    must(site.meridian, site.data, "limit", whose, *options)
    try:
        yield
    finally:
        must(site.meridian, site.data, "limit", whose, *none)


def execute(connection: pymysql.connections.Connection, statement: str) -> list[tuple[object, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def refused(connection: pymysql.connections.Connection, statement: str) -> str:
    """The sentence of a statement that reaches a limit."""
    with pytest.raises(pymysql.err.MySQLError) as raised:
        execute(connection, statement)
    number, sentence = raised.value.args
    assert number == LIMIT_REACHED, sentence
    return str(sentence)


@contextmanager
def sleeping(site: Site, name: str, count: int, statement: str = "SELECT SLEEP(30)") -> Iterator[list[int]]:
    """So many queries that run; they are ended afterwards. Gives the numbers of their connections."""
    connections = [site.connect(name) for _ in range(count)]
    numbers = [connection.thread_id() for connection in connections]

    def sleep(connection: pymysql.connections.Connection) -> None:
        try:
            execute(connection, statement)
        except pymysql.err.MySQLError:
            pass

    threads = [threading.Thread(target=sleep, args=(connection,)) for connection in connections]
    for thread in threads:
        thread.start()
    try:
        with site.connect("boss") as boss:
            running = f"SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = '{name}' AND INFO LIKE 'SELECT %SLEEP%'"
            wait_until(lambda: execute(boss, running) == [(count,)], 20, "they run")
        yield numbers
    finally:
        with site.connect("boss") as boss:
            for number in numbers:
                execute(boss, f"KILL QUERY {number}")
        for thread in threads:
            thread.join()
        for connection in connections:
            connection.close()


def post(site: Site, path: str, name: str, **body: object) -> tuple[int, str, dict[str, str]]:
    status, text, headers = site.http(path, name, method="POST", body=json.dumps(body).encode())
    return status, text, {key.lower(): value for key, value in headers.items()}


def used(site: Site, name: str) -> dict[str, tuple[int | None, int | None]]:
    """The limits and the use of each, as SHOW LIMITS and /me tell them."""

    def by_sql() -> dict[str, tuple[int | None, int | None]]:
        with site.connect(name) as connection:
            return {str(row[0]): (row[1], row[2]) for row in execute(connection, "SHOW LIMITS")}  # type: ignore[misc]

    def by_http() -> dict[str, tuple[int | None, int | None]]:
        told = json.loads(site.http("me", name)[1])
        assert told["user"] == name
        return {limit["name"]: (limit["limit"], limit["used"]) for limit in told["limits"]}

    def agreed() -> bool:
        """What is asked for by one counts for the other, and each is asked at a moment of its own."""
        shown = by_sql()
        told = by_http()
        found.append(shown)
        return all(shown[name] == told[name] for name in shown.keys() - {"connections", "requests"})

    found: list[dict[str, tuple[int | None, int | None]]] = []
    wait_until(agreed, 20, "both protocols tell the same")
    return found[-1]


def test_connections(site: Site) -> None:
    def has_place() -> bool:
        """The server may find out after the client that a connection has ended."""
        try:
            with site.connect("ann") as connection:
                return ("connections", 2, 2) in [row[:3] for row in execute(connection, "SHOW LIMITS")]
        except pymysql.err.MySQLError as error:
            assert error.args[0] == LIMIT_REACHED, error
            return False

    with limited(site, "ann", connections=2), site.connect("ann"):
        second = site.connect("ann")
        with pytest.raises(pymysql.err.MySQLError) as raised:
            site.connect("ann")
        assert raised.value.args[0] == LIMIT_REACHED and "2 of 2 MySQL connections" in raised.value.args[1]
        second.close()
        wait_until(has_place, 20, "the place is free")
        with site.connect("bob"):
            pass


def test_queries_that_run(site: Site) -> None:
    with limited(site, "ann", queries=2), sleeping(site, "ann", 2) as numbers, site.connect("ann") as third:
        sentence = refused(third, "SELECT COUNT(*) FROM sky.Star")
        assert "2 of 2 queries" in sentence and "KILL" in sentence
        refused(third, "CREATE TABLE mine AS SELECT * FROM sky.Band")
        for path, body in {"query": {"query": "SELECT 1"}, "tap/sync": None}.items():
            if body is None:
                status, text, headers = site.http(path, "ann", LANG="ADQL", QUERY="SELECT id FROM sky.Band")
                headers = {key.lower(): value for key, value in headers.items()}  # type: ignore[assignment]
            else:
                status, text, headers = post(site, path, "ann", **body)
            assert status == 429 and "2 of 2 queries" in text and int(headers["retry-after"]) > 0, (path, status, text)
        # What shows and ends them is never one too many, and others are not concerned.
        assert {row[0] for row in execute(third, "SHOW PROCESSLIST")} >= set(numbers)
        assert used(site, "ann")["queries"] == (2, 2)
        with site.connect("bob") as bob:
            assert execute(bob, "SELECT COUNT(*) FROM sky.Star") == [(STARS,)]
        execute(third, f"KILL QUERY {numbers[0]}")
        wait_until(lambda: used(site, "ann")["queries"] == (2, 1), 20, "one has ended")
        assert execute(third, "SELECT COUNT(*) FROM sky.Star") == [(STARS,)]


# Queries of each class that run until they are ended, and others of the class. Those of the other class, and submitted ones, are not concerned.
SCAN = "SELECT COUNT(*), SLEEP(600 + 0 * MAX(id)) FROM sky.Star WHERE ra > 0"
SHORT_SCANS = ["SELECT COUNT(*) FROM sky.Star WHERE version > -1", "SELECT id FROM sky.Star", "SELECT id FROM sky.Star ORDER BY ra LIMIT 3", "SELECT COUNT(*) FROM sky.Star a JOIN sky.Star b ON a.id = b.id"]
SHORT_INTERACTIVE = ["SELECT 1", "SELECT ra FROM sky.Star WHERE id = 3", "SELECT name FROM sky.Band", "SELECT ra FROM sky.Star WHERE qserv_areaspec_circle(10, 10, 0.1)"]
CLASSES = [
    # limit, what fills it, what it refuses, what it does not, words of the sentence
    ("interactive", "SELECT SLEEP(600)", SHORT_INTERACTIVE, SHORT_SCANS, "interactive queries, of few chunks", "KILL"),
    ("scans", SCAN, SHORT_SCANS, SHORT_INTERACTIVE, "scans, of more chunks", "SUBMIT"),
]


@pytest.mark.parametrize(("limit", "filling", "reached", "free", "words", "remedy"), CLASSES, ids=[row[0] for row in CLASSES])
def test_queries_of_a_class(site: Site, limit: str, filling: str, reached: list[str], free: list[str], words: str, remedy: str) -> None:
    """By each protocol, with kept plans and without; others, the other class, lists and submitted queries go on."""
    with site.connect("ann") as ann:
        # Their plans are kept from now on.
        for statement in [*reached, *free] * 3:
            execute(ann, statement)
    with limited(site, "ann", **{limit: 2}), site.connect("ann") as third:
        with sleeping(site, "ann", 2, filling) as numbers:
            wait_until(lambda: used(site, "ann")[limit] == (2, 2), 20, "both are counted")
            assert used(site, "ann")["queries"] == (None, 2)
            for statement in reached:
                for _ in range(2):
                    sentence = refused(third, statement)
                    assert f"2 of 2 {words}" in sentence and remedy in sentence and "SHOW LIMITS" in sentence, (statement, sentence)
                for path, body in (("sql", {"statement": statement}), ("query", {"query": statement})):
                    status, text, headers = post(site, path, "ann", **body)
                    assert status == 429 and f"2 of 2 {words}" in text and int(headers["retry-after"]) > 0, (path, statement, status, text)
            adql = "SELECT id FROM sky.Star" if limit == "scans" else "SELECT ra FROM sky.Star WHERE id = 3"
            status, text, lowered = site.http("tap/sync", "ann", LANG="ADQL", QUERY=adql)
            assert status == 429 and f"2 of 2 {words}" in text and int(lowered["Retry-After"]) > 0, (status, text)
            for statement in free:
                execute(third, statement)
                assert post(site, "sql", "ann", statement=statement)[0] == 200, statement
            assert {row[0] for row in execute(third, "SHOW PROCESSLIST")} >= set(numbers)
            with site.connect("bob") as bob:
                for statement in [*reached, *free]:
                    execute(bob, statement)
            number = execute(third, f"SUBMIT {reached[0]}")[0][0]
            with site.connect("boss") as boss:
                wait_until(lambda: state(boss, number)[0] == "COMPLETED", 60, "what is submitted runs")
            execute(third, f"KILL QUERY {numbers[0]}")
            wait_until(lambda: used(site, "ann")[limit] == (2, 1), 20, "one has ended")
            for statement in reached:
                execute(third, statement)
        wait_until(lambda: used(site, "ann")[limit] == (2, 0), 20, "none is counted")


def test_classes_are_within_all_queries(site: Site) -> None:
    """A place of a class is one of all queries, too, and none is left taken by what is refused for want of the other."""
    with limited(site, "ann", queries=1, interactive=0, scans=1), site.connect("ann") as ann:
        for _ in range(3):
            assert "0 of 0 interactive" in refused(ann, "SELECT 1")
            assert execute(ann, "SELECT COUNT(*) FROM sky.Star WHERE version > -1") == [(STARS,)]
        execute(ann, "SHOW LIMITS")
        found = used(site, "ann")
        assert (found["queries"], found["interactive"], found["scans"]) == ((1, 0), (0, 0), (1, 0))


def test_limits_are_set_by_sql(site: Site) -> None:
    with site.connect("boss") as boss, site.connect("ann") as ann:
        execute(boss, "ALTER USER ann LIMIT scans = 3, interactive 5, rows = 10")
        try:
            found = used(site, "ann")
            assert (found["scans"][0], found["interactive"][0], found["rows"][0]) == (3, 5, 10)
            assert "more than 10 rows" in refused(ann, "SELECT id FROM sky.Star")
            execute(boss, "ALTER USER PUBLIC LIMIT seconds = 77")
            assert used(site, "bob")["seconds"][0] == 77
            execute(boss, "CREATE ROLE quick")
            execute(boss, "GRANT quick TO bob")
            execute(boss, "ALTER USER quick LIMIT seconds = 7")
            assert (used(site, "bob")["seconds"][0], used(site, "ann")["seconds"][0]) == (7, 77)
            for statement, number in (
                ("ALTER USER nobody LIMIT rows = 5", 1396), ("ALTER USER ann LIMIT row = 5", 1525), ("ALTER USER ann LIMIT lifetime = 0", 1525), ("ALTER USER ann LIMIT rows = -5", 1064),
                ("ALTER USER ann LIMIT rows = 99999999999999999999", 1064), ("ALTER USER ann LIMIT rows = 9223372036854775808", 1525),
            ):  # fmt: skip
                with pytest.raises(pymysql.err.MySQLError) as raised:
                    execute(boss, statement)
                assert raised.value.args[0] == number, raised.value
            with pytest.raises(pymysql.err.MySQLError) as raised:
                execute(ann, "ALTER USER ann LIMIT rows = NONE")
            assert raised.value.args[0] == 1227
        finally:
            execute(boss, "ALTER USER ann LIMIT scans = NONE, interactive NONE, rows NONE")
            execute(boss, "ALTER USER PUBLIC LIMIT seconds NONE")
            execute(boss, "DROP ROLE IF EXISTS quick")
        assert len(execute(ann, "SELECT id FROM sky.Star")) == STARS


def test_submitted_queries(site: Site) -> None:
    with limited(site, "ann", submitted=2), site.connect("ann") as ann:
        first, second = (execute(ann, "SUBMIT SELECT SLEEP(30)")[0][0] for _ in range(2))
        assert "2 of 2 submitted queries" in refused(ann, "SUBMIT SELECT 1")
        status, text, headers = post(site, "queries", "ann", statement="SELECT 1")
        assert status == 429 and json.loads(text)["code"] == LIMIT_REACHED and "retry-after" in headers
        assert post(site, "query-async", "ann", query="SELECT 1")[0] == 429
        assert used(site, "ann")["submitted"] == (2, 2)
        execute(ann, f"CANCEL {first}")
        third = execute(ann, "SUBMIT SELECT COUNT(*) FROM sky.Star")[0][0]
        wait_until(lambda: state(ann, third)[0] == "COMPLETED", 20, "it runs")
        execute(ann, f"CANCEL {second}")

        # Many at once get exactly as many places as there are.
        outcomes: list[bool] = []

        def submit() -> None:
            with site.connect("ann") as connection:
                try:
                    execute(connection, "SUBMIT SELECT SLEEP(30)")
                    outcomes.append(True)
                except pymysql.err.MySQLError as error:
                    assert error.args[0] == LIMIT_REACHED
                    outcomes.append(False)

        threads = [threading.Thread(target=submit) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == [False] * 10 + [True] * 2
        for (number,) in execute(ann, "SELECT ID FROM information_schema.QUERIES WHERE STATE IN ('QUEUED', 'EXECUTING') AND STATEMENT LIKE 'SELECT SLEEP%'"):
            execute(ann, f"CANCEL {number}")


def state(connection: pymysql.connections.Connection, number: object) -> tuple[object, ...]:
    return execute(connection, f"SELECT STATE, ERROR FROM information_schema.QUERIES WHERE ID = {number}")[0]


def test_seconds(site: Site) -> None:
    with limited(site, "ann", seconds=1), site.connect("ann") as ann:
        begun = time.monotonic()
        assert "1 s that one of yours may take" in refused(ann, "SELECT SLEEP(60)")
        assert time.monotonic() - begun < SOON
        # What the connection has set comes first if it is shorter, under its own number.
        execute(ann, "SET max_execution_time = 200")
        with pytest.raises(pymysql.err.MySQLError) as raised:
            execute(ann, "SELECT SLEEP(60)")
        assert raised.value.args[0] == 3024
        execute(ann, "SET max_execution_time = 60000")
        refused(ann, "SELECT SLEEP(60)")
        status, text, _ = post(site, "query", "ann", query="SELECT SLEEP(60)")
        assert json.loads(text)["error_ext"]["code"] == LIMIT_REACHED and "1 s that one of yours" in text, status
        number = execute(ann, "SUBMIT SELECT SLEEP(60)")[0][0]
        wait_until(lambda: state(ann, number)[0] == "FAILED", 20, "it is ended")
        assert "1 s that one of yours" in str(state(ann, number)[1])


@pytest.mark.parametrize("rows", [99, 100, 101])
def test_rows_of_a_result(site: Site, rows: int) -> None:
    statement = f"SELECT id FROM sky.Star LIMIT {rows}"
    fits = rows <= 100
    with limited(site, "ann", rows=100), site.connect("ann") as ann:
        # A plan that is cached counts as well.
        for _ in range(3):
            if fits:
                assert len(execute(ann, statement)) == rows
            else:
                assert "more than 100 rows" in refused(ann, statement)
        assert execute(ann, "SELECT COUNT(*) FROM sky.Star") == [(STARS,)]
        status, text, _ = post(site, "query", "ann", query=statement)
        assert ("more than 100 rows" in text) == (not fits), (status, text)
        number = execute(ann, f"SUBMIT {statement}")[0][0]
        wait_until(lambda: state(ann, number)[0] in ("COMPLETED", "FAILED"), 20, "it has ended")
        assert state(ann, number)[0] == ("COMPLETED" if fits else "FAILED")
        # TAP cuts off and says so.
        for more in ({}, {"MAXREC": 1000}):
            parameters = {"LANG": "ADQL", "QUERY": f"SELECT TOP {rows} id FROM sky.Star", "FORMAT": "votable/td", **more}
            status, text, _ = site.http("tap/sync", "ann", **parameters)
            assert status == 200 and text.count("<TR>") == min(rows, 100)
            assert ("OVERFLOW" in text) == (not fits)
        # One's own tables may be larger than what one may be sent.
        execute(ann, "DROP TABLE IF EXISTS ann.many")
        execute(ann, "CREATE TABLE ann.many AS SELECT * FROM sky.Star")
        assert execute(ann, "SELECT COUNT(*) FROM ann.many") == [(STARS,)]
        execute(ann, "DROP TABLE ann.many")


def test_requests_of_a_minute(site: Site) -> None:
    with limited(site, "ann", requests=30):
        answers = [site.http("tap/availability", "ann") for _ in range(33)]
        good = sum(status == 200 for status, _, _ in answers)
        assert 30 <= good < 33
        status, text, headers = next(answer for answer in answers if answer[0] != 200)
        assert status == 429 and "30 requests" in text and 1 <= int(headers["Retry-After"]) <= 3
        assert site.http("tap/availability", "bob")[0] == 200
        time.sleep(int(headers["Retry-After"]))
        assert site.http("tap/availability", "ann")[0] == 200


def test_bytes_of_own_tables(site: Site) -> None:
    with site.connect("ann") as ann:
        execute(ann, "CREATE TABLE ann.first AS SELECT * FROM sky.Star")
        taken = used(site, "ann")["stored"][1]
        assert taken is not None and taken > 1000
        with limited(site, "ann", stored=taken + 500):
            sentence = refused(ann, "CREATE TABLE ann.second AS SELECT * FROM sky.Star")
            assert f"{taken} of {taken + 500} bytes" in sentence and "DROP TABLE" in sentence
            refused(ann, "INSERT INTO ann.first SELECT * FROM sky.Star")
            assert execute(ann, "SELECT COUNT(*) FROM ann.first") == [(STARS,)]
            execute(ann, "DROP TABLE ann.first")
            execute(ann, "CREATE TABLE ann.second AS SELECT * FROM sky.Star")
        execute(ann, "DROP TABLE ann.second")
        assert used(site, "ann")["stored"] == (None, 0)


def test_bytes_of_a_result(site: Site) -> None:
    query = "SELECT id, ra FROM sky.Star"
    with limited(site, "ann", bytes=1000), site.connect("ann") as ann:
        assert "more than 1000 bytes" in refused(ann, query)
        assert len(execute(ann, f"{query} LIMIT 10")) == 10
        execute(ann, "SHOW VARIABLES")
        # What goes into a table of one's own is none that is sent.
        execute(ann, f"CREATE TABLE ann.t AS {query}")
        execute(ann, "DROP TABLE ann.t")
        number = execute(ann, f"SUBMIT {query}")[0][0]
        with site.connect("ann") as other:
            wait_until(lambda: state(other, number)[0] == "FAILED", 30, "it fails")
        status, text, _ = post(site, "query", "ann", query=query)
        assert status != 200 or "more than 1000 bytes" in text
    with site.connect("ann") as ann:
        assert len(execute(ann, query)) == STARS


def test_bytes_that_are_sent(site: Site) -> None:
    rows = b"id,ra,dec\n" + b"1,10.5,20.5\n" * 200
    with limited(site, "ann", upload=1000):
        status, text, _ = site.http("tables/ann.t", "ann", method="PUT", body=rows)
        assert status == 413 and "the 1000 bytes that you may send" in text
        assert site.http("tables/ann.t", "ann", method="PUT", body=rows[:500])[0] == 201
        with site.connect("ann", local_infile=True) as ann, tempfile.NamedTemporaryFile() as file:
            file.write(rows)
            file.flush()
            load = f"LOAD DATA LOCAL INFILE '{file.name}' INTO TABLE ann.t FIELDS TERMINATED BY ',' IGNORE 1 LINES"
            assert f"the file has {len(rows)} bytes" in refused(ann, load)
            execute(ann, "DROP TABLE ann.t")


# Seconds of a processor, whatever machine it is: each row of it is computed in vain.
LONG = "SELECT SUM(SIN(a.id + b.id * c.id)) FROM sky.Star a, sky.Star b, sky.Star c"


def test_processor_time_of_a_day(meridian: Meridian, tmp_path: Path) -> None:
    """It is counted over statements, protocols and restarts; whoever has used it up is told so, while a statement runs, too."""
    data = load_stars_and_bands(meridian, tmp_path, STARS)
    for name in ("ann", "bob"):
        must(meridian, data, "add", name, password=PASSWORD)
        must(meridian, data, "grant", name, "--read", "sky")
    must(meridian, data, "limit", "ann", "--cpu", 1)
    with serving(meridian, data) as server:
        site = Site(meridian, data, server)
        with site.connect("ann") as ann:
            execute(ann, "SELECT COUNT(*) FROM sky.Star")
            limit, taken = used(site, "ann")["cpu"]
            assert limit == 1 and taken == 0
            for _ in range(100):
                try:
                    execute(ann, LONG)
                except pymysql.err.MySQLError as error:
                    assert error.args[0] == LIMIT_REACHED and "of the 1 seconds of processor time" in error.args[1]
                    break
            else:
                raise AssertionError("it is never used up")
            assert "wait until midnight" in refused(ann, "SELECT COUNT(*) FROM sky.Star")
            execute(ann, "SHOW LIMITS")
        for path, parameters in (("tap/sync", {"LANG": "ADQL", "QUERY": "SELECT TOP 1 id FROM sky.Star"}), ("scs/sky/Star", {"RA": 1, "DEC": 1, "SR": 1})):
            status, text, headers = site.http(path, "ann", **parameters)
            assert "processor time" in text, (path, status, text)
            assert status != 429 or 5 < int(headers["Retry-After"]) <= 86_400
        status, text, lowered = post(site, "query", "ann", query="SELECT COUNT(*) FROM sky.Star")
        assert status == 429 and "processor time" in text and 5 < int(lowered["retry-after"]) <= 86_400
        with site.connect("bob") as bob:
            assert execute(bob, "SELECT COUNT(*) FROM sky.Star") == [(STARS,)]
    with serving(meridian, data) as server:
        site = Site(meridian, data, server)
        assert used(site, "ann")["cpu"][1] >= 1  # type: ignore[operator]
        with site.connect("ann") as ann:
            refused(ann, "SELECT COUNT(*) FROM sky.Star")
            must(meridian, data, "limit", "ann", "--cpu", 1000)
            assert execute(ann, "SELECT COUNT(*) FROM sky.Star") == [(STARS,)]


def test_everybody_and_administrators(site: Site) -> None:
    with limited(site, "--everybody", rows=10, queries=7):
        with limited(site, "bob", rows=20):
            assert used(site, "ann")["rows"] == (10, None) and used(site, "bob")["rows"] == (20, None)
            assert used(site, "bob")["queries"][0] == 7
            shown = must(site.meridian, site.data, "limit", "bob")
            assert [line.split()[:2] for line in shown.splitlines()] == [["queries", "7"], ["rows", "20"]]
            assert "(as everybody)" in shown.splitlines()[0] and "(as everybody)" not in shown.splitlines()[1]
            assert "may take      queries 7, rows 20" in must(site.meridian, site.data, "show", "bob")
            listed = json.loads(must(site.meridian, site.data, "list", "--format", "json"))
            assert {it["name"]: it["limits"] for it in listed}["bob"] == {"queries": 7, "rows": 20}
        with site.connect("boss") as boss:
            assert len(execute(boss, "SELECT id FROM sky.Star")) == STARS
        # An open connection is limited, and is no more, with its next statement.
        with site.connect("ann") as ann:
            refused(ann, "SELECT id FROM sky.Star")
            with limited(site, "ann", rows=1000):
                assert len(execute(ann, "SELECT id FROM sky.Star")) == STARS
            refused(ann, "SELECT id FROM sky.Star")
    assert "may take as much as there is" in must(site.meridian, site.data, "limit", "--everybody")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nobody", "--rows", 5], "there is no user nobody"),
        (["ann", "--rows", "-1"], "a whole number from 0 on, or none"),
        (["ann", "--rows", "many"], "a whole number from 0 on, or none"),
        (["ann", "--stored", "10 apples"], "10 apples"),
        (["ann", "--everybody", "--rows", 5], "cannot be used with"),
        (["ann", "--lifetime", 0], "a day at least"),
        (["ann", "--lifetime", 40000], "100 years"),
        (["--rows", 5], "required"),
    ],
)
def test_mistakes(site: Site, arguments: list[object], sentence: str) -> None:
    done = user(site.meridian, site.data, "limit", *arguments)
    assert done.returncode != 0 and sentence in done.stderr, done.stderr


def test_nobody_is_limited_without_users(meridian: Meridian, tmp_path: Path) -> None:
    data = load_stars_and_bands(meridian, tmp_path, 20)
    done = user(meridian, data, "limit", "--everybody", "--rows", 5)
    assert done.returncode != 0 and "there are no users yet" in done.stderr
    with serving(meridian, data) as server, server.connect() as connection:
        assert execute(connection, "SHOW LIMITS") == []
        assert json.loads(Site(meridian, data, server).http("me", None)[1]) == {"user": None, "admin": True, "groups": [], "limits": [], "databases": [], "tables": [], "warnings": []}


# What versions from 4 on have other than those before.
FORMER_GRANTS = """
DROP TABLE members; DROP TABLE groups; DROP TABLE IF EXISTS releases; DROP TABLE IF EXISTS unreleased; ALTER TABLE users DROP COLUMN native;
ALTER TABLE grants RENAME TO newer;
CREATE TABLE grants (
    user TEXT NOT NULL REFERENCES users (name) ON DELETE CASCADE, database TEXT NOT NULL, table_name TEXT NOT NULL, PRIMARY KEY (user, database, table_name)
) STRICT;
INSERT INTO grants SELECT grantee, database, table_name FROM newer WHERE grantee <> '';
DROP TABLE newer;
"""
PUBLIC_GRANTS = "CREATE TABLE public_grants (database TEXT NOT NULL, table_name TEXT NOT NULL, PRIMARY KEY (database, table_name)) STRICT;"


@pytest.mark.parametrize(
    ("version", "changes"), [(1, "DROP TABLE limits;"), (2, ""), (3, PUBLIC_GRANTS)], ids=["first", "second", "third"]
)
def test_users_of_a_former_version_get_limits(meridian: Meridian, tmp_path: Path, version: int, changes: str) -> None:
    data = load_stars_and_bands(meridian, tmp_path, 20)
    must(meridian, data, "add", "ann", password=PASSWORD)
    must(meridian, data, "grant", "ann", "--read", "sky")
    with sqlite3.connect(data / "users.sqlite") as database:
        database.executescript(f"{FORMER_GRANTS} {changes} PRAGMA user_version = {version};")
    with serving(meridian, data) as server:
        site = Site(meridian, data, server)
        with site.connect("ann") as ann:
            assert len(execute(ann, "SELECT id FROM sky.Star")) == 20
            with limited(site, "ann", rows=5):
                refused(ann, "SELECT id FROM sky.Star")


def test_removed_users_leave_no_limits(site: Site) -> None:
    must(site.meridian, site.data, "add", "carl", password=PASSWORD)
    must(site.meridian, site.data, "limit", "carl", "--rows", 5)
    must(site.meridian, site.data, "remove", "carl")
    must(site.meridian, site.data, "add", "carl", password=PASSWORD)
    assert "as much as there is" in must(site.meridian, site.data, "limit", "carl")
    must(site.meridian, site.data, "remove", "carl")


def test_places_are_free_after_whatever_ends(site: Site) -> None:
    """Errors, cut connections and ended statements leave no query counted."""
    ends: list[Callable[[pymysql.connections.Connection], object]] = [
        lambda it: refuse_quietly(it, "SELECT nosuch FROM sky.Star"),
        lambda it: refuse_quietly(it, "SELEC"),
        lambda it: execute(it, "SELECT 1"),
        lambda it: it._sock.close(),  # noqa: SLF001
    ]
    for end in ends:
        connection = site.connect("ann")
        end(connection)
    wait_until(lambda: used(site, "ann")["queries"][1] == 0 and used(site, "ann")["connections"][1] <= 4, 20, "nothing is counted")


def refuse_quietly(connection: pymysql.connections.Connection, statement: str) -> None:
    with pytest.raises(pymysql.err.MySQLError):
        execute(connection, statement)
