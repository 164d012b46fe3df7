"""Loading from what can be read only once, and loads that bring no rows."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import pytest

import synthetic
import table_files
from complaints import assert_rejected
from meridian_cli import Meridian, Outcome, load_arguments
from serving import serving
from small_tables import DIRECTOR, HEADER, count_of, star_lines, write_lines, write_stars

STARS = HEADER + "\n" + "".join(line + "\n" for line in star_lines(30_000, 2))


def arguments(data: Path, *files: object, **options: object) -> list[object]:
    """A load of Star."""
    return load_arguments(data, "sky", "Star", *files, **{**DIRECTOR, **options})  # type: ignore[arg-type]


@pytest.fixture
def data(meridian: Meridian, tmp_path: Path) -> Path:
    """A good table that is there already."""
    meridian.load(tmp_path / "data", "sky", "Star", write_stars(tmp_path / "first.csv", 500), **DIRECTOR)
    return tmp_path / "data"


def nothing_is_left(data: Path) -> None:
    """The directory of one load, with none of the copies."""
    assert len(list(data.glob("tables/*/*"))) == 1
    assert list(data.glob("tables/*/*/spill")) == []


@pytest.mark.parametrize("name", ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"])
def test_standard_input_is_read_whole(meridian: Meridian, data: Path, name: str) -> None:
    """`--replace` from a pipe once replaced a good table by an empty one, and lost a pipe's first bytes."""
    outcome = meridian.run(*arguments(data, name, replace=True), stdin=STARS)
    assert outcome.status == 0, outcome.complaint
    assert meridian.rows(data, "sky", "SELECT count(*), sum(id), min(version) FROM Star") == [
        (30_000, 29_999 * 15_000, 2)
    ]
    nothing_is_left(data)


def test_named_pipe(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "stars.tsv"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(STARS.replace(",", "\t")))
    writer.start()
    outcome = meridian.run(*arguments(data, pipe, write_stars(tmp_path / "b.csv", 0), replace=True))
    writer.join()
    assert outcome.status == 0, outcome.complaint
    assert count_of(meridian, data) == 30_000


def test_process_substitution(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    path = tmp_path / "stars.csv"
    path.write_text(STARS)
    words = " ".join(f"'{word}'" for word in [meridian.binary, *arguments(data, replace=True)])
    done = subprocess.run(["bash", "-c", f"{words} <(cat {path})"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert count_of(meridian, data) == 30_000


def test_parquet_from_a_pipe(meridian: Meridian, tmp_path: Path) -> None:
    objects = synthetic.make_catalogue()["Object"]
    few = synthetic.TableData("Object", objects.types, objects.rows.slice(0, 600))
    path = table_files.write_parquet(tmp_path / "o.parquet", few, 100)
    options = {"key": "objectId", "ra": "ra_PS", "dec": "decl_PS"}
    process = meridian.start(*load_arguments(tmp_path / "data", "sky", "Object", Path("-"), **options))
    _, complaint = process.communicate(path.read_bytes(), timeout=120)
    assert process.returncode == 0, complaint
    assert count_of(meridian, tmp_path / "data", "Object") == 600


def test_the_catalog_is_whole_without_its_log(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    """A copy of a data directory right after a load lacked the tables that were only in SQLite's log."""
    meridian.load(data, "sky", "Star", write_stars(tmp_path / "second.csv", 700), replace=True, **DIRECTOR)
    copy = shutil.copytree(data, tmp_path / "copy", ignore=shutil.ignore_patterns("meridian.sqlite-*"))
    assert count_of(meridian, copy) == 700
    log = data / "meridian.sqlite-wal"
    assert not log.exists() or log.stat().st_size == 0


def test_the_catalog_is_whole_while_a_server_reads_it(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    with serving(meridian, data) as server, server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM sky.Star")
        assert cursor.fetchall() == ((500,),)
        meridian.load(data, "sky", "Star", write_stars(tmp_path / "second.csv", 700), replace=True, **DIRECTOR)
        copy = shutil.copytree(data, tmp_path / "copy", ignore=shutil.ignore_patterns("meridian.sqlite-*"))
        cursor.execute("SELECT count(*) FROM sky.Star")
        assert cursor.fetchall() == ((700,),)
    assert count_of(meridian, copy) == 700


def test_a_bad_row_of_standard_input_is_named(meridian: Meridian, data: Path) -> None:
    outcome = meridian.run(*arguments(data, "-", replace=True), stdin=STARS + "77777,12,95,1\n")
    assert_rejected(outcome, "standard input:30002", "rejected")
    outcome = meridian.run(*arguments(data, "-", replace=True), stdin="id,ra,ra,version\n1,2,3,4\n")
    assert_rejected(outcome, "standard input: its first line names the column", "twice")
    assert count_of(meridian, data) == 500
    nothing_is_left(data)


def test_a_stream_cannot_be_read_twice(meridian: Meridian, data: Path) -> None:
    outcome = meridian.run(*arguments(data, "-", "/dev/stdin", replace=True), stdin=STARS)
    assert_rejected(outcome, "standard input", "only once")


def test_a_load_that_waits_for_a_pipe_can_be_cancelled(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "stars.csv"
    os.mkfifo(pipe)
    process = meridian.start(*arguments(data, pipe, replace=True))
    try:
        process.communicate(timeout=3)
        raise AssertionError("it did not wait for the pipe's other end")
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=30)
    assert_rejected(Outcome(process.returncode, b"", complaint.decode()), "cancelled")
    assert count_of(meridian, data) == 500
    nothing_is_left(data)


def test_a_query_does_not_wait_for_a_pipe(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "mine.csv"
    os.mkfifo(pipe)
    outcome = meridian.run("sql", "--data", data, "--db", "sky", f"SELECT * FROM read_csv('{pipe}')")
    assert_rejected(outcome, "mine.csv", "only once")


# Loads without rows.


def schema_of_stars(path: Path) -> Path:
    """The columns of Star."""
    types = {"id": "bigint", "ra": "double", "dec": "double", "version": "int"}
    columns = ", ".join(f'{{"name": "{name}", "type": "{sql_type}"}}' for name, sql_type in types.items())
    path.write_text(f'{{"columns": [{columns}]}}')
    return path


def test_a_load_of_no_rows_needs_allow_empty(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    schema = schema_of_stars(tmp_path / "schema.json")
    header_only = write_lines(tmp_path / "none.csv", [])
    nothing = tmp_path / "nothing.csv"
    nothing.write_text("")
    for source in (header_only, nothing, Path("/dev/null"), Path("-")):
        outcome = meridian.run(*arguments(data, source, replace=True, schema=schema))
        assert_rejected(outcome, "no rows", "--allow-empty")
        assert count_of(meridian, data) == 500
    two = meridian.run(*arguments(data, header_only, nothing, replace=True, schema=schema))
    assert_rejected(two, "none.csv and another file", "--allow-empty")
    nothing_is_left(data)
    allowed = meridian.run(*arguments(data, header_only, replace=True, schema=schema, allow_empty=True))
    assert allowed.status == 0, allowed.complaint
    assert count_of(meridian, data) == 0
    meridian.must("check", "--data", data)


def test_a_header_alone_makes_a_table_that_is_cut(meridian: Meridian, tmp_path: Path) -> None:
    """Its position was of texts, of which a table cannot be cut, whether it was allowed to be empty or not."""
    path, data = write_lines(tmp_path / "none.csv", [], HEADER), tmp_path / "data"
    assert_rejected(meridian.run(*arguments(data, path)), "no rows", "none.csv", "--allow-empty")
    outcome = meridian.run(*arguments(data, path, allow_empty=True))
    assert outcome.status == 0, outcome.complaint
    assert "id BIGINT, ra DOUBLE, dec DOUBLE, version TEXT" in outcome.text + outcome.complaint
    assert count_of(meridian, data) == 0
    types = "SELECT column_name, column_type FROM information_schema.COLUMNS WHERE table_name = 'Star' ORDER BY ordinal_position"
    assert meridian.rows(data, "sky", types) == [("id", "bigint"), ("ra", "double"), ("dec", "double"), ("version", "text")]
    meridian.must("check", "--data", data)


def test_a_replicated_table_of_no_rows(meridian: Meridian, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "none.csv", [])
    plain = load_arguments(tmp_path / "data", "sky", "Plain", path)
    assert_rejected(meridian.run(*plain), "none.csv", "--allow-empty")
    assert meridian.run(*plain, "--allow-empty").status == 0
    assert count_of(meridian, tmp_path / "data", "Plain") == 0
