"""What columns of users' tables store of the values that statements give them, and which they reject, beside MariaDB in strict mode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from meridian_cli import Meridian
from serving import serving
from small_tables import load_stars_and_bands
from strict_mariadb import outcome, rows, strict_mariadb
from test_users import PASSWORD, Site, must
from testbed.mariadb import MariaDB

# Each is stored in columns of each of the types.
VALUES = [
    "0", "1", "-1", "127", "128", "255", "2147483647", "-2147483648", "9007199254740993", "-9007199254740993", "9223372036854775807",
    "9223372036854775808", "18446744073709551615", "12345678901234567890", "123456789012345678901234567890", "007",
    "0.5", "-0.5", "1.5", "2.5", "-2.5", ".5", "1.005", "-1.005", "1.0049999", "1.50", "99999.994", "99999.995", "(1.005)", "- 1.005", "+1.005",
    "12345678901234567890.1234567890", "0.12345678901234567890123", "1e3", "1.5e1", "-2.5e0", "1.005e0", "1e-3", "1e30", "1e39",
    "'1'", "'-1.005'", "' 12 '", "'1e3'", "'12abc'", "'abc'", "''", "'abcd'", "'abcde'", "'abcd  '", "'ab  '", "'9007199254740993'",
    "'12345678901234567890.123456789'", "0x41", "TRUE", "FALSE", "NULL", "20100103", "20101399", "20100103010203", "'2010-01-03'", "'2010-1-3'",
    "'2010-02-30'", "'2010-01-03 01:02:03'", "'2010-01-03 01:02:03.5'", "'2010-01-03abc'", "DATE '2010-01-03'", "TIMESTAMP '2010-01-03 01:02:03.4567'",
    "1 + 2", "CONCAT('1', '2')", "1 = 1", "9007199254740993 + 0", "-(1 + 1)", "REPEAT('x', 5)",
]  # fmt: skip
# MariaDB writes doubles into a short text with fewer digits, and times with the digits that they are typed with.
SHORT_TEXTS = {"VARCHAR(4)", "CHAR(4)"}
TEXTS = {*SHORT_TEXTS, "VARCHAR(40)", "TEXT"}
TYPES = [
    "VARCHAR(40)", "VARCHAR(4)", "CHAR(4)", "TEXT", "DECIMAL(8,2)", "DECIMAL(8,2) UNSIGNED", "DECIMAL(32,10)", "BIGINT", "BIGINT UNSIGNED", "INT", "MEDIUMINT",
    "TINYINT UNSIGNED", "DOUBLE", "FLOAT", "DATE", "DATETIME", "DATETIME(3)",
]  # fmt: skip


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    """The server with which statements are compared."""
    yield from strict_mariadb(tmp_path_factory.mktemp("mariadb"))


@pytest.fixture(scope="module")
def site(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Ann may read the database sky."""
    data = load_stars_and_bands(meridian, tmp_path_factory.mktemp("stored"), 100)
    must(meridian, data, "add", "ann", password=PASSWORD)
    must(meridian, data, "grant", "ann", "--read", "sky")
    with serving(meridian, data) as server:
        yield Site(meridian, data, server)


@pytest.fixture
def ann(site: Site, mariadb: MariaDB) -> Iterator[pymysql.connections.Connection]:
    """Ann's connection; tables are dropped afterwards, of MariaDB too."""
    with site.connect("ann", database="ann") as connection:
        yield connection
    with site.connect("ann", database="ann") as connection:
        for server in (connection, mariadb.connection):
            for (table,) in rows(server, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'ann'"):
                assert isinstance(outcome(server, f"DROP TABLE ann.`{table}`"), int)


class Both:
    """Statements that both servers execute, with the same outcome."""

    def __init__(self, ann: pymysql.connections.Connection, mariadb: MariaDB) -> None:
        self.ann = ann
        self.mariadb = mariadb.connection

    def do(self, *statements: str) -> None:
        """Both do it, or reject it with the same number."""
        for statement in statements:
            expected, found = outcome(self.mariadb, statement), outcome(self.ann, statement)
            numbers = [it[0] if isinstance(it, tuple) else 0 for it in (expected, found)]
            assert numbers[0] == numbers[1], f"{statement}: {expected}, here {found}"

    def same(self, query: str) -> list[tuple[object, ...]]:
        """Both give the same rows."""
        found = rows(self.ann, query)
        assert found == rows(self.mariadb, query), query
        return found


@pytest.fixture
def both(ann: pymysql.connections.Connection, mariadb: MariaDB) -> Both:
    return Both(ann, mariadb)


@pytest.mark.parametrize("ty", TYPES)
def test_each_value_is_stored_by_itself(both: Both, ty: str) -> None:
    """All in one statement: `VALUES (9007199254740993), (0.5)` once made doubles of both, and 1.005 was 1.00 in a DECIMAL(8,2)."""
    statement = f"CREATE TABLE t (n INT, c {ty})"
    both.do(statement)
    accepted, differing = [], []
    for n, value in enumerate(VALUES):
        is_double = "e" in value and value[0] in "-0123456789"
        if (ty in SHORT_TEXTS and is_double) or (ty in TEXTS and value.startswith("TIMESTAMP")):
            continue
        expected = outcome(both.mariadb, f"INSERT INTO t VALUES ({n}, {value})")
        if isinstance(expected, int):
            accepted.append(f"({n}, {value})")
            continue
        found = outcome(both.ann, f"INSERT INTO t VALUES ({n}, {value})")
        if isinstance(found, int) or found[0] != expected[0]:
            differing.append((value, expected, found))
    found = outcome(both.ann, f"INSERT INTO t VALUES {', '.join(accepted)}")
    assert found == len(accepted), found
    expected_rows, found_rows = (dict(rows(it, "SELECT n, c FROM t")) for it in (both.mariadb, both.ann))  # type: ignore[arg-type]
    differing += [(VALUES[n], expected_rows[n], found_rows[n]) for n in expected_rows if expected_rows[n] != found_rows[n]]  # type: ignore[call-overload, misc]
    assert not differing, "\n".join(map(str, differing))


def test_an_insert_may_have_thousands_of_rows(both: Both) -> None:
    """More than the sets of a UNION, of which they were made."""
    both.do("CREATE TABLE t (n INT, d DECIMAL(12,3), s VARCHAR(20))")
    both.do("INSERT INTO t VALUES " + ", ".join(f"({n}, {n}.0625, CONCAT('s', {n}))" if n % 7 == 0 else f"({n}, {n}.0625, 's{n}')" for n in range(3000)))
    assert len(both.same("SELECT * FROM t")) == 3000


def test_later_assignments_see_what_is_stored(both: Both, ann: pymysql.connections.Connection) -> None:
    """Of a DECIMAL, a FLOAT and an INT what is left after rounding; a column that is named like a unit; under its own name and others."""
    both.do("CREATE TABLE t (id INT, i INT, f FLOAT, d DECIMAL(8,2), x DOUBLE, y DOUBLE, day DATE, s VARCHAR(20))")
    both.do("INSERT INTO t VALUES (1, 1, 1, 1, 1, 1, '2026-01-31', 'a'), (2, 2, 0.5, 2.25, NULL, 3, '2026-02-01', 'b'), (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL)")
    both.do(
        "UPDATE t SET d = 1.005, x = d",
        "UPDATE t SET i = 2.6e0, x = i WHERE id < 3",
        "UPDATE t SET f = 0.1e0, x = f, y = x + 1",
        "UPDATE t SET day = '2026-03-01', s = day + INTERVAL 1 DAY WHERE id = 1",
        "UPDATE t SET day = day + INTERVAL 1 DAY, s = DATE_ADD(day, INTERVAL 2 day), day = day - INTERVAL 1 MONTH",
        "UPDATE t SET i = 5, s = CONCAT('i', i, \"i\"), i = i + 1, x = i WHERE i IS NOT NULL",
        "UPDATE t AS u SET u.i = u.i + 1, u.x = u.i * 2 WHERE u.id = 2",
        "UPDATE ann.t SET ann.t.i = 7, x = ann.t.i + t.i WHERE ann.t.id = 1",
        "UPDATE t SET x = 1, y = (SELECT MAX(other.x) FROM (SELECT 1 AS id, 5 AS x UNION ALL SELECT 2, 6) AS other WHERE other.id = t.x)",
        "UPDATE t SET s = 1.50, y = s WHERE id = 1",
        "UPDATE t SET d = 2.5, i = d, i = i + 1, d = i",
        "UPDATE t SET s = (i = 7), x = s",
    )
    both.same("SELECT * FROM t")
    for _ in range(2):
        assert outcome(ann, "UPDATE t SET s = 1.50 WHERE id < 3") in (0, 2)
    assert set(rows(ann, "SELECT s FROM t WHERE id < 3")) == {("1.50",)}
    assert outcome(ann, "UPDATE t SET x = RAND(), y = x") == 3
    assert rows(ann, "SELECT COUNT(*), COUNT(DISTINCT x) FROM t WHERE x = y AND x > 0") == [(3, 3)]


def test_decimals_keep_their_digits(both: Both) -> None:
    """In expressions of UPDATE and among the results of a query, too: a minus made a double of a decimal."""
    both.do(
        "CREATE TABLE t (id INT, d DECIMAL(32,10), s VARCHAR(40))",
        "INSERT INTO t VALUES (1, 12345678901234567890.1234567891, 'a')",
        "INSERT INTO t SELECT 2, -12345678901234567890.1234567891, -1.50",
        "INSERT INTO t SELECT id + 2, -d, d FROM t",
        "INSERT INTO t (id, d) VALUES (5, -(12345678901234567890.1234567891)), (6, CAST('9999999999999999999999.5' AS DECIMAL(32,10)))",
        "UPDATE t SET d = -d, s = d WHERE id = 1",
        "UPDATE t SET d = 9007199254740993.00000000015 WHERE id = 2",
    )
    both.same("SELECT * FROM t")
    both.same("SELECT id, -d, -(-d) FROM t")


def test_lengths_are_kept(both: Both, ann: pymysql.connections.Connection) -> None:
    both.do("CREATE TABLE t (id INT, v VARCHAR(4), c CHAR(4) NOT NULL, b VARBINARY(3))", "INSERT INTO t VALUES (1, 'abcd', 'äöüß', 'abc')")
    code, sentence = outcome(ann, "INSERT INTO t (id, c, v) VALUES (1, 'a', 'b'), (2, 'x', 'abcde')")  # type: ignore[misc]
    assert code == 1406 and "column v" in sentence and "ow 2" in sentence, sentence
    both.do(
        "INSERT INTO t VALUES (2, 'abcde', 'a', 'a')",
        "INSERT INTO t SELECT 2, 'a', CONCAT('abc', 'de'), 'a'",
        "INSERT INTO t (id, c, b) VALUES (2, 'a', 'abcd')",
        "UPDATE t SET v = CONCAT(v, 'e')",
        "UPDATE t SET c = NULL",
        "INSERT INTO t VALUES (2, NULL, NULL, NULL)",
        "INSERT INTO t (id) VALUES (3)",
        "ALTER TABLE t ADD COLUMN w VARCHAR(2) DEFAULT 'abc'",
        "ALTER TABLE t ADD COLUMN w VARCHAR(2) NOT NULL DEFAULT 'ab', RENAME COLUMN v TO u",
        "UPDATE t SET w = 'abc'",
        "UPDATE t SET u = 'abcde'",
        "INSERT INTO t (id, c, w) VALUES (4, 'x', 'yz')",
    )
    both.same("SELECT * FROM t")
    shown = {row[0]: row[1:5] for row in rows(ann, "SHOW COLUMNS FROM t")}
    assert shown["u"] == ("varchar(4)", "YES", "", None) and shown["w"] == ("varchar(2)", "NO", "", "ab") and shown["c"][0] == "char(4)"
    ((_, created),) = rows(ann, "SHOW CREATE TABLE t")
    assert "`u` varchar(4) DEFAULT NULL" in str(created) and "`w` varchar(2) NOT NULL DEFAULT 'ab'" in str(created)
    lengths = "SELECT column_name, column_type, character_maximum_length FROM information_schema.columns WHERE table_schema = 'ann' AND table_name = 't' AND column_name IN ('u', 'c', 'w')"
    both.same(lengths)
    assert rows(ann, "SELECT column_default FROM information_schema.columns WHERE table_schema = 'ann' AND column_name = 'w'") == [("ab",)]


def test_defaults_are_kept(both: Both, ann: pymysql.connections.Connection) -> None:
    """Of CREATE TABLE and of ALTER TABLE ADD, for columns that an INSERT leaves out, and for the word DEFAULT."""
    both.do(
        "CREATE TABLE t (id INT, n INT DEFAULT 7, s VARCHAR(20) NOT NULL DEFAULT 'not null, default', d DECIMAL(8,2) DEFAULT -1.005, m INT NOT NULL, e DATE DEFAULT '2026-01-02' COMMENT 'it')",
        "INSERT INTO t (id, m) VALUES (1, 1), (2, 2)",
        "INSERT INTO t (m, id, n) VALUES (3, 3, DEFAULT), (4, 4, NULL)",
        "INSERT INTO t VALUES (5, DEFAULT, DEFAULT, DEFAULT, 5, DEFAULT)",
        "INSERT INTO t (id) VALUES (6)",
        "INSERT INTO t (id, m) VALUES (6, DEFAULT)",
        "INSERT INTO t (m, s) SELECT id + 100, CONCAT('s', id) FROM t",
        "INSERT INTO t SET id = 7, m = 1 + 1",
        "INSERT INTO t (id, m, s, d) SELECT 8, m, 1.50, 1.005 FROM t UNION ALL SELECT 9, 1, 2.500, -1.005",
        "ALTER TABLE t ADD COLUMN q DOUBLE DEFAULT 0.5, ADD w VARCHAR(4) NOT NULL, ADD z INT NOT NULL",
        "INSERT INTO t (id, m, w, z) VALUES (8, 8, 'w', 8)",
        "UPDATE t SET n = DEFAULT, s = DEFAULT, q = 2 WHERE id = 4",
        "UPDATE t SET m = DEFAULT",
        "ALTER TABLE t ADD COLUMN x INT DEFAULT 'abc'",
        "CREATE TABLE wrong (x INT DEFAULT 'abc')",
        "CREATE TABLE wrong (x VARCHAR(2) DEFAULT 'abc')",
        "ALTER TABLE t RENAME COLUMN n TO nn, DROP COLUMN d",
        "INSERT INTO t (id, m, w, z) VALUES (9, 9, '', 9)",
    )
    both.same("SELECT * FROM t")
    assert isinstance(outcome(ann, "CREATE TABLE u (a INT, at DATETIME(6) DEFAULT CURRENT_TIMESTAMP, l INT DEFAULT (1 + 2))"), int)
    assert outcome(ann, "INSERT INTO u (a) VALUES (1), (2)") == 2
    assert outcome(ann, "INSERT INTO u (a) SELECT id FROM sky.Star WHERE id < 5") == 5
    assert rows(ann, "SELECT COUNT(*) FROM u WHERE at > NOW() - INTERVAL 1 HOUR AND l = 3") == [(7,)]
    for statement in ("ALTER TABLE u ADD x VARCHAR(9) DEFAULT CONCAT('s', a)", "CREATE TABLE wrong (x INT DEFAULT nothing)"):
        code, sentence = outcome(ann, statement)  # type: ignore[misc]
        assert code == 1067 and "column x" in sentence, sentence


def test_what_is_not_supported_is_told(ann: pymysql.connections.Connection) -> None:
    assert outcome(ann, "CREATE TABLE t (id INT, s VARCHAR(4))") == 0
    for statement, code, words in [
        ("INSERT IGNORE INTO t VALUES (1, 'a')", 1235, "leave IGNORE out"),
        ("REPLACE INTO t VALUES (1, 'a')", 1235, "DELETE the old rows"),
        ("INSERT INTO t VALUES (1, 'a') ON DUPLICATE KEY UPDATE s = 'b'", 1235, "no keys"),
        ("INSERT INTO t VALUES (1, 'a') RETURNING id", 1235, "SELECT the rows"),
        ("INSERT INTO t VALUES (1, DEFAULT(s))", 1235, "SHOW COLUMNS"),
        ("UPDATE IGNORE t SET id = 1", 1235, "leave IGNORE out"),
        ("UPDATE t SET s = DEFAULT(s)", 1235, "SHOW COLUMNS"),
        ("CREATE TABLE u (id INT, e ENUM('a', 'b'))", 1235, "VARCHAR"),
        ("CREATE TABLE u (id INT, y YEAR)", 1235, "SMALLINT"),
        ("CREATE TABLE u (id INT, f FLOAT(7,4))", 1235, "DECIMAL"),
        ("CREATE TABLE u (id INT DEFAULT RAND())", 1235, "one value"),
        ("INSERT INTO t VALUES (1, 'a'), (2)", 1136, "row 2"),
        ("INSERT INTO t VALUES (1, 'a'), (2, nothing)", 1054, "nothing"),
    ]:
        found = outcome(ann, statement)
        assert isinstance(found, tuple) and found[0] == code and words in found[1], f"{statement}: {found}"
    assert rows(ann, "SELECT COUNT(*) FROM t") == [(0,)]
