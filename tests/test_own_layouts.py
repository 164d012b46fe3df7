"""Tables of users' own that are spread over the sky: as children of the catalogue's directors and as directors.

What a query gives never depends on it: beside each such table there is a twin with the same rows that is kept whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from meridian_cli import Meridian
from serving import serving
from small_tables import CUT, load_stars_and_bands, write_lines, write_stars
from test_own_tables import number, rows
from test_users import PASSWORD, Site, must

STARS = 400


@pytest.fixture(scope="module")
def site(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Ann may read the databases sky and other, which are cut differently; nobody may read hidden; the administrator is boss."""
    directory = tmp_path_factory.mktemp("layouts")
    data = load_stars_and_bands(meridian, directory, STARS)
    epochs = write_lines(directory / "epochs.csv", [f"{100 * n + m},{n},{m}.5" for n in range(0, STARS, 3) for m in range(3)], header="epoch,id,flux")
    meridian.load(data, "sky", "Source", epochs, director="Star", key="id", own_key="epoch")
    finer = {**CUT, "stripes": 9}
    for database in ("other", "hidden"):
        meridian.load(data, database, "Object", write_stars(directory / f"{database}.csv", 50), kind="director", key="id", ra="ra", dec="dec", **finer)
    must(meridian, data, "add", "boss", "--admin", password=PASSWORD)
    for name in ("ann", "bob"):
        must(meridian, data, "add", name, password=PASSWORD)
        for database in ("sky", "other"):
            must(meridian, data, "grant", name, "--read", database)
    with serving(meridian, data) as server:
        yield Site(meridian, data, server)


@pytest.fixture
def ann(site: Site) -> Iterator[pymysql.connections.Connection]:
    """Ann's connection; her tables are dropped afterwards."""
    with site.connect("ann", database="ann") as connection:
        yield connection
    with site.connect("ann", database="ann") as connection:
        tables = [name for (name,) in rows(connection, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'ann'")]
        # Children go before their directors.
        for _ in range(2):
            for table in tables:
                try:
                    do(connection, f"DROP TABLE IF EXISTS `{table}`")
                except pymysql.err.MySQLError as error:
                    assert error.args[0] == 3730, error


def do(connection: pymysql.connections.Connection, *statements: str) -> None:
    for statement in statements:
        connection.cursor().execute(statement)


def kind(connection: pymysql.connections.Connection, table: str) -> str:
    """What a table is, by its comment."""
    cursor = connection.cursor()
    cursor.execute(f"SHOW TABLE STATUS FROM ann LIKE '{table}'")
    return str(cursor.fetchall()[0][-1]).removesuffix(" table")


def is_co_located(connection: pymysql.connections.Connection, query: str) -> bool:
    """Whether the join of a query runs within the pieces of the sky: below a phase."""
    cursor = connection.cursor()
    cursor.execute(f"EXPLAIN {query}")
    plan = "\n".join(str(cell) for row in cursor.fetchall() for cell in row)
    phase, join = plan.find("ChunkPhase"), re.search(r"\w*Join\w*Exec", plan)
    assert join, plan
    return 0 <= phase < join.start()


def alike(connection: pymysql.connections.Connection, query: str, table: str, twin: str) -> None:
    """A query of a table and of its twin."""
    found, expected = (rows(connection, query.replace("TABLE", name)) for name in (table, twin))
    assert found == expected, query


# What is asked of a child and of a director, of which `id` is the key.
QUERIES = [
    "SELECT * FROM TABLE",
    "SELECT COUNT(*), SUM(id), COUNT(DISTINCT id), MIN(ra), MAX(`dec`) FROM TABLE",
    "SELECT t.id, t.ra, s.version FROM TABLE t JOIN sky.Star s ON t.id = s.id",
    "SELECT t.id, s.id FROM TABLE t LEFT JOIN sky.Star s ON t.id = s.id",
    "SELECT COUNT(*) FROM sky.Star s LEFT JOIN TABLE t ON t.id = s.id WHERE t.id IS NULL",
    "SELECT s.id FROM sky.Star s WHERE s.id IN (SELECT id FROM TABLE)",
    "SELECT s.id FROM sky.Star s WHERE NOT EXISTS (SELECT 1 FROM TABLE t WHERE t.id = s.id) AND s.id < 50",
    "SELECT t.id, SUM(e.flux) FROM TABLE t JOIN sky.Source e ON t.id = e.id GROUP BY t.id",
    "SELECT a.id, COUNT(*) FROM TABLE a JOIN TABLE b ON a.id = b.id GROUP BY a.id",
    "SELECT id, COUNT(*) FROM TABLE GROUP BY id",
    "SELECT * FROM TABLE WHERE id IN (3, 7, 12, 5000)",
    "SELECT * FROM TABLE WHERE id = 7",
    "SELECT * FROM TABLE WHERE scisql_s2PtInCircle(ra, `dec`, 120, 10, 40) = 1",
    "SELECT COUNT(*) FROM TABLE t JOIN other.Object o ON t.id = o.id",
    "SELECT COUNT(*) FROM crossmatch(TABLE, sky.Star, 0.5)",
    "SELECT COUNT(*) FROM nearest(TABLE, sky.Star, 30)",
]


def both(connection: pymysql.connections.Connection, *statements: str) -> None:
    """Statements about t, done for its twin too; then all queries."""
    for statement in statements:
        do(connection, statement, re.sub(r"\bt\b", "twin", statement))
    for query in QUERIES:
        alike(connection, query, "ann.t", "ann.twin")


def make(connection: pymysql.connections.Connection, query: str) -> None:
    do(connection, f"CREATE TABLE t AS {query}", f"CREATE TABLE twin PARTITION BY NONE AS {query}")
    assert kind(connection, "twin") == "replicated"


JOIN = "SELECT COUNT(*) FROM ann.t t JOIN sky.Star s ON t.id = s.id"


def test_what_has_the_key_of_a_director_is_its_child(ann: pymysql.connections.Connection) -> None:
    make(ann, "SELECT id, ra, `dec`, version * 2 AS twice FROM sky.Star WHERE id < 200")
    assert kind(ann, "t") == "child"
    assert is_co_located(ann, JOIN)
    both(ann)
    both(ann, "INSERT INTO t VALUES (300, 1.5, 2.5, 1), (7, 10.5, 20.5, 3), (NULL, NULL, NULL, 4)", "INSERT INTO t (id) SELECT id FROM sky.Star WHERE id > 350")
    assert is_co_located(ann, JOIN)
    both(ann, "UPDATE t SET id = id + 50, ra = 5 WHERE id < 20", "DELETE FROM t WHERE id % 7 = 1", "ALTER TABLE t ADD COLUMN note VARCHAR(10) DEFAULT 'new'")
    assert kind(ann, "t") == "child" and is_co_located(ann, JOIN)
    # Keys that the director lacks may be anywhere: the answers are right, and the join reads the table as any other.
    both(ann, "INSERT INTO t (id, ra, `dec`) VALUES (5000, 33, 44), (5000, 99, -44)", "INSERT INTO t (id) VALUES (5000), (5001)")
    assert not is_co_located(ann, JOIN)
    both(ann, "DELETE FROM t WHERE id >= 5000")
    assert is_co_located(ann, JOIN)
    both(ann, "TRUNCATE TABLE t", "INSERT INTO t (id, ra, `dec`) SELECT id, ra, `dec` FROM sky.Star WHERE id < 9")
    do(ann, "RENAME TABLE t TO renamed", "ALTER TABLE renamed RENAME COLUMN id TO star")
    assert kind(ann, "renamed") == "child" and is_co_located(ann, "SELECT COUNT(*) FROM ann.renamed t JOIN sky.Star s ON t.star = s.id")
    do(ann, "ALTER TABLE renamed DROP COLUMN star")
    assert kind(ann, "renamed") == "replicated" and rows(ann, "SELECT COUNT(*) FROM renamed") == [(9,)]


def test_which_layout_rows_get(ann: pymysql.connections.Connection) -> None:
    for query, expected in [
        ("SELECT id AS star, COUNT(*) AS n FROM sky.Source GROUP BY id", "child"),
        ("SELECT e.epoch, e.id FROM sky.Source e JOIN sky.Star s ON e.id = s.id", "child"),
        ("SELECT id + 0 AS id, ra, `dec` FROM sky.Star", "director"),
        ("SELECT 1 AS id, 10e0 AS ra, 20e0 AS decl UNION ALL SELECT 1, 11, 21", "replicated"),
        ("SELECT 1 AS id, 10e0 AS ra, 200e0 AS decl", "replicated"),
        ("SELECT id + 0 AS id, ra FROM sky.Star", "replicated"),
        ("SELECT id, name FROM sky.Band", "replicated"),
        ("SELECT o.id, b.name FROM sky.Band b LEFT JOIN other.Object o ON o.id = b.id + 48", "child"),
    ]:
        do(ann, f"CREATE TABLE made AS {query}")
        assert (kind(ann, "made"), query) == (expected, query)
        assert rows(ann, "SELECT * FROM ann.made") == rows(ann, query)
        do(ann, "DROP TABLE made")


def test_a_director_of_ones_own(site: Site, ann: pymysql.connections.Connection) -> None:
    do(ann, "CREATE TABLE t (id BIGINT, ra DOUBLE, `dec` DOUBLE, mag FLOAT DEFAULT 1.5) PARTITION BY DIRECTOR (id, ra, `dec`)")
    do(ann, "CREATE TABLE twin (id BIGINT NOT NULL, ra DOUBLE NOT NULL, `dec` DOUBLE NOT NULL, mag FLOAT DEFAULT 1.5)")
    both(ann)
    both(ann, "INSERT INTO t (id, ra, `dec`) SELECT id, ra, `dec` FROM sky.Star WHERE id < 300", "INSERT INTO t VALUES (1000, 359.9999, 89.9, NULL), (1001, 0, -90, 3)")
    assert kind(ann, "t") == "director"
    before = rows(ann, "SELECT * FROM ann.t")
    for statement, code in {
        "INSERT INTO t VALUES (2000, 1, 2, 3), (2000, 3, 4, 5)": 1062,
        "INSERT INTO t VALUES (2000, 1, 2, 3), (7, 1, 2, 3)": 1062,
        "INSERT INTO t SELECT id + 5, 1, 2, 3 FROM sky.Star WHERE id < 3": 1062,
        "INSERT INTO t VALUES (NULL, 1, 2, 3)": 1048,
        "INSERT INTO t VALUES (2000, NULL, 2, 3)": 1048,
        "INSERT INTO t (id, ra) VALUES (2000, 2)": 1364,
        "INSERT INTO t VALUES (2000, 1, 90.5, 3)": 1264,
        "UPDATE t SET `dec` = 100 WHERE id = 7": 1264,
        "UPDATE t SET id = 5 WHERE id IN (7, 8)": 1062,
        "UPDATE t SET id = NULL WHERE id = 7": 1048,
    }.items():
        assert number(ann, statement) == code, statement
    assert rows(ann, "SELECT * FROM ann.t") == before
    both(ann, "UPDATE t SET ra = MOD(ra + 90, 360), `dec` = -`dec` WHERE id % 2 = 0", "UPDATE t SET id = id + 10000 WHERE id < 50", "DELETE FROM t WHERE id % 5 = 3")
    do(ann, "INSERT INTO t VALUES (3000, -10, 5, NULL)")
    assert rows(ann, "SELECT ra FROM t WHERE id = 3000") == [(350.0,)]
    (inside,) = rows(ann, "SELECT COUNT(*) FROM t WHERE scisql_s2PtInCircle(ra, `dec`, 350, 5, 25) = 1")
    assert rows(ann, "SELECT COUNT(*) FROM t WHERE qserv_areaspec_circle(350, 5, 25)") == [inside] and inside[0] > 1
    status, body, _ = site.http("scs/ann/t", "ann", RA="350", DEC="5", SR="25", RESPONSEFORMAT="csv")
    assert status == 200 and len(body.strip().splitlines()) == inside[0] + 1, body
    status, body, _ = site.http("tap/sync", "ann", LANG="ADQL", FORMAT="csv", QUERY="SELECT column_name, ucd FROM TAP_SCHEMA.columns WHERE table_name = 'ann.t'")
    assert status == 200 and "meta.id;meta.main" in body and "pos.eq.dec;meta.main" in body
    # A child of it, which holds it up, and follows it.
    do(ann, "CREATE TABLE c PARTITION BY CHILD OF t (id) AS SELECT id, id * 2 AS v FROM t")
    join = "SELECT COUNT(*), SUM(c.v) FROM ann.c c JOIN ann.t t ON c.id = t.id"
    assert kind(ann, "c") == "child" and is_co_located(ann, join)
    count = rows(ann, join)
    assert number(ann, "DROP TABLE t") == 3730
    do(ann, "UPDATE t SET `dec` = -`dec`")
    assert rows(ann, join) == count and not is_co_located(ann, join)
    do(ann, "INSERT INTO c VALUES (3000, 0)")
    assert is_co_located(ann, join) and rows(ann, join) == [(count[0][0] + 1, count[0][1])]
    do(ann, "RENAME TABLE t TO other_name")
    assert rows(ann, join.replace("ann.t", "ann.other_name")) == [(count[0][0] + 1, count[0][1])]
    do(ann, "ALTER TABLE c PARTITION BY NONE", "ALTER TABLE c PARTITION BY CHILD OF ann.other_name (id)")
    assert is_co_located(ann, join.replace("ann.t", "ann.other_name"))
    do(ann, "ALTER TABLE other_name DROP COLUMN ra")
    assert kind(ann, "other_name") == "replicated"
    site.meridian.must("compact", "--data", site.data)
    site.meridian.must("check", "--data", site.data)


def test_what_cannot_be_said(ann: pymysql.connections.Connection) -> None:
    query = "SELECT id, ra, `dec`, CONCAT('x', id) AS name FROM sky.Star WHERE id < 9"
    for partition, code in {
        "DIRECTOR (id, ra, nothing)": 1054,
        "DIRECTOR (name, ra, `dec`)": 1105,
        "DIRECTOR (id, name, `dec`)": 1105,
        "DIRECTOR (id, ra, ra)": 1105,
        "CHILD OF sky.Star (nothing)": 1054,
        "CHILD OF sky.Star (name)": 1105,
        "CHILD OF sky.Band (id)": 1105,
        "CHILD OF sky.Source (id)": 1105,
        "CHILD OF sky.Nothing (id)": 1146,
        # As if it were not there.
        "CHILD OF hidden.Object (id)": 1146,
        "HASH (id)": 1064,
    }.items():
        assert number(ann, f"CREATE TABLE t PARTITION BY {partition} AS {query}") == code, partition
    assert number(ann, "CREATE TABLE t PARTITION BY DIRECTOR (id, ra, `dec`) AS SELECT 1 AS id, ra, `dec` FROM sky.Star") == 1062
    assert number(ann, "CREATE TABLE t PARTITION BY DIRECTOR (id, ra, `dec`) AS SELECT NULLIF(id, 3) AS id, ra, `dec` FROM sky.Star") == 1048
    assert number(ann, "CREATE TABLE t (id BIGINT, ra DECIMAL(8,4), `dec` DOUBLE) PARTITION BY DIRECTOR (id, ra, `dec`)") == 1105
    assert rows(ann, "SHOW TABLES FROM ann") == []


def test_tables_of_catalogues_that_are_cut_differently(ann: pymysql.connections.Connection) -> None:
    make(ann, "SELECT id, ra, `dec` FROM sky.Star WHERE id < 100")
    do(ann, "CREATE TABLE o AS SELECT id, version FROM other.Object", "CREATE TABLE d AS SELECT id + 0 AS id, ra, `dec` FROM other.Object")
    assert [kind(ann, name) for name in ("t", "o", "d")] == ["child", "child", "director"]
    assert is_co_located(ann, "SELECT COUNT(*) FROM ann.o o JOIN other.Object b ON o.id = b.id")
    for join in ["SELECT COUNT(*) FROM TABLE t JOIN ann.o o ON t.id = o.id", "SELECT COUNT(*) FROM TABLE t JOIN ann.d d ON t.id = d.id", "SELECT COUNT(*) FROM TABLE t JOIN sky.Star s ON t.id = s.id JOIN ann.o o ON o.id = s.id"]:
        alike(ann, join, "ann.t", "ann.twin")
        assert rows(ann, join.replace("TABLE", "ann.t")) == [(50,)]
    both(ann)


def test_a_director_that_may_be_read_no_more_places_nothing(site: Site) -> None:
    """Where its rows are is not for others to know."""
    comment = "SELECT table_comment FROM information_schema.tables WHERE table_schema = 'bob'"
    with site.connect("bob", database="bob") as bob:
        do(bob, "CREATE TABLE t AS SELECT id, ra, `dec` FROM other.Object")
        assert rows(bob, comment) == [("child table",)]
        must(site.meridian, site.data, "revoke", "bob", "--read", "other")
        assert number(bob, "SELECT COUNT(*) FROM other.Object") in (1142, 1044)
        assert rows(bob, "SELECT COUNT(*), MIN(id) FROM t WHERE id > 4") == [(45, 5)]
        do(bob, "INSERT INTO t (id) VALUES (7)")
        assert rows(bob, comment) == [("replicated table",)]
        assert rows(bob, "SELECT COUNT(*), COUNT(DISTINCT id) FROM t") == [(51, 50)]
        do(bob, "DROP TABLE t")
        must(site.meridian, site.data, "grant", "bob", "--read", "other")


def test_a_director_that_is_replaced_or_dropped_holds_nobody_up(meridian: Meridian, tmp_path: Path) -> None:
    data = load_stars_and_bands(meridian, tmp_path, 200)
    meridian.load(data, "sky", "Moved", write_stars(tmp_path / "moved.csv", 200), kind="director", key="id", ra="ra", dec="dec")
    must(meridian, data, "add", "ann", password=PASSWORD)
    must(meridian, data, "grant", "ann", "--read", "sky")
    join = "SELECT COUNT(*), SUM(t.id) FROM ann.t t JOIN sky.Moved s ON t.id = s.id"
    with serving(meridian, data) as server, server.connect(user="ann", password=PASSWORD, database="ann") as ann:
        do(ann, "CREATE TABLE t AS SELECT id, ra, `dec` FROM sky.Moved WHERE id < 150")
        assert is_co_located(ann, join)
        # The same keys, each elsewhere.
        elsewhere = [f"{n},{(n * 7.7) % 360},{(n * 3.1) % 180 - 90},2" for n in range(180)]
        meridian.load(data, "sky", "Moved", write_lines(tmp_path / "elsewhere.csv", elsewhere), kind="director", key="id", ra="ra", dec="dec", replace=True)
        expected = [(150, 150 * 149 // 2)]
        assert rows(ann, join) == expected and not is_co_located(ann, join)
        assert rows(ann, "SELECT COUNT(*) FROM ann.t WHERE id = 7") == [(1,)]
        do(ann, "INSERT INTO t (id) VALUES (151)")
        assert rows(ann, join) == [(151, expected[0][1] + 151)] and is_co_located(ann, join)
        # A part with keys of the child's is dropped: its rows stay.
        meridian.load(data, "sky", "Moved", write_lines(tmp_path / "more.csv", ["900,10,10,3", "901,20,20,3"]), append=True)
        do(ann, "INSERT INTO t (id) VALUES (900)")
        assert is_co_located(ann, join)
        listed = map(json.loads, meridian.must("tables", "--data", data, "--parts", "--format", "json").text.splitlines())
        last = max(int(part["part"]) for part in listed if part["table"] == "Moved")
        meridian.must("drop", "part", "--data", data, "--db", "sky", "--table", "Moved", "--part", last, "--yes")
        assert not is_co_located(ann, join) and rows(ann, join) == [(151, expected[0][1] + 151)]
        meridian.load(data, "sky", "Moved", write_lines(tmp_path / "again.csv", ["900,200,-60,3"]), append=True)
        assert rows(ann, join) == [(152, expected[0][1] + 151 + 900)]
        meridian.must("drop", "table", "--data", data, "--db", "sky", "--table", "Moved", "--yes")
        assert rows(ann, "SELECT COUNT(*), MIN(id) FROM ann.t WHERE id > 4") == [(147, 5)]
        assert kind(ann, "t") == "child"
        do(ann, "INSERT INTO t (id) VALUES (1234)")
        assert kind(ann, "t") == "replicated" and rows(ann, "SELECT COUNT(*) FROM ann.t") == [(153,)]
    meridian.must("check", "--data", data)


def test_a_table_of_columns_and_a_query_is_spread_as_the_query(ann: pymysql.connections.Connection) -> None:
    """But a column that is declared and is no number of degrees is no position."""
    do(
        ann,
        "CREATE TABLE child (note VARCHAR(9), ra DOUBLE) SELECT id, ra, `dec` FROM sky.Star WHERE id < 50",
        "CREATE TABLE texts (note VARCHAR(9), ra VARCHAR(30)) SELECT id, ra, `dec` FROM sky.Star WHERE id < 50",
        "CREATE TABLE spread (note INT) PARTITION BY DIRECTOR (id, ra, `dec`) SELECT id, ra, `dec` FROM sky.Star WHERE id < 50",
        "CREATE TABLE whole (note INT) PARTITION BY NONE AS SELECT id, ra, `dec` FROM sky.Star WHERE id < 50",
    )
    assert [kind(ann, table) for table in ("child", "texts", "spread", "whole")] == ["child", "child", "director", "replicated"]
    for table in ("child", "texts", "spread", "whole"):
        assert rows(ann, f"SELECT COUNT(*), COUNT(note), COUNT(ra) FROM ann.{table}") == [(50, 0, 50)], table
    assert is_co_located(ann, "SELECT COUNT(*) FROM ann.child a JOIN sky.Star s ON a.id = s.id")
    assert number(ann, "CREATE TABLE x (ra VARCHAR(30)) PARTITION BY DIRECTOR (id, ra, `dec`) SELECT id, ra, `dec` FROM sky.Star") == 1105
    assert number(ann, "CREATE TABLE x (note INT) PARTITION BY DIRECTOR (nothing, ra, `dec`) SELECT id, ra, `dec` FROM sky.Star") == 1054
