"""Typical mistakes in statements: each is told in a sentence that says what is wrong, where and what to do, the same by the command line,
by HTTP and by MySQL's protocol; and by TAP where it is one in ADQL too."""

from __future__ import annotations

import html
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pymysql
import pytest

from complaints import ENTRAILS, assert_rejected
from meridian_cli import Meridian
from serving import Server, serving
from small_tables import write_lines


@dataclass(frozen=True)
class Mistake:
    """A statement, MySQL's number of its mistake, what the caret stands below, and what the sentence says."""

    name: str
    statement: str
    number: int
    at: str | None
    words: tuple[str, ...]
    database: str | None = "sky"


MISTAKES = [
    Mistake("wrong column", "SELECT raa FROM Object", 1054, "raa", ("no column raa", "did you mean ra?")),
    Mistake("column that is nowhere", "SELECT o.redshift FROM Object o", 1054, "redshift", ("columns here: objectId, ra, decl, g_mag, class",)),
    Mistake("wrong table", "SELECT ra FROM Objekt", 1146, "Objekt", ("no table Objekt", "did you mean Object?")),
    Mistake("table of another database", "SELECT * FROM Filter", 1146, "Filter", ("write it as other.Filter",)),
    Mistake("wrong table of another database", "SELECT * FROM other.Filtr", 1146, "Filtr", ("no table Filtr", "did you mean Filter?")),
    Mistake("column of another database's table", "SELECT f.nosuch FROM other.Filter f", 1054, "nosuch", ("columns here: filterId, filterName",)),
    Mistake("wrong database", "SELECT * FROM othr.Filter", 1146, "othr", ("no database othr", "did you mean other?")),
    Mistake("no database chosen", "SELECT ra FROM Object", 1046, "Object", ("no database is chosen", "databases here: other, sky"), None),
    Mistake("column of two tables", "SELECT 1 FROM Object a, Object b WHERE ra > 1", 1052, "ra", ("more than one", "table.ra")),
    Mistake("table that is not in the FROM", "SELECT ra FROM Object WHERE Filter.ra > 1", 1054, "Filter", ("no table Filter in the FROM", "tables here: Object")),
    Mistake("table that has another name", "SELECT o.ra FROM Object o WHERE Object.ra > 1", 1054, "Object", ("no table Object in the FROM", "tables here: o", "as in Object AS o")),
    Mistake("all columns of no table", "SELECT f.* FROM Object o", 1051, "f", ("no table f in the FROM",)),
    Mistake("column of the other table", "SELECT o.ra, o.filterName FROM Object o, other.Filter f", 1054, "filterName", ("no column filterName in o", "f has one")),
    Mistake("name of the list in WHERE", "SELECT ra + 1 AS shifted FROM Object WHERE shifted > 1", 1054, "shifted", ("WHERE decides before that", "HAVING")),
    Mistake("name of the list in the list", "SELECT ra + 1 AS shifted, shifted * 2 FROM Object", 1054, "shifted", ("the list cannot use it", "subquery")),
    Mistake("place of no column", "SELECT ra FROM Object ORDER BY 9", 1054, "9", ("ORDER BY 9", "has 1 column")),
    Mistake("group of no column", "SELECT ra, decl FROM Object GROUP BY 9", 1054, "9", ("GROUP BY 9", "has 2 columns")),
    Mistake("sexagesimal text", "SELECT ra FROM Object WHERE scisql_angSep(ra, decl, '10:42:44', 41) < 1", 1525, "'10:42:44'", ("decimal degrees", "160.683333", "10.712222")),
    Mistake("sexagesimal number", "SELECT ra FROM Object WHERE ra > 10:42:44", 1064, ":", ("decimal degrees", "160.683333")),
    Mistake("hours and minutes", "SELECT ra FROM Object WHERE ra > 10h42m", 1054, "10h42m", ("decimal degrees", "160.500000")),
    Mistake("missing quote", "SELECT ra FROM Object WHERE class = 'star", 1064, "'", ("no closing quote",)),
    Mistake("text without quotes", "SELECT ra FROM Object WHERE class = star", 1054, "star", ("in quotes, as 'star'",)),
    Mistake("typographic quotes", "SELECT ra FROM Object WHERE class = ‘star’", 1054, "‘star’", ("typographic quotes", "as 'star'")),
    Mistake("mathematical sign", "SELECT ra FROM Object WHERE ra ≥ 10", 1064, "≥", ("did you mean >= ?",)),
    Mistake("decimal comma", "SELECT ra FROM Object WHERE ra > 10,5", 1064, ",", ("decimal point",)),
    Mistake("power", "SELECT ra ** 2 FROM Object", 1064, "*", ("POW(x, y)",)),
    Mistake("missing parenthesis", "SELECT (ra + 1 FROM Object", 1064, "F", ("no ) before this clause",)),
    Mistake("parenthesis too many", "SELECT ra FROM Object)", 1064, ")", ("a ) too many",)),
    Mistake("IN without parentheses", "SELECT ra FROM Object WHERE class IN 'star'", 1064, "'", ("list in parentheses",)),
    Mistake("file of results", "SELECT ra FROM Object INTO OUTFILE 'ra.csv'", 1064, "O", ("meridian sql --output",)),
    Mistake("DISTINCT in another order", "SELECT DISTINCT class FROM Object ORDER BY ra + 1", 3065, "ORDER", ("not in its list", "GROUP BY")),
    Mistake("missing GROUP BY", "SELECT class, count(*) FROM Object", 1140, "class", ("class stands beside an aggregate", "GROUP BY class", "min(class)")),
    Mistake("HAVING of a plain column", "SELECT count(*) FROM Object HAVING ra > 1", 1463, "ra", ("not grouped by", "GROUP BY ra")),
    Mistake("aggregate in WHERE", "SELECT ra FROM Object WHERE count(*) > 1", 1111, "WHERE", ("HAVING",)),
    Mistake("unknown function", "SELECT anglesep(ra, decl, 1, 2) FROM Object", 1305, "anglesep", ("no function anglesep", "did you mean angSep?")),
    Mistake("too few arguments of an operator", "SELECT mod(ra) FROM Object", 1582, "mod", ("mod takes 2 arguments, and 1 is given",)),
    Mistake("too many arguments", "SELECT round(ra, 1, 2) FROM Object", 1582, "round", ("round takes 1 or 2 arguments, and 3 are given",)),
    Mistake("a count of nothing", "SELECT count() FROM Object", 1582, "count", ("count takes 1 argument or more, and none is given",)),
    Mistake("a part without its place", "SELECT substring(class) FROM Object", 1582, "substring", ("2 or 3 arguments",)),
    Mistake("a circle without its radius", "SELECT ra FROM Object WHERE scisql_s2PtInCircle(ra, decl, 1, 2) = 1", 1582, "scisql_s2PtInCircle", ("ra, dec, radius (degrees)",)),
    Mistake("a seed of random numbers", "SELECT ra FROM Object ORDER BY rand(5)", 1582, "rand", ("CRC32(key) % 100 = 0",)),
    Mistake("unknown function without a like", "SELECT array_prepent(ra) FROM Object", 1305, "array_prepent", ("docs/sql.md",)),
    Mistake("function of another database", "SELECT len(class) FROM Object", 1305, "len", ("CHAR_LENGTH does the same here",)),
    Mistake("format of a plan", "EXPLAIN FORMAT=VISUAL SELECT ra FROM Object", 1791, "FORMAT", ("TRADITIONAL, TREE and JSON",)),
    Mistake("repetitions of all columns", "SELECT * FROM Object EXCEPT ALL SELECT * FROM Object", 1235, "ALL", ("without *",)),
    Mistake("text that is no polygon", "SELECT ra FROM Object WHERE scisql_s2PtInCPoly(ra, decl, '1 2') = 1", 1582, "scisql_s2PtInCPoly", ("scisql_s2CPolyToBin",)),
    Mistake("cone of another database", "SELECT ra FROM Object WHERE q3c_radial_query(ra, decl, 10, 5, 1)", 1305, "q3c_radial_query", ("scisql_s2PtInCircle does the same here",)),
    Mistake("too few arguments", "SELECT scisql_angSep(ra, decl, 10) FROM Object", 1582, "scisql_angSep", ("takes 4 arguments, and 3 are given",)),
    Mistake("too few arguments of one of MySQL's", "SELECT CONV(class, 10) FROM Object", 1582, "CONV", ("CONV takes 3 arguments, and 2 are given",)),
    Mistake("ADQL's geometry", "SELECT ra FROM Object WHERE 1 = CONTAINS(POINT(ra, decl), CIRCLE(1, 2, 3))", 1305, "POINT", ("--dialect adql", "scisql_s2PtInCircle")),
    Mistake("TOP", "SELECT TOP 10 ra FROM Object", 1235, "TOP", ("LIMIT", "--dialect adql")),
    Mistake("FETCH FIRST", "SELECT ra FROM Object FETCH FIRST 10 PERCENT ROWS ONLY", 1235, "FETCH", ("PERCENT",)),
    Mistake("LIMIT with a word", "SELECT ra FROM Object LIMIT ten", 1064, "ten", ("LIMIT 10",)),
    Mistake("LIMIT with a text", "SELECT ra FROM Object LIMIT '10'", 1064, "LIMIT", ("without quotes", "LIMIT 10")),
    Mistake("negative LIMIT", "SELECT ra FROM Object LIMIT -1", 1064, "LIMIT", ("not negative",)),
    Mistake("negative OFFSET", "SELECT ra FROM Object LIMIT 1 OFFSET -1", 1064, "OFFSET", ("not negative",)),
    Mistake("window function without a window", "SELECT RANK() FROM Object", 1305, "RANK", ("OVER stands behind it",)),
    Mistake("window function as a condition", "SELECT ra FROM Object WHERE ROW_NUMBER() OVER () = 1", 1235, "OVER", ("subquery of the FROM",)),
    Mistake("pattern of SQL's standard", "SELECT ra FROM Object WHERE class SIMILAR TO 's%'", 1235, "SIMILAR", ("use LIKE",)),
    Mistake("comma too many", "SELECT ra, FROM Object", 1064, "F", ("comma too many before FROM",)),
    Mistake("statement that ends too early", "SELECT ra FROM Object WHERE", 1064, None, ("ends too early", "an expression is missing")),
    Mistake("misspelled SELECT", "SELEC ra FROM Object", 1064, "S", ("did you mean SELECT for SELEC?",)),
    Mistake("misspelled FROM", "SELECT ra FORM Object", 1064, "O", ("did you mean FROM for FORM?",)),
    Mistake("turned comparison", "SELECT ra FROM Object WHERE ra => 10", 1064, "=", ("did you mean >= ?",)),
    Mistake("missing AND", "SELECT ra FROM Object WHERE ra > 1 decl < 2", 1064, "d", ("a keyword such as AND is missing",)),
    Mistake("IS with a text", "SELECT ra FROM Object WHERE class IS NOT 'star'", 1064, "'", ("compare with = or <>",)),
    Mistake("names in brackets", "SELECT ra FROM [Object]", 1064, "[", ("backticks",)),
    Mistake("column in brackets", "SELECT decl, [ra] FROM Object", 1064, "[", ("backticks",)),
    Mistake("reserved word as a name", "SELECT ra select FROM Object", 1064, "s", ("backticks", "word of the language")),
    Mistake("sides of a UNION", "SELECT ra FROM Object UNION SELECT ra, decl FROM Object", 1222, "UNION", ("different numbers of columns",)),
    Mistake("subquery of two columns", "SELECT (SELECT ra, decl FROM Object) AS pair", 1241, "SELECT", ("several columns where one is expected",)),
    Mistake("change", "DROP DATABASE sky", 1290, "DROP", ("only queries", "meridian load")),
    Mistake("wrong clause", "SELECT ra FROM Object\nWHERE magnitude < 20\nORDER BY ra", 1054, "magnitude", ("line 2",)),
]  # fmt: skip


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two databases with a table each."""
    directory = tmp_path_factory.mktemp("mistakes")
    stars = ["1,10.5,-3,17.5,star", "2,20.5,4.25,18.5,galaxy"]
    path = write_lines(directory / "Object.csv", stars, header="objectId,ra,decl,g_mag,class")
    meridian.load(directory / "data", "sky", "Object", path, key="objectId", ra="ra", dec="decl")
    path = write_lines(directory / "Filter.csv", ["1,u"], header="filterId,filterName")
    meridian.load(directory / "data", "other", "Filter", path)
    return directory / "data"


@pytest.fixture(scope="module")
def server(meridian: Meridian, data: Path) -> Iterator[Server]:
    """A server of them."""
    with serving(meridian, data) as server:
        yield server


def pointed_at(said: str) -> str | None:
    """What the carets of a message stand below."""
    lines = said.splitlines()
    carets = [number for number, line in enumerate(lines) if re.fullmatch(r" *\^+", line)]
    if not carets:
        return None
    line = lines[carets[-1]]
    return lines[carets[-1] - 1][line.index("^") : len(line)]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_mistakes_are_told_the_same_by_command_line_and_protocols(
    meridian: Meridian, data: Path, server: Server, mistake: Mistake
) -> None:
    database = [] if mistake.database is None else ["--db", mistake.database]
    outcome = meridian.run("sql", "--data", data, *database, mistake.statement)
    said = assert_rejected(outcome, *mistake.words)
    assert said.startswith(f"error {mistake.number} ("), said
    if mistake.at is not None:
        assert pointed_at(said) == mistake.at, said
    over_http = meridian.run("sql", "--server", server.url(""), *database, mistake.statement)
    assert assert_rejected(over_http, *mistake.words) == said
    with server.connect(database=mistake.database) as connection, connection.cursor() as cursor:
        with pytest.raises(pymysql.MySQLError) as caught:
            cursor.execute(mistake.statement)
    number, sentence = caught.value.args
    assert number == mistake.number
    assert said.split(": ", 1)[1] == sentence


# What is none in ADQL, or is told by other words there: its own functions.
OF_MYSQL = {
    "no database chosen", "table of another database", "too few arguments of an operator", "too many arguments", "a seed of random numbers",
    "too few arguments of one of MySQL's", "ADQL's geometry", "TOP", "FETCH FIRST", "format of a plan",
}  # fmt: skip


@pytest.mark.parametrize("mistake", [it for it in MISTAKES if it.name not in OF_MYSQL], ids=lambda mistake: mistake.name)
def test_mistakes_are_told_the_same_by_tap(server: Server, mistake: Mistake) -> None:
    """A query of TAP has no database chosen: tables are written with theirs."""
    statement = re.sub(r"\b(FROM|FROM \[|,) ?(Object|Objekt)\b", lambda found: f"{found[1]} sky.{found[2]}".replace("[ ", "["), mistake.statement)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(server.url("/tap/sync", LANG="ADQL", QUERY=statement), timeout=30).close()
    response = caught.value.read().decode()
    assert caught.value.code in (400, 404), response
    (said,) = re.findall(r'<INFO name="QUERY_STATUS" value="ERROR">(.*?)</INFO>', response, re.DOTALL)
    said = html.unescape(said)
    assert not [word for word in mistake.words if word not in said], said
    assert not [part for part in ENTRAILS if part in said], said
    if mistake.at is not None:
        # ADQL's words end sooner: its names begin with a letter of the alphabet, so that `10h42m` is a number and a name.
        assert pointed_at(said) in (mistake.at, mistake.at[:1], mistake.at.lstrip("0123456789")[:1]), said


@pytest.mark.parametrize("expression", ["ABS('a')", "LOWER(5)", "SUBSTR(5)", "SUM(class)", "ra + class", "CAST(class AS foo)"])
def test_mistakes_of_users_are_none_of_the_server(server: Server, expression: str) -> None:
    """Some are what the engine calls internal errors: they were written into the log as mistakes of the server's own."""
    statement = f"SELECT {expression} FROM sky.Object"
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(server.url("/tap/sync", LANG="ADQL", QUERY=statement), timeout=30).close()
    response = caught.value.read().decode()
    assert caught.value.code == 400 and "mistake of its own" not in response, response
    assert "mistake of its own" not in server.log


def test_there_are_enough_of_them() -> None:
    assert len(MISTAKES) >= 25
    assert len({mistake.name for mistake in MISTAKES}) == len(MISTAKES)
    assert not any(part in word for mistake in MISTAKES for word in mistake.words for part in ENTRAILS)


def test_a_name_in_quotes_that_is_compared_with_a_number_is_warned_of(meridian: Meridian, data: Path, server: Server) -> None:
    for name in ["V mag", "RA (J2000)", "Dec [deg]", "g-mag"]:
        statement = f'SELECT ra FROM Object WHERE "{name}" < 15'
        outcome = meridian.run("sql", "--data", data, "--db", "sky", statement)
        assert outcome.status == 0
        assert "warning 1292" in outcome.stderr and "in backticks" in outcome.stderr
    with server.connect(database="sky") as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        cursor.execute("SHOW WARNINGS")
        ((level, number, sentence),) = cursor.fetchall()
    assert (level, number) == ("Warning", 1292) and "in backticks" in sentence


def test_a_truth_that_is_compared_with_a_text_is_warned_of(meridian: Meridian, data: Path) -> None:
    outcome = meridian.run("sql", "--data", data, "--db", "sky", "SELECT ra FROM Object WHERE (decl > 0) = 'true'")
    assert outcome.status == 0
    assert "warning 1292 (22007): Truncated incorrect DOUBLE value: 'true'" in outcome.stderr


def test_texts_of_national_characters_are_texts(meridian: Meridian, data: Path) -> None:
    """`N'star'` was answered by the name of a type of the parser's."""
    for dialect in ("mysql", "adql"):
        statement = "SELECT ra FROM Object WHERE class = N'star'"
        outcome = meridian.must("sql", "--data", data, "--db", "sky", "--dialect", dialect, "--format", "csv", "--quiet", statement)
        assert outcome.text.splitlines() == ["ra", "10.5"]
