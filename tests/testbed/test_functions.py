"""Calls of the documented functions over values of every type, of a fixed seed, beside MariaDB with the same rows."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from meridian_cli import Meridian
from testbed import functions
from testbed.functions import CALLS, Calls
from testbed.mariadb import MariaDB, Rejected
from testbed.sides import Asker, Complaint, Sides

SEED = int(os.environ.get("MERIDIAN_CALLS_SEED", "20261126"))
# Of each function.
TIMES = int(os.environ.get("MERIDIAN_CALLS", "6"))


@pytest.fixture(scope="module")
def calls(meridian: Meridian, mariadb: MariaDB, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """The table of values in both databases."""
    directory = tmp_path_factory.mktemp("calls")
    table = functions.make_table()
    data = functions.load(meridian, directory, table)
    mariadb.make_database(functions.DATABASE, [table], {})
    sides = Sides(Asker(meridian, data, functions.DATABASE), mariadb, functions.DATABASE)
    yield sides
    sides.asker.close()


@pytest.mark.parametrize("theme", list(CALLS))
def test_functions_give_what_mariadb_gives(theme: str, calls: Sides) -> None:
    """Among what was found so: `%D` was 'D', HOUR read dates, FIELD compared texts as numbers beside a NULL, `-3 ^ 3` was -(3 ^ 3)."""
    wrong = []
    for call in dict.fromkeys(Calls(SEED).each(theme, TIMES)):
        statement = f"SELECT id, {call} AS v FROM V"
        try:
            found = calls.difference(statement)
        except Rejected:
            # Doubles out of range: NULL in Meridian.
            continue
        except Complaint as complaint:
            found = str(complaint)
        # MariaDB makes a DECIMAL of the negative of some computed constants, as in -(ROUND(-3)); MySQL 8 an integer.
        if found is not None and call.startswith("-(") and "is integer in Meridian, decimal in MariaDB" in found:
            continue
        if found is not None:
            wrong.append(f"{call}: {found[:300]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT MIN(CAST(h AS TIME(6))), MAX(CAST(h AS TIME(6))), COUNT(DISTINCT TIME(h)) FROM V",
        "SELECT TIME(h) AS span, COUNT(*) FROM V GROUP BY span",
        "SELECT DISTINCT SEC_TO_TIME(i % 5) FROM V",
        "SELECT id FROM V ORDER BY TIME(h), id",
        "SELECT id FROM V WHERE TIME(h) > '11:00:00' AND TIME(h) < MAKETIME(24, 0, 0)",
        "SELECT a.id, b.id FROM V a JOIN V b ON TIME(a.h) = TIME(b.h)",
        "SELECT id, ROW_NUMBER() OVER (ORDER BY TIME(h), id) FROM V",
        "SELECT id, SUM(id) OVER (ORDER BY TIME(h) DESC), RANK() OVER (PARTITION BY TIME(h) ORDER BY y), MAX(TIME(h)) OVER (ORDER BY id) FROM V",
        "SELECT SEC_TO_TIME(i % 100) FROM V UNION ALL SELECT TIME(h) FROM V",
        "SELECT v.s + 0 > 100 FROM (SELECT SEC_TO_TIME(i % 100) AS s FROM V) v",
        "SELECT id FROM V WHERE TIME(h) IN (SELECT TIME(h) FROM V WHERE id < 4)",
        "SELECT MIN(y), MAX(y), COUNT(DISTINCT y) FROM V",
        "SELECT CONCAT(y, 'x') AS raw, COUNT(*) FROM V GROUP BY raw",
        "SELECT y FROM V UNION SELECT s FROM V",
        "SELECT DISTINCT LEFT(y, 1) FROM V",
        "SELECT a.id, b.id FROM V a JOIN V b ON a.y = b.s",
        "SELECT id FROM V WHERE y IN (SELECT s FROM V)",
        "SELECT id FROM V ORDER BY CONCAT(y, 'x'), id",
        "SELECT GROUP_CONCAT(HEX(y) ORDER BY y) FROM V",
    ],
)
def test_spans_and_bytes_in_statements(statement: str, calls: Sides) -> None:
    found = calls.difference(statement, ordered=statement.endswith(" ORDER BY TIME(h), id"))
    assert found is None, found


def test_bytes_that_are_no_text_are_not_lost(calls: Sides) -> None:
    """GROUP_CONCAT, patterns and JSON replaced what is not UTF-8 by other characters."""
    for call in ("GROUP_CONCAT(y)", "MAX(y REGEXP 'a')", "MAX(REGEXP_REPLACE(y, 'a', 'b'))", "MAX(JSON_QUOTE(y))"):
        with pytest.raises(Complaint, match="1235"):
            calls.asker.execute(f"SELECT {call} FROM V")


def test_the_same_seed_gives_the_same_calls() -> None:
    assert Calls(7).each("text", 2) == Calls(7).each("text", 2)


@pytest.mark.parametrize(
    ("text", "format_"),
    [
        (text, format_)
        for format_, texts in {
            "%Y-%m-%d": ["2010-06-15", "10-06-15", "5-6-7", "70-1-1", "105-06-15", "2010-06-15abc", "2010-13-01", "12010-06-15", " 2010 - 06 - 15", "abc"],
            "%Y-%m-%d %H:%i:%s": ["2010-06-15", "2010-06-15 ", "2010-06-15 01", "2010-06-15 01:", "2010-06-15 01:02", "2010-06-15 25:00:00", "2010-06-15 01:02:60"],
            "%Y-%m-%d %h:%i %p": ["2010-06-15 11:00 PM", "2010-06-15 12:00 AM", "2010-06-15 12:30", "2010-06-15 0:30 AM", "2010-06-15 13:00 PM"],
            "%Y-%m-%d %H %p": ["2010-06-15 11 PM", "2010-06-15 13 PM", "2010-06-15 11"],
            "%y%m%d": ["100615", "690101", "700101"],
            "%Y%m%d": ["20100615", "2010615"],
            "%X%V %W": ["200442 Monday", "200401 Sunday", "200453 Monday", "200454 Monday", "200400 Monday"],
            "%x%v %W": ["200442 Monday", "200953 Friday", "201053 Friday", "201001 Mon", "1042 Monday"],
            "%Y %U %w": ["2004 42 3", "2004 0 1", "2004 53 0", "2004 42 7"],
            "%Y %u %a": ["2004 42 Sun", "2004 0 Mon", "2004 42 S"],
            "%X %v %W": ["2004 42 Monday"],
            "%Y %V %W": ["2004 42 Monday"],
            "%Y %j": ["2010 166", "2010 366", "2012 366"],
            "%D %M %Y": ["15th June 2010", "1st Jun 2010", "15xx June 2010", "15 June 2010", "22nd F 2010", "3rd Ju 2010"],
            "%b %d %Y": ["Jun 15 2010", "june 15 2010", "fe 15 2010"],
            "%W %Y-%m-%d": ["Monday 2010-06-15", "xyz 2010-06-15"],
            "%r %Y-%m-%d": ["11:02:03 PM 2010-06-15", "13:00:00 PM 2010-06-15"],
            "%@%#%.%Y-%m-%d": ["abc123...2010-06-15"],
            "%Y-%m-%d .%f": ["2010-06-15 .5", "2010-06-15 .1234567"],
            "%Y-%m-%d%": ["2010-06-15", "2010-06-15%"],
            "%H:%i:%s": ["25:00:00"],
        }.items()
        for text in texts
    ],
)  # fmt: skip
def test_str_to_date(text: str, format_: str, calls: Sides) -> None:
    found = calls.difference(f"SELECT STR_TO_DATE('{text}', '{format_}') AS v")
    assert found is None, found


def test_a_time_of_day_is_read_alone(calls: Sides) -> None:
    """It was NULL. A TIME comes as a span from MariaDB's client, so texts are compared."""
    texts = [f"CAST(STR_TO_DATE('{text}', '{format_}') AS CHAR)" for text, format_ in (("01:02:03", "%H:%i:%s"), ("11:02:03 PM", "%r"), ("01:02", "%T"))]
    found = calls.difference(f"SELECT {', '.join(texts)}, HOUR(STR_TO_DATE('01:02', '%H:%i'))")
    assert found is None, found


@pytest.mark.parametrize("letter", list("aAbBcCdDeEfFgGhHiIjJkKlLmMnNoOpPqQrRsStTuUvVwWxXyYzZ%-é") + [""])
def test_every_specifier_of_date_format(letter: str, calls: Sides) -> None:
    """`%D` was 'D', and a percent sign at the end was lost."""
    found = calls.difference(f"SELECT id, DATE_FORMAT(t, '<%{letter}'), DATE_FORMAT(d, '%{letter}|%%{letter}') FROM V")
    assert found is None, found
