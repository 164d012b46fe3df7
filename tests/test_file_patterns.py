"""Files that are named by patterns and directories, in loads and in queries, beside DuckDB."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from complaints import assert_rejected
from meridian_cli import Meridian, load_arguments
from small_tables import DIRECTOR, count_of, star_lines, write_lines

STARS = 300


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stars in three files of CSV, and in Parquet below directories."""
    directory = tmp_path_factory.mktemp("patterns")
    lines = star_lines(STARS, 1)
    for part, name in enumerate(["x1.csv", "x2.csv", "x10.csv"]):
        rows = lines[part * 100 : part * 100 + 100]
        # The columns of one are in another order.
        shown = [",".join(reversed(row.split(","))) for row in rows] if part == 1 else rows
        write_lines(directory / name, shown, "version,dec,ra,id" if part == 1 else "id,ra,dec,version")
    (directory / "notes.txt").write_text("no table\n")
    table = duckdb.read_csv(str(directory / "x1.csv")).to_arrow_table()
    for part in range(3):
        path = directory / "parquet" / f"day={part}" / f"part{part}.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(table.slice(part * 30, 30), path)
    (directory / "parquet" / "_SUCCESS").write_text("")
    (directory / "parquet" / ".hidden.parquet").write_text("no Parquet")
    return directory


def in_file(query: str, meridian: Meridian, cwd: Path, data: Path, dialect: str = "mysql") -> list[str]:
    outcome = meridian.run("sql", "--data", data, "--dialect", dialect, "--format", "csv", "--quiet", query, cwd=cwd)
    assert outcome.status == 0, outcome.complaint
    return outcome.text.splitlines()[1:]


@pytest.fixture(scope="module")
def data(meridian: Meridian, files: Path) -> Path:
    """Stars of all files of a pattern."""
    meridian.load(files / "data", "sky", "Star", files / "x*.csv", **DIRECTOR)
    return files / "data"


def test_a_pattern_is_a_table_cut_into_files(meridian: Meridian, files: Path, data: Path) -> None:
    assert count_of(meridian, data) == STARS
    found = meridian.rows(data, "sky", "SELECT id, ra, dec, version FROM Star ORDER BY id")
    oracle = duckdb.sql(f"SELECT id, ra, dec, version FROM read_csv('{files}/x*.csv', union_by_name = true) ORDER BY id").fetchall()
    assert found == oracle
    assert "x*.csv" in meridian.must("tables", "--data", data, "--parts").text


@pytest.mark.parametrize(
    "query",
    [
        "SELECT COUNT(*), SUM(id), MIN(ra), MAX(`dec`) FROM 'x*.csv'",
        "SELECT id, ra FROM 'x[12].csv' WHERE id % 7 = 0 ORDER BY id",
        "SELECT id FROM 'x?.csv' ORDER BY id DESC LIMIT 5",
        "SELECT COUNT(*) FROM 'parquet/*/*.parquet'",
        "SELECT COUNT(*), SUM(id) FROM 'parquet/**/part*.parquet'",
        "SELECT a.id FROM 'x*.csv' a JOIN 'parquet/*/part1.parquet' b ON a.id = b.id ORDER BY a.id",
    ],
)
def test_queries_name_patterns(meridian: Meridian, files: Path, data: Path, query: str) -> None:
    connection = duckdb.connect()
    connection.execute(f"SET file_search_path = '{files}'")
    oracle = query.replace("`", '"')
    for name in ("x*.csv", "x[12].csv", "x?.csv"):
        oracle = oracle.replace(f"'{name}'", f"read_csv('{files}/{name}', union_by_name = true)")
    oracle = oracle.replace("'parquet/", f"'{files}/parquet/")
    expected = [",".join(str(value) for value in row) for row in connection.sql(oracle).fetchall()]
    assert in_file(query, meridian, files, data) == expected


def test_a_directory_of_parquet_is_a_table(meridian: Meridian, files: Path, data: Path, tmp_path: Path) -> None:
    meridian.load(tmp_path / "data", "sky", "Star", files / "parquet", **DIRECTOR)
    assert count_of(meridian, tmp_path / "data") == 90
    assert in_file("SELECT COUNT(*) FROM read_parquet('parquet')", meridian, files, data) == ["90"]
    outcome = meridian.run(*load_arguments(tmp_path / "data", "sky", "T", files, kind="replicated"))
    assert outcome.status == 0, outcome.complaint
    (tmp_path / "none").mkdir()
    outcome = meridian.run(*load_arguments(tmp_path / "data", "sky", "U", tmp_path / "none", kind="replicated"))
    assert_rejected(outcome, "without Parquet files", "'dir/*.csv'")


def test_patterns_that_match_nothing_and_files_that_differ_are_told(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    def load(pattern: str) -> object:
        return meridian.run(*load_arguments(tmp_path / "data", "sky", "T", tmp_path / pattern, kind="replicated"))

    def execute(pattern: str) -> object:
        return meridian.run("sql", "--data", data, f"SELECT COUNT(*) FROM read_csv('{tmp_path / pattern}')")

    write_lines(tmp_path / "a1.csv", ["1,2"], "id,mag")
    write_lines(tmp_path / "a2.csv", ["3,4"], "id,flux")
    write_lines(tmp_path / "b1.csv", ["1,2"], "id,mag")
    write_lines(tmp_path / "b2.csv", ["3,bright"], "id,mag")
    for run in (load, execute):
        assert_rejected(run("c*.csv"), "c*.csv: no file matches this pattern")  # type: ignore[arg-type]
        assert_rejected(run("a*.csv"), "a2.csv", "not those of", "a1.csv", "it lacks mag and has flux besides")  # type: ignore[arg-type]
        assert_rejected(run("b*.csv"), "b2.csv:2", "bright")  # type: ignore[arg-type]
        assert_rejected(run("[.csv"), "it is no pattern")  # type: ignore[arg-type]
    # A file whose name looks like a pattern is itself.
    write_lines(tmp_path / "d[1].csv", ["1,2"], "id,mag")
    assert load("d[1].csv").status == 0  # type: ignore[attr-defined]
    # Columns of Parquet may be of types of other widths, and values have to fit.
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int32())}), tmp_path / "n1.parquet")
    pq.write_table(pa.table({"id": pa.array([3, 4], pa.int64())}), tmp_path / "n2.parquet")
    query = f"SELECT SUM(id) FROM '{tmp_path}/n*.parquet'"
    assert in_file(query, meridian, tmp_path, data) == ["10"]
    pq.write_table(pa.table({"id": pa.array([2**40], pa.int64())}), tmp_path / "n2.parquet")
    assert_rejected(meridian.run("sql", "--data", data, query), "n2.parquet")
