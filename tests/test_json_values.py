"""JSON values are compared, sorted and counted as MySQL 8 does it, or rejected with what to write: never as texts.

MariaDB's documents are texts, so the reference are the rules of the MySQL 8.0 Reference Manual, 11.5, "Comparison and Ordering of JSON
Values", written out here.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from meridian_cli import Meridian, rows_of

# In their order: null, numbers, strings, objects, arrays, booleans. Values on one line are equal.
ORDERED = [
    ["null"],
    ["-12"],
    ["-1.5"],
    ["0", "0.0"],
    ["1", "1.0", "1e0"],
    ["9"],
    ["10", "1e1"],
    ["9223372036854775806"],
    ["9223372036854775807"],
    ["9.223372036854776e18"],
    ['""'],
    ['"10"'],
    ['"9"'],
    ['"B"'],
    ['"a"'],
    ['"ab"'],
    ['{"a": 1, "b": 2}', '{"b": 2.0, "a": 1}'],
    ["[]"],
    ["[1, 2]", "[1.0, 2]"],
    ["[2]"],
    ['["a"]'],
    ['["ab", "cd", "ef"]'],
    ['["ab", "ef"]'],
    ["false"],
    ["true"],
]
PLACES = [(place, text) for place, texts in enumerate(ORDERED) for text in texts]


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each of the values as a member of a document, in no order, and a document without it."""
    directory = tmp_path_factory.mktemp("json_values")
    rows = [(place, f'{{"v": {text}, "name": "n{place}"}}') for place, text in PLACES]
    shuffled = rows[::2] + rows[1::2][::-1]
    lines = ["id,place,d", *(f"""{n},{place},"{document.replace('"', '""')}\"""" for n, (place, document) in enumerate(shuffled))]
    path = directory / "documents.csv"
    path.write_text("\n".join([*lines, '99,99,"{}"']) + "\n", encoding="utf-8")
    meridian.load(directory / "data", "j", "D", path, kind="replicated")
    return directory / "data"


def execute(meridian: Meridian, data: Path, statement: str) -> list[tuple[object, ...]]:
    """The rows of a result."""
    outcome = meridian.must("sql", "--data", data, "--db", "j", "--quiet", "--format", "arrow", statement)
    return [tuple(row) for row in rows_of(pa.ipc.open_stream(outcome.stdout).read_all())]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT place FROM D WHERE id < 99 ORDER BY d->'$.v', place",
        "SELECT place FROM D WHERE id < 99 ORDER BY JSON_EXTRACT(d, '$.v'), place",
        "SELECT place FROM (SELECT place, id, d->'$.v' AS v FROM D) t WHERE id < 99 ORDER BY v, place",
        "WITH t AS (SELECT place, id, COALESCE(d->'$.w', d->'$.v') AS v FROM D) SELECT place FROM t WHERE id < 99 ORDER BY v",
        "SELECT place FROM (SELECT place, DENSE_RANK() OVER (ORDER BY d->'$.v') AS r FROM D WHERE id < 99) t ORDER BY r",
        "SELECT v.place FROM (SELECT place, d->'$.v' AS v FROM D WHERE id < 50 UNION ALL SELECT place, d->'$.v' FROM D WHERE id BETWEEN 50 AND 98) v ORDER BY v",
    ],
)
def test_values_are_sorted_as_the_manual_says(meridian: Meridian, data: Path, statement: str) -> None:
    """9 was behind 10, as texts are."""
    assert [row[0] for row in execute(meridian, data, statement)] == [place for place, _ in PLACES]


def test_what_is_missing_is_before_all_values(meridian: Meridian, data: Path) -> None:
    rows = execute(meridian, data, "SELECT id, d->'$.v' AS v FROM D ORDER BY v LIMIT 2")
    assert rows[0] == (99, None) and rows[1][1] == "null"


@pytest.mark.parametrize("operator", ["=", "<", "<=", ">", ">=", "<>"])
def test_values_are_compared_pair_by_pair(meridian: Meridian, data: Path, operator: str) -> None:
    compared = f"SELECT COUNT(*) FROM D a JOIN D b ON a.d->'$.v' {operator} b.d->'$.v'"
    expected = f"SELECT COUNT(*) FROM D a JOIN D b ON a.place {operator} b.place WHERE a.id < 99 AND b.id < 99"
    assert execute(meridian, data, compared) == execute(meridian, data, expected)


@pytest.mark.parametrize(
    ("condition", "places"),
    [
        ("d->'$.v' = 1", [4, 4, 4]),
        ("d->'$.v' = 1.0", [4, 4, 4]),
        ("1 = d->'$.v'", [4, 4, 4]),
        ("d->'$.v' IN (9, 'a', 7)", [5, 14]),
        ("d->'$.v' NOT IN (9, 'a') AND d->'$.v' < 10", [0, 1, 2, 3, 3, 4, 4, 4]),
        ("d->'$.v' BETWEEN 1 AND 10", [4, 4, 4, 5, 6, 6]),
        # The number is no text, and the text is no number.
        ("d->'$.v' = '9'", [12]),
        ("d->'$.v' = 'ab'", [15]),
        ("d->'$.v' > 9 AND d->'$.v' < 'B'", [6, 6, 7, 8, 9, 10, 11, 12]),
        ("d->'$.v' = TRUE", [24]),
        ("d->'$.v' = FALSE", [23]),
        ("d->'$.v' = JSON_ARRAY(1, 2)", [18, 18]),
        ("d->'$.v' = JSON_OBJECT('b', 2, 'a', 1)", [16, 16]),
        ("d->'$.v' <=> NULL", [99]),
        ("d->'$.v' = (SELECT 9)", [5]),
        ("d->'$.v' IN (SELECT place FROM D WHERE place > 8)", [5, 6, 6]),
        ("CASE d->'$.v' WHEN 9 THEN 1 WHEN 'a' THEN 1 ELSE 0 END", [5, 14]),
        ("d->'$.name' = 'n7'", [7]),
        # As numbers.
        ("d->'$.v' + 1 = 10", [5, 12]),
        ("ABS(d->'$.v') = 12", [1]),
        ("CAST(d->'$.v' AS SIGNED) = 9", [5, 12]),
        ("CAST(d->'$.v' AS SIGNED) = -2", [2]),
        ("CAST(d->'$.v' AS SIGNED) > 9000000000000000000", [7, 8, 9]),
        ("CAST(d->'$.v' AS UNSIGNED) > 9223372036854775807 AND place > 2", [9]),
    ],
)
def test_values_meet_values_of_sql(meridian: Meridian, data: Path, condition: str, places: list[int]) -> None:
    statement = f"SELECT place FROM D WHERE {condition} ORDER BY place"
    assert [row[0] for row in execute(meridian, data, statement)] == places


def test_different_values_are_counted(meridian: Meridian, data: Path) -> None:
    (row,) = execute(meridian, data, "SELECT COUNT(DISTINCT d->'$.v'), COUNT(d->'$.v'), COUNT(DISTINCT d->'$.v', 1) FROM D")
    assert row == (len(ORDERED), len(PLACES), len(ORDERED))


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT COUNT(*) FROM (SELECT DISTINCT d->'$.v' AS v FROM D WHERE id < 99) t", [(len(ORDERED),)]),
        ("SELECT DISTINCT d->'$.v' AS v, 1 AS one FROM D WHERE place IN (5, 14) ORDER BY v", [("9", 1), ('"a"', 1)]),
        ("SELECT COUNT(*) AS n, d->'$.v' > 5 FROM D WHERE place IN (3, 4, 6) GROUP BY d->'$.v' ORDER BY d->'$.v'", [(2, 0), (3, 0), (2, 1)]),
        ("SELECT v, COUNT(*) FROM (SELECT d->'$.v' AS v FROM D WHERE place IN (5, 14)) t GROUP BY v HAVING v > 1 ORDER BY v DESC", [('"a"', 1), ("9", 1)]),
        ("SELECT MIN(d->'$.v'), MAX(d->'$.v') FROM D", [("null", "true")]),
        ("SELECT place > 5 AS p, MIN(v), MAX(v) FROM (SELECT place, d->'$.v' AS v FROM D WHERE place IN (1, 5, 7, 14)) t GROUP BY p ORDER BY p",
         [(0, "-12", "9"), (1, "9223372036854775806", '"a"')]),
        ("SELECT MAX(d->'$.w') FROM D", [(None,)]),
        ("SELECT COUNT(*) FROM (SELECT d->'$.v' FROM D WHERE place < 6 INTERSECT SELECT d->'$.v' FROM D WHERE place > 3) t", [(2,)]),
    ],
)  # fmt: skip
def test_values_are_grouped(meridian: Meridian, data: Path, statement: str, expected: list[tuple[object, ...]]) -> None:
    """They were refused. 1, 1.0 and 1e0 are one value."""
    assert execute(meridian, data, statement) == expected


def test_texts_of_values_are_texts(meridian: Meridian, data: Path) -> None:
    statement = "SELECT DISTINCT d->>'$.v' AS v FROM D WHERE place BETWEEN 4 AND 6 ORDER BY v"
    assert execute(meridian, data, statement) == [("1",), ("1.0",), ("10",), ("10.0",), ("9",)]
    grouped = "SELECT d->>'$.name' AS n, COUNT(*) FROM D WHERE place = 4 GROUP BY d->>'$.name'"
    assert execute(meridian, data, grouped) == [("n4", 3)]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT v, COUNT(*) FROM (SELECT d->'$.v' AS v FROM D) t GROUP BY v WITH ROLLUP",
        "SELECT d->'$.v' FROM D UNION SELECT d->'$.name' FROM D",
        "SELECT id FROM D WHERE d->'$.v'",
        "SELECT id FROM D WHERE NOT d->'$.v'",
        "SELECT IF(d->'$.v', 1, 2) FROM D",
        "SELECT IF(id = 1, d->'$.v', NULL) AS v FROM D ORDER BY v",
        "SELECT NULLIF(d->'$.v', 1) FROM D",
        "SELECT GREATEST(d->'$.v', 1) FROM D",
        "SELECT FIELD(d->'$.v', 1, 2) FROM D",
        "SELECT LAG(d->'$.v') OVER (ORDER BY id) FROM D",
        "SELECT GROUP_CONCAT(DISTINCT id ORDER BY d->'$.v') FROM D",
    ],
)
def test_what_would_take_them_for_texts_is_rejected(meridian: Meridian, data: Path, statement: str) -> None:
    outcome = meridian.run("sql", "--data", data, "--db", "j", "--quiet", statement)
    assert outcome.status != 0
    assert outcome.complaint.startswith("meridian: error 1235 (42000): JSON values are not supported"), outcome.complaint
    assert "->>" in outcome.complaint
