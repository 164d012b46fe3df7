"""Loading: what good input becomes, and what is said about bad input."""

from __future__ import annotations

import gzip
import random
import re
from pathlib import Path

import pytest

import synthetic
import table_files
from comparison import difference
from complaints import assert_rejected
from meridian_cli import Meridian, Outcome, load_arguments
from small_tables import CHILD, CUT, DIRECTOR, count_of, star_lines, write_lines, write_stars


def load(meridian: Meridian, data: Path, *files: Path, table: str = "Star", **options: object) -> Outcome:
    """Tries to load; gives the outcome."""
    return meridian.run(*load_arguments(data, "sky", table, *files, **{**DIRECTOR, **options}))


def nothing_is_visible(meridian: Meridian, data: Path, table: str = "Star") -> None:
    """A failed first load leaves no table."""
    outcome = meridian.run("sql", "--data", data, "--db", "sky", f"SELECT count(*) FROM {table}")
    assert outcome.status != 0, outcome.text


# Good input in every format.


@pytest.fixture(scope="module")
def few_objects() -> synthetic.TableData:
    """Six hundred rows of the made-up sky, with every kind of text, NULL and number in them."""
    objects = synthetic.make_catalogue()["Object"]
    return synthetic.TableData("Object", objects.types, objects.rows.slice(0, 600))


WRITERS = {
    "csv": lambda directory, table: table_files.write_csv(directory / "Object.csv", table),
    "csv without header": lambda directory, table: table_files.write_csv(directory / "Object.csv", table, header=False),
    "tsv": lambda directory, table: table_files.write_dump(directory / "Object.tsv", table),
    "tsv.gz": lambda directory, table: table_files.write_dump(directory / "Object.tsv.gz", table),
    "parquet": lambda directory, table: table_files.write_parquet(directory / "Object.parquet", table, 100),
    "arrow file": lambda directory, table: table_files.write_arrow(directory / "Object.arrow", table, 100),
    "arrow stream": lambda directory, table: table_files.write_arrow(directory / "Object.arrows", table, 100),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_every_value_survives(meridian: Meridian, tmp_path: Path, few_objects: synthetic.TableData, kind: str) -> None:
    path = WRITERS[kind](tmp_path, few_objects)
    options: dict[str, object] = {"key": "objectId", "ra": "ra_PS", "dec": "decl_PS", **CUT}
    if kind not in ("parquet", "arrow file", "arrow stream"):
        quoting = {"quote": '"', "null": "\\N"} if kind.startswith("csv") else {}
        options["schema"] = table_files.write_schema(tmp_path / "Object.json", few_objects, **quoting)
    meridian.load(tmp_path / "data", "sky", "Object", path, **options)
    found = meridian.rows(tmp_path / "data", "sky", "SELECT * FROM Object")
    expected = list(zip(*(column.to_pylist() for column in few_objects.rows.columns)))
    differs = difference(found, expected)
    assert differs is None, differs


def test_many_files_make_one_table(meridian: Meridian, tmp_path: Path) -> None:
    lines = star_lines(900, 1)
    files = [write_lines(tmp_path / f"part{n}.csv", lines[n::3]) for n in range(2)]
    (tmp_path / "part2.csv.gz").write_bytes(
        gzip.compress(("id,ra,dec,version\n" + "\n".join(lines[2::3]) + "\n").encode())
    )
    meridian.load(tmp_path / "data", "sky", "Star", *files, tmp_path / "part2.csv.gz", **DIRECTOR)
    (row,) = meridian.rows(tmp_path / "data", "sky", "SELECT count(*), count(DISTINCT id), sum(id) FROM Star")
    assert row == (900, 900, 899 * 900 // 2)


def test_dump_with_backslashes_and_controls(meridian: Meridian, tmp_path: Path) -> None:
    texts = ["back\\slash", "tab\tinside", "line\nbreak", "", "\\N is not NULL here", "end\\"]
    lines = [f"{n}\t{n}.5\t{n}.25\t{table_files.dump_field(text)}" for n, text in enumerate(texts)]
    path = write_lines(tmp_path / "Star.tsv", [*lines, "6\t6.5\t6.25\t\\N"], header=None)
    schema = tmp_path / "schema.json"
    columns = ["id bigint", "ra double", "dec double", "note varchar(40)"]
    named = ", ".join('{"name": "%s", "type": "%s"}' % tuple(column.split()) for column in columns)
    schema.write_text(f'{{"columns": [{named}]}}')
    meridian.load(tmp_path / "data", "sky", "Star", path, schema=schema, **DIRECTOR)
    found = meridian.rows(tmp_path / "data", "sky", "SELECT id, note FROM Star ORDER BY id")
    assert found == [*enumerate(texts), (6, None)]


def test_partitioning_is_chosen_for_a_small_table(meridian: Meridian, tmp_path: Path) -> None:
    path = write_stars(tmp_path / "Star.csv", 5000)
    outcome = meridian.load(tmp_path / "data", "sky", "Star", path, kind="director", key="id", ra="ra", dec="dec")
    assert "stripes" in (outcome.text + outcome.complaint).lower()
    assert len(list((tmp_path / "data").glob("tables/*/*/chunk_*.mrd"))) < 200
    assert count_of(meridian, tmp_path / "data") == 5000


def test_tables_tells_what_is_loaded(meridian: Meridian, tmp_path: Path) -> None:
    meridian.load(tmp_path / "data", "sky", "Star", write_stars(tmp_path / "Star.csv", 700), **DIRECTOR)
    told = meridian.must("tables", "--data", tmp_path / "data").text
    assert "Star" in told and "director" in told and "700" in told


# Rows that are rejected or mended.


def test_right_ascension_is_wrapped(meridian: Meridian, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "Star.csv", ["1,400,10,1", "2,-10,10,1", "3,360,10,1", "4,12,-90,1"])
    meridian.load(tmp_path / "data", "sky", "Star", path, **DIRECTOR)
    assert meridian.rows(tmp_path / "data", "sky", "SELECT id, ra FROM Star ORDER BY id") == [
        (1, 40.0),
        (2, 350.0),
        (3, 0.0),
        (4, 12.0),
    ]
    found = meridian.rows(
        tmp_path / "data", "sky", "SELECT id FROM Star WHERE scisql_s2PtInCircle(ra, dec, 40, 10, 1) = 1"
    )
    assert found == [(1,)]


BAD_ROWS = {
    "declination of 95": "9999,12,95,1",
    "NaN position": "9999,nan,5,1",
    "no position": "9999,,,1",
    "text for a number": "9999,twelve,5,1",
    "too few fields": "9999,12",
    "too many fields": "9999,12,5,1,7,8",
}


@pytest.mark.parametrize("bad", BAD_ROWS)
def test_a_bad_row_fails_the_load_and_is_named(meridian: Meridian, tmp_path: Path, bad: str) -> None:
    lines = star_lines(1000, 1)
    lines.insert(500, BAD_ROWS[bad])
    schema = tmp_path / "schema.json"
    schema.write_text(
        '{"columns": [{"name": "id", "type": "bigint NOT NULL"}, {"name": "ra", "type": "double NOT NULL"},'
        ' {"name": "dec", "type": "double NOT NULL"}, {"name": "version", "type": "int"}]}'
    )
    path = write_lines(tmp_path / "Star.csv", lines)
    outcome = load(meridian, tmp_path / "data", path, schema=schema)
    assert_rejected(outcome, "rejected", "Star.csv:502")
    nothing_is_visible(meridian, tmp_path / "data")
    allowed = load(meridian, tmp_path / "data", path, schema=schema, max_errors=1)
    assert allowed.status == 0, allowed.complaint
    assert "Star.csv:502" in allowed.text + allowed.complaint
    assert count_of(meridian, tmp_path / "data") == 1000


def test_duplicate_keys_in_a_director(meridian: Meridian, tmp_path: Path) -> None:
    lines = star_lines(1000, 1)
    lines.append(lines[123].replace("123,", "123,", 1))
    outcome = load(meridian, tmp_path / "data", write_lines(tmp_path / "Star.csv", lines))
    assert_rejected(outcome, "123", "unique")
    nothing_is_visible(meridian, tmp_path / "data")


def test_a_load_that_stops_says_that_there_may_be_more(meridian: Meridian, tmp_path: Path) -> None:
    """8192 rows were said to be rejected of 20,000."""
    data, path = tmp_path / "data", write_stars(tmp_path / "Star.csv", 20_000)
    meridian.load(data, "sky", "Star", path, **DIRECTOR)
    sentence = assert_rejected(meridian.run("load", "--data", data, "--db", "sky", "--table", "Star", "--append", path), "at least ", "stopped there")
    match = re.search(r"at least (\d+,\d{3}) rows were rejected, more than the 0 allowed", sentence)
    assert match is not None and int(match.group(1).replace(",", "")) < 20_000, sentence
    # Those of a small file are all known.
    few = write_lines(tmp_path / "few.csv", star_lines(2, 1))
    outcome = meridian.run("load", "--data", data, "--db", "sky", "--table", "Star", "--append", few, write_lines(tmp_path / "b.csv", ["-1,1,1,1"]))
    assert "rows were rejected, more than the 0 allowed" in assert_rejected(outcome)
    outcome = meridian.run("load", "--data", data, "--db", "sky", "--table", "Star", "--append", few)
    assert assert_rejected(outcome).startswith("2 rows were rejected, more than the 0 allowed by --max-errors; nothing was loaded")
    assert count_of(meridian, data) == 20_000


# Files and options that cannot be right.


def test_a_file_that_is_named_twice(meridian: Meridian, tmp_path: Path) -> None:
    """Its first row was said to have the key of another one, in the same line."""
    path, other = write_stars(tmp_path / "Star.csv", 50), write_lines(tmp_path / "other.csv", ["900,1,1,1"])
    sentence = assert_rejected(load(meridian, tmp_path / "data", path, other, path), "Star.csv: it is named twice: name it once")
    assert "key" not in sentence
    (tmp_path / "link.csv").symlink_to(path)
    assert_rejected(load(meridian, tmp_path / "data", path, tmp_path / "link.csv"), "link.csv: it is the same file as", "Star.csv, which is named before")
    (tmp_path / "link.csv").unlink()
    assert_rejected(load(meridian, tmp_path / "data", other, tmp_path / "*.csv"), "other.csv: it is named twice")
    assert_rejected(load(meridian, tmp_path / "data", tmp_path / "*.csv", tmp_path / "*.csv"), "*.csv: it is named twice")
    assert not (tmp_path / "data" / "tables").exists()
    assert load(meridian, tmp_path / "data", path, other).status == 0


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"objId,alpha,delta\n1,2,3\n", ['"id"', "t.csv", "its columns are objId, alpha, delta"]),
        (b"1,2,3\n4,5,6\n", ['"id"', "t.csv", "no line of it names its columns, which are column1, column2, column3"]),
        (b"\n\n  \n", ['"id"', "t.csv", "only blank lines"]),
        (random.Random(5).randbytes(1000), ['"id"', "t.csv", "no text"]),
    ],
    ids=["a header", "no header", "blank lines", "no text"],
)
def test_what_a_file_has_instead_of_a_column(meridian: Meridian, tmp_path: Path, content: bytes, words: list[str]) -> None:
    """Only the option was told, neither the file nor what is in it."""
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    sentence = assert_rejected(load(meridian, tmp_path / "data", path), *words)
    assert sentence.startswith('--key "id" is not a column of ')


def test_missing_file(meridian: Meridian, tmp_path: Path) -> None:
    assert_rejected(load(meridian, tmp_path / "data", tmp_path / "absent.csv"), "absent.csv")


def test_directory_instead_of_a_file(meridian: Meridian, tmp_path: Path) -> None:
    assert_rejected(load(meridian, tmp_path / "data", tmp_path), str(tmp_path))


def test_empty_file(meridian: Meridian, tmp_path: Path) -> None:
    path = tmp_path / "empty.csv"
    path.write_text("")
    assert_rejected(load(meridian, tmp_path / "data", path), "empty.csv")


def test_wrong_delimiter(meridian: Meridian, tmp_path: Path) -> None:
    lines = [line.replace(",", "|") for line in star_lines(100, 1)]
    path = write_lines(tmp_path / "Star.csv", lines, header="id|ra|dec|version")
    assert_rejected(load(meridian, tmp_path / "data", path), "column")
    assert_rejected(load(meridian, tmp_path / "data", write_stars(tmp_path / "S.csv", 100), delimiter="|"), "column")


@pytest.mark.parametrize("option", ["key", "ra", "dec"])
def test_a_column_that_is_not_there(meridian: Meridian, tmp_path: Path, option: str) -> None:
    names = {"key": "idd", "ra": "raa", "dec": "decc"}
    outcome = load(meridian, tmp_path / "data", write_stars(tmp_path / "Star.csv", 50), **{option: names[option]})
    assert_rejected(outcome, names[option], f'"{names[option][:-1]}"')


def test_schema_that_does_not_fit(meridian: Meridian, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"columns": [{"name": "id", "type": "bigint NOT NULL"}]}')
    path = write_lines(tmp_path / "Star.csv", star_lines(50, 1), header=None)
    assert_rejected(load(meridian, tmp_path / "data", path, schema=schema))
    schema.write_text('{"columns": [{"name": "id", "type": "bigint')
    assert_rejected(load(meridian, tmp_path / "data", path, schema=schema), "schema.json")
    schema.write_text('{"columns": [{"name": "id", "type": "bigfoot"}]}')
    assert_rejected(load(meridian, tmp_path / "data", path, schema=schema), "bigfoot")


@pytest.mark.parametrize("name", ["Star.parquet", "Star.arrow", "Star.arrows", "Star.csv.gz"])
@pytest.mark.parametrize("kept", [0.2, 0.7, 0.999])
def test_truncated_file(
    meridian: Meridian, tmp_path: Path, few_objects: synthetic.TableData, name: str, kept: float
) -> None:
    path = tmp_path / name
    if path.suffix == ".parquet":
        table_files.write_parquet(path, few_objects, 100)
    elif path.suffix in (".arrow", ".arrows"):
        table_files.write_arrow(path, few_objects, 100)
    else:
        plain = table_files.write_csv(tmp_path / "plain.csv", few_objects)
        path.write_bytes(gzip.compress(plain.read_bytes()))
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    outcome = load(meridian, tmp_path / "data", path, key="objectId", ra="ra_PS", dec="decl_PS")
    assert_rejected(outcome, name)
    nothing_is_visible(meridian, tmp_path / "data")


def test_streams_of_arrow_end_once(meridian: Meridian, tmp_path: Path, few_objects: synthetic.TableData) -> None:
    """The library takes a stream without its end, and the first of two, for whole."""
    path = table_files.write_arrow(tmp_path / "Star.arrows", few_objects, 100)
    content = path.read_bytes()
    for wrong, words in ((content[:-8], "cut off"), (content[:-3], "Star.arrows"), (content + content, "follows the end")):
        path.write_bytes(wrong)
        outcome = load(meridian, tmp_path / "data", path, key="objectId", ra="ra_PS", dec="decl_PS")
        assert_rejected(outcome, "Star.arrows", words)
        nothing_is_visible(meridian, tmp_path / "data")


def test_something_else_under_a_known_name(meridian: Meridian, tmp_path: Path) -> None:
    for name, words in (("Star.parquet", ["Star.parquet"]), ("Star.arrow", ["Star.arrow"]), ("Star.csv.gz", []), ("Star.csv", [])):
        path = tmp_path / name
        path.write_bytes(b"this is neither\n" * 50)
        assert_rejected(load(meridian, tmp_path / "data", path), *words)


def test_existing_table_needs_replace(meridian: Meridian, tmp_path: Path) -> None:
    path = write_stars(tmp_path / "Star.csv", 300)
    meridian.load(tmp_path / "data", "sky", "Star", path, **DIRECTOR)
    assert_rejected(load(meridian, tmp_path / "data", path), "--replace", "Star")
    assert_rejected(load(meridian, tmp_path / "data", path, table="sTAR"), "--replace")
    meridian.load(tmp_path / "data", "sky", "Star", write_stars(tmp_path / "B.csv", 200, 2), replace=True, **DIRECTOR)
    assert meridian.rows(tmp_path / "data", "sky", "SELECT count(*), min(version) FROM Star") == [(200, 2)]


def test_another_cut_in_the_same_database(meridian: Meridian, tmp_path: Path) -> None:
    path = write_stars(tmp_path / "Star.csv", 300)
    meridian.load(tmp_path / "data", "sky", "Star", path, **DIRECTOR)
    assert_rejected(load(meridian, tmp_path / "data", path, table="Other", stripes=9), "stripes")


# Children.


def write_spots(path: Path, lines: list[str]) -> Path:
    """A child of Star."""
    return write_lines(path, lines, header="spot,id,flux")


def test_child_without_director_table(meridian: Meridian, tmp_path: Path) -> None:
    path = write_spots(tmp_path / "Spot.csv", ["1,1,0.5"])
    outcome = meridian.run(*load_arguments(tmp_path / "data", "sky", "Spot", path, **CHILD))
    assert_rejected(outcome, "Star")
    meridian.load(tmp_path / "data", "sky", "Star", write_stars(tmp_path / "Star.csv", 50), **DIRECTOR)
    outcome = meridian.run(*load_arguments(tmp_path / "data", "sky", "Spot", path, **{**CHILD, "director": "Stra"}))
    assert_rejected(outcome, "Stra")


def test_child_rows_without_director_are_counted_and_kept(meridian: Meridian, tmp_path: Path) -> None:
    meridian.load(tmp_path / "data", "sky", "Star", write_stars(tmp_path / "Star.csv", 50), **DIRECTOR)
    lines = [f"{n},{n % 60},{n}.5" for n in range(600)] + ["600,,1.5", "601,,2.5"]
    outcome = meridian.load(tmp_path / "data", "sky", "Spot", write_spots(tmp_path / "Spot.csv", lines), **CHILD)
    report = outcome.text + outcome.complaint
    assert "100" in report and "orphan" in report.lower()
    data = tmp_path / "data"
    assert meridian.rows(data, "sky", "SELECT count(*), count(id), sum(flux) FROM Spot") == [
        (602, 600, 599 * 300 + 304.0)
    ]
    assert meridian.rows(data, "sky", "SELECT count(*), sum(spot) FROM Spot WHERE id = 55") == [
        (10, sum(range(55, 600, 60)))
    ]
    assert meridian.rows(data, "sky", "SELECT count(*) FROM Spot s JOIN Star t ON s.id = t.id") == [(500,)]
    assert meridian.rows(data, "sky", "SELECT spot FROM Spot WHERE id IS NULL ORDER BY spot") == [(600,), (601,)]


def test_child_of_a_replaced_director_still_answers_right(meridian: Meridian, tmp_path: Path) -> None:
    data = tmp_path / "data"
    meridian.load(data, "sky", "Star", write_stars(tmp_path / "Star.csv", 100), **DIRECTOR)
    meridian.load(
        data, "sky", "Spot", write_spots(tmp_path / "Spot.csv", [f"{n},{n % 100},1" for n in range(400)]), **CHILD
    )
    moved = write_lines(tmp_path / "moved.csv", [f"{n},{(n * 37) % 360},{(n * 13) % 160 - 80},2" for n in range(100)])
    meridian.load(data, "sky", "Star", moved, replace=True, **DIRECTOR)
    found = meridian.rows(data, "sky", "SELECT count(*), sum(t.version) FROM Spot s JOIN Star t ON s.id = t.id")
    assert found == [(400, 800)]
    assert meridian.rows(data, "sky", "SELECT count(*) FROM Spot WHERE id = 42") == [(4,)]


# No room.


def test_full_disk(meridian: Meridian, tmp_path: Path, tiny_disk: Path) -> None:
    meridian.load(tiny_disk / "data", "sky", "Star", write_stars(tmp_path / "Star.csv", 200), **DIRECTOR)
    large = write_stars(tmp_path / "Large.csv", 400_000, version=2)
    outcome = load(meridian, tiny_disk / "data", large, replace=True)
    assert_rejected(outcome, "disk is full")
    assert meridian.rows(tiny_disk / "data", "sky", "SELECT count(*), max(version) FROM Star") == [(200, 1)]
    small = write_stars(tmp_path / "Small.csv", 300, version=3)
    outcome = load(meridian, tiny_disk / "data", small, replace=True)
    assert outcome.status == 0, f"the failed load left no room: {outcome.complaint}"
    assert meridian.rows(tiny_disk / "data", "sky", "SELECT count(*), max(version) FROM Star") == [(300, 3)]
