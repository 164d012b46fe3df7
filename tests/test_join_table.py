"""Every form of a join with every kind of table on either side, beside DuckDB.

A join that kept rows of a replicated table once gave each of them once for every piece of the sky. So the forms and the kinds
stand here as a table, and all of their combinations are asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pymysql
import pytest

import oracle
import synthetic
import table_files
from comparison import difference
from meridian_cli import Meridian
from serving import serving


OVERLAP = 0.01


@dataclass(frozen=True)
class Side:
    """A kind of table: what stands in FROM, its key, and a column of few values by which it joins a small table."""

    source: str
    key: str
    small: str
    is_small: bool = False


SIDES = {
    "director": Side("Object", "objectId", "flags"),
    "other director": Side("RefObject", "refId", "isStar"),
    "child": Side("Source", "objectId", "filterId"),
    "match": Side("(SELECT objectId, refId, objectId % 11 AS eleventh FROM RefMatch)", "objectId", "eleventh"),
    "replicated": Side("Filter", "filterId", "filterId", is_small=True),
    "groups": Side("(SELECT objectId, min(filterId) AS least FROM Source GROUP BY objectId)", "objectId", "least"),
    "one row": Side("(SELECT max(filterId) AS most FROM Source)", "most", "most", is_small=True),
}

# The same by the own keys of a child, of which pairs are: of Source with itself, and of Object with Source.
CHILD_SIDES = {
    "child": Side("Source", "sourceId", "filterId"),
    "left ends": Side("SourcePair", "leftId", "filterId"),
    "right ends": Side("SourcePair", "rightId", "filterId"),
    "ends beside a director": Side("ObjectSource", "sourceId", "filterId"),
    "replicated": Side("Filter", "filterId", "filterId", is_small=True),
}

# `{l}` and `{r}` are the sides' columns, `{on}` their equality, `{left}` and `{right}` what stands in FROM.
PAIRS = "SELECT count(*), count({l}), count({r}), sum({l} % 1000), sum({r} % 1000) FROM {left} l {join} {right} r ON {on}"
KEPT = "SELECT count(*), sum({l} % 1000) FROM {left} l WHERE "
EXISTS = "EXISTS (SELECT 1 FROM {right} r WHERE {on})"
NOT_NULL = "(SELECT {r} FROM {right} r WHERE {r} IS NOT NULL)"
FORMS = {
    "inner": PAIRS.replace("{join}", "JOIN"),
    "left": PAIRS.replace("{join}", "LEFT JOIN"),
    "right": PAIRS.replace("{join}", "RIGHT JOIN"),
    "full": PAIRS.replace("{join}", "FULL JOIN"),
    "rows kept by a left join": "SELECT {l}, {r} FROM {left} l LEFT JOIN {right} r ON {on} WHERE {r} IS NULL AND {l} % 7 = 0",
    "exists": KEPT + EXISTS,
    "not exists": KEPT + "NOT " + EXISTS,
    "in": KEPT + "{l} IN (SELECT {r} FROM {right} r)",
    "not in, without NULL": KEPT + "{l} NOT IN " + NOT_NULL,
    "not in, NULL perhaps": KEPT + "{l} NOT IN (SELECT {r} FROM {right} r)",
    "exists, under OR": KEPT + "{l} % 5 = 0 OR " + EXISTS,
    "in, under OR": KEPT + "{l} % 5 = 0 OR {l} IN " + NOT_NULL,
    "exists, selected": "SELECT flag, count(*) FROM (SELECT " + EXISTS + " AS flag FROM {left} l) AS t GROUP BY flag",
    "grouped": "SELECT {l} % 10, count(*), count({r}) FROM {left} l LEFT JOIN {right} r ON {on} GROUP BY {l} % 10",
    "distinct": "SELECT count(DISTINCT {l}), count(DISTINCT {r}) FROM {left} l JOIN {right} r ON {on}",
}


def statement(form: str, left: Side, right: Side) -> str:
    """The statement of a form."""
    small = left.is_small or right.is_small
    columns = [(f"{name}.{side.small}" if small else f"{name}.{side.key}") for name, side in (("l", left), ("r", right))]
    on = f"{columns[0]} = {columns[1]}"
    return FORMS[form].format(l=f"({columns[0]})", r=f"({columns[1]})", on=on, left=left.source, right=right.source)


def few_rows() -> dict[str, synthetic.TableData]:
    """Some rows of each table of the made-up sky: objects and what belongs to them, orphans, NULL keys, keys of nobody."""
    tables = synthetic.make_catalogue()

    def every(name: str, step: int) -> pa.Table:
        rows = tables[name].rows
        return rows.take(list(range(0, rows.num_rows, step)))

    objects = every("Object", 45)

    def belonging(name: str, others: int) -> pa.Table:
        rows = tables[name].rows
        own = pc.is_in(rows["objectId"], value_set=objects["objectId"].combine_chunks())
        return pa.concat_tables([rows.filter(own), rows.filter(pc.invert(own)).slice(0, others)])

    rows = {
        "Object": objects,
        "Source": belonging("Source", 400),
        "RefObject": every("RefObject", 30),
        "RefMatch": belonging("RefMatch", 300),
        "Filter": every("Filter", 1),
    }
    some = {name: replace(tables[name], rows=rows[name]) for name in rows}
    return some | pairs_of_sources(some["Object"].rows, some["Source"].rows)


Position = tuple[float | None, float | None]


def are_near(one: Position, other: Position) -> bool:
    """Whether two positions are within the overlap of each other, or there are none."""
    if None in one or None in other:
        return True
    ra, dec = np.radians([one, other]).T
    vectors = np.stack([np.cos(dec) * np.cos(ra), np.cos(dec) * np.sin(ra), np.sin(dec)], axis=1)
    apart = np.arctan2(np.linalg.norm(np.cross(vectors[0], vectors[1])), vectors[0] @ vectors[1])
    return bool(np.degrees(apart) < 0.99 * OVERLAP)


def pairs_of_sources(objects: pa.Table, sources: pa.Table) -> dict[str, synthetic.TableData]:
    """Pairs of sources of one object, and of objects with their sources; some twice, some with a key of nobody, some with none."""
    place: dict[int, Position] = dict(
        zip(objects["objectId"].to_pylist(), zip(objects["ra_PS"].to_pylist(), objects["decl_PS"].to_pylist()))
    )
    by_object: dict[int, list[tuple[int, Position]]] = {}
    for source, owner, *position in zip(*(sources[name].to_pylist() for name in ("sourceId", "objectId", "ra", "decl"))):
        by_object.setdefault(owner, []).append((source, (position[0], position[1])))
    by_object.pop(None, None)
    all_owned = by_object.values()
    pairs: list[tuple[int | None, int | None]] = [
        (a, b) for owned in all_owned for (a, at), (b, there) in zip(owned, owned[1:]) if are_near(at, there)
    ]
    beside: list[tuple[int | None, int | None]] = [
        (owner, owned[-1][0]) for owner, owned in by_object.items() if owner not in place or are_near(place[owner], owned[-1][1])
    ]
    odd: list[tuple[int | None, int | None]] = [(5, pairs[7][1]), (pairs[9][0], 6), (None, pairs[11][0]), (pairs[12][1], None), (5, 6), (None, None)]
    found = {}
    for name, columns, rows in [("SourcePair", ("leftId", "rightId"), pairs), ("ObjectSource", ("objectId", "sourceId"), beside)]:
        rows = rows + rows[:20] + odd
        left, right = zip(*rows)
        types = {columns[0]: "bigint DEFAULT NULL", columns[1]: "bigint DEFAULT NULL", "filterId": "tinyint DEFAULT NULL"}
        values = {columns[0]: left, columns[1]: right, "filterId": [at % 8 for at in range(len(rows))]}
        found[name] = synthetic.table(name, types, values)
    return found


@dataclass
class Sky:
    """A server's cursor, and DuckDB with the same rows."""

    cursor: pymysql.cursors.Cursor
    duckdb: duckdb.DuckDBPyConnection


@pytest.fixture(scope="module")
def sky(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sky]:
    """A small sky of many chunks, served."""
    directory = tmp_path_factory.mktemp("joins")
    data = directory / "data"
    place = {"ra": "ra_PS", "dec": "decl_PS"}
    options: dict[str, dict[str, object]] = {
        "Object": {"kind": "director", "key": "objectId", **place, "stripes": 8, "sub_stripes": 4, "overlap": OVERLAP},
        "Source": {"kind": "child", "key": "objectId", "director": "Object", "ra": "ra", "dec": "decl"},
        "RefObject": {"kind": "director", "key": "refId", "ra": "ra", "dec": "decl"},
        "RefMatch": {"kind": "match", "director": "RefObject,Object", "key": "refId,objectId"},
        "Filter": {"kind": "replicated"},
        "SourcePair": {"kind": "match", "director": "Source,Source", "key": "leftId,rightId"},
        "ObjectSource": {"kind": "match", "director": "Object,Source", "key": "objectId,sourceId"},
    }
    connection = oracle.connect()
    for name, table in few_rows().items():
        meridian.load(data, "sky", name, table_files.write_parquet(directory / f"{name}.parquet", table), **options[name])
        oracle.add_table(connection, name, table.rows)
    with serving(meridian, data) as server, server.connect(database="sky") as connected:
        yield Sky(connected.cursor(), connection)


@pytest.mark.parametrize("right", SIDES)
@pytest.mark.parametrize("left", SIDES)
def test_joins(left: str, right: str, sky: Sky) -> None:
    check(sky, SIDES[left], SIDES[right])


@pytest.mark.parametrize("right", CHILD_SIDES)
@pytest.mark.parametrize("left", CHILD_SIDES)
def test_joins_by_own_keys_of_a_child(left: str, right: str, sky: Sky) -> None:
    check(sky, CHILD_SIDES[left], CHILD_SIDES[right])


def test_pairs_of_a_child_are_joined_with_it_in_the_pieces(sky: Sky) -> None:
    """A pair is where its child's row is; two rows of a child with one own key need not be together."""
    for other, in_pieces in [("SourcePair o ON s.sourceId = o.leftId", True), ("Source o ON s.sourceId = o.sourceId", False)]:
        sky.cursor.execute(f"EXPLAIN SELECT count(*) FROM Source s JOIN {other}")
        plan = next(text for kind, text in sky.cursor.fetchall() if kind == "physical_plan")
        joins = [line for line in plan.splitlines() if "HashJoinExec" in line]
        assert [line.lstrip().startswith("|") for line in joins] == [in_pieces], plan


def check(sky: Sky, left: Side, right: Side) -> None:
    """Asks all forms."""
    wrong = []
    for form in FORMS:
        asked = statement(form, left, right)
        expected = sky.duckdb.execute(asked).fetchall()
        try:
            sky.cursor.execute(asked)
        except pymysql.Error as error:
            wrong.append(f"{form}: {error}\n{asked}")
            continue
        if found := difference(list(sky.cursor.fetchall()), expected):
            wrong.append(f"{form}: {found}\n{asked}")
    assert not wrong, "\n\n".join(wrong)
