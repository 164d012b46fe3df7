"""Memberships and counts over columns of few different values: in time and memory that grow with the rows, not with the pairs of equal ones."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pymysql
import pytest

from meridian_cli import Meridian
from serving import serving

# Pairs of equal values: 1.5 * 10^9 in `filterId`, which would take half a minute each.
ROWS = 100_000
SECONDS = 20


def observed(count: int) -> pa.Table:
    """Sources of six filters and nights, some of neither."""
    rng = random.Random(20)
    return pa.table({
        "sourceId": pa.array(range(count), pa.int64()),
        "ra": pa.array([rng.uniform(0, 360) for _ in range(count)]),
        "decl": pa.array([rng.uniform(-80, 80) for _ in range(count)]),
        "filterId": pa.array([rng.choice([None, 0, 1, 2, 3, 4, 5]) for _ in range(count)], pa.int8()),
        "night": pa.array([rng.choice([None, "a", "b", "c"]) for _ in range(count)]),
        "flux": pa.array([float(rng.randint(0, 3)) for _ in range(count)]),
    })  # fmt: skip


@pytest.fixture(scope="module")
def sources() -> pa.Table:
    return observed(ROWS)


@pytest.fixture(scope="module")
def connection(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory, sources: pa.Table) -> Iterator[pymysql.connections.Connection]:
    """A connection to a director, Source, the same rows replicated, Plain, and a table of no rows."""
    directory = tmp_path_factory.mktemp("few")
    data: Path = directory / "data"
    pq.write_table(sources, directory / "s.parquet")
    pq.write_table(sources.slice(0, 0), directory / "none.parquet")
    into = ("load", "--data", data, "--db", "sky", "--table")
    meridian.must(*into, "Source", "--key", "sourceId", "--ra", "ra", "--dec", "decl", "--stripes", "6", "--sub-stripes", "2", directory / "s.parquet")
    meridian.must(*into, "Plain", "--kind", "replicated", directory / "s.parquet")
    meridian.must(*into, "Hollow", "--kind", "replicated", "--allow-empty", directory / "none.parquet")
    with serving(meridian, data, "--memory", "1G") as server, server.connect(database="sky", read_timeout=SECONDS) as connected:
        yield connected


@pytest.fixture(scope="module")
def oracle(sources: pa.Table) -> duckdb.DuckDBPyConnection:
    connected = duckdb.connect()
    connected.register("Source", sources)
    connected.register("Plain", sources)
    connected.register("Hollow", sources.slice(0, 0))
    return connected


MEMBERSHIPS = [
    "a.{column} IN (SELECT {column} FROM {inner} WHERE sourceId > 5)",
    "a.{column} NOT IN (SELECT {column} FROM {inner} WHERE {column} IS NOT NULL AND flux < 3)",
    "a.{column} NOT IN (SELECT {column} FROM {inner})",
    "EXISTS (SELECT 1 FROM {inner} b WHERE b.{column} = a.{column} AND b.flux > 1)",
    "NOT EXISTS (SELECT 1 FROM {inner} b WHERE b.{column} = a.{column})",
    "EXISTS (SELECT 1 FROM {inner} b WHERE b.filterId = a.filterId AND b.night = a.night)",
    "(EXISTS (SELECT 1 FROM {inner} b WHERE b.{column} = a.{column}) OR a.flux > 2)",
]


@pytest.mark.parametrize("membership", MEMBERSHIPS)
@pytest.mark.parametrize("column", ["filterId", "night"])
@pytest.mark.parametrize("outer, inner", [("Source", "Source"), ("Source", "Plain"), ("Plain", "Source"), ("Source", "Hollow"), ("Hollow", "Source")])
def test_memberships(connection: pymysql.connections.Connection, oracle: duckdb.DuckDBPyConnection, membership: str, column: str, outer: str, inner: str) -> None:
    """IN, EXISTS and their negations, with NULLs on either side and sets that are empty."""
    asked = f"SELECT COUNT(*), MIN(a.sourceId), MAX(a.sourceId) FROM {outer} a WHERE {membership.format(column=column, inner=inner)}"
    cursor = connection.cursor()
    cursor.execute(asked)
    assert list(cursor.fetchall()) == oracle.execute(asked).fetchall()


@pytest.mark.parametrize("columns", ["filterId, night", "night, flux", "sourceId, filterId", "filterId, night, flux", "sourceId, NULL"])
@pytest.mark.parametrize("group", [None, "filterId", "flux", "MOD(sourceId, 1000)"])
def test_different_rows_are_counted(connection: pymysql.connections.Connection, oracle: duckdb.DuckDBPyConnection, columns: str, group: str | None) -> None:
    """COUNT(DISTINCT a, b), which leaves rows with a NULL out, of all rows and by groups, within the memory."""
    of_all = " OR ".join(f"{column} IS NULL" for column in columns.split(", "))
    ours = f"COUNT(DISTINCT {columns})"
    theirs = f"COUNT(DISTINCT CASE WHEN {of_all} THEN NULL ELSE row({columns}) END)"
    head, tail = (f"{group}, ", f" GROUP BY {group}") if group else ("", "")
    cursor = connection.cursor()
    cursor.execute(f"SELECT {head}{ours} FROM Source{tail}")
    expected = oracle.execute(f"SELECT {head.replace('MOD', 'mod')}{theirs} FROM Source{tail}").fetchall()
    assert sorted(map(str, cursor.fetchall())) == sorted(map(str, expected))
