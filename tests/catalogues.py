"""Loads the catalogues of the tests into Meridian and into DuckDB."""

from __future__ import annotations

import concurrent.futures
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pyarrow as pa

import oracle
import synthetic
import table_files
from comparison import difference
from meridian_cli import Meridian, rows_of
from mysql_dump import read_dump, tables_of
from queries import Case

QUERIES_AT_A_TIME = 2
DEMO = Path(__file__).resolve().parent.parent / "demo"


@dataclass
class Catalogue:
    """A database of Meridian, the same rows in DuckDB, and the answers to the queries that a run asks of it."""

    meridian: Meridian
    data: Path
    db: str
    duckdb: duckdb.DuckDBPyConnection
    answers: dict[str, concurrent.futures.Future[pa.Table]] = field(default_factory=dict)
    pool: concurrent.futures.ThreadPoolExecutor = field(
        default_factory=lambda: concurrent.futures.ThreadPoolExecutor(QUERIES_AT_A_TIME)
    )

    def ask_ahead(self, cases: list[Case]) -> None:
        """Starts to ask Meridian all queries of a run, a few at a time, in their order."""
        for case in cases:
            self.answers[case.sql] = self.pool.submit(self.meridian.sql, self.data, self.db, case.sql)

    def check(self, case: Case) -> None:
        """Compares the two answers to a query."""
        expected = self.duckdb.execute(case.oracle_sql).fetchall()
        answer = (
            self.answers[case.sql].result()
            if case.sql in self.answers
            else self.meridian.sql(self.data, self.db, case.sql)
        )
        found = difference(rows_of(answer), expected, case.tolerance, case.ordered)
        assert found is None, f"{found}\nQuery: {case.sql}"
        width = len(self.duckdb.description or [])
        assert answer.num_columns == width, f"{answer.num_columns} columns, not {width}. Query: {case.sql}"

    def close(self) -> None:
        """Drops the queries that nobody waits for."""
        self.pool.shutdown(cancel_futures=True)


def load_synthetic(meridian: Meridian, directory: Path) -> Catalogue:
    """The made-up sky, each table from a file of another format."""
    tables = synthetic.make_catalogue()
    files = {
        "Object": table_files.write_csv(directory / "Object.csv", tables["Object"]),
        "Source": table_files.write_dump(directory / "Source.tsv.gz", tables["Source"]),
        "RefObject": table_files.write_parquet(directory / "RefObject.parquet", tables["RefObject"]),
        "RefMatch": table_files.write_parquet(directory / "RefMatch.parquet", tables["RefMatch"]),
        "Filter": table_files.write_dump(directory / "Filter.tsv", tables["Filter"]),
    }
    schema = {
        "Object": table_files.write_schema(directory / "Object.json", tables["Object"], quote='"', null="\\N"),
        "Source": table_files.write_schema(directory / "Source.json", tables["Source"]),
        "Filter": table_files.write_schema(directory / "Filter.json", tables["Filter"]),
    }
    data = directory / "data"
    cut = {"stripes": synthetic.STRIPES, "sub_stripes": synthetic.SUB_STRIPES, "overlap": synthetic.OVERLAP_DEGREES}
    place = {"ra": "ra_PS", "dec": "decl_PS"}
    db = "sky"
    meridian.load(
        data, db, "Object", files["Object"], kind="director", key="objectId", **place, schema=schema["Object"], **cut
    )
    child = {"kind": "child", "key": "objectId", "director": "Object", "ra": "ra", "dec": "decl"}
    meridian.load(data, db, "Source", files["Source"], **child, schema=schema["Source"])
    meridian.load(data, db, "RefObject", files["RefObject"], kind="director", key="refId", ra="ra", dec="decl")
    match = {"kind": "match", "director": "RefObject,Object", "key": "refId,objectId"}
    meridian.load(data, db, "RefMatch", files["RefMatch"], **match)
    meridian.load(data, db, "Filter", files["Filter"], kind="replicated", schema=schema["Filter"])
    connection = oracle.connect()
    for table in tables.values():
        oracle.add_table(connection, table.name, table.rows)
    number_chunks(meridian, connection, "chunk_of_object", "SELECT objectId, ra_PS, decl_PS FROM Object")
    number_chunks(meridian, connection, "chunk_of_reference", "SELECT refId, ra, decl FROM RefObject")
    return Catalogue(meridian, data, db, connection)


def number_chunks(meridian: Meridian, connection: duckdb.DuckDBPyConnection, name: str, positions: str) -> None:
    """A table of the keys that `positions` gives and the chunks in which `meridian sky locate` puts their positions."""
    rows = connection.execute(positions)
    key = rows.description[0][0]
    found = rows.fetchall()
    lines = "".join(f"{ra!r},{dec!r}\n" for _, ra, dec in found)
    cut = ("--stripes", synthetic.STRIPES, "--sub-stripes", synthetic.SUB_STRIPES)
    located = meridian.must("sky", "locate", *cut, stdin=lines).text.splitlines()
    chunks = [int(line.split(",")[2]) for line in located]
    oracle.add_table(connection, name, pa.table({key: [row[0] for row in found], "chunkId": chunks}))


def load_dumps(meridian: Meridian, directory: Path, dumps: Path) -> Catalogue:
    """A directory of MySQL dumps beside a tables.json: Object, its child Source, everything else replicated."""
    tables = tables_of(dumps)
    options: dict[str, dict[str, object]] = {
        "Object": {"key": "objectId", "ra": "ra_PS", "dec": "decl_PS", "stripes": 85, "sub_stripes": 12},
        "Source": {"key": "objectId", "director": "Object", "ra": "ra", "dec": "decl"},
    }
    if dumps.name == "pt11":
        options["Source"].update(ra="raObject", dec="declObject")
    connection = oracle.connect()
    for name in sorted(tables, key=lambda name: name != "Object"):
        table = tables[name]
        meridian.load(directory, dumps.name, name, table.path, schema=dumps / "tables.json", **options.get(name, {}))
        oracle.add_table(connection, name, read_dump(table))
    return Catalogue(meridian, directory, dumps.name, connection)


def load_gaia(meridian: Meridian, directory: Path, path: Path) -> Catalogue:
    """The sample of Gaia's stars, loaded as `make demo` does it."""
    schema = DEMO / "gaia_source.json"
    meridian.load(directory, "gaia", "gaia_source", path, key="source_id", ra="ra", dec="dec", schema=schema)
    connection = oracle.connect()
    # The magnitudes are FLOAT in the schema: 32 bits are kept of them.
    connection.execute(
        "CREATE TABLE gaia_source AS SELECT source_id::BIGINT AS source_id, ra::DOUBLE AS ra, dec::DOUBLE AS dec, "
        "COLUMNS('magnitude')::FLOAT::DOUBLE FROM read_csv(?, header = true)",
        [str(path)],
    )
    return Catalogue(meridian, directory, "gaia", connection)
