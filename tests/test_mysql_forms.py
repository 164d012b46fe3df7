"""Forms and functions of MySQL's that MariaDB has alike: what each gives was found there, but for what the tests say of MySQL 8."""

from __future__ import annotations

import decimal
from collections.abc import Iterator

import pymysql
import pymysql.converters
import pytest

from meridian_cli import Meridian
from test_users import Site, site_of_ann_and_bob

# Of values that are received none is made anything but a text.
AS_TEXTS = dict(pymysql.converters.encoders)
NUMBERS = "WITH RECURSIVE n AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM n{}) SELECT COUNT(*) FROM n"


@pytest.fixture(scope="module")
def site(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_of_ann_and_bob(meridian, tmp_path_factory.mktemp("forms"), 60) as site:
        yield site


@pytest.fixture
def ann(site: Site) -> Iterator[pymysql.connections.Connection]:
    with site.connect("ann", conv=AS_TEXTS) as connection:
        yield connection


def rows(connection: pymysql.connections.Connection, statement: str) -> list[tuple[object, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def row(connection: pymysql.connections.Connection, statement: str) -> tuple[object, ...]:
    (only,) = rows(connection, statement)
    return only


def number(connection: pymysql.connections.Connection, statement: str) -> int:
    """MySQL's number of the error."""
    with pytest.raises(pymysql.err.MySQLError) as rejected:
        rows(connection, statement)
    return int(rejected.value.args[0])


def warnings(connection: pymysql.connections.Connection) -> list[str]:
    return [str(code) for _, code, _ in rows(connection, "SHOW WARNINGS")]


VALUES = [
    # Constants with a point are exact: their halves are rounded away from zero where an integer is taken.
    ("FORMAT(2.5, 0), FORMAT(-2.5, 0), FORMAT(2.5e0, 0), FORMAT(1.115e0, 2)", ("3", "-3", "2", "1.12")),
    ("2.5 << 1, 2.5 & 7, 3.5 | 0, 2.5 ^ 0, ~2.5, 7 >> 1.5", ("6", "3", "4", "3", "18446744073709551612", "1")),
    ("LEFT('abcd', 2.5), LEFT('abcd', 2.5e0), RIGHT('abcd', 2.5), REPEAT('x', 2.5), LPAD('a', 2.5, 'b')", ("abc", "ab", "bcd", "xxx", "bba")),
    ("SUBSTRING('abcdef', 1.5, 2.5), SUBSTRING('abcdef' FROM 2.5), INSERT('abcdef', 1.5, 1.5, 'X'), SPACE(2.5)", ("bcd", "cdef", "aXdef", "   ")),
    ("LOCATE('a', 'banana', 2.5), SUBSTRING_INDEX('a.b.c.d', '.', 1.5), ELT(1.5, 'a', 'b'), CHAR(64.5)", ("4", "a.b", "b", "A")),
    ("ROUND(1.2345e0, 1.5), TRUNCATE(1.2345e0, 1.5), CAST(2.5 AS UNSIGNED), BIT_COUNT(2.5)", ("1.23", "1.23", "3", "2")),
    ("HEX(2.5), BIN(2.5), BIN(3.5e0), OCT(9.5), CONV(2.5, 10, 2)", ("3", "10", "11", "11", "10")),
    ("MAKEDATE(2010, 1.5), FROM_DAYS(730000.5), WEEK('2008-02-20', 0.5), PERIOD_ADD(200801, 1.5)", ("2010-01-02", "1998-09-04", "8", "200803")),
    (
        "TIMESTAMP '2010-06-15 01:02:03' + INTERVAL 2.5 MINUTE, TIMESTAMP '2010-06-15 01:02:03' - INTERVAL 2.5 MINUTE, DATE '2010-06-15' + INTERVAL 1.5 DAY,"
        " ADDDATE('2010-06-15', 1.5)",
        ("2010-06-15 01:05:03", "2010-06-15 00:59:03", "2010-06-17", "2010-06-17"),
    ),
    ("TIMESTAMP '2010-06-15 01:02:03' + INTERVAL 2.5 SECOND = '2010-06-15 01:02:05.5'", ("1",)),
    # BINARY is of what stands next to it.
    ("BINARY 'a' = 'A', BINARY 'a' = 'a', 'a' = BINARY 'A', BINARY 1 + 1, BINARY 'b' IN ('a', 'b'), HEX(BINARY 'a')", ("0", "1", "0", "2", "1", "61")),
    # A letter has one letter of the other case.
    ("UPPER('straße ŉ ﬁ'), LOWER('İΣ'), UPPER('ᾳ')", ("STRAßE ŉ ﬁ", "iσ", "ᾼ")),
    ("SHA1('abc'), SHA('abc') = SHA1('abc')", ("a9993e364706816aba3e25717850c26c9cd0d89d", "1")),
    ("SHA2('abc', 224), SHA2('abc', 1)", ("23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7", None)),
    ("SHA2('abc', 0) = SHA2('abc', 256), LENGTH(SHA2('abc', 384)), LENGTH(SHA2('abc', 512)), SHA2(NULL, 256)", ("1", "96", "128", None)),
    ("TO_BASE64('abc'), LENGTH(TO_BASE64(REPEAT('x', 60))), FROM_BASE64('YW Jj'), FROM_BASE64('YWI')", ("YWJj", "81", "abc", None)),
    ("QUOTE('Don''t'), QUOTE(NULL), QUOTE(5)", ("'Don\\'t'", "NULL", "'5'")),
    ("SOUNDEX('Quadratically'), SOUNDEX('Ashcraft'), SOUNDEX('Éa'), SOUNDEX('12')", ("Q36324", "A2613", "É000", "")),
    ("MAKE_SET(1 | 4, 'hello', 'nice', NULL, 'world'), MAKE_SET(2.5, 'a', 'b'), MAKE_SET(NULL, 'a')", ("hello", "a,b", None)),
    ("EXPORT_SET(5, 'Y', 'N', ',', 4), EXPORT_SET(6, '1', '0', '', 3), LENGTH(EXPORT_SET(6, '1', '0'))", ("Y,N,Y,N", "011", "127")),
    ("INET_ATON('10.0.5.9'), INET_ATON('127.1'), INET_ATON('256.1'), INET_NTOA(167773449), INET_NTOA(-1)", ("167773449", "2130706433", None, "10.0.5.9", None)),
    ("PERIOD_ADD(9912, 1), PERIOD_DIFF(200802, 200703)", ("200001", "11")),
    ("WEEKOFYEAR('2010-01-03'), TO_SECONDS('2009-11-29 13:43:32'), TO_SECONDS(950501), TO_SECONDS('x')", ("53", "63426721412", "62966505600", None)),
    ("LENGTH(UUID()), UUID() = UUID()", ("36", "0")),
    # Units that are made of several.
    ("EXTRACT(YEAR_MONTH FROM '1999-12-31'), EXTRACT(DAY_MINUTE FROM '2019-07-02 01:02:03')", ("199912", "20102")),
    ("EXTRACT(DAY_MICROSECOND FROM TIMESTAMP '2019-07-02 01:02:03.5'), EXTRACT(HOUR_MINUTE FROM '-11:07:15')", ("2010203500000", "-1107")),
    (
        "TIMESTAMP '2010-06-15 01:02:03' + INTERVAL '1:30' HOUR_MINUTE, TIMESTAMP '2010-06-15 01:02:03' - INTERVAL '1:30' HOUR_MINUTE,"
        " TIMESTAMP '2010-06-15 01:02:03' + INTERVAL 1.30 HOUR_MINUTE, TIMESTAMP '2010-06-15 01:02:03' + INTERVAL '1:2:3' HOUR_MINUTE",
        ("2010-06-15 02:32:03", "2010-06-14 23:32:03", "2010-06-15 02:32:03", None),
    ),
    (
        "DATE '2010-06-15' + INTERVAL '1-2' YEAR_MONTH, '2010-06-15' + INTERVAL '1 1' DAY_HOUR, DATE_SUB('2010-06-15', INTERVAL '1-2' YEAR_MONTH)",
        ("2011-08-15", "2010-06-16 01:00:00", "2009-04-15"),
    ),
    ("TIME '11:07:15' + INTERVAL '1:30' HOUR_MINUTE", ("12:37:15",)),
    ("(1, 2) = (SELECT 1, 2), (1, 2) = (SELECT 1, 3), (1, 2) <> (SELECT 1, 3), (SELECT 1, 2) = (1, 2)", ("1", "0", "1", "1")),
    ("(1, NULL) = (SELECT 1, 2), (1, 2) = (SELECT id, 2 FROM sky.Band WHERE id < 0)", (None, None)),
]  # fmt: skip


@pytest.mark.parametrize(("expressions", "expected"), VALUES, ids=[expressions[:50] for expressions, _ in VALUES])
def test_values(ann: pymysql.connections.Connection, expressions: str, expected: tuple[object, ...]) -> None:
    found = row(ann, f"SELECT {expressions}")
    assert tuple(it.decode() if isinstance(it, bytes) else it for it in found) == expected


def test_integers_are_taken_of_columns_as_of_constants(ann: pymysql.connections.Connection) -> None:
    assert rows(ann, "SELECT LEFT(name, id + 0.5) FROM sky.Band WHERE id = 2") == [("ba",)], "a sum with a point is a double here"
    assert rows(ann, "SELECT LEFT(name, CAST(id + 0.5 AS DECIMAL(3, 1))) FROM sky.Band WHERE id = 2") == [("ban",)]
    assert rows(ann, "SELECT id FROM sky.Band ORDER BY BINARY name DESC LIMIT 1") == [("4",)]


def test_a_row_is_compared_with_that_of_a_subquery(ann: pymysql.connections.Connection) -> None:
    """It was an error that told to write IN."""
    of_last = "SELECT id FROM sky.Band WHERE (id, name) = (SELECT id, name FROM sky.Band ORDER BY id DESC LIMIT 1)"
    assert rows(ann, of_last) == [("4",)]
    correlated = "SELECT id FROM sky.Band b WHERE (b.id, b.name) = (SELECT c.id, c.name FROM sky.Band c WHERE c.id = b.id) AND b.id < 2 ORDER BY id"
    assert rows(ann, correlated) == [("0",), ("1",)]
    assert number(ann, "SELECT id FROM sky.Band WHERE (id, name) = (SELECT id, name FROM sky.Band)") == 1242
    assert number(ann, "SELECT (1, 2) = (SELECT 1, 2, 3)") == 1241
    assert number(ann, "SELECT (1, 2) < (SELECT 1, 2)") == 1235


def test_a_recursion_ends(ann: pymysql.connections.Connection) -> None:
    """Without a condition it ran until somebody killed it."""
    assert row(ann, NUMBERS.format(" WHERE x < 1000")) == ("1000",)
    for condition in ("", " WHERE x < 1001"):
        assert number(ann, NUMBERS.format(condition)) == 3636
    rows(ann, "SET cte_max_recursion_depth = 2000")
    assert row(ann, NUMBERS.format(" WHERE x < 2000")) == ("2000",)
    assert number(ann, NUMBERS.format(" WHERE x < 2001")) == 3636
    rows(ann, "SET cte_max_recursion_depth = 3")
    assert number(ann, NUMBERS.format(" WHERE x < 4")) == 3636
    rows(ann, "SET cte_max_recursion_depth = DEFAULT")
    # A plan that is kept counts anew each time.
    for _ in range(4):
        assert row(ann, NUMBERS.format(" WHERE x < 900")) == ("900",)


def test_a_recursive_table_has_the_types_of_its_first_select(ann: pymysql.connections.Connection) -> None:
    """What became an integer was cut off, so that this one never ended."""
    halves = "WITH RECURSIVE n AS (SELECT 1 AS x UNION ALL SELECT x + 0.5 FROM n WHERE x < 5) SELECT x FROM n ORDER BY x"
    assert [x for (x,) in rows(ann, halves)] == ["1", "2", "3", "4", "5"]
    exact = "WITH RECURSIVE n AS (SELECT CAST(1 AS DECIMAL(4, 1)) AS x UNION ALL SELECT x + 0.5 FROM n WHERE x < 3) SELECT x FROM n ORDER BY x"
    assert [decimal.Decimal(str(x)) for (x,) in rows(ann, exact)] == [decimal.Decimal(it) / 2 for it in range(2, 7)]


def test_a_recursion_takes_a_limit(ann: pymysql.connections.Connection) -> None:
    """MySQL 8 has it since 8.0.19. It was left out without a word."""
    assert sorted(rows(ann, "WITH RECURSIVE n AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM n LIMIT 5) SELECT x FROM n")) == [(str(n),) for n in range(1, 6)]
    assert row(ann, "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 100 LIMIT 3) SELECT SUM(x) FROM n") == ("6",)


def test_a_recursion_ends_at_its_limit_whatever_is_done_with_its_rows(ann: pymysql.connections.Connection) -> None:
    """A sort became one with the limit and waited for the end of the recursion, which had none: error 3636."""
    five = "WITH RECURSIVE n AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM n LIMIT 5) SELECT {}"
    assert rows(ann, five.format("x FROM n ORDER BY x")) == [(str(n),) for n in range(1, 6)]
    assert rows(ann, five.format("x FROM n ORDER BY x DESC LIMIT 2")) == [("5",), ("4",)]
    assert rows(ann, five.format("x, RANK() OVER (ORDER BY x DESC) FROM n ORDER BY x")) == [(str(n), str(6 - n)) for n in range(1, 6)]
    assert row(ann, five.format("GROUP_CONCAT(x ORDER BY x DESC) FROM n")) == ("5,4,3,2,1",)
    assert rows(ann, five.format("a.x FROM n AS a JOIN n AS b ON a.x = b.x + 3 ORDER BY a.x")) == [("4",), ("5",)]
    assert row(ann, five.format("MAX(x) FROM n WHERE x < 100")) == ("5",)
    with_offset = "WITH RECURSIVE n AS (SELECT 1 AS x UNION SELECT x + 1 FROM n LIMIT 3 OFFSET 4) SELECT x FROM n ORDER BY x"
    assert rows(ann, with_offset) == [("5",), ("6",), ("7",)]


JOINED = (
    "WITH a AS (SELECT 1 AS x UNION ALL SELECT 2 UNION ALL SELECT 3), b AS (SELECT 1 AS x, 10 AS y UNION ALL SELECT 2, 20), c AS (SELECT 10 AS y) SELECT {}"
)


def test_columns_of_values_have_names(ann: pymysql.connections.Connection) -> None:
    # MySQL's reference manual: column_0, column_1 and so on.
    with ann.cursor(pymysql.cursors.DictCursor) as cursor:
        cursor.execute("VALUES ROW(2, 'b'), ROW(1, 'a') ORDER BY column_0")
        assert list(cursor.fetchall()) == [{"column_0": "1", "column_1": "a"}, {"column_0": "2", "column_1": "b"}]
    assert rows(ann, "SELECT t.column_1, column_0 + 1 FROM (VALUES ROW(1, 'a'), ROW(2, 'b')) AS t WHERE column_0 > 1") == [("b", "3")]
    assert rows(ann, "SELECT y FROM (VALUES ROW(1, 'a'), ROW(2, 'b')) AS t (x, y) ORDER BY x DESC LIMIT 1") == [("b",)]
    assert rows(ann, "SELECT 3 IN (VALUES ROW(1), ROW(3)), EXISTS (VALUES ROW(1))") == [("1", "1")]
    assert rows(ann, "VALUES ROW(1) UNION ALL VALUES ROW(2), ROW(3) ORDER BY column_0 DESC LIMIT 2") == [("3",), ("2",)]
    assert rows(ann, "WITH RECURSIVE n AS (VALUES ROW(1) UNION ALL SELECT column_0 + 1 FROM n WHERE column_0 < 4) SELECT SUM(column_0) FROM n") == [("10",)]
    assert number(ann, "VALUES ROW(1), ROW(1, 2)") == 1136
    assert number(ann, "SELECT column1 FROM (VALUES ROW(1)) AS t") == 1054


def test_tables_of_constants_are_joined_and_ordered(ann: pymysql.connections.Connection) -> None:
    tables = "WITH a AS (SELECT 1 AS x UNION ALL SELECT 2 UNION ALL SELECT 3), b AS (SELECT 2 AS y, 'two' AS n UNION SELECT 3, NULL UNION SELECT 3, NULL)"
    assert rows(ann, f"{tables} SELECT x, y, n FROM a LEFT JOIN b ON x = y ORDER BY y DESC, x") == [("3", "3", None), ("2", "2", "two"), ("1", None, None)]
    assert rows(ann, f"{tables} SELECT x, y FROM a RIGHT JOIN b ON x = y AND x < 3 ORDER BY x, y") == [(None, "3"), ("2", "2")]
    nested = "((SELECT 1 AS x, 2 AS y UNION SELECT 3, 4) UNION SELECT 5, 6) t"
    assert rows(ann, f"SELECT SUM(x), SUM(y) FROM {nested}") == [("9", "12")]
    assert rows(ann, f"SELECT SUM(x), SUM(n) FROM ({nested}, (SELECT 1 AS n UNION ALL SELECT 2) u)") == [("18", "9")]
    assert rows(ann, f"{tables} SELECT COUNT(*), MAX(x) FROM a WHERE x NOT IN (SELECT y FROM b)") == [("1", "1")]


def test_joins_within_joins_need_no_parentheses(ann: pymysql.connections.Connection) -> None:
    """Each ON is that of the nearest join before it that has none. They could not be read."""
    for statement, expected in [
        ("a.x, c.y FROM a JOIN b LEFT JOIN c USING (y) ON a.x = b.x ORDER BY 1", [("1", "10"), ("2", None)]),
        ("a.x, d.x FROM a LEFT JOIN b JOIN c ON b.y = c.y JOIN a AS d ON d.x > b.x ON a.x = b.x ORDER BY 1, 2", [("1", "2"), ("1", "3"), ("2", None), ("3", None)]),
        ("a.x, c.y FROM c RIGHT JOIN b JOIN a ON a.x = b.x ON b.y = c.y WHERE 1 IN (SELECT x FROM a JOIN b USING (x)) ORDER BY 1", [("1", "10"), ("2", None)]),
        # A join without a condition is a cross join, whatever comes behind it.
        ("COUNT(*) FROM a JOIN b JOIN c ON b.y = c.y", [("3",)]),
        ("COUNT(*) FROM a JOIN b LEFT JOIN c JOIN b AS d ON c.y = d.y ON b.y = c.y AND a.x = 1", [("6",)]),
    ]:
        assert rows(ann, JOINED.format(statement)) == expected, statement
    for statement in ("1 FROM a LEFT JOIN b", "1 FROM a LEFT JOIN b JOIN c ON b.y = c.y", "1 FROM a JOIN b ON a.x = b.x ON a.x = 1"):
        assert number(ann, JOINED.format(statement)) == 1064, statement


OF_SIX = (
    "WITH t AS (SELECT 2 AS a, 'x' AS b, 1 AS m UNION ALL SELECT 1, 'y', 2 UNION ALL SELECT 1, 'x', 3 UNION ALL SELECT NULL, 'y', 4"
    " UNION ALL SELECT 2, NULL, 5 UNION ALL SELECT 1, 'x', 6) SELECT {}"
)
ROLLED_UP: list[tuple[object, ...]] = [
    (None, "y", "1"), (None, None, "1"), ("1", "x", "2"), ("1", "y", "1"), ("1", None, "3"), ("2", None, "1"), ("2", "x", "1"), ("2", None, "2"), (None, None, "6"),
]  # fmt: skip


def test_totals_come_behind_their_groups(ann: pymysql.connections.Connection) -> None:
    """Without an ORDER BY the rows of WITH ROLLUP had another order with each execution, and a LIMIT took others."""
    rolled_up = "a, b, COUNT(*) FROM t GROUP BY a, b WITH ROLLUP"
    for _ in range(3):
        assert rows(ann, OF_SIX.format(rolled_up)) == ROLLED_UP
        assert rows(ann, OF_SIX.format(f"{rolled_up} LIMIT 2, 3")) == ROLLED_UP[2:5]
        assert sorted(rows(ann, OF_SIX.format(f"* FROM (SELECT {rolled_up} LIMIT 4) AS s")), key=str) == sorted(ROLLED_UP[:4], key=str)
    for statement, expected in [
        ("b, a, COUNT(*) FROM t GROUP BY 2, 1 WITH ROLLUP", [(b, a, n) for a, b, n in ROLLED_UP]),
        ("a, COUNT(*) FROM t GROUP BY a WITH ROLLUP HAVING COUNT(*) > 1", [("1", "3"), ("2", "2"), (None, "6")]),
        # The group is the column, whatever an item is called.
        ("a + 1 AS a, COUNT(*) FROM t GROUP BY a WITH ROLLUP", [(None, "1"), ("2", "3"), ("3", "2"), (None, "6")]),
        ("a > 1 AS large, COUNT(*) FROM t GROUP BY large WITH ROLLUP", [(None, "1"), ("0", "3"), ("1", "2"), (None, "6")]),
        ("-m AS negative, COUNT(*) FROM t WHERE m < 4 GROUP BY negative WITH ROLLUP", [("-3", "1"), ("-2", "1"), ("-1", "1"), (None, "3")]),
        ("COUNT(*) FROM t GROUP BY a, m DIV 2 WITH ROLLUP", [(n,) for n in "1 1 2 1 3 1 1 2 6".split()]),
        ("COUNT(*), m > 0 FROM t GROUP BY a, m DIV 2 WITH ROLLUP", [(n, "1") for n in "1 1 2 1 3 1 1 2 6".split()]),
        ("COUNT(*), 'k' AS k FROM t GROUP BY 'k', a WITH ROLLUP LIMIT 4", [(n, "k") for n in "1 3 2 6".split()]),
        ("a, COUNT(*), RANK() OVER (ORDER BY COUNT(*)) FROM t GROUP BY a WITH ROLLUP", [(None, "1", "1"), ("1", "3", "3"), ("2", "2", "2"), (None, "6", "4")]),
        ("IF(GROUPING(a), 'all', a), COUNT(*) FROM t GROUP BY a WITH ROLLUP", [(None, "1"), ("1", "3"), ("2", "2"), ("all", "6")]),
        ("x.a, y.b, COUNT(*) FROM t AS x JOIN t AS y USING (m) GROUP BY a, y.b WITH ROLLUP LIMIT 5", ROLLED_UP[:5]),
        ("a, COUNT(*) FROM t GROUP BY a WITH ROLLUP ORDER BY COUNT(*)", [(None, "1"), ("2", "2"), ("1", "3"), (None, "6")]),
    ]:
        assert rows(ann, OF_SIX.format(statement)) == expected, statement
    assert len(rows(ann, OF_SIX.format("DISTINCT a, COUNT(*) FROM t GROUP BY a WITH ROLLUP"))) == 4
    assert rows(ann, OF_SIX.format("a, COUNT(*) FROM t WHERE m > 9 GROUP BY a WITH ROLLUP")) == []
    # Of a table in many chunks.
    pairs = [(int(str(a)), int(str(b))) for a, b in rows(ann, "SELECT id % 4, id % 3 FROM sky.Star")]
    counted: list[tuple[object, ...]] = []
    for a in sorted({a for a, _ in pairs}):
        counted += [(str(a), str(b), str(pairs.count((a, b)))) for b in sorted({b for other, b in pairs if other == a})]
        counted.append((str(a), None, str(sum(other == a for other, _ in pairs))))
    counted.append((None, None, str(len(pairs))))
    assert rows(ann, "SELECT id % 4 AS a, id % 3 AS b, COUNT(*) FROM sky.Star GROUP BY a, b WITH ROLLUP") == counted
    assert rows(ann, "SELECT id % 4 AS a, id % 3, COUNT(*) FROM sky.Star s GROUP BY 1, s.id % 3 WITH ROLLUP LIMIT 7") == counted[:7]


def test_group_concat_is_cut_where_the_connection_says_so(ann: pymysql.connections.Connection) -> None:
    """The variable could be set and changed nothing. By default nothing is cut, which MySQL does at 1,024 bytes."""
    whole = "band 0,band 1,band 2,band 3,band 4"
    statement = "SELECT GROUP_CONCAT(name ORDER BY id) FROM sky.Band"
    assert row(ann, statement) == (whole,)
    assert row(ann, "SELECT LENGTH(GROUP_CONCAT(REPEAT('x', 3000))) FROM sky.Band") == ("15004",)
    rows(ann, "SET group_concat_max_len = 10")
    assert row(ann, statement) == (whole[:10],)
    assert warnings(ann) == ["1260"]
    assert row(ann, "SELECT GROUP_CONCAT(DISTINCT name ORDER BY id DESC) FROM sky.Band") == ("band 4,ban",)
    assert rows(ann, "SELECT GROUP_CONCAT('ééé', id) FROM sky.Band GROUP BY id HAVING id = 1") == [("ééé1",)]
    rows(ann, "SET group_concat_max_len = 4")
    assert rows(ann, "SELECT GROUP_CONCAT('aéé') FROM sky.Band WHERE id = 1") == [("aé",)], "no letter is cut"
    rows(ann, "SET group_concat_max_len = DEFAULT")
    assert row(ann, statement) == (whole,)
    assert warnings(ann) == []


def test_locks_are_accepted(ann: pymysql.connections.Connection) -> None:
    for lock in ("LOCK IN SHARE MODE", "FOR SHARE", "FOR UPDATE", "FOR UPDATE SKIP LOCKED", "for update nowait"):
        assert rows(ann, f"SELECT name FROM sky.Band WHERE id = 1 {lock}") == [("band 1",)], lock


def test_a_row_goes_into_variables(ann: pymysql.connections.Connection) -> None:
    """SELECT ... INTO @x could not be read."""
    with ann.cursor() as cursor:
        assert cursor.execute("SELECT id, name INTO @id, @name FROM sky.Band WHERE id = 3") == 1
    assert row(ann, "SELECT @id, @name, @id + 1") == ("3", "band 3", "4")
    with ann.cursor() as cursor:
        assert cursor.execute("SELECT id FROM sky.Band WHERE id = 99 INTO @id") == 0
    assert warnings(ann) == ["1329"]
    assert row(ann, "SELECT @id") == ("3",), "it keeps what it has"
    assert number(ann, "SELECT id INTO @id FROM sky.Band") == 1172
    assert number(ann, "SELECT id, name INTO @id FROM sky.Band WHERE id = 1") == 1222
    assert number(ann, "SELECT nothing INTO @id FROM sky.Band") == 1054
    assert row(ann, "SELECT @id, 'into @id'") == ("3", "into @id")
    rows(ann, "WITH last AS (SELECT MAX(id) AS id FROM sky.Band) SELECT id FROM last INTO @id")
    assert row(ann, "SELECT @id") == ("4",)


def test_tables_are_declared_like_others(ann: pymysql.connections.Connection) -> None:
    """CREATE TABLE ... LIKE could not be read."""
    rows(ann, "CREATE TABLE ann.first (id INT NOT NULL, name VARCHAR(9) DEFAULT 'new', d DECIMAL(8, 3))")
    rows(ann, "INSERT INTO ann.first (id) VALUES (1)")
    rows(ann, "CREATE TABLE ann.second LIKE ann.first")
    rows(ann, "CREATE TABLE IF NOT EXISTS ann.second (LIKE ann.first)")
    assert row(ann, "SELECT COUNT(*) FROM ann.second") == ("0",)
    first, second = (rows(ann, f"SHOW COLUMNS FROM ann.{name}") for name in ("first", "second"))
    assert first == second
    rows(ann, "INSERT INTO ann.second (id) VALUES (7)")
    assert row(ann, "SELECT id, name FROM ann.second") == ("7", "new")
    rows(ann, "CREATE TABLE ann.third LIKE sky.Band")
    assert [column[0] for column in rows(ann, "SHOW COLUMNS FROM ann.third")] == ["id", "name"]
    for statement, code in [
        ("CREATE TABLE ann.second LIKE ann.first", 1050),
        ("CREATE TABLE ann.fourth LIKE ann.nothing", 1146),
        ("CREATE TABLE ann.fourth (id INT NOT NULL DEFAULT NULL)", 1067),
    ]:
        assert number(ann, statement) == code, statement
    rows(ann, "DROP TABLE ann.first, ann.second, ann.third")


def test_a_table_is_not_declared_like_a_view(meridian: Meridian, site: Site, ann: pymysql.connections.Connection) -> None:
    """It was said not to be there."""
    meridian.must("view", "create", "--data", site.data, "--db", "sky", "--name", "FewBands", "SELECT id, name FROM Band WHERE id < 3")
    with pytest.raises(pymysql.err.MySQLError) as rejected:
        rows(ann, "CREATE TABLE ann.few LIKE sky.FewBands")
    assert "is a view" in str(rejected.value) and "AS SELECT * FROM sky.FewBands LIMIT 0" in str(rejected.value)
    rows(ann, "CREATE TABLE ann.few AS SELECT * FROM sky.FewBands LIMIT 0")
    rows(ann, "DROP TABLE ann.few")


def test_a_wildcard_needs_a_table(ann: pymysql.connections.Connection) -> None:
    assert number(ann, "SELECT *") == 1096
    assert number(ann, "SELECT * FROM DUAL") == 1096
    assert row(ann, "SELECT 1 FROM DUAL") == ("1",)


def test_tables_that_clients_look_at_are_there(ann: pymysql.connections.Connection) -> None:
    for table in ("PLUGINS", "EVENTS", "TRIGGERS", "ROUTINES", "PARTITIONS"):
        assert rows(ann, f"SELECT * FROM information_schema.{table}") == []
