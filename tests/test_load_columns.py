"""What the columns of a text file are taken for, and that nobody is surprised by it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from complaints import assert_rejected
from meridian_cli import Meridian, Outcome, load_arguments
from small_tables import CUT, write_lines


def plain(meridian: Meridian, data: Path, path: Path, **options: object) -> Outcome:
    """Tries to load a replicated table."""
    return meridian.run(*load_arguments(data, "sky", "Plain", path, **options))


def types_of(meridian: Meridian, data: Path, table: str = "Plain") -> dict[str, str]:
    """The columns as the catalog shows them."""
    told = meridian.must("sql", "--data", data, "--db", "sky", "--format", "csv", f"SHOW COLUMNS FROM {table}").text
    fields = [line.split(",") for line in told.splitlines()[1:]]
    return {name: sql_type for name, sql_type, *_ in fields}


def numbers(count: int) -> list[str]:
    """Lines of a key and a flux."""
    return [f"{n},{n}.5" for n in range(count)]


# Headers.


def test_a_repeated_name_in_the_header(meridian: Meridian, tmp_path: Path) -> None:
    """It made a row of the header, and texts of all columns."""
    path = write_lines(tmp_path / "a.csv", numbers(20), header="flux,Flux")
    sentence = assert_rejected(plain(meridian, tmp_path / "data", path), "a.csv", '"Flux"', "twice", "--no-header")
    assert "fields 1 and 2" in sentence
    assert_rejected(plain(meridian, tmp_path / "data", path, header=True), '"Flux"', "twice")
    assert not (tmp_path / "data").exists()


def test_a_row_of_equal_words_can_be_said_to_be_one(meridian: Meridian, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.csv", ["x,x", "y,z"], header=None)
    assert_rejected(plain(meridian, tmp_path / "data", path), "--no-header")
    outcome = plain(meridian, tmp_path / "data", path, no_header=True)
    assert outcome.status == 0, outcome.complaint
    assert meridian.rows(tmp_path / "data", "sky", "SELECT count(*) FROM Plain") == [(2,)]


@pytest.mark.parametrize("header", [",id,flux", "2019,id,flux"])
def test_a_header_that_would_be_taken_for_a_row(meridian: Meridian, tmp_path: Path, header: str) -> None:
    """As data frames are written with their index: one name is empty, and so all columns became texts."""
    lines = [f"{n},{line}" for n, line in enumerate(numbers(20))]
    path = write_lines(tmp_path / "a.csv", lines, header=header)
    assert_rejected(plain(meridian, tmp_path / "data", path), "a.csv", "column names", "--no-header")


def test_a_first_row_with_odd_values_is_a_row(meridian: Meridian, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.csv", ["1,N/A", *numbers(300)[2:]], header=None)
    outcome = plain(meridian, tmp_path / "data", path, null="N/A")
    assert outcome.status == 0, outcome.complaint
    assert meridian.rows(tmp_path / "data", "sky", "SELECT count(*), count(column2) FROM Plain") == [(299, 298)]


# Types.


def test_one_bad_value_does_not_make_a_text(meridian: Meridian, tmp_path: Path) -> None:
    """It made a text of the whole column without a word."""
    lines = numbers(2000)
    lines[1234] = "1234,N/A"
    path = write_lines(tmp_path / "a.csv", lines, header="id,flux")
    outcome = plain(meridian, tmp_path / "data", path)
    assert_rejected(outcome, "a.csv:1236", '"N/A"', "--null", "--text flux", "--max-errors")
    told = plain(meridian, tmp_path / "data", path, null="N/A")
    assert told.status == 0 and "note" not in told.text, told.complaint + told.text
    assert meridian.rows(tmp_path / "data", "sky", "SELECT count(*), count(flux), max(flux) FROM Plain") == [
        (2000, 1999, 1999.5)
    ]
    outcome = plain(meridian, tmp_path / "data", path, replace=True, max_errors=1)
    assert outcome.status == 0 and "a.csv:1236" in outcome.text, outcome.text
    assert meridian.rows(tmp_path / "data", "sky", "SELECT count(*), max(flux) FROM Plain") == [(1999, 1999.5)]
    outcome = plain(meridian, tmp_path / "data", path, replace=True, text="flux")
    assert outcome.status == 0, outcome.complaint
    assert "text" in types_of(meridian, tmp_path / "data")["flux"].lower()


def test_a_column_that_becomes_a_text_is_told(meridian: Meridian, tmp_path: Path) -> None:
    lines = numbers(100)
    lines[10], lines[20] = "10,N/A", "20,bad"
    path = write_lines(tmp_path / "a.csv", lines, header="id,flux")
    outcome = plain(meridian, tmp_path / "data", path)
    assert outcome.status == 0, outcome.complaint
    for words in ("note: the column flux was taken for text", "2 of its 100 values", "a.csv:12", '"N/A"', "--schema"):
        assert words in outcome.text, outcome.text
    assert "column id" not in outcome.text


def test_names_are_no_news(meridian: Meridian, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.csv", [f"{n},star {n}" for n in range(100)], header="id,name")
    outcome = plain(meridian, tmp_path / "data", path)
    assert outcome.status == 0 and "note" not in outcome.text, outcome.text


def test_keys_of_many_digits_do_not_become_floats(meridian: Meridian, tmp_path: Path) -> None:
    lines = [f"{9_007_199_254_740_993 + n}" for n in range(300)]
    path = write_lines(tmp_path / "a.csv", [*lines, "1.5"], header="id")
    assert_rejected(plain(meridian, tmp_path / "data", path), "a.csv:302", '"1.5"')
    outcome = plain(meridian, tmp_path / "data", path, max_errors=1)
    assert outcome.status == 0, outcome.complaint
    assert meridian.rows(tmp_path / "data", "sky", "SELECT min(id), count(DISTINCT id) FROM Plain") == [
        (9_007_199_254_740_993, 300)
    ]


# Half a director.


@pytest.mark.parametrize(
    ("options", "word"),
    [({"ra": "ra", "dec": "dec"}, "--key"), ({"key": "id"}, "--ra"), ({"key": "id", "ra": "ra"}, "--dec")],
)
def test_half_a_director_is_not_a_replicated_table(
    meridian: Meridian, tmp_path: Path, options: dict[str, object], word: str
) -> None:
    """A position without a key made a table that is kept whole, without a word."""
    path = write_lines(tmp_path / "a.csv", ["1,10.5,20.5"], header="id,ra,dec")
    sentence = assert_rejected(plain(meridian, tmp_path / "data", path, **options, **CUT), word)
    assert "--kind replicated" in sentence or "both or neither" in sentence
    if len(options) != 2 or "key" not in options:
        outcome = plain(meridian, tmp_path / "data", path, kind="replicated", **options)
        assert outcome.status == 0, outcome.complaint


# Files with types of their own.


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_nanoseconds_are_cut_to_the_microsecond_before_them(meridian: Meridian, tmp_path: Path, zone: str | None) -> None:
    """Times before 1970 were rounded up: -1 became 1970-01-01 00:00:00."""
    nanoseconds = [-1500, -1000, -1, 0, 999, 1999, None]
    path = tmp_path / "times.parquet"
    pq.write_table(pa.table({"n": list(range(7)), "t": pa.array(nanoseconds, pa.timestamp("ns", zone))}), path)
    assert plain(meridian, tmp_path / "data", path, kind="replicated").status == 0
    expected = [None if ns is None else ns // 1000 for ns in nanoseconds]
    micros = meridian.sql(tmp_path / "data", "sky", "SELECT t FROM Plain ORDER BY n").column("t").cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()
    assert micros == expected
    # As the digits of a text are.
    text = write_lines(tmp_path / "times.csv", ["0,1969-12-31 23:59:59.9999985", "1,1970-01-01 00:00:00.0000019"], "n,t")
    assert plain(meridian, tmp_path / "data", text, kind="replicated", replace=True).status == 0
    micros = meridian.sql(tmp_path / "data", "sky", "SELECT t FROM Plain ORDER BY n").column("t").cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()
    assert micros == [-2, 1]


def test_types_are_told_in_words_of_sql(meridian: Meridian, tmp_path: Path) -> None:
    """A number was out of range for INT16, and a column of the type List(Int64, ...)."""
    data, path = tmp_path / "data", tmp_path / "t.parquet"
    pq.write_table(pa.table({"n": [1], "few": [[1.5]], "two": pa.array([[1, 2]], pa.list_(pa.int16(), 2))}), path)
    assert_rejected(plain(meridian, data, path, kind="replicated"), '"few" is a list of DOUBLE: a table holds plain values only; leave the column out by giving --schema')
    pq.write_table(pa.table({"both": [{"a": 1}]}), path)
    assert_rejected(plain(meridian, data, path, kind="replicated"), '"both" is a structure')
    pq.write_table(pa.table({"n": pa.array([1, 2], pa.int16())}), path)
    assert plain(meridian, data, path, kind="replicated").status == 0
    large = write_lines(tmp_path / "large.csv", ["3", "70000"], "n")
    assert_rejected(meridian.run(*load_arguments(data, "sky", "Plain", large, append=True)), "70000", "out of range for SMALLINT")
