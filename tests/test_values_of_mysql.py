"""Times of day, fractions of seconds, bytes, warnings of rows and files as MySQL's clients get them."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import random
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pymysql
import pymysql.converters
import pytest

from meridian_cli import Meridian
from serving import SOON, Server, serving, wait_until
from small_tables import load_stars_and_bands, write_lines
from strict_mariadb import outcome, rows, strict_mariadb
from test_mysql_clients import connector
from test_users import PASSWORD, Site, must
from testbed.mariadb import MariaDB

SPAN = datetime.timedelta
# Of values that are received none is made anything but a text.
AS_TEXTS = dict(pymysql.converters.encoders)


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small table of texts, some of which are numbers or dates."""
    directory = tmp_path_factory.mktemp("values")
    lines = ["1,12abc,2010-06-15", "2,5,2010-02-30", "3,x,soon", "4,,2011-01-01", "5,7,2012-01-01"]
    texts = write_lines(directory / "texts.csv", lines, header="id,n,day")
    meridian.load(directory / "data", "sky", "Texts", texts, kind="replicated")
    many = (f"{n},bad{n}" for n in range(3000))
    meridian.load(directory / "data", "sky", "Many", write_lines(directory / "many.csv", many, header="id,n"), kind="replicated")
    return directory / "data"


@pytest.fixture(scope="module")
def server(meridian: Meridian, data: Path) -> Iterator[Server]:
    with serving(meridian, data) as running:
        yield running


def execute(server: Server, statement: str) -> tuple[list[tuple[object, ...]], int, list[tuple[object, ...]]]:
    """The rows of an answer, how many warnings it counts, and what SHOW WARNINGS tells."""
    with server.connect(database="sky") as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        found, count = list(cursor.fetchall()), cursor.warning_count
        cursor.execute("SHOW WARNINGS")
        return found, count, list(cursor.fetchall())


def prepared(server: Server, statement: str) -> list[tuple[object, ...]]:
    """The rows in the binary protocol."""
    with connector(server) as connection:
        with connection.cursor(prepared=True) as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())


SPANS = [
    ("TIMEDIFF('2010-06-15 01:02:03', '2010-06-14 00:00:00')", SPAN(hours=25, minutes=2, seconds=3)),
    ("TIMEDIFF('00:00:00', '01:30:00.5')", -SPAN(hours=1, minutes=30, seconds=0.5)),
    ("SEC_TO_TIME(-4000000)", -SPAN(hours=838, minutes=59, seconds=59)),
    ("TIME '11:07:15'", SPAN(hours=11, minutes=7, seconds=15)),
    ("TIME '00:00:00'", SPAN()),
    ("MAX(TIME(CONCAT(id, ':00:00')))", SPAN(hours=5)),
    ("STR_TO_DATE('01:02', '%H:%i')", SPAN(hours=1, minutes=2)),
]


def test_times_of_day_are_a_type_of_both_protocols(server: Server) -> None:
    """TIMEDIFF and its like were unknown; texts were given in the place of a TIME."""
    statement = f"SELECT {', '.join(expression for expression, _ in SPANS)} FROM Texts"
    expected = [tuple(span for _, span in SPANS)]
    assert execute(server, statement)[0] == expected
    # This client reads the bytes of a negative TIME as another span.
    positive = [(expression, span) for expression, span in SPANS if span >= SPAN()]
    statement = f"SELECT {', '.join(expression for expression, _ in positive)} FROM Texts"
    assert prepared(server, statement) == [tuple(span for _, span in positive)]
    with server.connect(database="sky") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT TIME '11:07:15' AS t, SEC_TO_TIME(id) AS s FROM Texts ORDER BY s DESC LIMIT 1")
        assert [column[1] for column in cursor.description] == [pymysql.constants.FIELD_TYPE.TIME] * 2
        assert cursor.fetchone() == (SPAN(hours=11, minutes=7, seconds=15), SPAN(seconds=5))


def test_times_of_day_are_texts_in_files(meridian: Meridian, data: Path) -> None:
    statement = "SELECT id, SEC_TO_TIME(id * -3000.5) AS s FROM Texts WHERE SEC_TO_TIME(id) > '00:00:03' ORDER BY s"
    text = meridian.run("sql", "--data", data, "--db", "sky", "--format", "csv", statement).text
    assert text.splitlines() == ["id,s", "5,-04:10:02.500000", "4,-03:20:02"]


def test_a_time_of_day_has_no_date(server: Server) -> None:
    for expression in ("YEAR(TIME '11:07:15')", "TIME '11:07:15' > TIMESTAMP '2010-06-15 01:02:03'", "DATE(TIME '11:07:15')"):
        with pytest.raises(pymysql.MySQLError) as error:
            execute(server, f"SELECT {expression}")
        assert error.value.args[0] == 1235 and "has no date" in error.value.args[1], error.value


def test_the_present_has_the_digits_that_are_asked_for(server: Server) -> None:
    """NOW(6) was the error 1582."""
    functions = ["NOW", "CURRENT_TIMESTAMP", "SYSDATE", "UTC_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP", "CURTIME", "CURRENT_TIME", "UTC_TIME"]
    with server.connect(database="sky", conv=AS_TEXTS) as connection, connection.cursor() as cursor:
        for digits in range(7):
            cursor.execute(f"SELECT {', '.join(f'{function}({digits})' for function in functions[:6])}")
            (row,) = cursor.fetchall()
            fraction = rf"\.\d{{{digits}}}" if digits else ""
            for value in row:
                assert re.fullmatch(rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d{fraction}", value), value
            lengths = [column[3] for column in cursor.description]
            assert lengths == [19 + bool(digits) + digits] * 6
        cursor.execute(f"SELECT {', '.join(f'{function}(6)' for function in functions[6:])}, CURTIME(), UTC_DATE()")
        (row,) = cursor.fetchall()
        assert all(re.match(r"\d\d:\d\d:\d\d", value) for value in row[:-1]), row
        cursor.execute("SELECT TIMESTAMPDIFF(SECOND, NOW(), NOW(6)), CAST('2010-06-15 01:02:03.5678' AS DATETIME(2)), CAST('2010-06-15 01:02:03.5' AS DATETIME)")
        assert cursor.fetchall() in [((str(n), "2010-06-15 01:02:03.57", "2010-06-15 01:02:04"),) for n in (0, 1)]
        with pytest.raises(pymysql.MySQLError) as error:
            cursor.execute("SELECT NOW(7)")
        assert error.value.args[0] == 1426


@pytest.mark.parametrize(
    ("statement", "codes"),
    [
        ("SELECT id FROM Texts WHERE n = 5", {"Truncated incorrect DOUBLE value: '12abc'", "Truncated incorrect DOUBLE value: 'x'"}),
        ("SELECT CAST(n AS SIGNED) FROM Texts", {"Truncated incorrect INTEGER value: '12abc'", "Truncated incorrect INTEGER value: 'x'"}),
        ("SELECT MAX(YEAR(day)) FROM Texts WHERE id < 4", {"Incorrect datetime value: 'soon'"}),
        ("SELECT HOUR(day) FROM Texts WHERE id = 3", {"Truncated incorrect time value: 'soon'"}),
        ("SELECT n * 1 FROM Texts WHERE id IN (2, 5)", set()),
    ],
)
def test_values_of_rows_are_warned_of(server: Server, meridian: Meridian, data: Path, statement: str, codes: set[str]) -> None:
    """They were converted without a word."""
    _, count, warnings = execute(server, statement)
    told = [sentence for _, code, sentence in warnings if code == 1292]
    # An empty text is a number nowhere, and MySQL says so too.
    told = [sentence for sentence in told if "''" not in sentence]
    assert codes <= set(told) and count == len(warnings), warnings
    assert (set(told) - codes) <= {"Incorrect datetime value: '2010-02-30'"}, warnings
    said = meridian.run("sql", "--data", data, "--db", "sky", statement).stderr
    assert all(f"meridian: warning 1292 (22007): {sentence}" in said for sentence in codes), said


def submitted(server: Server, statement: str) -> dict[str, object]:
    """What HTTP tells of a query that was submitted and is completed."""
    site = Site(None, None, server)  # type: ignore[arg-type]
    body = json.dumps({"statement": statement, "database": "sky", "user": "ann"}).encode()
    status, said, _ = site.http("queries", None, method="POST", body=body)
    assert status == 202, said
    number = json.loads(said)["id"]
    told: dict[str, object] = {}

    def is_completed() -> bool:
        told.update(json.loads(site.http(f"queries/{number}", None)[1]))
        assert told["state"] in ("QUEUED", "EXECUTING", "COMPLETED"), told
        return told["state"] == "COMPLETED"

    wait_until(is_completed, 60, "the query is completed")
    return told


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT id FROM Texts WHERE n = 5", "SELECT CAST(n AS SIGNED) FROM Texts", "SELECT YEAR(day) FROM Texts", "SELECT id FROM Texts WHERE 'g-mag' < 15",
        "SELECT id, DATE('2010-02-30') FROM Texts", "SELECT SUM(n) FROM Many", "SELECT COUNT(*) FROM Texts",
    ],
)  # fmt: skip
def test_submitted_statements_have_the_warnings_of_others(server: Server, meridian: Meridian, statement: str) -> None:
    """Whoever reads the result later was told nothing."""
    _, count, warnings = execute(server, statement)
    expected = sorted(f"{code} " + str(sentence) for _, code, sentence in warnings)
    told = submitted(server, statement)
    number = told["id"]

    def texts(said: object) -> list[str]:
        assert isinstance(said, list)
        return sorted(re.sub(r"^(\d+) \(\w+\): ", r"\1 ", text) for text in said)

    assert told["warning_count"] == count and texts(told.get("warnings", [])) == expected
    with server.connect(database="sky", user="ann") as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM qserv_result({number})")
        assert cursor.warning_count == count
        cursor.execute("SHOW WARNINGS")
        assert sorted(f"{code} {sentence}" for _, code, sentence in cursor.fetchall()) == expected
        cursor.execute(f"SELECT WARNINGS FROM information_schema.QUERIES WHERE ID = {number}")
        assert cursor.fetchone() == (count,)
        cursor.execute("SHOW WARNINGS")
        assert cursor.fetchall() == ()
    site = Site(meridian, None, server)  # type: ignore[arg-type]
    listed = json.loads(site.http("queries", None, limit=1000)[1])["queries"]
    [of_list] = [query for query in listed if query["id"] == number]
    assert of_list["warning_count"] == count and "warnings" not in of_list
    shown = meridian.must("query", "show", "--server", server.url(""), str(number)).text
    assert shown.count("\n  warning ") == count
    # Qserv's result has them in one text; that of another user is not told.
    result = urllib.request.Request(server.url(f"/query-async/result/{number}"), headers={"Authorization": "Basic " + base64.b64encode(b"ann:").decode()})
    with urllib.request.urlopen(result, timeout=SOON) as response:
        assert sorted(filter(None, re.split(r"; (?=\d+ \()", json.load(response)["warning"]))) == sorted(told.get("warnings", []))  # type: ignore[call-overload]


def test_jobs_have_the_warnings_of_their_queries(server: Server) -> None:
    """A coordinate system that is not known, and how many in the description of the job."""
    site = Site(None, None, server)  # type: ignore[arg-type]
    query = "SELECT id FROM sky.Texts WHERE 1 = CONTAINS(POINT('FK6', 1, 2), CIRCLE('ICRS', 1, 2, 3))"
    body = urlencode({"LANG": "ADQL", "PHASE": "RUN", "QUERY": query}).encode()
    with urllib.request.urlopen(server.url("/tap/async"), data=body, timeout=SOON) as response:
        made = response.read().decode()
    number = re.search(r"<uws:jobId>(\d+)<", made)
    assert number is not None, made
    document = ""

    def is_completed() -> bool:
        nonlocal document
        document = site.http(f"tap/async/{number[1]}", None)[1]
        return "<uws:phase>COMPLETED<" in document

    wait_until(is_completed, 60, "the job is completed")
    assert "<warnings>1</warnings>" in document
    assert site.http(f"tap/async/{number[1]}/results/result", None)[1].count('<INFO name="warning"') == 1


def test_warnings_of_rows_are_bounded(server: Server) -> None:
    found, count, warnings = execute(server, "SELECT SUM(n) FROM Many")
    assert found == [(0.0,)] and count == 1024 and len(warnings) == 1024
    assert execute(server, "SELECT COUNT(*) FROM Many WHERE id < 5")[1:] == (0, [])


def test_patterns_may_be_null(server: Server) -> None:
    """`AS` was taken for a part of the pattern."""
    with server.connect(database="sky") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT n REGEXP NULL AS v, n NOT REGEXP '[0-9]' AS w, n RLIKE 'x' AND 1 FROM Texts WHERE id = 3")
        assert [column[0] for column in cursor.description][:2] == ["v", "w"] and list(cursor.fetchall()) == [(None, 1, 1)]


def test_columns_of_one_name_are_not_written_to_parquet(meridian: Meridian, data: Path) -> None:
    outcome_ = meridian.run("sql", "--data", data, "--db", "sky", "--format", "parquet", "SELECT id, id FROM Texts")
    assert outcome_.status != 0 and "two columns are named id" in outcome_.stderr


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    """The server with which statements are compared."""
    yield from strict_mariadb(tmp_path_factory.mktemp("mariadb"))


@pytest.fixture(scope="module")
def site(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    own = load_stars_and_bands(meridian, tmp_path_factory.mktemp("own"), 20)
    must(meridian, own, "add", "ann", password=PASSWORD)
    with serving(meridian, own) as running:
        yield Site(meridian, own, running)


TABLES = [
    "CREATE TABLE t (id INT NOT NULL, n INT, s VARCHAR(10))",
    "CREATE TABLE u (id INT, n INT)",
    "INSERT INTO t VALUES (1, 10, 'a'), (2, 20, 'b'), (3, NULL, 'c'), (4, 40, NULL), (5, 50, 'e')",
    "INSERT INTO u VALUES (1, 5), (1, 7), (2, -5), (3, 3), (4, NULL), (NULL, 9), (9, 1)",
]
CONDITIONS = [
    "EXISTS (SELECT 1 FROM u WHERE u.id = t.id)",
    "NOT EXISTS (SELECT 1 FROM u WHERE u.id = t.id AND u.n > 0)",
    "id IN (SELECT u.id FROM u WHERE u.n < t.n)",
    "id NOT IN (SELECT u.id FROM u WHERE u.id IS NOT NULL AND u.n < t.n)",
    "n > (SELECT SUM(u.n) FROM u WHERE u.id = t.id)",
    "(SELECT COUNT(*) FROM u WHERE u.id = t.id) = {k}",
    "(SELECT MAX(u.n) FROM u WHERE u.id = t.id) IS NULL",
    "n < ALL (SELECT u.n * 10 FROM u WHERE u.id = t.id)",
    "EXISTS (SELECT 1 FROM u WHERE u.id = t.id AND u.n > {k}) OR n IS NULL",
    "id > {k} AND EXISTS (SELECT 1 FROM u WHERE u.n < t.n)",
]
VALUES = [
    "(SELECT MAX(u.n) FROM u WHERE u.id = t.id)",
    "(SELECT COUNT(*) FROM u WHERE u.id = t.id)",
    "n + (SELECT COALESCE(SUM(u.n), 0) FROM u WHERE u.id = t.id)",
    "IF(EXISTS (SELECT 1 FROM u WHERE u.id = t.id), 1, 0)",
    "id IN (SELECT u.id FROM u)",
    "(SELECT MIN(u.n) FROM u WHERE u.n > t.id)",
]


def test_changes_by_correlated_subqueries_beside_mariadb(site: Site, mariadb: MariaDB) -> None:
    """Rows and counts of UPDATE and DELETE are MariaDB's; what is not built is refused."""
    choose = random.Random(20261126)
    statements = [f"DELETE FROM t WHERE {condition.format(k=choose.randint(0, 2))}" for condition in CONDITIONS]
    for value in VALUES:
        condition = choose.choice(CONDITIONS).format(k=choose.randint(0, 2))
        statements += [f"UPDATE t SET n = {value}", f"UPDATE t SET n = {value}, s = 'z' WHERE {condition}"]
    with site.connect("ann", database="ann") as ann:
        for statement in statements:
            for side in (ann, mariadb.connection):
                for table in ("t", "u"):
                    outcome(side, f"DROP TABLE IF EXISTS {table}")
                for made in TABLES:
                    assert isinstance(outcome(side, made), int), made
            expected, found = outcome(mariadb.connection, statement), outcome(ann, statement)
            if isinstance(found, tuple):
                assert found[0] == 1235, f"{statement}: {found}"
                continue
            # MariaDB counts a value that is computed anew, though it is the same.
            assert isinstance(expected, int) and (found == expected or "UPDATE" in statement), f"{statement}: {found}, {expected}"
            query = "SELECT id, n, s FROM t"
            assert rows(ann, query) == rows(mariadb.connection, query), statement


# Values of which a result has several, by their kinds; those of `v` are a row's. A FLOAT is not among them: its text has other digits in MariaDB.
SEVERAL = {
    "null": "NULL", "integer": "3", "large": "9007199254740993", "decimal": "1.5", "double": "2.5e0", "small": "1e-20", "text": "'a'", "digits": "'007'",
    "date": "DATE '2024-01-02'", "time": "TIMESTAMP '2024-01-02 03:04:05'", "truth": "TRUE", "d": "(SELECT d FROM v)", "dc": "(SELECT dc FROM v)",
    "b": "(SELECT b FROM v)", "s": "(SELECT s FROM v)", "i": "(SELECT i FROM v)",
}  # fmt: skip
RESULTS = [
    "SELECT {0} UNION ALL SELECT {1} UNION ALL SELECT {2}",
    "SELECT {0} UNION SELECT {1} UNION ALL SELECT {2}",
    "SELECT {0} UNION ALL SELECT x FROM (SELECT {1} AS x UNION SELECT {2}) t",
    "SELECT {0} UNION ALL (SELECT {1} UNION SELECT {2})",
    "SELECT IF({0} IS NULL, {1}, {2})",
    "SELECT CASE 1 WHEN 0 THEN {0} WHEN 1 THEN {1} ELSE {2} END",
    "SELECT COALESCE({0}, {1}, {2})",
    "SELECT COUNT(*) FROM (SELECT {0} AS x EXCEPT SELECT {1}) t WHERE {2} IS NULL OR 1 = 1",
    "SELECT COUNT(*) FROM (SELECT {0} AS x INTERSECT SELECT {1}) t WHERE {2} IS NULL OR 1 = 1",
    "SELECT x FROM (SELECT {0} AS x UNION ALL SELECT {1}) t WHERE x IN (5, {2})",
    "SELECT x FROM (SELECT {0} AS x UNION ALL SELECT {1}) t WHERE x IN (SELECT {2})",
    "SELECT x FROM (SELECT {0} AS x UNION ALL SELECT {1} UNION SELECT {2}) t WHERE x IN (3, 'a')",
]


def same_result(value: object) -> object:
    """A value as it is compared: numbers to the digits that all of their types have, all else by its text."""
    return float(f"{float(value):.9g}") if isinstance(value, (int, float, decimal.Decimal)) else None if value is None else str(value)


def test_results_of_several_kinds_beside_mariadb(site: Site, mariadb: MariaDB) -> None:
    """Doubles became decimals beside some, days of integers beside dates, and three SELECTs met two by two."""
    choose = random.Random(20261130)
    with site.connect("ann", database="ann") as ann:
        for side in (ann, mariadb.connection):
            outcome(side, "DROP TABLE IF EXISTS v")
            outcome(side, "CREATE TABLE v (d DOUBLE, dc DECIMAL(10, 4), b BIGINT, s VARCHAR(20), i INT)")
            assert outcome(side, "INSERT INTO v VALUES (1e-20, 2.25, 9007199254740993, 'Sirius', 7)") == 1
        for _ in range(600):
            query = choose.choice(RESULTS).format(*choose.choices(list(SEVERAL.values()), k=3))
            found = []
            for side in (mariadb.connection, ann):
                with side.cursor() as cursor:
                    cursor.execute(query)
                    found.append(sorted((tuple(map(same_result, row)) for row in cursor.fetchall()), key=repr))
            assert found[0] == found[1], query


FILES = [
    ("1\tone\tx\n", "(id, d, s)"),
    ("1\n2\t5\n3\t6\tc\td\n", "(id, d, s)"),
    ("x\t1.23456\tabcdefghijklmnopqrstuvwxyz\n12abc\tabc\ts\n99999999999\t1e30\ts\n", "(id, d, s)"),
    ("\\N\t\\N\t\\N\n", "(id, d, s)"),
    ("1\tabc\n", "(id, x)"),
    ("1\t2\n", "(id)"),
]


@pytest.mark.parametrize("at", range(len(FILES)))
def test_files_are_adjusted_as_mariadb_adjusts_them(site: Site, mariadb: MariaDB, tmp_path: Path, at: int) -> None:
    """LOCAL means IGNORE: the first value that a column could not hold ended the load."""
    content, described = FILES[at]
    path = tmp_path / "rows.txt"
    path.write_text(content)
    found = []
    with site.connect("ann", database="ann", local_infile=True) as ann:
        for side in (ann, mariadb.connection):
            outcome(side, "DROP TABLE IF EXISTS f")
            assert outcome(side, "CREATE TABLE f (id INT NOT NULL, d DECIMAL(8,3), s VARCHAR(20) DEFAULT 'none', x DOUBLE)") == 0
            loaded = outcome(side, f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE f {described}")
            assert isinstance(loaded, int), loaded
            with side.cursor() as cursor:
                cursor.execute("SHOW WARNINGS")
                # Notes tell of digits that are rounded away.
                told = sorted((code, re.sub("`ann`.`f`.`(.*?)`", r"'\1'", sentence)) for level, code, sentence in cursor.fetchall() if level != "Note")
            found.append((loaded, rows(side, "SELECT * FROM f"), told))
    assert found[0] == found[1]


def test_what_is_no_date_becomes_null(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    path.write_text("1\tsoon\n2\t2026-01-02 03:04:05.5\n")
    with site.connect("ann", database="ann", local_infile=True) as ann:
        outcome(ann, "DROP TABLE IF EXISTS g")
        outcome(ann, "CREATE TABLE g (id INT, at DATETIME(2))")
        with ann.cursor() as cursor:
            assert cursor.execute(f"LOAD DATA LOCAL INFILE '{path}' IGNORE INTO TABLE g") == 2
            assert cursor.warning_count == 1
            cursor.execute("SHOW WARNINGS")
            assert list(cursor.fetchall()) == [("Warning", 1265, "Data truncated for column 'at' at row 1")]
        assert rows(ann, "SELECT * FROM g WHERE id = 1") == [(1, None)]
        with site.connect("ann", database="ann", conv=AS_TEXTS) as texts, texts.cursor() as cursor:
            cursor.execute("SELECT at FROM g WHERE id = 2")
            assert list(cursor.fetchall()) == [("2026-01-02 03:04:05.50",)]
