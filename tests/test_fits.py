"""FITS: binary tables as astropy writes them are loaded, named in queries and uploaded; results in FITS are what astropy reads."""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import warnings
from pathlib import Path

import astropy.table
import numpy as np
import pyarrow as pa
import pytest
from astropy.io import fits

from complaints import assert_rejected
from meridian_cli import Meridian, Outcome, load_arguments, rows_of

ROWS = 300
RNG = np.random.default_rng(11)


def column(name: str, form: str, values: object, **options: object) -> fits.Column:
    return fits.Column(name=name, format=form, array=values, **options)


def arrays(form: str) -> np.ndarray:
    """Arrays of different lengths, some of them empty."""
    cells = np.empty(ROWS, dtype=object)
    for row in range(ROWS):
        cells[row] = np.arange(row % 4, dtype=form) + row
    return cells


def every_kind() -> fits.BinTableHDU:
    """A table with a column of each kind."""
    number = np.arange(ROWS)
    table = fits.BinTableHDU.from_columns(
        [
            column("id", "K", number * 10_000_000_000),
            column("ra", "D", RNG.uniform(0, 360, ROWS), unit="deg"),
            column("dec", "D", RNG.uniform(-90, 90, ROWS), unit="deg"),
            column("truth", "L", number % 2 == 0),
            column("byte", "B", (number % 256).astype("u1")),
            column("short", "I", (number - 150).astype("i2"), null=-1),
            column("int", "J", (number * 1000).astype("i4"), null=5000),
            column("sbyte", "B", (number % 100 - 50).astype("i1"), bzero=-128),
            column("ushort", "I", (number + 40_000).astype("u2"), bzero=32768),
            column("uint", "J", (number + 3_000_000_000).astype("u4"), bzero=2147483648),
            column("ulong", "K", number.astype("u8") + np.uint64(2**63), bzero=2**63),
            column("scaled", "I", number.astype("i2")),
            column("float", "E", np.where(number % 7 == 0, np.nan, number / 3).astype("f4"), unit="mag"),
            column("text", "8A", np.array([f"s{n}" if n % 5 else "" for n in number])),
            column("vector", "3E", RNG.normal(size=(ROWS, 3)).astype("f4")),
            column("matrix", "4J", np.arange(4 * ROWS, dtype="i4").reshape(ROWS, 2, 2), dim="(2,2)"),
            column("complex", "C", (number + 1j * (number + 0.5)).astype("c8")),
            column("bits", "10X", (number[:, None] >> np.arange(10)) % 2 == 1),
            column("var_short", "PI()", arrays("i2")),
            column("var_double", "QD()", arrays("f8")),
        ],
        name="STARS",
    )
    # astropy scales what it is given only for some types.
    at = table.columns.names.index("scaled") + 1
    table.header[f"TSCAL{at}"], table.header[f"TZERO{at}"] = 0.5, 100
    return table


def write(path: Path, *tables: fits.BinTableHDU | fits.ImageHDU) -> Path:
    fits.HDUList([fits.PrimaryHDU(), *tables]).writeto(path)
    return path


def load(meridian: Meridian, data: Path, path: Path, **options: object) -> Outcome:
    return meridian.run(*load_arguments(data, "sky", "T", path, **{"kind": "replicated", **options}))


def joined(values: object) -> str | None:
    """An array as the text that a column has."""
    elements = np.ravel(values)
    return " ".join(shown(value) for value in elements) or None


def shown(value: object) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "T" if value else "F"
    if isinstance(value, np.floating):
        text = np.format_float_positional(value, unique=True, trim="-")
        return text
    return str(value)


def expected(hdu: fits.BinTableHDU) -> dict[str, list[object]]:
    """The values as astropy has them, with None for what is NULL."""
    data = hdu.data
    of = {name: data[name] for name in data.names}
    number = np.arange(ROWS)
    return {
        "id": of["id"].tolist(),
        "ra": of["ra"].tolist(),
        "dec": of["dec"].tolist(),
        "truth": of["truth"].tolist(),
        "byte": of["byte"].tolist(),
        "short": [None if value == -1 else int(value) for value in of["short"]],
        "int": [None if value == 5000 else int(value) for value in of["int"]],
        "sbyte": [int(value) for value in number % 100 - 50],
        "ushort": of["ushort"].tolist(),
        "uint": of["uint"].tolist(),
        "ulong": [2**63 + int(n) for n in number],
        "scaled": [100 + 0.5 * int(n) for n in number],
        "float": [None if math.isnan(value) else float(value) for value in of["float"]],
        "text": [str(value).rstrip() or None for value in of["text"]],
        "vector": [joined(cell) for cell in of["vector"]],
        "matrix": [joined(cell) for cell in of["matrix"]],
        "complex": [" ".join(shown(part) for part in (cell.real, cell.imag)) for cell in of["complex"]],
        "bits": [joined(np.asarray(cell, dtype=int)) for cell in of["bits"]],
        "var_short": [joined(cell) for cell in of["var_short"]],
        "var_double": [joined(cell) for cell in of["var_double"]],
    }


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[object]]]:
    """The file with a column of each kind, and its values."""
    path = write(tmp_path_factory.mktemp("fits") / "kinds.fits", every_kind())
    with fits.open(path) as file:
        return path, expected(file["STARS"])


def assert_columns(found: pa.Table, wanted: dict[str, list[object]]) -> None:
    assert found.num_rows == ROWS
    for name, values in wanted.items():
        assert found.column(name).to_pylist() == values, name


def test_each_kind_of_column(meridian: Meridian, tmp_path: Path, kinds: tuple[Path, dict[str, list[object]]]) -> None:
    path, wanted = kinds
    done = load(meridian, tmp_path / "data", path, kind="director", key="id", ra="ra", dec="dec")
    assert done.status == 0, done.complaint
    assert_columns(meridian.sql(tmp_path / "data", "sky", "SELECT * FROM T ORDER BY id"), wanted)
    types = dict(meridian.rows(tmp_path / "data", "information_schema", "SELECT column_name, data_type FROM columns WHERE table_name = 'T'"))
    for name, type_ in {"byte": "tinyint", "sbyte": "tinyint", "ushort": "smallint", "uint": "int", "ulong": "bigint", "scaled": "double", "float": "float"}.items():
        assert types[name] == type_, name


def test_a_file_in_a_query(meridian: Meridian, tmp_path: Path, kinds: tuple[Path, dict[str, list[object]]]) -> None:
    path, wanted = kinds
    load(meridian, tmp_path / "data", path)
    found = meridian.sql(tmp_path / "data", "sky", f"SELECT * FROM read_fits('{path}') AS f ORDER BY id")
    assert_columns(found, wanted)
    # Some columns, and none.
    assert meridian.rows(tmp_path / "data", "sky", f"SELECT COUNT(*), SUM(f.\"byte\") FROM read_fits('{path}') AS f") == [
        (ROWS, sum(wanted["byte"]))  # type: ignore[arg-type]
    ]
    assert meridian.rows(tmp_path / "data", "sky", f"SELECT COUNT(*) FROM read_fits('{path}') AS f") == [(ROWS,)]


def test_several_tables_of_a_file(meridian: Meridian, tmp_path: Path) -> None:
    def table(first: int, name: str) -> fits.BinTableHDU:
        return fits.BinTableHDU.from_columns([column("n", "J", np.arange(first, first + 5))], name=name)

    image = fits.ImageHDU(np.zeros((50, 70), dtype="f4"), name="SKY")
    path = write(tmp_path / "several.fits", image, table(0, "ONE"), fits.CompImageHDU(np.zeros((40, 40), dtype="i2"), name="PACKED"), table(100, "TWO"))
    for extension, first in {None: 0, "one": 0, "TWO": 100, 4: 100, 2: 0}.items():
        options = {} if extension is None else {"extension": extension}
        done = load(meridian, tmp_path / "data", path, replace=True, **options)
        assert done.status == 0, done.complaint
        assert meridian.rows(tmp_path / "data", "sky", "SELECT MIN(n), COUNT(*) FROM T") == [(first, 5)], extension
    for extension, words in {
        "three": ("no extension three", "1 (SKY, image)", "2 (ONE, binary table)", "3 (PACKED, compressed image)"),
        9: ("no extension 9",),
        1: ("extension 1", "no binary table"),
    }.items():
        assert_rejected(load(meridian, tmp_path / "data", path, replace=True, extension=extension), *words)
    csv = tmp_path / "a.csv"
    csv.write_text("n\n1\n")
    assert_rejected(load(meridian, tmp_path / "data", csv, extension="ONE"), "no FITS file", "--extension")


def test_gzipped_files_and_streams(meridian: Meridian, tmp_path: Path) -> None:
    names = [f"star {n}" for n in range(20_000)]
    table = fits.BinTableHDU.from_columns([column("n", "J", np.arange(20_000)), column("name", "12A", np.array(names))])
    path = write(tmp_path / "t.fits", table)
    packed = tmp_path / "t.fits.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    asked = "SELECT COUNT(*), SUM(n), MIN(name), MAX(name) FROM T"
    answer = [(20_000, sum(range(20_000)), min(names), max(names))]
    for file in (path, packed):
        done = load(meridian, tmp_path / "data", file, replace=True)
        assert done.status == 0, done.complaint
        assert meridian.rows(tmp_path / "data", "sky", asked) == answer
    with path.open("rb") as stdin:
        process = meridian.start(*load_arguments(tmp_path / "data", "sky", "T", Path("-"), kind="replicated", replace=True))
        _, stderr = process.communicate(stdin.read(), timeout=60)
    assert process.returncode == 0, stderr.decode()
    assert meridian.rows(tmp_path / "data", "sky", asked) == answer
    heap = write(tmp_path / "heap.fits", fits.BinTableHDU.from_columns([column("a", "PI()", arrays("i2"))]))
    packed.write_bytes(gzip.compress(heap.read_bytes()))
    assert_rejected(load(meridian, tmp_path / "data", packed, replace=True), '"a"', "gunzip")


def test_units_and_descriptions_come_with_a_file(meridian: Meridian, tmp_path: Path) -> None:
    """A file knows its position by UCDs, and its columns' units go into results."""
    table = fits.BinTableHDU.from_columns([column("n", "J", [1, 2]), column("alpha", "D", [10.0, 20.0], unit="deg"), column("delta", "D", [1.0, 2.0], unit="deg")])
    table.header["TUCD2"], table.header["TUCD3"] = "pos.eq.ra;meta.main", "pos.eq.dec;meta.main"
    path = write(tmp_path / "t.fits", table)
    stars = tmp_path / "stars.csv"
    stars.write_text("id,ra,dec\n1,10.00001,1\n2,20,2\n3,30,3\n")
    meridian.load(tmp_path / "data", "sky", "Star", stars, kind="director", key="id", ra="ra", dec="dec", stripes=6, sub_stripes=4, overlap=0.5)
    found = meridian.rows(tmp_path / "data", "sky", f"SELECT n, id FROM crossmatch(read_fits('{path}'), Star, radius => 1) AS m ORDER BY n")
    assert found == [(1, 1), (2, 2)]
    out = tmp_path / "out.fits"
    meridian.must("sql", "--data", tmp_path / "data", "--db", "sky", "--format", "fits", "--output", out, f"SELECT alpha, n FROM read_fits('{path}') AS f")
    with fits.open(out) as file:
        assert file[1].columns["alpha"].unit == "deg" and file[1].header["TUCD1"] == "pos.eq.ra;meta.main"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content[: len(content) // 2 // 2880 * 2880], ("ends behind",)),
        (lambda content: content[:5000], ("header",)),
        (lambda content: content.replace(b"TFORM1  = 'J       '", b"TFORM1  = 'Y       '"), ("TFORM1", "no form")),
        (lambda content: content.replace(b"NAXIS1  =                    4", b"NAXIS1  =                    5"), ("4 bytes", "NAXIS1")),
        (lambda content: content.replace(b"NAXIS2  =                 3000", b"NAXIS2  = 99999999999999999999"), ("NAXIS2",)),
        (lambda content: content.replace(b"XTENSION= 'BINTABLE'", b"XTENSION= 'TABLE   '"), ("no binary table", "ASCII table")),
        (lambda content: content[:2880], ("no extensions at all",)),
    ],
)
def test_damage_is_told(meridian: Meridian, tmp_path: Path, change: object, words: tuple[str, ...]) -> None:
    path = write(tmp_path / "t.fits", fits.BinTableHDU.from_columns([column("n", "J", np.arange(3000))]))
    damaged = change(path.read_bytes())  # type: ignore[operator]
    assert damaged != path.read_bytes()
    path.write_bytes(damaged)
    assert_rejected(load(meridian, tmp_path / "data", path), "t.fits", *words)
    assert not (tmp_path / "data" / "sky").exists()


# Results.

EVERYTHING = """
    SELECT id AS "id", CAST(id AS SMALLINT) AS small, CASE WHEN id > 3 THEN id END AS some, ra AS ra, CASE WHEN id <> 2 THEN dec END AS dec,
        CAST(ra AS REAL) AS real, CASE WHEN id <> 5 THEN name END AS name, id > 5 AS truth, CAST('2026-11-20 08:30:15' AS TIMESTAMP) AS moment
    FROM Star ORDER BY id
"""


@pytest.fixture(scope="module")
def stars(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("results")
    lines = [f"{n},{n * 36.5},{n - 5.25},{'é' * (n % 3) + str(n)}" for n in range(10)]
    (directory / "stars.csv").write_text("id,ra,dec,name\n" + "\n".join(lines) + "\n")
    meridian.load(directory / "data", "sky", "Star", directory / "stars.csv", kind="director", key="id", ra="ra", dec="dec", stripes=6, sub_stripes=4, overlap=0.5)
    return directory / "data"


def test_results_are_what_astropy_reads(meridian: Meridian, stars: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.fits"
    meridian.must("sql", "--data", stars, "--db", "sky", "--dialect", "adql", "--format", "fits", "--output", out, EVERYTHING)
    assert out.stat().st_size % 2880 == 0
    answer = meridian.sql(stars, "sky", EVERYTHING)
    with fits.open(out) as file:
        file.verify("exception")
        assert len(file) == 2
    table = astropy.table.Table.read(out)
    assert table.colnames == answer.column_names and len(table) == 10
    for name in table.colnames:
        values = [None if value is np.ma.masked else value for value in table[name]]
        given = answer.column(name).to_pylist()
        if name in ("ra", "dec", "real"):
            assert [None if value is None or np.isnan(value) else float(value) for value in values] == given, name
        elif name == "moment":
            assert {str(value) for value in values} == {"2026-11-20T08:30:15"}
        elif name == "name":
            texts = [value.decode() if isinstance(value, bytes) else value for value in values]
            assert [text or None for text in texts] == given
        else:
            assert [value if value is None else type(given_value)(value) for value, given_value in zip(values, given)] == given, name
    # What was written is read again as it was.
    again = meridian.sql(stars, "sky", f"SELECT * FROM read_fits('{out}') AS f ORDER BY id")
    for name in answer.column_names:
        assert again.column(name).to_pylist() == answer.column(name).to_pylist(), name


def test_times_come_back(meridian: Meridian, stars: Path, tmp_path: Path) -> None:
    """They came back as texts, which no time compares with."""
    out, data = tmp_path / "out.fits", tmp_path / "data"
    query = """
        SELECT id AS n, CASE WHEN id <> 3 THEN CAST('2026-11-20 08:30:15.25' AS TIMESTAMP) END AS seen, CAST('2026-11-21' AS DATE) AS day, name AS name
        FROM Star ORDER BY id"""
    meridian.must("sql", "--data", stars, "--db", "sky", "--dialect", "adql", "--format", "fits", "--output", out, query)
    with fits.open(out) as file:
        header = file[1].header
    assert [header.get(f"TXTYP{n}") for n in range(1, 5)] == [None, "timestamp", "timestamp", None]
    assert [row[0] for row in astropy.table.Table.read(out)["n", "seen"]] == list(range(10))
    meridian.load(data, "sky", "Seen", out, kind="replicated")
    found = meridian.sql(data, "sky", "SELECT n, seen, day, name FROM Seen ORDER BY n")
    assert [pa.types.is_timestamp(field.type) for field in found.schema] == [False, True, True, False]
    assert [str(moment) for moment in found.column("seen").to_pylist()] == ["None" if n == 3 else "2026-11-20 08:30:15.250000" for n in range(10)]
    assert meridian.rows(data, "sky", "SELECT COUNT(*) FROM Seen WHERE seen > TIMESTAMP '2026-11-20 08:30:15' AND day = TIMESTAMP '2026-11-21 00:00:00'") == [(9,)]


def test_texts_that_are_no_times_are_told(meridian: Meridian, tmp_path: Path) -> None:
    """Where a schema declares the column a text, they are loaded as they are."""
    table = fits.BinTableHDU.from_columns([column("n", "J", [1, 2]), column("seen", "10A", [" 2026-01-0", "yesterday"])])
    table.header["TXTYP2"] = "adql:TIMESTAMP"
    path = write(tmp_path / "t.fits", table)
    outcome = meridian.run(*load_arguments(tmp_path / "data", "sky", "Seen", path, kind="replicated"))
    assert_rejected(outcome, "row 1", "2026-01-0", "in the column seen is no time")
    schema = tmp_path / "schema.json"
    schema.write_text('{"columns": [{"name": "n", "type": "int"}, {"name": "seen", "type": "varchar(10)"}]}')
    meridian.load(tmp_path / "data", "sky", "Seen", path, kind="replicated", schema=schema)
    assert meridian.rows(tmp_path / "data", "sky", "SELECT seen FROM Seen ORDER BY n") == [(" 2026-01-0",), ("yesterday",)]


# The type of a column that is unsigned or has signed bytes, and the letter of its form where it has NULLs.
WIDER = {"tinyint": "I", "smallint unsigned": "J", "int unsigned": "K", "tinyint unsigned": "B"}


def test_nulls_of_every_integer_are_read_by_astropy(meridian: Meridian, tmp_path: Path) -> None:
    """astropy compares TNULL with the number that TZERO was added to, and gave -128 for NULL, or an error."""
    lines = ["n," + ",".join(f"c{at},w{at}" for at in range(len(WIDER))), "1" + ",7,8" * len(WIDER), "2" + ",,9" * len(WIDER)]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    types = {name: declared for at, kind in enumerate(WIDER) for name, declared in ((f"c{at}", kind), (f"w{at}", kind + " NOT NULL"))}
    columns = [{"name": name, "type": declared} for name, declared in {"n": "int", **types}.items()]
    (tmp_path / "schema.json").write_text(json.dumps({"columns": columns}))
    data, out = tmp_path / "data", tmp_path / "out.fits"
    meridian.load(data, "sky", "T", tmp_path / "t.csv", kind="replicated", schema=tmp_path / "schema.json")
    meridian.must("sql", "--data", data, "--db", "sky", "--format", "fits", "--output", out, "SELECT * FROM T ORDER BY n")
    with fits.open(out) as file:
        forms = {name: form for name, form in zip(file[1].columns.names, file[1].columns.formats)}
        zeros = {name: file[1].header.get(f"TZERO{at}") for at, name in enumerate(file[1].columns.names, start=1)}
    table = astropy.table.Table.read(out)
    for at, (kind, letter) in enumerate(WIDER.items()):
        assert (forms[f"c{at}"], zeros[f"c{at}"]) == (letter, None), kind
        assert (table[f"c{at}"].tolist(), list(table[f"w{at}"])) == ([7, None], [8, 9]), kind
    assert zeros["w0"] == -128 and zeros["w1"] == 2**15
    again = meridian.rows(tmp_path / "data", "sky", f"SELECT c0, c1, c2, c3, w0, w1, w2, w3 FROM read_fits('{out}') AS f ORDER BY n")
    assert again == [(7,) * 4 + (8,) * 4, (None,) * 4 + (9,) * 4]


def test_a_result_without_rows_has_columns(meridian: Meridian, stars: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.fits"
    meridian.must("sql", "--data", stars, "--db", "sky", "--format", "fits", "--output", out, "SELECT id, name FROM Star WHERE id < 0")
    table = astropy.table.Table.read(out)
    assert table.colnames == ["id", "name"] and len(table) == 0


NAMES = {
    # Names that astropy could not read: longer than a card, the same twice, of other letters than those of ASCII.
    "id": "id",
    "l" * 100: "l" * 64,
    "l" * 99: "l" * 62 + "_2",
    "it's": "it's",
    "q" * 67 + "'": "q" * 64,
    "ü": "_",
    "öß": "_2",
    "flux": "flux",
    "FLUX": "FLUX_2",
    "g mag": "g mag",
}


def test_names_of_columns_are_read_by_astropy_and_by_loads(meridian: Meridian, stars: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.fits"
    columns = ", ".join(f'id + {at} AS "{name}"' for at, name in enumerate(NAMES))
    meridian.must("sql", "--data", stars, "--db", "sky", "--dialect", "adql", "--format", "fits", "--output", out, f"SELECT {columns} FROM Star ORDER BY id")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # It recommends letters, digits and underscores.
        warnings.filterwarnings("ignore", message="It is strongly recommended that column names")
        table = astropy.table.Table.read(out)
        with fits.open(out) as file:
            file.verify("exception")
            header = dict(file[1].header)
    assert table.colnames == list(NAMES.values())
    for at, name in enumerate(NAMES.values()):
        assert list(table[name]) == [number + at for number in range(10)]
    for at, (name, told) in enumerate(NAMES.items(), start=1):
        is_cut = len(name) > 68 or name == "q" * 67 + "'"
        assert header.get(f"TCOMM{at}") == (name if is_cut else None), told
    meridian.load(tmp_path / "data", "sky", "Again", out, kind="replicated")
    assert meridian.rows(tmp_path / "data", "sky", "SELECT COUNT(*), MAX(\"FLUX_2\") FROM Again") == [(10, 9 + list(NAMES).index("FLUX"))]


def test_what_columns_mean_comes_back(meridian: Meridian, tmp_path: Path) -> None:
    """Descriptions and utypes were read and never written."""
    table = fits.BinTableHDU.from_columns([column("n", "J", [1, 2]), column("flux", "D", [10.0, 20.0], unit="Jy")])
    said = {"TUCD2": "phot.flux", "TUTYP2": "ssa:Data.FluxAxis.Value", "TCOMM1": "a number", "TCOMM2": "the flux of the star's first visit, " * 5 + "in Jansky"}
    table.header.update(said)
    meridian.load(tmp_path / "data", "sky", "Flux", write(tmp_path / "t.fits", table), kind="replicated")
    out = tmp_path / "out.fits"
    meridian.must("sql", "--data", tmp_path / "data", "--db", "sky", "--format", "fits", "--output", out, "SELECT n AS m, flux FROM Flux ORDER BY n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with fits.open(out) as file:
            file.verify("exception")
            assert {word: file[1].header[word] for word in said} == said
        assert list(astropy.table.Table.read(out)["flux"]) == [10.0, 20.0]


def test_a_file_has_one_result_and_lists_have_no_form(meridian: Meridian, stars: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.fits"
    two = meridian.run("sql", "--data", stars, "--db", "sky", "--format", "fits", "--output", out, "SELECT 1; SELECT 2")
    assert_rejected(two, "one result")
    assert not out.exists()


def test_large_results_are_written(meridian: Meridian, stars: Path, tmp_path: Path) -> None:
    """More rows than are held in memory at a time, and numbers of both ends of their types."""
    query = "SELECT a.id * 1000000 + b.id * 100000 + c.id * 10000 + d.id * 1000 + e.id * 100 AS n, 9223372036854775807 - a.id AS top FROM Star a, Star b, Star c, Star d, Star e"
    out = tmp_path / "out.fits"
    meridian.must("sql", "--data", stars, "--db", "sky", "--format", "fits", "--output", out, query)
    with fits.open(out) as file:
        found = np.sort(file[1].data["n"])
        assert len(found) == 100_000 and found[-1] == 9_999_900 and len(np.unique(found)) == 100_000
        assert file[1].data["top"].max() == 2**63 - 1


def bytes_of(table: fits.BinTableHDU) -> bytes:
    sink = io.BytesIO()
    fits.HDUList([fits.PrimaryHDU(), table]).writeto(sink)
    return sink.getvalue()


# --- headers --------------------------------------------------------------------------------------------------------------------------


def exposure(path: Path, number: int) -> Path:
    """An exposure of two detectors, with keywords of every kind."""
    primary = fits.PrimaryHDU()
    values = {"EXPTIME": 30.5 * number, "FILTER": "g's", "SHUT": True, "COUNT": -7, "EMPTY": "", "LONGTEXT": "x" * 150, "BIG": 1e-300, "ESO DET CHIP ID": f"chip {number}", "ESO TEL ALT": 45.25}
    for keyword, value in values.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            primary.header[keyword] = (value, "short")
    primary.header["UNDEF"] = None
    primary.header.add_comment("a comment")
    primary.header.add_history("its history")
    tables = [fits.BinTableHDU.from_columns([column("id", "K", np.arange(3))], name=name) for name in ("SCI", "WHT")]
    fits.HDUList([primary, fits.ImageHDU(np.zeros((4, 4)), name="IMG"), *tables]).writeto(path)
    return path


def cards_of(path: Path) -> set[tuple[object, ...]]:
    """What astropy reads of the headers: extension, its name, keyword, value, number, comment."""
    rows = set()
    with fits.open(path) as opened:
        for number, hdu in enumerate(opened):
            extname = hdu.header.get("EXTNAME")
            for card in hdu.header.cards:
                value, comment = card.value, card.comment
                if card.keyword in ("COMMENT", "HISTORY"):
                    value, comment = None, str(card.value)
                if isinstance(value, fits.card.Undefined):
                    value = None
                figure = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
                text = None if value is None else {True: "T", False: "F"}[value] if isinstance(value, bool) else str(value)
                rows.add((number, extname, card.keyword, figure if figure is not None else text, comment or None))
    return rows


def test_headers_are_rows(meridian: Meridian, tmp_path: Path) -> None:
    files = [exposure(tmp_path / f"exposure{number}.fits", number) for number in (1, 2)]
    (tmp_path / "packed.fits.gz").write_bytes(gzip.compress(files[0].read_bytes()))
    data = tmp_path / "data"
    meridian.load(data, "sky", "Header", "--headers", str(tmp_path / "exposure*.fits"), str(tmp_path / "packed.fits.gz"))
    for path in [*files, tmp_path / "packed.fits.gz"]:
        query = f"SELECT extension, extname, keyword, value, number, comment FROM Header WHERE file = '{path}' ORDER BY extension, card"
        rows = meridian.rows(data, "sky", query)
        assert {(*row[:3], row[3] if row[4] is None else row[4], row[5]) for row in rows} == cards_of(path)
    exposures = "SELECT file FROM Header WHERE keyword = 'EXPTIME' AND number > 40"
    assert meridian.rows(data, "sky", exposures) == [(str(files[1]),)]
    meridian.load(data, "sky", "Header", "--headers", "--extension", "0,wht", str(files[0]), replace=True)
    assert meridian.rows(data, "sky", "SELECT DISTINCT extension FROM Header ORDER BY extension") == [(0,), (3,)]
    meridian.load(data, "sky", "Header", "--headers", "--extension", "0,wht", str(files[1]), append=True)
    assert meridian.rows(data, "sky", "SELECT COUNT(DISTINCT file) FROM Header") == [(2,)]


def test_headers_that_cannot_be_read_are_told(meridian: Meridian, tmp_path: Path) -> None:
    path = exposure(tmp_path / "a.fits", 1)

    def rejected(*words: str, options: tuple[str, ...] = (), file: Path = path) -> None:
        assert_rejected(meridian.run(*load_arguments(tmp_path / "data", "sky", "H", "--headers", *options, file)), *words)

    rejected("it has no extension NOISE", "2 (SCI, binary table)", options=("--extension", "NOISE"))
    (tmp_path / "t.csv").write_text("a\n1\n")
    rejected("no FITS file", "--headers", file=tmp_path / "t.csv")
    rejected("no file matches", file=tmp_path / "*.fit")
    (tmp_path / "cut.fits").write_bytes(path.read_bytes()[:4000])
    rejected("cut.fits", file=tmp_path / "cut.fits")
    # Whatever the bytes, there is an answer.
    whole = bytearray(path.read_bytes())
    for _ in range(int(os.environ.get("MERIDIAN_MUTATIONS", "3"))):
        mutated = bytearray(whole)
        for at in RNG.integers(0, 2880 * 3, 8):
            mutated[at] = RNG.integers(32, 127)
        (tmp_path / "m.fits").write_bytes(mutated)
        outcome = meridian.run(*load_arguments(tmp_path / "data", "sky", "M", "--headers", "--replace", tmp_path / "m.fits"))
        assert outcome.status in (0, 1), outcome.complaint
