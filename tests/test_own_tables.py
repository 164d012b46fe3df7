"""Tables of users' own: made of queries, filled, dropped, shared, and by whom."""

from __future__ import annotations

import datetime
import decimal
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from meridian_cli import Meridian
from serving import SOON, Server, serving, wait_until
from small_tables import load_stars_and_bands
from test_users import PASSWORD, Site, must


def site_of(meridian: Meridian, data: Path, server: Server) -> Site:
    return Site(meridian, data, server)


@pytest.fixture(scope="module")
def site(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Ann and Bob may read the database sky; the administrator is boss."""
    data = load_stars_and_bands(meridian, tmp_path_factory.mktemp("own"), 400)
    must(meridian, data, "add", "boss", "--admin", password=PASSWORD)
    for name in ("ann", "bob"):
        must(meridian, data, "add", name, password=PASSWORD)
        must(meridian, data, "grant", name, "--read", "sky")
    with serving(meridian, data) as server:
        yield site_of(meridian, data, server)


@pytest.fixture
def ann(site: Site) -> Iterator[pymysql.connections.Connection]:
    """Ann's connection; her tables are dropped afterwards."""
    with site.connect("ann") as connection:
        yield connection
    with site.connect("ann") as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'ann'")
        for (table,) in cursor.fetchall():
            cursor.execute(f"DROP TABLE ann.`{table}`")


def rows(connection: pymysql.connections.Connection, statement: str) -> list[tuple[object, ...]]:
    cursor = connection.cursor()
    cursor.execute(statement)
    return sorted(cursor.fetchall(), key=str)


def number(connection: pymysql.connections.Connection, statement: str) -> int:
    """MySQL's number of the error."""
    with pytest.raises(pymysql.err.MySQLError) as rejected:
        connection.cursor().execute(statement)
    return int(rejected.value.args[0])


def test_a_table_has_the_rows_of_its_query(site: Site, ann: pymysql.connections.Connection) -> None:
    """Numbers, texts, times, NULL; under the names of the columns; at every protocol at once."""
    query = "SELECT id, ra, `dec` AS decl, CONCAT('s', id) AS name, IF(id % 3 = 0, NULL, id / 2) AS half, TIMESTAMP '2026-11-25 01:02:03' AS seen, DATE '2026-11-25' AS day FROM sky.Star WHERE id < 50"
    assert ann.cursor().execute(f"CREATE TABLE near AS {query}") == 50
    assert rows(ann, "SELECT * FROM ann.near") == rows(ann, query)
    cursor = ann.cursor()
    cursor.execute("SELECT * FROM ann.near LIMIT 0")
    assert [column[0] for column in cursor.description] == ["id", "ra", "decl", "name", "half", "seen", "day"]
    assert rows(ann, "SHOW TABLES FROM ann") == [("near",)]
    assert rows(ann, "SELECT COUNT(*) FROM ann.near a JOIN sky.Star s ON a.id = s.id") == [(50,)]
    assert rows(ann, "SELECT COUNT(*) FROM crossmatch(ann.near, sky.Star, 0.5)") == [(50,)]
    status, said, _ = site.http("tap/sync", "ann", LANG="ADQL", FORMAT="csv", QUERY="SELECT COUNT(*) FROM ann.near")
    assert status == 200 and said.split()[-1] == "50"


def test_names_and_what_is_there_already(ann: pymysql.connections.Connection) -> None:
    cursor = ann.cursor()
    cursor.execute("CREATE TABLE a AS SELECT 1 AS x")
    assert number(ann, "CREATE TABLE ann.A AS SELECT 2 AS x") == 1050
    assert cursor.execute("CREATE TABLE IF NOT EXISTS a AS SELECT 2 AS x") == 0
    assert rows(ann, "SELECT x FROM ann.a") == [(1,)]
    cursor.execute("CREATE TABLE ann.`two words` AS SELECT COUNT(*) FROM sky.Star")
    assert rows(ann, "SELECT `COUNT(*)` FROM ann.`two words`") == [(400,)]
    cursor.execute("CREATE TABLE none_at_all AS SELECT id, ra FROM sky.Star WHERE id < 0")
    assert rows(ann, "SELECT COUNT(*) FROM ann.none_at_all") == [(0,)]
    assert number(ann, "DROP TABLE ann.nothing") == 1051
    cursor.execute("DROP TABLE IF EXISTS nothing, a")
    assert number(ann, "SELECT * FROM ann.a") == 1146
    for wrong in ["CREATE TABLE b (x NONSENSE)", "CREATE TABLE b", "CREATE TABLE b AS SELECT id, ID FROM sky.Star", "CREATE TABLE b AS SELECT nothing FROM sky.Star", "CREATE TABLE b AS SELECT 1 AS x FROM nowhere.t"]:
        assert number(ann, wrong) in (1064, 1105, 1054, 1142, 1060), wrong
    for repeated in ["CREATE TABLE b AS SELECT id, ID FROM sky.Star", "CREATE TABLE b (x INT, X INT)"]:
        assert number(ann, repeated) == 1060
    assert number(ann, "SELECT * FROM ann.b") == 1146


def test_rows_are_inserted(ann: pymysql.connections.Connection) -> None:
    """VALUES and queries, into all columns and into some; the number of rows is told; what cannot be is rejected as a whole."""
    cursor = ann.cursor()
    cursor.execute("CREATE TABLE t AS SELECT id, ra, CONCAT('s', id) AS name FROM sky.Star WHERE id < 3")
    assert cursor.execute("INSERT INTO t VALUES (100, 1.5, 'it''s (here)'), (101, NULL, NULL)") == 2
    assert cursor.execute("INSERT INTO ann.t (name, id) SELECT 'q', id FROM sky.Star WHERE id BETWEEN 10 AND 12") == 3
    expected = {(100, 1.5, "it's (here)"), (101, None, None), (10, None, "q"), (11, None, "q"), (12, None, "q")}
    assert set(rows(ann, "SELECT id, ra, name FROM ann.t WHERE id >= 3")) == expected
    cursor.execute("SELECT ROW_COUNT()")
    before = rows(ann, "SELECT * FROM ann.t")
    for wrong, code in [
        ("INSERT INTO t VALUES (1)", {1136}), ("INSERT INTO t (id, nothing) VALUES (1, 2)", {1054}), ("INSERT INTO nothing VALUES (1)", {1146}),
        ("INSERT INTO t (id) VALUES ('many')", {1366}), ("INSERT INTO t VALUES", {1064}), ("INSERT INTO t (id) VALUES (1), (2, 3)", {1136}),
    ]:  # fmt: skip
        assert number(ann, wrong) in code, wrong
    assert rows(ann, "SELECT * FROM ann.t") == before


def test_values_may_be_of_columns_before_them(ann: pymysql.connections.Connection) -> None:
    """From left to right, as the columns store them; one that has no value yet has its default. Names of columns were error 1054."""
    cursor = ann.cursor()
    cursor.execute("CREATE TABLE t (a INT, b DOUBLE, c VARCHAR(9) DEFAULT 'x', d DECIMAL(6,2))")
    cursor.execute("INSERT INTO t SET a = 1.6, b = a * 2, c = CONCAT(c, a), d = b / 3")
    cursor.execute("INSERT INTO t VALUES (1, a + 1, c, t.b + ann.t.a), (5, (SELECT MAX(id) FROM sky.Band) + A, DEFAULT, 1 + 1), (a, 7, 'a', b)")
    cursor.execute("INSERT INTO t (b, a) VALUES (a, 9)")
    expected = {(2, 4.0, "x2", "1.33"), (1, 2.0, "x", "3.00"), (5, 9.0, "x", "2.00"), (None, 7.0, "a", "7.00"), (9, None, "x", None)}
    assert {(a, b, c, d if d is None else str(d)) for a, b, c, d in rows(ann, "SELECT a, b, c, d FROM ann.t")} == expected
    cursor.execute("CREATE TABLE u (name VARCHAR(20), seen DATETIME(3), bits VARBINARY(4), good BOOLEAN, copied VARCHAR(40), later DATETIME(3), more VARBINARY(4), bad BOOLEAN)")
    cursor.execute("INSERT INTO u VALUES ('it''s \\\\', '2010-01-03 01:02:03.5', x'00ff', TRUE, CONCAT(name, '!'), seen + INTERVAL 1 DAY, bits, NOT good)")
    (row,) = rows(ann, "SELECT copied, later, HEX(more), bad FROM ann.u")
    assert row == ("it's \\!", datetime.datetime(2010, 1, 4, 1, 2, 3, 500_000), "00FF", 0)
    before = rows(ann, "SELECT * FROM ann.t")
    for wrong, code in [
        ("INSERT INTO t SET a = nothing + 1", 1054), ("INSERT INTO t (a, b) VALUES (300000000000, a)", 1264),
        ("INSERT INTO t (a, c) VALUES (1, 'ok'), (2, REPEAT(a, 10))", 1406),
    ]:  # fmt: skip
        assert number(ann, wrong) == code, wrong
    assert rows(ann, "SELECT * FROM ann.t") == before
    with pytest.raises(pymysql.err.MySQLError, match="Row 2"):
        cursor.execute("INSERT INTO t (a, c) VALUES (1, 'ok'), (2, REPEAT(a, 10))")


def test_a_table_is_made_with_columns_and_a_query(ann: pymysql.connections.Connection) -> None:
    """Matched by name: those that the query lacks come first, with their defaults, then the query's, of the types that are declared."""
    cursor = ann.cursor()
    made = "CREATE TABLE t (a INT, b DECIMAL(6,2) NOT NULL, c VARCHAR(5) DEFAULT 'new') AS SELECT id, id / 4 AS B, name FROM sky.Band"
    assert cursor.execute(made) == 5
    cursor.execute("SELECT * FROM ann.t ORDER BY id")
    assert [column[0] for column in cursor.description] == ["a", "c", "id", "B", "name"]
    expected = [(None, "new", n, decimal.Decimal(n) / 4, f"band {n}") for n in range(5)]
    assert list(cursor.fetchall()) == expected
    # What is declared stays so.
    cursor.execute("INSERT INTO t (id, b) VALUES (9, 1.006)")
    assert rows(ann, "SELECT a, b, c FROM ann.t WHERE id = 9") == [(None, decimal.Decimal("1.01"), "new")]
    assert number(ann, "INSERT INTO t (id) VALUES (10)") == 1364
    assert cursor.execute("CREATE TABLE u (c INT) SELECT 7 AS c UNION SELECT '8'") == 2
    assert sorted(rows(ann, "SELECT c FROM ann.u")) == [(7,), (8,)]
    assert cursor.execute("CREATE TABLE IF NOT EXISTS u (d INT) SELECT 1 AS d") == 0
    assert cursor.execute("CREATE TABLE v (a INT, day DATE) ENGINE=InnoDB (SELECT id AS a FROM sky.Band WHERE id < 0)") == 0
    assert rows(ann, "SELECT COUNT(day) FROM ann.v") == [(0,)]
    for wrong, code in [
        ("CREATE TABLE w (a INT NOT NULL) SELECT 1 AS b", 1364), ("CREATE TABLE w (a INT NOT NULL) SELECT NULL AS a", 1048),
        ("CREATE TABLE w (a VARCHAR(2)) SELECT 'long' AS a", 1406), ("CREATE TABLE w (a INT) SELECT 'x' AS a", 1366),
        ("CREATE TABLE w (a INT) SELECT 1 AS b, 2 AS B", 1060), ("CREATE TABLE w (a INT, A INT) SELECT 1 AS b", 1060),
        ("CREATE TABLE w (a INT DEFAULT 'x') SELECT 1 AS b", 1067), ("CREATE TABLE w (a INT) IGNORE SELECT 1 AS a", 1235),
        ("CREATE TABLE w (a INT) SELECT nothing", 1054), ("CREATE TABLE w (a INT) FROM RESULT 7", 1064),
    ]:  # fmt: skip
        assert number(ann, wrong) == code, wrong
    assert number(ann, "SELECT * FROM ann.w") == 1146


def test_values_of_other_types_are_stored_as_mysql_stores_them(ann: pymysql.connections.Connection) -> None:
    """Texts of numbers and times, times of numbers, numbers of times; expected values from MariaDB 10.11."""
    cursor = ann.cursor()
    cursor.execute("CREATE TABLE k (n INT, y DATE, t DATETIME, i BIGINT, d DOUBLE, f FLOAT, s VARCHAR(60))")
    day, moment = datetime.date(2010, 1, 3), datetime.datetime(2010, 1, 3, 1, 2, 3)
    for n, (column, value, expected) in enumerate(
        [
            ("y", "20100103", day),
            ("t", "20100103", datetime.datetime(2010, 1, 3)),
            ("t", "20100103010203", moment),
            ("t", "'2010-01-03 01:02:03'", moment),
            ("i", "DATE '2010-06-15'", 20100615),
            ("i", "TIMESTAMP '2010-06-15 01:02:03'", 20100615010203),
            ("d", "DATE '2010-06-15'", 20100615.0),
            ("s", "TIMESTAMP '2010-06-15 01:02:03'", "2010-06-15 01:02:03"),
            ("s", "DATE '2010-06-15'", "2010-06-15"),
            ("s", "123e0", "123"),
            ("s", "0.5", "0.5"),
            ("s", "1 = 1", "1"),
            ("f", "1e38", 1e38),
        ]
    ):
        cursor.execute(f"INSERT INTO k (n, {column}) SELECT {n}, {value}")
        ((found,),) = rows(ann, f"SELECT {column} FROM ann.k WHERE n = {n}")
        assert found == expected, (column, value)
    cursor.execute("ALTER TABLE k ADD COLUMN q DATE DEFAULT 20100103")
    assert set(rows(ann, "SELECT q FROM ann.k")) == {(day,)}
    before = rows(ann, "SELECT * FROM ann.k")
    for wrong, code in [
        ("INSERT INTO k (y) VALUES (20101399)", 1292),
        ("INSERT INTO k (t) VALUES (0)", 1292),
        ("INSERT INTO k (f) VALUES (1e39)", 1264),
        ("UPDATE k SET f = -1e300", 1264),
        ("INSERT INTO k (n, n) VALUES (1, 2)", 1110),
        ("UPDATE k SET n = matched", 1054),
    ]:
        assert number(ann, wrong) == code, wrong
    assert rows(ann, "SELECT * FROM ann.k") == before


def pointed_at(message: str) -> tuple[str, str]:
    """The line of a statement that a message shows, and what of it the carets stand below."""
    line, carets = message.splitlines()[-2:]
    return line.strip(), line[carets.index("^") : len(carets)]


def test_mistakes_of_changes_are_told_where_they_stand(site: Site, ann: pymysql.connections.Connection) -> None:
    """The statement that an UPDATE is executed as was shown, with columns that nobody has: `#matched`, and column 255 of it."""
    cursor = ann.cursor()
    cursor.execute("CREATE TABLE cx AS SELECT id, ra, `dec`, version AS mag FROM sky.Star WHERE id < 20")
    before = rows(ann, "SELECT * FROM ann.cx")

    def told(statement: str) -> tuple[int, str]:
        with pytest.raises(pymysql.err.MySQLError) as rejected:
            cursor.execute(statement)
        for internal in ("mysql_store", "#before", "#changed", "WITH", "CASE"):
            assert internal not in rejected.value.args[1], statement
        return rejected.value.args

    columns = "columns here: id, ra, dec, mag"
    for statement, code, line, at, words in [
        ("UPDATE cx SET mag=nope+1", 1054, 1, "nope", columns),
        ("UPDATE cx AS c\nSET mag = 1,\n ra = c.nope", 1054, 3, "nope", "no column nope in c"),
        ("UPDATE cx SET mag = cx.id WHERE\n  nope = 1", 1054, 2, "nope", columns),
        ("DELETE FROM cx WHERE nope=1", 1054, 1, "nope", columns),
        ("UPDATE cx SET mag=SUM(mag)", 1111, 1, "SUM", "(SELECT SUM(...) FROM ...)"),
        ("DELETE FROM cx WHERE mag > AVG(mag)", 1111, 1, "AVG", "(SELECT AVG(...) FROM ...)"),
        ("UPDATE cx SET mag = nothing(mag)", 1305, 1, "nothing", "no function nothing"),
        ("UPDATE cx SET mag = (SELECT MAX(id) FROM sky.Band WHERE nope = 1)", 1054, 1, "nope", "did you mean name?"),
        ("DELETE FROM cx WHERE id IN (SELECT id FROM sky.Nothing)", 1146, 1, "Nothing", "no table Nothing"),
        ("UPDATE cx SET mag = 1 + WHERE id = 1", 1064, 1, " ", ""),
        ("UPDATE cx SET mag = id AS x", 1064, 1, "A", ""),
        ("UPDATE cx SET mag = qserv_areaspec_circle(1, 2, 3)", 1105, 1, "qserv_areaspec_circle", "belongs in its WHERE"),
        ("DELETE FROM cx WHERE qserv_areaspec_circle(1, 2)", None, 1, "qserv_areaspec_circle", "3 numbers"),
    ]:
        found, message = told(statement)
        assert code in (None, found) and words in message, (statement, message)
        assert f"(line {line}, column " in message and pointed_at(message) == (statement.split("\n")[line - 1].strip(), at), (statement, message)
    for statement, code in [
        ("DELETE FROM cx WHERE ann.cx.id = 1 AND `#matched` = 0", 1054), ("UPDATE cx SET mag = `#row`", 1054), ("UPDATE cx SET nope = 1", 1054),
        ("UPDATE cx SET mag = (SELECT id, name FROM sky.Band)", 1241), ("UPDATE cx SET mag = 1e30", 1264),
    ]:  # fmt: skip
        assert told(statement)[0] == code, statement
    with site.connect("boss") as boss, pytest.raises(pymysql.err.MySQLError) as rejected:
        boss.cursor().execute("ALTER TABLE sky.Star\nRELEASE WHERE id < 3 AND nope < 18;")
    found, message = rejected.value.args
    assert found == 1054 and "SELECT" not in message
    shown, at = pointed_at(message)
    assert "(line 2, column 26)" in message and shown.startswith("RELEASE WHERE id < 3 AND nope < 18") and at == "nope"
    assert rows(ann, "SELECT * FROM ann.cx") == before
    # What looks like one and is none.
    assert cursor.execute("UPDATE cx SET mag = 100 + (SELECT SUM(b.id) FROM sky.Band b), ra = DEFAULT WHERE cx.id >= 10 AND ann.cx.id < 12") == 2
    assert rows(ann, "SELECT id, mag FROM ann.cx WHERE ra IS NULL") == [(10, 110), (11, 110)]


def test_regions_restrict_changes(ann: pymysql.connections.Connection) -> None:
    """`qserv_areaspec_*` was refused in the WHERE of an UPDATE and a DELETE. The rows are those of a SELECT with it."""
    cursor = ann.cursor()
    made = "CREATE TABLE {} AS SELECT id{}, ra, `dec`, version AS mag FROM sky.Star"
    cursor.execute(made.format("child", ""))
    cursor.execute(made.format("own PARTITION BY DIRECTOR (id, ra, `dec`)", " + 1000 AS id"))
    cursor.execute(made.format("plain PARTITION BY NONE", ""))
    cursor.execute("INSERT INTO child (id, ra) VALUES (7, NULL)")
    for table in ("child", "own"):
        for region in (
            "qserv_areaspec_circle(10, 20, 40)", "qserv_areaspec_box(350, -30, 60, 45) = 1", "QSERV_areaspec_ellipse(200, 10, 90000, 60000, 30)",
            "(qserv_areaspec_poly(0, 0, 90, 0, 45, 60) = 0) OR id = 7", "NOT qserv_areaspec_circle(10, 20, 40) AND qserv_areaspec_circle(30, 20, 60)",
        ):  # fmt: skip
            cursor.execute(f"UPDATE {table} SET mag = -1")
            ((inside,),) = rows(ann, f"SELECT COUNT(*) FROM ann.{table} WHERE {region}")
            assert 0 < inside < 400, region
            assert cursor.execute(f"UPDATE {table} SET mag = 5 WHERE {region}") == inside, region
            assert rows(ann, f"SELECT COUNT(*) FROM ann.{table} WHERE mag = 5 AND ({region})") == [(inside,)]
            assert rows(ann, f"SELECT COUNT(*) FROM ann.{table} WHERE mag = 5") == [(inside,)]
        ((inside,),) = rows(ann, f"SELECT COUNT(*) FROM ann.{table} t WHERE qserv_areaspec_circle(10, 20, 40) AND t.id % 2 = 0")
        assert cursor.execute(f"DELETE FROM {table} AS t WHERE qserv_areaspec_circle(10, 20, 40) AND t.id % 2 = 0") == inside > 0
        assert rows(ann, f"SELECT COUNT(*) FROM ann.{table} t WHERE qserv_areaspec_circle(10, 20, 40) AND t.id % 2 = 0") == [(0,)]
    # Of a subquery it restricts the tables of that.
    ((inside,),) = rows(ann, "SELECT COUNT(*) FROM sky.Star WHERE qserv_areaspec_circle(10, 20, 40)")
    assert cursor.execute("DELETE FROM plain WHERE id IN (SELECT id FROM sky.Star WHERE qserv_areaspec_circle(10, 20, 40))") == inside > 0
    for statement in ("DELETE FROM plain WHERE qserv_areaspec_circle(10, 20, 40)", "UPDATE plain SET mag = 1 WHERE id = 1 OR qserv_areaspec_circle(10, 20, 40)"):
        with pytest.raises(pymysql.err.MySQLError, match="spread over the sky, by their position") as rejected:
            cursor.execute(statement)
        assert pointed_at(rejected.value.args[1]) == (statement, "qserv_areaspec_circle")


def test_a_table_may_be_made_of_itself(ann: pymysql.connections.Connection) -> None:
    cursor = ann.cursor()
    cursor.execute("CREATE TABLE t AS SELECT 1 AS x")
    for _ in range(4):
        cursor.execute("INSERT INTO t SELECT x + 1 FROM ann.t")
    assert rows(ann, "SELECT COUNT(*), MAX(x) FROM ann.t") == [(16, 5)]


def test_a_limit_of_what_is_shown_does_not_cut_a_table(ann: pymysql.connections.Connection) -> None:
    """`sql_select_limit`, which graphical clients set, is about results."""
    cursor = ann.cursor()
    cursor.execute("SET sql_select_limit = 10")
    assert cursor.execute("CREATE TABLE all_of_them AS SELECT id FROM sky.Star") == 400
    assert cursor.execute("INSERT INTO all_of_them SELECT id + 1000 FROM sky.Star") == 400
    assert cursor.execute("SELECT id FROM ann.all_of_them") == 10


def test_whose_tables_they_are(site: Site, ann: pymysql.connections.Connection) -> None:
    """Others neither see nor change them until they are granted; an administrator does; nobody changes the catalogue."""
    ann.cursor().execute("CREATE TABLE mine AS SELECT id, ra FROM sky.Star WHERE id < 5")
    with site.connect("bob") as bob, site.connect("boss") as boss:
        assert number(bob, "SELECT * FROM ann.mine") == 1142
        for statement in ("DROP TABLE ann.mine", "INSERT INTO ann.mine VALUES (1, 2)", "CREATE TABLE ann.more AS SELECT 1 AS x", "DROP TABLE sky.Star", "CREATE TABLE sky.x AS SELECT 1 AS a", "INSERT INTO sky.Band VALUES (9, 'x')"):
            assert number(bob, statement) == 1142, statement
        must(site.meridian, site.data, "grant", "bob", "--read", "ann.mine")
        assert rows(bob, "SELECT COUNT(*) FROM ann.mine") == [(5,)]
        assert number(bob, "INSERT INTO ann.mine VALUES (1, 2)") == 1142
        assert boss.cursor().execute("INSERT INTO ann.mine VALUES (9, 9)") == 1
        assert rows(ann, "SELECT COUNT(*) FROM ann.mine") == [(6,)]
        # The query is read with the rights of whoever asks.
        assert number(bob, "CREATE TABLE stolen AS SELECT * FROM ann.other") == 1142


def test_without_users_there_are_none(meridian: Meridian, tmp_path: Path) -> None:
    data = load_stars_and_bands(meridian, tmp_path, 20)
    with serving(meridian, data) as server, server.connect(user="ann", database="sky") as connection:
        for statement in ("CREATE TABLE t AS SELECT 1 AS x", "INSERT INTO Band VALUES (1, 'x')", "DROP TABLE Band"):
            assert number(connection, statement) == 1290, statement


def test_a_statement_that_is_ended_leaves_nothing(site: Site, ann: pymysql.connections.Connection) -> None:
    ann.cursor().execute("SET max_execution_time = 300")
    begun = time.monotonic()
    assert number(ann, "CREATE TABLE long_one AS SELECT a.id FROM sky.Star a, sky.Star b, sky.Star c, sky.Star d WHERE a.ra + b.ra + c.ra + d.ra < 1") == 3024
    assert time.monotonic() - begun < SOON
    assert number(ann, "SELECT * FROM ann.long_one") in (1146, 1142)


def test_many_connections_insert_at_once(site: Site, ann: pymysql.connections.Connection) -> None:
    """Each row that was acknowledged is there once."""
    ann.cursor().execute("CREATE TABLE counted AS SELECT 0 AS x")
    done: list[int] = []

    def insert(first: int) -> None:
        with site.connect("ann") as connection:
            for value in range(first, first + 5):
                assert connection.cursor().execute(f"INSERT INTO counted VALUES ({value})") == 1
                done.append(value)

    threads = [threading.Thread(target=insert, args=(first,)) for first in (100, 200, 300, 400)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 20
    assert [row[0] for row in rows(ann, "SELECT x FROM ann.counted WHERE x > 0")] == sorted(done)


def test_what_is_acknowledged_outlives_the_server(meridian: Meridian, tmp_path: Path) -> None:
    """Killed while rows are inserted: every acknowledged one is there once, and no half of another."""
    data = load_stars_and_bands(meridian, tmp_path, 50)
    must(meridian, data, "add", "ann", password=PASSWORD)
    must(meridian, data, "grant", "ann", "--read", "sky")
    acknowledged: list[int] = []
    for attempt in range(4):
        with serving(meridian, data) as server:
            site = site_of(meridian, data, server)
            with site.connect("ann") as connection:
                cursor = connection.cursor()
                cursor.execute("CREATE TABLE IF NOT EXISTS t AS SELECT 0 AS batch, id FROM sky.Star WHERE id < 0")

                def kill(wanted: int = len(acknowledged) + 2, process: int = server.process.pid, moment: float = 0.05 * attempt) -> None:
                    # However fast the machine is.
                    try:
                        wait_until(lambda: len(acknowledged) >= wanted, 60, "two statements")
                        time.sleep(moment)
                    finally:
                        os.kill(process, signal.SIGKILL)

                killer = threading.Thread(target=kill)
                killer.start()
                try:
                    for batch in range(1000 * attempt, 1000 * attempt + 500):
                        cursor.execute(f"INSERT INTO t SELECT {batch}, id FROM sky.Star WHERE id < 7")
                        acknowledged.append(batch)
                except pymysql.err.MySQLError:
                    pass
                killer.join()
    counted = dict(meridian.rows(data, "ann", "SELECT batch, COUNT(*) FROM t GROUP BY batch"))
    assert set(acknowledged) <= set(counted) and len(set(counted) - set(acknowledged)) <= 4
    assert set(counted.values()) <= {7}
    assert len(acknowledged) > 4
    meridian.must("check", "--data", data)
