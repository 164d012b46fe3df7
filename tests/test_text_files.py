"""Text files as astronomers have them: comments, blanks, rulers, ECSV, NULL spellings, and types found out from all of a file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from astropy.table import Table

from complaints import assert_rejected
from meridian_cli import Meridian, Outcome

DIRECTOR = ("--key", "id", "--ra", "ra", "--dec", "dec")


def load(meridian: Meridian, tmp_path: Path, content: str | bytes, *options: object, name: str = "t.txt") -> Outcome:
    """Loads a file of this content as the table T, in place of what was there."""
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return meridian.run("load", "--data", tmp_path / "data", "--db", "d", "--table", "T", "--replace", *options, path)


def loaded(meridian: Meridian, tmp_path: Path, content: str | bytes, *options: object, name: str = "t.txt") -> str:
    """Loads a file that has to load; gives the report."""
    outcome = load(meridian, tmp_path, content, *options, name=name)
    assert outcome.status == 0, outcome.complaint
    return outcome.text


def rows(meridian: Meridian, tmp_path: Path, columns: str = "*") -> list[tuple[object, ...]]:
    """The rows of T."""
    return meridian.rows(tmp_path / "data", "d", f"SELECT {columns} FROM T ORDER BY 1")


def types(meridian: Meridian, tmp_path: Path) -> dict[str, str]:
    """The types of T's columns."""
    table = meridian.sql(tmp_path / "data", "d", "SELECT column_name, column_type FROM information_schema.columns WHERE table_name = 'T'")
    return dict(zip(*(column.to_pylist() for column in table.columns)))


TABLE = [(1, 10.5, -3.0), (2, 20.5, 4.25)]


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("# from a paper\n# it's \"quoted\nid,ra,dec\n1,10.5,-3\n# between\n2,20.5,4.25\n# end", "t.csv"),
        ("#id,ra,dec\n1,10.5,-3\n2,20.5,4.25\n", "t.csv"),
        ("# made today\n# id ra dec\n1 10.5 -3\n2 20.5 4.25\n", "t.txt"),
        ("id  ra    dec\n 1  10.5  -3\n 2  20.5   4.25   \n\n", "t.dat"),
        ("id ra  dec\r\n1 10.5  -3 \r\n2 20.5 4.25\r\n", "t.dat"),
        (" id |   ra |  dec\n----+------+------\n  1 | 10.5 |   -3\n  2 | 20.5 | 4.25\n", "t.txt"),
        ("#a service\n\nid;ra;dec\n;deg;deg\n--;----;----\n1;10.5;-3\n2;20.5;4.25\n", "t.tsv.txt"),
        ("id,ra,dec\n1,10.5,-3\n# a line that is no row\n2,20.5,4.25\n", "t.csv"),
        ("\ufeff# mark\nid,ra,dec\n1,10.5,-3\n2,20.5,4.25\n", "t.csv"),
    ],
)
def test_comments_blanks_and_rulers(meridian: Meridian, tmp_path: Path, content: str, name: str) -> None:
    loaded(meridian, tmp_path, content, *DIRECTOR, name=name)
    assert rows(meridian, tmp_path, "id, ra, dec") == TABLE
    loaded(meridian, tmp_path, gzip.compress(content.encode()), *DIRECTOR, name=name + ".gz")
    assert rows(meridian, tmp_path, "id, ra, dec") == TABLE


def test_comments_among_rows_are_counted_and_can_be_switched_off(meridian: Meridian, tmp_path: Path) -> None:
    content = "# a comment\nname,n\n# b,1\nc,2\n"
    report = loaded(meridian, tmp_path, content)
    assert "comments      1 lines among the rows" in report
    assert rows(meridian, tmp_path) == [("c", 2)]
    assert_rejected(load(meridian, tmp_path, content, "--comment", "none"), "t.txt")
    loaded(meridian, tmp_path, "name,n\n#b,1\nc,2\n", name="t.csv")
    assert rows(meridian, tmp_path) == [("#b", 1), ("c", 2)]
    loaded(meridian, tmp_path, "name,n\n!b,1\nc,2\n", "--comment", "!", name="t.csv")
    assert rows(meridian, tmp_path) == [("c", 2)]
    # Every line begins so: it is part of the names.
    loaded(meridian, tmp_path, "#1,2\n#2,3\n", name="t.csv")
    assert rows(meridian, tmp_path) == [("#1", 2), ("#2", 3)]


ECSV = """\
# %ECSV 1.0
# ---
# datatype:
# - {name: id, datatype: int32}
# - {name: ra, unit: deg, datatype: float64, description: 'right ascension, J2000'}
# - {name: dec, unit: deg, datatype: float64}
# - {name: name, datatype: string}
# - {name: good, datatype: bool}
# - {name: flux, unit: Jy, datatype: float32}
# schema: astropy-2.0
id ra dec name good flux
1 10.5 -3.0 "alpha Cen" True 1.5
2 20.5 4.25 007 False ""
"""


@pytest.mark.parametrize("comma", [False, True])
def test_ecsv_says_its_types(meridian: Meridian, tmp_path: Path, comma: bool) -> None:
    content = ECSV
    if comma:
        head, lines = content.split("id ra dec", 1)
        lines = lines.replace(" ", ",").replace("alpha,Cen", "alpha Cen")
        content = head.replace("# datatype:", "# delimiter: ','\n# datatype:") + "id,ra,dec" + lines
    loaded(meridian, tmp_path, content, *DIRECTOR, name="t.ecsv")
    assert rows(meridian, tmp_path) == [
        (1, 10.5, -3.0, "alpha Cen", True, 1.5),
        (2, 20.5, 4.25, "007", False, None),
    ]
    assert types(meridian, tmp_path) == {
        "id": "int",
        "ra": "double",
        "dec": "double",
        "name": "text",
        "good": "tinyint(1)",
        "flux": "float",
    }


def test_ecsv_between_blanks_may_be_called_csv(meridian: Meridian, tmp_path: Path) -> None:
    loaded(meridian, tmp_path, ECSV, *DIRECTOR, name="t.csv")
    assert rows(meridian, tmp_path, "id, ra, dec") == TABLE


def test_rows_of_dashes_are_rows(meridian: Meridian, tmp_path: Path) -> None:
    """They stand for NULL, and are no ruler below a header."""
    loaded(meridian, tmp_path, "a,b\n1,2\n--,--\n3,4\n", "--null", "--", name="t.csv")
    assert rows(meridian, tmp_path, "count(*), count(a)") == [(3, 2)]
    loaded(meridian, tmp_path, "a,b\n1,2\n---,---\n3,4\n", "--null", "---", name="t.csv")
    assert rows(meridian, tmp_path, "count(*), count(a)") == [(3, 2)]


def test_wrong_ecsv_is_told(meridian: Meridian, tmp_path: Path) -> None:
    outcome = load(meridian, tmp_path, ECSV.replace("float32", "float33"))
    assert_rejected(outcome, "flux", "float33", "ECSV")
    outcome = load(meridian, tmp_path, ECSV.replace("good flux", "good fluxes"))
    assert_rejected(outcome, "declare the columns", "fluxes")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("id ra dec mag\n1 10.5 -3 \n2 20.5 4.25 17.5\n", ("fixed width", "id, ra, dec, mag", "3 to 4 fields")),
        ("|id  |ra   |dec  |\n|int |real |real |\n 1    10.5  -3\n 2    20.5  4.25\n", ("IPAC", "id, ra, dec")),
    ],
)
def test_tables_of_fixed_width_are_rejected_by_what_they_are(
    meridian: Meridian, tmp_path: Path, content: str, words: tuple[str, ...]
) -> None:
    assert_rejected(load(meridian, tmp_path, content), *words)


def test_several_texts_stand_for_null(meridian: Meridian, tmp_path: Path) -> None:
    content = "id,mag,name\n1,1.5,a\n2,--,null\n3,N/A,b\n4,null,--\n"
    for options in (["--null", "--,N/A,null"], ["--null", "--", "--null", "N/A", "--null", "null"]):
        loaded(meridian, tmp_path, content, *options)
        assert rows(meridian, tmp_path) == [(1, 1.5, "a"), (2, None, None), (3, None, "b"), (4, None, None)]
    schema = tmp_path / "schema.json"
    columns = [{"name": name, "type": declared} for name, declared in {"id": "int", "mag": "double", "name": "text"}.items()]
    schema.write_text(json.dumps({"columns": columns, "null": ["--", "N/A", "null"]}))
    loaded(meridian, tmp_path, content, "--schema", schema)
    assert rows(meridian, tmp_path, "count(mag), count(name)") == [(1, 2)]


def test_a_text_because_of_null_spellings_is_told(meridian: Meridian, tmp_path: Path) -> None:
    report = loaded(meridian, tmp_path, "id,mag\n1,1.5\n2,--\n3,N/A\n4,2.5\n")
    assert 'the column mag was taken for text: 2 of its 4 values are no float64' in report
    assert 't.txt:3: "--"' in report and '--null "--,N/A"' in report


def test_types_are_those_of_the_whole_file(meridian: Meridian, tmp_path: Path) -> None:
    """Only the first 64 MiB were looked at: rows behind them with other values were rejected."""
    padding = "x" * 70
    lines = [f"{n},{padding}\n" for n in range(1_000_000)]
    content = "n,padding\n" + "".join(lines) + f"0.5,{padding}\n" + f"1.5,{padding}\n" * 100
    assert len(content) > 70 << 20
    report = loaded(meridian, tmp_path, content, name="t.csv")
    assert "the column n was taken for float64: 101 of its 1,000,101 values are no int64" in report
    assert 't.csv:1000002: "0.5"' in report
    assert rows(meridian, tmp_path, "count(*), sum(n) - 499999500000") == [(1_000_101, 150.5)]


def test_names_that_differ_only_in_case_are_rejected(meridian: Meridian, tmp_path: Path) -> None:
    assert_rejected(load(meridian, tmp_path, "id,Mag,mag\n1,2,3\n"), "mag", "twice", "fields 2 and 3", "another name")


VOTABLE = """<?xml version="1.0"?>
<VOTABLE version="1.4"><RESOURCE><TABLE>
<FIELD name="id" datatype="int"/><FIELD name="ra" datatype="double"/><FIELD name="dec" datatype="double"/>
<DATA><TABLEDATA><TR><TD>1</TD><TD>10.5</TD><TD>-3</TD></TR><TR><TD>2</TD><TD>20.5</TD><TD>4.25</TD></TR></TABLEDATA></DATA>
</TABLE></RESOURCE></VOTABLE>
"""
FITS = b"SIMPLE  =                    T / conforms to FITS".ljust(2880)


@pytest.mark.parametrize("name", ["t.vot", "t.csv", "t"])
def test_a_file_is_what_it_contains(meridian: Meridian, tmp_path: Path, name: str) -> None:
    loaded(meridian, tmp_path, VOTABLE, *DIRECTOR, name=name)
    assert rows(meridian, tmp_path, "id, ra, dec") == TABLE
    loaded(meridian, tmp_path, gzip.compress(VOTABLE.encode()), *DIRECTOR, name=name + ".gz")
    assert rows(meridian, tmp_path, "id, ra, dec") == TABLE
    assert_rejected(load(meridian, tmp_path, FITS, name=name), "header")
    assert_rejected(load(meridian, tmp_path, gzip.compress(FITS), name=name + ".gz"), "header")
    assert_rejected(load(meridian, tmp_path, b"ARROW1\0\0", name=name), "Arrow", "footer")


def test_standard_input_is_read(meridian: Meridian, tmp_path: Path) -> None:
    content = "# id ra dec\n1 10.5 -3\n2 20.5 4.25\n"
    arguments = ("load", "--data", tmp_path / "data", "--db", "d", "--table", "T", *DIRECTOR, "-")
    outcome = meridian.run(*arguments, stdin=content)
    assert outcome.status == 0, outcome.complaint
    assert rows(meridian, tmp_path, "id, ra, dec") == TABLE


def snapshot(directory: Path) -> dict[str, bytes]:
    """All files of a directory but the catalog's."""
    files = (path for path in directory.rglob("*") if path.is_file() and "sqlite" not in path.name)
    return {str(path): path.read_bytes() for path in files}


def test_a_dry_run_tells_all_and_changes_nothing(meridian: Meridian, tmp_path: Path) -> None:
    content = "id,ra,dec,mag\n1,10.5,-3,2.5\n2,20.5,4.25,--\n2,1,1,1\n3,1,95,1\n"
    outcome = load(meridian, tmp_path, content, "--dry-run", *DIRECTOR, "--null", "--")
    assert outcome.status == 0, outcome.complaint
    assert not (tmp_path / "data").exists()
    assert json.loads(outcome.text) == {
        "columns": [
            {"name": "id", "type": "bigint NOT NULL"},
            {"name": "ra", "type": "double NOT NULL"},
            {"name": "dec", "type": "double NOT NULL"},
            {"name": "mag", "type": "double"},
        ],
        "null": ["--"],
    }
    for part in ("Nothing is loaded", 'the column ra is float64 by', 't.txt:2: "10.5"', "rows rejected 2", "t.txt:4", "t.txt:5", "--max-errors 2"):
        assert part in outcome.stderr, outcome.stderr
    # What it printed is a schema, and its report that of the load.
    schema = tmp_path / "schema.json"
    schema.write_text(outcome.text)
    loaded(meridian, tmp_path, content, "--schema", schema, *DIRECTOR, "--max-errors", 2)
    before = snapshot(tmp_path / "data")
    outcome = load(meridian, tmp_path, "id,ra,dec,mag\n9,10.5,-3,2.5\n", "--dry-run", *DIRECTOR)
    assert outcome.status == 0, outcome.complaint
    assert snapshot(tmp_path / "data") == before
    assert rows(meridian, tmp_path, "count(*)") == [(2,)]
    assert meridian.must("check", "--data", tmp_path / "data")


def test_a_schema_may_declare_some_columns_alone(meridian: Meridian, tmp_path: Path) -> None:
    content = "id,name,ra,dec,mag\n1,007,10.5,-3,2\n2,008,20.5,4.25,3\n"
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps({"columns": [{"name": "NAME", "type": "varchar(9)"}]}))
    loaded(meridian, tmp_path, content, "--schema", schema, *DIRECTOR)
    assert rows(meridian, tmp_path) == [(1, "007", 10.5, -3.0, 2), (2, "008", 20.5, 4.25, 3)]
    # A misspelled column is no column that the file lacks.
    schema.write_text(json.dumps({"columns": [{"name": "nmae", "type": "varchar(9)"}]}))
    assert load(meridian, tmp_path, content, "--schema", schema, *DIRECTOR).status == 1
    columns = ["id", "nmae", "ra", "dec", "mag"]
    schema.write_text(json.dumps({"columns": [{"name": name, "type": "double"} for name in columns]}))
    assert_rejected(load(meridian, tmp_path, content, "--schema", schema), "name", "nmae")


STARS = [(1, 5.2, 1.25), (2, 0.25, -1.5), (3, 3.125, 0.5)]


@pytest.mark.parametrize(("unit", "scales"), [("radians", (57.29577951308232, 57.29577951308232)), ("hours", (15.0, 1.0))])
def test_other_units_of_positions_are_noticed_and_converted(
    meridian: Meridian, tmp_path: Path, unit: str, scales: tuple[float, float]
) -> None:
    stars = [(n, ra, dec if unit == "radians" else dec * 40) for n, ra, dec in STARS]
    content = "id,ra,dec\n" + "".join(f"{n},{ra},{dec}\n" for n, ra, dec in stars)
    report = loaded(meridian, tmp_path, content, *DIRECTOR)
    assert f"--position-unit {unit}" in report
    assert "--position-unit" not in loaded(meridian, tmp_path, content, *DIRECTOR, "--position-unit", "degrees")
    assert "--position-unit" not in loaded(meridian, tmp_path, content, *DIRECTOR, "--position-unit", unit)
    expected = [(n, ra * scales[0], dec * scales[1]) for n, ra, dec in stars]
    for row, star in zip(rows(meridian, tmp_path, "id, ra, dec"), expected, strict=True):
        assert row == pytest.approx(star, abs=1e-12)
    meridian.must("check", "--data", tmp_path / "data")
    assert_rejected(load(meridian, tmp_path, content, "--position-unit", unit), "--ra and --dec")


def test_a_patch_in_degrees_is_nothing_odd(meridian: Meridian, tmp_path: Path) -> None:
    content = "id,ra,dec\n" + "".join(f"{n},{10 + n % 10},{n // 10}\n" for n in range(100))
    assert "--position-unit" not in loaded(meridian, tmp_path, content, *DIRECTOR)


NAMED = "name,ra,dec\nVega,279.23,38.78\nSirius,101.29,-16.72\n"


@pytest.mark.parametrize("key", ["id", "starId"])
def test_keys_are_generated_for_directors_that_have_none(meridian: Meridian, tmp_path: Path, key: str) -> None:
    named = () if key == "id" else ("--key", key)
    position = ("--ra", "ra", "--dec", "dec", "--generate-key", *named)
    report = loaded(meridian, tmp_path, NAMED, *position)
    assert f"the column {key} has generated keys" in report
    assert rows(meridian, tmp_path, f"{key}, name") == [(2, "Vega"), (3, "Sirius")]
    more = write_more(tmp_path)
    again = more.with_name("again.csv")
    again.write_bytes(more.read_bytes())
    target = ("load", "--data", tmp_path / "data", "--db", "d", "--table", "T")
    for _ in range(2):
        meridian.must(*target, "--append", "--generate-key", more, again)
    found = rows(meridian, tmp_path, f"count(*), count(DISTINCT {key}), min({key})")
    assert found == [(6, 6, 2)]
    meridian.must("check", "--data", tmp_path / "data")
    (row,) = meridian.rows(tmp_path / "data", "d", f"SELECT name FROM T WHERE {key} = 3")
    assert row == ("Sirius",)
    # Without the option the rows have no key.
    assert_rejected(meridian.run(*target, "--append", more), f"no column {key}", "--generate-key")


@pytest.mark.parametrize(
    ("bad", "counted"),
    [(["x12"], "the only one that is no integer of 20 values"), (["1.5"], "the only one"), (["n/a"], "the only one"), (["12a", "--", "7.25"], "the first of 3 that are no integers of 20 values")],
    ids=lambda it: ",".join(it) if isinstance(it, list) else "",
)  # fmt: skip
@pytest.mark.parametrize("role", ["director", "child", "own"])
def test_a_key_that_a_few_lines_spoil(meridian: Meridian, tmp_path: Path, role: str, bad: list[str], counted: str) -> None:
    """It was said that the column is a text, and not for which value."""
    director = tmp_path / "director.csv"
    director.write_text("id,ra,dec\n" + "".join(f"{n},{n},{n}\n" for n in range(20)))
    target = ("load", "--data", tmp_path / "data", "--db", "d")
    meridian.must(*target, "--table", "Star", "--key", "id", "--ra", "ra", "--dec", "dec", director)
    values = [bad[n // 5 - 1] if n % 5 == 0 and 0 < n // 5 <= len(bad) else str(n) for n in range(20)]
    file = tmp_path / "spoilt.csv"
    file.write_text("k,ra,dec,n\n" + "".join(f"{value},{n},{n},{n}\n" for n, value in enumerate(values)))
    options = {
        "director": ("--table", "T", "--key", "k", "--ra", "ra", "--dec", "dec"),
        "child": ("--table", "T", "--key", "k", "--director", "Star"),
        "own": ("--table", "T", "--key", "n", "--own-key", "k", "--director", "Star"),
    }[role]
    rejected = meridian.run(*target, *options, file)
    assert_rejected(rejected, f"{file}:7: ", bad[0], counted, "--schema", "--text k")
    assert_rejected(meridian.run(*target, *options, "--dry-run", file), f"{file}:7: ")
    if role == "director":
        # As a text it is the key.
        report = meridian.must(*target, *options, "--text", "k", file).text
        assert "the column k_key, which is computed of it" in report
        schema = tmp_path / "schema.json"
        columns = [{"name": "k", "type": "BIGINT"}, *({"name": name, "type": "DOUBLE"} for name in ("ra", "dec", "n"))]
        schema.write_text(json.dumps({"columns": columns}))
        kept = meridian.must(*target, *options, "--replace", "--schema", schema, "--max-errors", 5, file)
        assert f"{20 - len(bad)}" in kept.text
        assert meridian.rows(tmp_path / "data", "d", "SELECT COUNT(*) FROM T") == [(20 - len(bad),)]


def write_more(directory: Path) -> Path:
    """A file of one more star."""
    path = directory / "more.csv"
    path.write_text("name,ra,dec\nRigel,78.63,-8.2\n")
    return path


@pytest.mark.parametrize(
    ("ra", "dec", "words"),
    [
        (["10:42:44", "00 42 44.3"], ["41.5", "42"], (":2: \"10:42:44\"", "--ra", "hourangle")),
        (["10.5", "11"], ["41.5", "-41d16m09s"], (":3: \"-41d16m09s\"", "--dec", "hourangle")),
        (["10.5", "--"], ["41.5", "42"], (":3: \"--\"", "--ra", "--null", "--max-errors")),
    ],
)
def test_positions_that_are_texts_are_told_by_their_values(
    meridian: Meridian, tmp_path: Path, ra: list[str], dec: list[str], words: tuple[str, ...]
) -> None:
    """It was said that the column is a text and should be declared as DOUBLE, after which every row was rejected."""
    file = tmp_path / "stars.csv"
    file.write_text("id,ra,dec\n" + "".join(f"{n},{a},{d}\n" for n, (a, d) in enumerate(zip(ra, dec, strict=True))))
    position = ("--key", "id", "--ra", "RA", "--dec", "Dec")
    rejected = meridian.run("load", "--data", tmp_path / "data", "--db", "d", "--table", "T", *position, file)
    assert_rejected(rejected, str(file), *words)


def test_what_generated_keys_need(meridian: Meridian, tmp_path: Path) -> None:
    position = ("--ra", "ra", "--dec", "dec")
    assert_rejected(load(meridian, tmp_path, NAMED, *position), "--generate-key")
    assert_rejected(load(meridian, tmp_path, NAMED, *position, "--key", "name", "--generate-key"), "name already", "--key")
    assert_rejected(load(meridian, tmp_path, NAMED, "--generate-key"), "--generate-key")
    # A file without a header has columns of its own names.
    loaded(meridian, tmp_path, "10.5,20.5,x\n11.5,21.5,y\n", "--ra", "column1", "--dec", "column2", "--generate-key", "--no-header")
    assert rows(meridian, tmp_path, "id, column3") == [(1, "x"), (2, "y")]


def test_a_name_twice_whatever_its_case(meridian: Meridian, tmp_path: Path) -> None:
    assert_rejected(load(meridian, tmp_path, "id,Ra,RA\n1,2,3\n"), 'names the column "RA" twice, in fields 2 and 3', "whatever their case")


def test_columns_that_are_aligned_by_blanks(meridian: Meridian, tmp_path: Path) -> None:
    loaded(meridian, tmp_path, "id   ra      name\n1    10.5    a\n22   11.25   bb\n")
    assert rows(meridian, tmp_path) == [(1, 10.5, "a"), (22, 11.25, "bb")]


def test_a_votable_that_is_compressed(meridian: Meridian, tmp_path: Path) -> None:
    plain = tmp_path / "plain.vot"
    Table({"id": [1, 2], "ra": [1.5, 2.5]}).write(plain, format="votable")
    loaded(meridian, tmp_path, gzip.compress(plain.read_bytes()), name="t.vot.gz")
    assert rows(meridian, tmp_path) == [(1, 1.5), (2, 2.5)]
