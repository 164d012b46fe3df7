"""Asks Meridian and MariaDB the hand-written statements. They are in `cases/`, by theme."""

from __future__ import annotations

import pytest

from meridian_cli import rows_of
from complaints import assert_clear
from testbed.cases import Query, catalogue, expressions, lsst, values
from testbed.__main__ import write_coverage
from testbed.sides import Sides

ON_THE_SMALL_SKY = {**expressions.THEMES, **values.THEMES, **catalogue.THEMES}


def each(queries: list[Query]) -> pytest.MarkDecorator:
    """One test for each statement."""
    return pytest.mark.parametrize("query", queries, ids=[query.sql[:70] for query in queries])


def check(sides: Sides, query: Query) -> None:
    """Fails where the answers differ."""
    found = sides.difference(query.sql, query.reference, query.ordered)
    assert found is None, f"{found}\nStatement: {query.sql[:500]}"


@each([query for theme in ON_THE_SMALL_SKY.values() for query in theme])
def test_small_sky(query: Query, small_sky: Sides) -> None:
    check(small_sky, query)


@each(lsst.PT11)
def test_lsst_pt11(query: Query, pt11_sides: Sides) -> None:
    check(pt11_sides, query)


@each(lsst.PT12)
def test_lsst_pt12(query: Query, pt12_sides: Sides) -> None:
    check(pt12_sides, query)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 9223372036854775807 + 1",
        "SELECT -9223372036854775808 - 1",
        "SELECT 9223372036854775807 * 2",
        "SELECT big + 1 FROM Extremes",
        "SELECT big * 2 FROM Extremes",
        "SELECT ubig + 1 FROM Extremes",
        "SELECT ubig - 1 FROM Extremes",
        "SELECT (flags & 4) - 8 FROM Object",
        "SELECT nosuch FROM Object",
        "SELECT flags FROM NoSuchTable",
        "SELECT objectId FROM Object o, Source s",
        "SELECT nosuch(flags) FROM Object",
        "SELECT flags FROM Object WHERE",
        "SELECT LENGTH('a', 'b')",
        "SELECT LENGTH()",
        "SELECT o.nosuch FROM Object o",
        "SELECT flags FROM Object WHERE nosuch = 1",
        "SELECT flags FROM Object ORDER BY nosuch",
        "SELECT flags FROM Object GROUP BY nosuch",
        "SELECT flags FROM Object HAVING nosuch > 1",
        "SELECT x.flags FROM Object o",
        "SELECT flags FROM NoSuchBase.Object",
        "SELECT 1 FROM Object o, Source o",
        "SELECT 1 FROM Object, Object",
        "SELECT 1 UNION SELECT 1, 2",
        "SELECT (SELECT 1, 2)",
        "SELECT (SELECT flags FROM Object)",
        "SELECT flags FROM Object WHERE count(*) > 1",
        "SELECT sum(count(*)) FROM Object",
        "SELECT flags FROM Object HAVING nObs > 3",
        "SELECT flags FROM Object o HAVING o.nObs > 3",
        "SELECT flags, FROM Object",
        "SELECT FROM Object",
        "SELEC 1",
        "SELECT (1",
        "SELECT 1)",
        "SELECT 1 LIMIT -1",
        "SELECT CASE WHEN 1 THEN 2",
        "SELECT * FROM Object o JOIN Source s USING (nosuch)",
        "SELECT 18446744073709551615 + 1",
        "SELECT 1e400",
        "SELECT (1, 2) IN ((1, 2, 3))",
        "SELECT * FROM (SELECT 1 AS x, 2 AS x) t",
    ],
)
def test_both_reject(statement: str, small_sky: Sides) -> None:
    ours, theirs = small_sky.rejection(statement)
    assert theirs is not None, "MariaDB answers this"
    assert ours is not None, f"Meridian answers this, MariaDB says {theirs}"
    number = theirs.split(":")[0]
    assert ours.startswith(f"meridian: error {number} ("), f"Meridian says {ours}, MariaDB {theirs}"
    assert_clear(ours)


@pytest.mark.parametrize(
    ("statement", "compared"),
    [
        ("SHOW DATABASES LIKE 'sk%'", 0),
        ("SHOW TABLES", 1),
        ("SHOW TABLES FROM sky", 1),
        ("SHOW TABLES LIKE 'ref%'", 0),
        ("SHOW FULL TABLES", 2),
        ("SHOW COLUMNS FROM Object", 1),
        ("SHOW COLUMNS FROM RefMatch FROM sky", 1),
        ("SHOW COLUMNS FROM Object LIKE '%flux%'", 1),
        ("DESCRIBE Filter", 1),
        ("DESC sky.Source", 1),
        ("SHOW CREATE TABLE Filter", 0),
    ],
)
def test_lists(statement: str, compared: int, small_sky: Sides) -> None:
    """What there is: headings agree, and the first columns of the rows but for the case of names."""
    small_sky.mariadb.do("USE sky")
    expected, answer = small_sky.mariadb.execute(statement), small_sky.asker.execute(statement)
    if compared:
        assert answer.column_names == [column.name for column in expected.columns]
    assert answer.num_rows == len(expected.rows)
    ours = {tuple(str(value).lower() for value in row[:compared]) for row in rows_of(answer)}
    assert ours == {tuple(str(value).lower() for value in row[:compared]) for row in expected.rows}


def test_the_reference_has_the_numbers_of_today() -> None:
    assert write_coverage(check=True) == 0, "run `python3 -m testbed coverage` in tests/"
