"""Values and names as users meet them: warnings, infinities, and names beyond ASCII, over each protocol."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from meridian_cli import Meridian
from serving import Server, serving
from small_tables import DIRECTOR, write_lines

LINES = ["1,10.5,20.5,1.5,'2010-06-15'", "2,11.5,21.5,inf,'1999-12-31'", "3,12.5,22.5,-inf,'2015-03-01'", "4,13.5,23.5,,'2020-01-01'"]


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few stars, with infinities among their values, and a table whose names are not ASCII."""
    directory = tmp_path_factory.mktemp("values")
    lines = [line.replace("'", "") for line in LINES]
    stars = write_lines(directory / "stars.csv", lines, header="id,ra,dec,flux,day")
    meridian.load(directory / "data", "sky", "Star", stars, **DIRECTOR)
    sizes = write_lines(directory / "sizes.csv", ["1,2.5,3", "2,3.5,4"], header="Größe,É,ЖУК")
    meridian.load(directory / "data", "sky", "Größen", sizes, kind="replicated")
    return directory / "data"


@pytest.fixture(scope="module")
def server(meridian: Meridian, data: Path) -> Iterator[Server]:
    """A server of them."""
    with serving(meridian, data) as running:
        yield running


def query(server: Server, statement: str) -> tuple[list[tuple[object, ...]], int, list[tuple[object, ...]]]:
    """The rows of an answer over MySQL's protocol, how many warnings it counts, and what they are."""
    connection = server.connect(database="sky")
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            rows = list(cursor.fetchall())
            count = cursor.warning_count
            cursor.execute("SHOW WARNINGS")
            return rows, count, list(cursor.fetchall())
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("SELECT id FROM Star WHERE ra = '10h'", "Truncated incorrect DOUBLE value: '10h'"),
        ("SELECT id FROM Star WHERE day > '2015-03'", "Incorrect datetime value: '2015-03'"),
        ("SELECT id FROM Star WHERE id IN (1, '2x')", "Truncated incorrect DOUBLE value: '2x'"),
        ("SELECT id FROM Star WHERE ra BETWEEN 1 AND 'x'", "Truncated incorrect DOUBLE value: 'x'"),
        ("SELECT id FROM Star WHERE CASE id WHEN '1y' THEN 1 END", "Truncated incorrect DOUBLE value: '1y'"),
        ("SELECT id FROM Star WHERE day = 20100635", "Incorrect datetime value: '20100635'"),
        ("SELECT '12abc' + id FROM Star", "Truncated incorrect DOUBLE value: '12abc'"),
        ("SELECT CAST('12abc' AS SIGNED)", "Truncated incorrect INTEGER value: '12abc'"),
        ("SELECT id FROM Star WHERE id IN (SELECT id FROM Star WHERE ra < 'z')", "Truncated incorrect DOUBLE value: 'z'"),
    ],
)
def test_a_constant_that_is_no_number_or_time_is_warned_of(
    meridian: Meridian, data: Path, server: Server, statement: str, sentence: str
) -> None:
    """Statements gave their answers, most of them without rows, in silence."""
    _, count, warnings = query(server, statement)
    assert (count, warnings) == (1, [("Warning", 1292, sentence)])
    outcome = meridian.run("sql", "--data", data, "--db", "sky", "--quiet", "--format", "csv", statement)
    assert outcome.status == 0
    assert outcome.complaint == f"meridian: warning 1292 (22007): {sentence}"


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT id FROM Star WHERE ra = '10.5'",
        "SELECT id FROM Star WHERE day > '2015-03-01'",
        "SELECT id FROM Star WHERE day <> 0",
        "SELECT CONCAT('10h', id) FROM Star",
        "SELECT '10h'",
    ],
)
def test_other_constants_are_not(server: Server, statement: str) -> None:
    assert query(server, statement)[1:] == (0, [])


def test_warnings_are_of_the_last_statement(server: Server) -> None:
    connection = server.connect(database="sky")
    with connection.cursor() as cursor:
        for _ in range(3):
            # Also of one that was asked before.
            cursor.execute("SELECT id FROM Star WHERE ra = '10h' OR ra = '11h'")
            assert cursor.warning_count == 2
        cursor.execute("SHOW COUNT(*) WARNINGS")
        assert cursor.fetchall() == ((2,),)
        cursor.execute("SELECT @@warning_count")
        assert cursor.fetchall() == ((2,),)
        cursor.execute("SHOW WARNINGS LIMIT 1, 5")
        assert cursor.fetchall() == (("Warning", 1292, "Truncated incorrect DOUBLE value: '11h'"),)
        cursor.execute("SHOW ERRORS")
        assert cursor.fetchall() == ()
        cursor.execute("SELECT 1")
        cursor.execute("SHOW WARNINGS")
        assert cursor.fetchall() == ()
    connection.close()


def test_infinities_are_given_as_each_format_can(meridian: Meridian, data: Path, server: Server) -> None:
    """What is stored as infinite is so in Arrow, and NULL where a format has no infinities; nothing computed is infinite."""
    rows, _, _ = query(server, "SELECT id, flux FROM Star ORDER BY id")
    assert rows == [(1, 1.5), (2, None), (3, None), (4, None)]
    stored = meridian.rows(data, "sky", "SELECT id, flux FROM Star ORDER BY id")
    assert [row[1] for row in stored] == [1.5, float("inf"), float("-inf"), None]
    computed = meridian.rows(data, "sky", "SELECT id, flux * 2, -flux, flux + 1, SQRT(flux) FROM Star WHERE id = 2")
    assert [tuple(row) for row in computed] == [(2, None, None, None, None)]


def test_names_beyond_ascii_are_without_regard_to_case(meridian: Meridian, data: Path, server: Server) -> None:
    """A table loaded as Größen was found by größen alone."""
    for statement in [
        "SELECT Größe, É, ЖУК FROM Größen WHERE É > 3",
        "SELECT GRÖßE, é, жук FROM GRÖßEN WHERE É > 3",
        "SELECT `GRÖßE`, t.é, t.ЖуК FROM sky.größen AS T WHERE T.é > 3",
    ]:
        assert query(server, statement)[0] == [(2, 3.5, 4)], statement
    answer = meridian.run("sql", "--data", data, "--db", "sky", "--format", "csv", "--quiet", "SELECT * FROM GRÖßEN WHERE GRÖßE = 1")
    assert list(csv.reader(io.StringIO(answer.text))) == [["Größe", "É", "ЖУК"], ["1", "2.5", "3"]]
    adql = 'SELECT "GRÖßE", жук FROM größen WHERE é < 3'
    answer = meridian.run("sql", "--data", data, "--db", "sky", "--dialect", "adql", "--format", "csv", "--quiet", adql)
    assert list(csv.reader(io.StringIO(answer.text)))[1:] == [["1", "3"]]
    mistake = meridian.run("sql", "--data", data, "--db", "sky", "SELECT GRÖßER FROM Größen")
    assert "GRÖßER" in mistake.complaint and "Größe" in mistake.complaint, mistake.complaint


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("SELECT id FROM Star TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
        ("SELECT id FROM Star PARTITION (p0)", "PARTITION"),
        ("SELECT id FROM Star GROUP BY id WITH CUBE", "WITH"),
        ("SELECT ABS(DISTINCT id) FROM Star", "abs"),
        ("SELECT id FROM Star WHERE day COLLATE utf8mb4_general_ci = 'x'", "COLLATE"),
    ],
)
def test_what_is_read_and_not_honoured_is_rejected(server: Server, statement: str, words: str) -> None:
    """They were left out in silence."""
    with pytest.raises(pymysql.MySQLError) as rejected:
        query(server, statement)
    number, sentence = rejected.value.args
    assert number == 1235 and words in sentence, rejected.value


@pytest.mark.parametrize(
    ("statement", "code", "sentence"),
    [
        ("SELECT id FROM Star WHERE day > '2021-02-30'", 1292, "Incorrect datetime value: '2021-02-30'"),
        ("SELECT CAST('2021-02-30' AS DATE)", 1292, "Incorrect datetime value: '2021-02-30'"),
        ("SELECT YEAR('2021-02-30')", 1292, "Incorrect datetime value: '2021-02-30'"),
        ("SELECT DATE_ADD('2021-02-30', INTERVAL 1 DAY)", 1292, "Incorrect datetime value: '2021-02-30'"),
        ("SELECT TIMESTAMPDIFF(DAY, day, '2021-02-30') FROM Star", 1292, "Incorrect datetime value: '2021-02-30'"),
        ("SELECT HOUR('11:67:15')", 1292, "Truncated incorrect time value: '11:67:15'"),
        ("SELECT STR_TO_DATE('2021-02-30', '%Y-%m-%d')", 1411, "Incorrect datetime value: '2021-02-30' for function str_to_date"),
    ],
)
def test_constants_that_are_no_times_are_warned_of_wherever_they_are_read(server: Server, statement: str, code: int, sentence: str) -> None:
    """Only comparisons and casts warned; functions of times gave NULL in silence."""
    assert query(server, statement)[1:] == (1, [("Warning", code, sentence)])


def test_a_variable_keeps_bytes(server: Server) -> None:
    """`SET @x = x'ff00'` kept the text that the bytes are not."""
    connection = server.connect(database="sky")
    with connection.cursor() as cursor:
        cursor.execute("SET @x = x'ff0041'")
        cursor.execute("SELECT @x, HEX(@x), LENGTH(@x), @x = x'ff0041'")
        assert cursor.fetchall() == ((b"\xff\x00A", "FF0041", 3, 1),)
        cursor.execute("SET @y = x'41'")
        # A text in the place of a number, not the number that a literal of bytes is.
        cursor.execute("SELECT @y + 0, HEX(@y)")
        assert cursor.fetchall() == ((0.0, "41"),)
    connection.close()


def test_a_variable_is_no_place(server: Server) -> None:
    """`GROUP BY @g` grouped by the column of that number, and `ORDER BY @g` sorted by it."""
    connection = server.connect(database="sky")
    with connection.cursor() as cursor:
        cursor.execute("SET @g = 1, @n = -1")
        for variable in ("@g", "@n", "(@g)", "@none"):
            cursor.execute(f"SELECT COUNT(*) FROM Star GROUP BY {variable}")
            assert cursor.fetchall() == ((4,),), variable
        cursor.execute("SELECT id FROM Star ORDER BY @g, id DESC")
        assert [row[0] for row in cursor.fetchall()] == [4, 3, 2, 1]
        cursor.execute("SELECT id FROM Star UNION SELECT 9 ORDER BY @g")
        assert len(cursor.fetchall()) == 5
    connection.close()


@pytest.mark.parametrize(
    ("pattern", "number"),
    [("(", 3691), ("a{2,1}", 3693), ("[a", 3696), ("[b-a]", 3697), ("(?=a)", 3690), ("*", 3688), ("a{x}", 3692)],
)
def test_patterns_that_cannot_be_read_have_their_codes(server: Server, pattern: str, number: int) -> None:
    with pytest.raises(pymysql.MySQLError) as error:
        query(server, f"SELECT REGEXP_LIKE('a', '{pattern}')")
    assert error.value.args[0] == number


def test_patterns_match_by_their_types(server: Server) -> None:
    """A match type that was NULL was an error, and numbers had no patterns."""
    rows, _, _ = query(server, "SELECT REGEXP_LIKE('abc', 'B', NULL), REGEXP_LIKE('abc', 'B', 'i'), REGEXP_LIKE('a\\nb', '^b', 'm')")
    assert rows == [(None, 1, 1)]
    rows, _, _ = query(server, "SELECT id FROM Star WHERE id REGEXP '^[12]' AND ra NOT REGEXP '^11' AND day REGEXP '06-15$'")
    assert rows == [(1,)]
    with pytest.raises(pymysql.MySQLError) as error:
        query(server, "SELECT REGEXP_LIKE('a', 'a', 'x')")
    assert error.value.args[0] == 1210


def test_literals_of_times_are_of_all_years(server: Server) -> None:
    """TIMESTAMP of a year before 1678 was out of range."""
    rows, _, _ = query(server, "SELECT YEAR(TIMESTAMP '1000-01-01 00:00:00'), DATE '0001-1-1' < DATE '9999-12-31', YEAR('2010-01-01'), YEAR(DATE '2010-01-01')")
    assert rows == [(1000, 1, 2010, 2010)]
    for literal in ("DATE '2010-02-30'", "TIMESTAMP '2010-13-01 00:00:00'", "DATE 'x'"):
        with pytest.raises(pymysql.MySQLError) as error:
            query(server, f"SELECT {literal}")
        assert error.value.args[0] == 1525


@pytest.mark.parametrize(
    ("statement", "heads"),
    [
        ("SELECT s.*, s.* FROM Star s", 2),
        ("SELECT *, s.* FROM Star s", 2),
        ("SELECT Star.*, 1 + 1, Star.* FROM Star ORDER BY id", 2),
        ("SELECT DISTINCT s.*, id, s.* FROM (SELECT * FROM Star) s WHERE id < 9", 2),
        ("SELECT s.*, z.*, s.* FROM Star s JOIN `Größen` z ON s.id = z.`Größe`", 2),
    ],
)
def test_wildcards_may_repeat_columns(meridian: Meridian, data: Path, server: Server, statement: str, heads: int) -> None:
    """`SELECT t.*, t.*` was refused for its names (1060), which only a derived table may not have twice."""
    connection = server.connect(database="sky")
    with connection.cursor() as cursor:
        for _ in range(2):
            # Also from the cache of plans.
            cursor.execute(statement)
            names = [column[0] for column in cursor.description]
            assert names[:5] == ["id", "ra", "dec", "flux", "day"] and names[-5:] == names[:5]
            assert names.count("flux") == heads
            for row in cursor.fetchall():
                assert row[-5:] == row[:5]
        with pytest.raises(pymysql.MySQLError) as error:
            cursor.execute(f"SELECT 1 FROM ({statement}) t")
        assert error.value.args[0] == 1060
    connection.close()
    outcome = meridian.must("sql", "--data", data, "--db", "sky", "--quiet", "--format", "csv", statement)
    assert outcome.text.splitlines()[0].startswith("id,ra,dec,flux,day,")
