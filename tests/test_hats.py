"""HATS: tables as catalogues that LSDB opens, filters and matches, and catalogues of LSDB's own makers as tables."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import astropy.io.votable
import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest

from complaints import assert_rejected
from meridian_cli import Meridian, load_arguments
from serving import serving
from small_tables import CHILD, CUT, DIRECTOR, count_of, write_lines

ROOT = Path(__file__).resolve().parent.parent
# Where scripts/setup puts LSDB.
PYTHON = Path(os.environ.get("MERIDIAN_HATS_PYTHON", ROOT / ".venv" / "hats" / "bin" / "python"))
STARS = 3000
ROWS_PER_PIXEL = 600


def use_lsdb(*steps: dict[str, object]) -> list[Any]:
    """What LSDB says in these steps."""
    if not PYTHON.exists():
        pytest.skip("LSDB is not installed: run scripts/setup hats.")
    command = [str(PYTHON), str(ROOT / "tests" / "hats" / "use_lsdb.py"), json.dumps(steps, default=str)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    (line,) = re.findall(r"^RESULTS (.*)$", done.stdout, flags=re.MULTILINE)
    results = json.loads(line)
    assert isinstance(results, list)
    return results


def star_table() -> pa.Table:
    """Stars over the sky, half of them in a field that is dense, with a column of each kind."""
    rng = np.random.default_rng(3)
    spread = STARS // 2
    ra = np.concatenate([rng.uniform(0.0, 360.0, spread), rng.uniform(359.0, 361.0, STARS - spread) % 360.0])
    dec = np.concatenate([np.degrees(np.arcsin(rng.uniform(-1.0, 1.0, spread))), rng.uniform(-1.0, 1.0, STARS - spread)])
    number = np.arange(STARS)
    mag = [None if n % 11 == 0 else float(n) / 7 for n in number]
    metadata = {b"unit": b"mag", b"ucd": b"phot.mag", b"description": b"how bright it is"}
    fields = [
        pa.field("id", pa.int64()), pa.field("ra", pa.float64()), pa.field("dec", pa.float64()), pa.field("mag", pa.float64(), metadata=metadata),
        pa.field("Flag", pa.bool_()), pa.field("name", pa.string()), pa.field("small", pa.int16()), pa.field("seen", pa.timestamp("us")),
    ]
    columns = [number, ra, dec, mag, number % 2 == 0, [f"star {n}" if n % 5 else "" for n in number], (number % 100).astype("i2"), number * 1_000_000]
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, fields)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stars, their epochs (without positions of their own, ten of them of no star), and sources with positions."""
    directory = tmp_path_factory.mktemp("hats")
    pq.write_table(star_table(), directory / "star.parquet")
    meridian.load(directory / "data", "sky", "Star", directory / "star.parquet", **DIRECTOR)
    epochs = (f"{n % STARS if n < 2 * STARS else n},{n},{n * 0.5}" for n in range(2 * STARS + 10))
    lines = write_lines(directory / "epoch.csv", epochs, "id,epoch,flux")
    meridian.load(directory / "data", "sky", "Epoch", lines, own_key="epoch", **CHILD)
    positions = star_table().select(["id", "ra", "dec"])
    shifted = positions.set_column(2, "dec", pa.compute.multiply(positions["dec"], 0.9999))
    sources = shifted.append_column("sid", pa.array(range(STARS))).rename_columns(["id", "sra", "sdec", "sid"])
    pq.write_table(sources, directory / "source.parquet")
    meridian.load(directory / "data", "sky", "Source", directory / "source.parquet", own_key="sid", ra="sra", dec="sdec", **CHILD)
    return directory / "data"


def export(meridian: Meridian, data: Path, table: str, output: Path, **options: object) -> str:
    arguments = ["export", "--data", data, "--db", "sky", "--table", table, "--format", "hats", "--output", output]
    for name, value in options.items():
        arguments += [f"--{name.replace('_', '-')}"] if value is True else [f"--{name.replace('_', '-')}", value]
    return meridian.must(*arguments).text


def sorted_rows(table: pa.Table, key: str) -> list[dict[str, object]]:
    return sorted(table.to_pylist(), key=lambda row: row[key])  # type: ignore[no-any-return]


def unit_of_mag(schema: pa.Schema) -> bytes | None:
    return (schema.field("mag").metadata or {}).get(b"unit")


def assert_described(file: Path | pa.BufferReader) -> None:
    """The VOTable in a footer has all columns in their order, as readers of the Virtual Observatory look for it (VOParquet)."""
    said = pq.read_metadata(file).metadata
    assert said[b"IVOA.VOTable-Parquet.version"] == b"1.0"
    table = astropy.io.votable.parse(io.BytesIO(said[b"IVOA.VOTable-Parquet.content"])).get_first_table()
    assert table.name == "Star" and [field.name for field in table.fields] == ["_healpix_29", *star_table().column_names]
    mag = table.get_field_by_id_or_name("mag")
    assert (str(mag.unit), mag.ucd, mag.description) == ("mag", "phot.mag", "how bright it is")


def dataset(catalogue: Path) -> pa.Table:
    """The rows of all files, read one by one."""
    files = sorted(catalogue.glob("dataset/Norder=*/Dir=*/Npix=*.parquet"))
    return pa.concat_tables([pq.ParquetFile(file).read() for file in files])


def test_a_director_is_a_catalogue_that_lsdb_reads(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    catalogue = tmp_path / "star_hats"
    report = export(meridian, data, "Star", catalogue, rows_per_pixel=ROWS_PER_PIXEL)
    assert re.match(rf"{STARS:,} rows of sky.Star in \d+ files, of cells of the orders 0 to [1-9]", report), report
    told = {"catalogue": catalogue}
    cone = {"do": "cone", **told, "key": "id", "centre": [0.0, 0.0], "radius": 0.5}
    match = {"do": "crossmatch", **told, "other": catalogue, "key": "id", "other_key": "id", "radius": 0.001}
    steps: list[dict[str, object]] = [
        {"do": "is_valid", **told}, {"do": "describe", **told}, {"do": "skymap", **told}, {"do": "rows", **told, "output": tmp_path / "rows.parquet"},
        {"do": "filtered", **told, "key": "id", "condition": "mag < 20 and Flag"}, cone, match,
    ]
    valid, described, mapped, rows, bright, near, matches = use_lsdb(*steps)
    assert valid and rows == mapped == STARS
    assert {name: described[name] for name in ("name", "type", "rows", "ra", "dec")} == {"name": "Star", "type": "object", "rows": STARS, "ra": "ra", "dec": "dec"}
    assert described["columns"] == star_table().column_names and unit_of_mag(pq.read_schema(catalogue / "dataset" / "_common_metadata")) == b"mag"
    read = pq.read_table(tmp_path / "rows.parquet").select(star_table().column_names)
    assert sorted_rows(read, "id") == sorted_rows(star_table(), "id")
    assert bright == [row["id"] for row in star_table().to_pylist() if row["mag"] is not None and row["mag"] < 20 and row["Flag"]]
    cone_of = "SELECT id FROM Star WHERE 1 = CONTAINS(POINT(ra, dec), CIRCLE(0, 0, 0.5)) ORDER BY id"
    assert [(key,) for key in near] == meridian.rows(data, "sky", cone_of) and len(near) > 50
    assert matches == [[n, n] for n in range(STARS)]


def test_cells_are_divided_and_sorted(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    catalogue = tmp_path / "out"
    export(meridian, data, "Star", catalogue, rows_per_pixel=ROWS_PER_PIXEL, max_order=6)
    assert sorted_rows(dataset(catalogue).select(star_table().column_names), "id") == sorted_rows(star_table(), "id")
    for file in catalogue.glob("dataset/Norder=*/Dir=*/Npix=*.parquet"):
        order, cell = (int(number) for number in re.findall(r"N(?:order|pix)=(\d+)", str(file)))
        numbers = np.asarray(pq.ParquetFile(file).read()["_healpix_29"])
        assert (np.diff(numbers) >= 0).all() and (numbers >> (2 * (29 - order)) == cell).all()
        assert len(numbers) <= ROWS_PER_PIXEL or order == 6
        assert_described(file)
    for name in ("_metadata", "_common_metadata"):
        assert_described(catalogue / "dataset" / name)
    metadata = pq.read_metadata(catalogue / "dataset" / "_metadata")
    assert metadata.num_rows == STARS and metadata.row_group(0).column(0).file_path.startswith("Norder=")
    assert pq.read_metadata(catalogue / "dataset" / "_common_metadata").num_rows == 0
    assert (catalogue / "hats.properties").read_text() == (catalogue / "properties").read_text()


def test_children_have_positions_of_their_own_or_of_their_director(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    export(meridian, data, "Source", tmp_path / "source", rows_per_pixel=ROWS_PER_PIXEL)
    found = dataset(tmp_path / "source")
    assert found.num_rows == STARS and found.column_names == ["_healpix_29", "id", "sra", "sdec", "sid"]
    unplaced = [*("export", "--data", data, "--db", "sky", "--table", "Epoch", "--format", "hats"), "--output", tmp_path / "epoch"]
    assert_rejected(meridian.run(*unplaced), "10 rows of sky.Epoch have no position", "--skip-unplaced")
    assert not (tmp_path / "epoch").exists()
    report = export(meridian, data, "Epoch", tmp_path / "epoch", rows_per_pixel=ROWS_PER_PIXEL, skip_unplaced=True)
    assert "10 rows without a position were left out" in report
    found = dataset(tmp_path / "epoch")
    expected = meridian.sql(data, "sky", "SELECT e.*, s.ra, s.dec FROM Epoch e JOIN Star s ON s.id = e.id")
    assert found.column_names == ["_healpix_29", "id", "epoch", "flux", "ra", "dec"]
    assert sorted_rows(found.drop_columns("_healpix_29"), "epoch") == sorted_rows(expected, "epoch")
    properties = (tmp_path / "epoch" / "hats.properties").read_text()
    assert "dataproduct_type=source" in properties and "hats_col_ra=ra" in properties


def test_what_cannot_be_exported_is_told(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    meridian.load(data, "sky", "Band", write_lines(tmp_path / "band.csv", ["1,g"], "id,name"), kind="replicated")

    def rejected(table: str, *words: str, output: Path = tmp_path / "x", format: str = "hats", options: tuple[str, ...] = ()) -> None:
        arguments = ["export", "--data", data, "--db", "sky", "--table", table, "--format", format, "--output", output, *options]
        assert_rejected(meridian.run(*arguments), *words)

    rejected("Band", "replicated table", "no position")
    rejected("Nothing", "there is no table sky.Nothing")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    rejected("Star", "not empty", output=tmp_path / "full")
    rejected("Star", "--rows-per-pixel is for --format hats", format="csv", options=("--rows-per-pixel", "5"))
    assert not (tmp_path / "x").exists() and not (tmp_path / "x.part").exists()


def test_whole_tables_are_files_too(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    output = tmp_path / "star.parquet"
    meridian.must("export", "--data", data, "--db", "sky", "--table", "Star", "--format", "parquet", "--output", output, "--quiet")
    assert sorted_rows(pq.read_table(output), "id") == sorted_rows(star_table(), "id")


def test_an_export_that_is_killed_leaves_nothing_that_looks_whole(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    arguments = ["export", "--data", data, "--db", "sky", "--table", "Star", "--format", "hats", "--output", output, "--rows-per-pixel", 5]
    process = meridian.start(*arguments)
    deadline = time.monotonic() + 300
    while not list(tmp_path.glob("out.part/dataset/Norder=*")) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.returncode == -signal.SIGKILL and not output.exists()
    assert not list(tmp_path.rglob("hats.properties"))
    # What it left is in nobody's way.
    export(meridian, data, "Star", output, rows_per_pixel=1000)
    assert dataset(output).num_rows == STARS and not (tmp_path / "out.part").exists()


def test_a_catalogue_comes_back_as_the_table_that_it_was(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    catalogue = tmp_path / "star_hats"
    export(meridian, data, "Star", catalogue, rows_per_pixel=ROWS_PER_PIXEL)
    other = tmp_path / "data"
    outcome = meridian.must("load", "--data", other, "--db", "back", "--table", "Star", "--key", "id", "--stripes", 6, "--sub-stripes", 4, catalogue)
    assert "left out: _healpix_29" in outcome.text
    back = meridian.sql(other, "back", "SELECT * FROM Star")
    assert sorted_rows(back, "id") == sorted_rows(meridian.sql(data, "sky", "SELECT * FROM Star"), "id")
    said = meridian.must("describe", "--data", other, "--db", "back", "--table", "Star").text
    assert "unit: mag" in said and "how bright it is" in said
    parts = meridian.must("tables", "--data", other, "--parts").text
    assert "star_hats" in parts and "Npix" not in parts
    # Named in a query, its rows are those of its files, and its position is known.
    near = f"SELECT COUNT(*) FROM crossmatch(read_parquet('{catalogue}'), back.Star, 0.1)"
    assert meridian.rows(other, "back", near) == [(STARS,)]
    # A file is missing.
    next(catalogue.glob("dataset/Norder=*/Dir=*/Npix=*.parquet")).unlink()
    arguments = load_arguments(other, "back", "Part", catalogue, key="id")
    assert_rejected(meridian.run(*arguments), f"has {STARS} rows, and its files have", "fetch it again")


def test_a_catalogue_of_hats_import_is_loaded(meridian: Meridian, tmp_path: Path) -> None:
    pq.write_table(star_table().rename_columns(["id", "alpha", "delta", "mag", "Flag", "name", "small", "seen"]), tmp_path / "star.parquet")
    step = {"do": "imported", "catalogue": tmp_path / "made", "file": tmp_path / "star.parquet", "ra": "alpha", "dec": "delta", "rows": 500}
    use_lsdb(step)
    data = tmp_path / "data"
    options = {**CUT, "key": "id"}
    meridian.load(data, "sky", "Star", tmp_path / "made", **options)
    found = meridian.sql(data, "sky", 'SELECT id, alpha, delta, mag, "Flag", name, small, seen FROM Star')
    expected = star_table().rename_columns(found.column_names)
    assert sorted_rows(found, "id") == sorted_rows(expected, "id")
    region = "SELECT COUNT(*) FROM Star WHERE 1 = CONTAINS(POINT(alpha, delta), CIRCLE(0, 0, 1))"
    assert meridian.rows(data, "sky", region)[0][0] > 100  # type: ignore[operator]


def test_catalogues_that_are_none_of_rows_are_told(meridian: Meridian, tmp_path: Path) -> None:
    def catalogue(name: str, properties: str) -> Path:
        (tmp_path / name / "dataset").mkdir(parents=True)
        (tmp_path / name / "hats.properties").write_text(properties)
        return tmp_path / name

    def rejected(path: Path, *words: str) -> None:
        assert_rejected(meridian.run(*load_arguments(tmp_path / "data", "sky", "T", path, key="id")), *words)

    rejected(catalogue("margin", "dataproduct_type=margin\n"), "type margin", "repeats rows")
    rejected(catalogue("empty", "dataproduct_type=object\nhats_nrows=5\n"), "no files of cells")
    (tmp_path / "collection").mkdir()
    (tmp_path / "collection" / "collection.properties").write_text("obs_collection=x\n")
    rejected(tmp_path / "collection", "hats_primary_table_url")
    # A collection is its catalogue.
    pixel = tmp_path / "whole" / "star" / "dataset" / "Norder=0" / "Dir=0"
    pixel.mkdir(parents=True)
    pq.write_table(star_table(), pixel / "Npix=0.parquet")
    (tmp_path / "whole" / "collection.properties").write_text("hats_primary_table_url=star\n")
    (tmp_path / "whole" / "star" / "hats.properties").write_text("hats_col_ra=ra\nhats_col_dec=dec\n")
    (tmp_path / "whole" / "star_margin" / "dataset").mkdir(parents=True)
    meridian.load(tmp_path / "data", "sky", "Star", tmp_path / "whole", key="id", **CUT)
    assert count_of(meridian, tmp_path / "data") == STARS


# --- over HTTP ------------------------------------------------------------------------------------------------------------------------


def fetched(url: str, headers: dict[str, str] | None = None, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    request = urllib.request.Request(url, headers=headers or {}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return response.status, dict(response.headers), response.read()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read()


def test_lsdb_opens_what_is_served(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    with serving(meridian, data) as server:
        catalogue = server.url("/hats/sky/Star")
        cone = {"do": "cone", "catalogue": catalogue, "key": "id", "centre": [0.0, 0.0], "radius": 0.5}
        steps: list[dict[str, object]] = [{"do": "describe", "catalogue": catalogue}, {"do": "rows", "catalogue": catalogue, "output": tmp_path / "rows.parquet"}, cone]
        described, rows, near = use_lsdb(*steps)
        common = fetched(f"{catalogue}/dataset/_common_metadata")[2]
        assert unit_of_mag(pq.read_schema(pa.BufferReader(common))) == b"mag"
    assert (described["name"], described["rows"], rows) == ("Star", STARS, STARS)
    read = pq.read_table(tmp_path / "rows.parquet").select(star_table().column_names)
    assert sorted_rows(read, "id") == sorted_rows(star_table(), "id")
    cone_of = "SELECT id FROM Star WHERE 1 = CONTAINS(POINT(ra, dec), CIRCLE(0, 0, 0.5)) ORDER BY id"
    assert [(key,) for key in near] == meridian.rows(data, "sky", cone_of)


def assert_ranges_are_conditional(url: str, whole: bytes) -> None:
    """A range is sent of the file that If-Range names; of another one, and of a range that cannot be read, the whole file is."""
    _, headers, _ = fetched(url, method="HEAD")
    tag, date = headers["etag"], headers["last-modified"]
    wanted = {"Range": "bytes=10-29"}
    for condition in (tag, date):
        status, _, part = fetched(url, {**wanted, "If-Range": condition})
        assert (status, part) == (206, whole[10:30])
    for condition in (f"W/{tag}", '"another"', "Thu, 01 Jan 2026 00:00:00 GMT", "Thu, 01 Jan 2099 00:00:00 GMT", "nothing"):
        status, headers, body = fetched(url, {**wanted, "If-Range": condition})
        assert (status, body, headers.get("content-range")) == (200, whole, None), condition
    for unreadable in ("rows=0-9", "bytes", "bytes=x-y", "bytes=9-0", "bytes=0-1,5-6"):
        status, _, body = fetched(url, {"Range": unreadable})
        assert (status, body) == (200, whole), unreadable
    beyond = {"Range": f"bytes={len(whole)}-"}
    assert fetched(url, {**beyond, "If-Range": tag})[0] == 416
    assert fetched(url, {**beyond, "If-Range": '"another"'})[0] == 200
    assert fetched(url, {"Range": f"bytes=-{len(whole) + 5}"})[2] == whole


def test_files_are_served_by_ranges_to_those_who_may_read_them(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "data"
    shutil.copytree(data, copy)
    with serving(meridian, copy) as server:
        base = server.url("/hats/sky/Star")
        status, _, partitions = fetched(f"{base}/partition_info.csv")
        assert status == 200
        cells = [line.split(",") for line in partitions.decode().split()[1:]]
        tables = []
        for order, cell in cells:
            url = f"{base}/dataset/Norder={order}/Dir=0/Npix={cell}.parquet"
            status, headers, whole = fetched(url)
            assert (status, len(whole)) == (200, int(headers["content-length"]))
            status, headers, _ = fetched(url.replace("=", "%3D"), method="HEAD")
            assert (status, int(headers["content-length"]), headers["accept-ranges"]) == (200, len(whole), "bytes")
            status, headers, part = fetched(url, {"Range": "bytes=10-29"})
            assert (status, headers["content-range"], part) == (206, f"bytes 10-29/{len(whole)}", whole[10:30])
            assert fetched(url, {"Range": "bytes=-8"})[2] == whole[-8:]
            assert fetched(url, {"Range": f"bytes={len(whole) + 5}-"})[0] == 416
            assert_ranges_are_conditional(url, whole)
            tables.append(pq.read_table(pa.BufferReader(whole)))
            assert_described(pa.BufferReader(whole))
        rows = pa.concat_tables(tables)
        assert sorted_rows(rows.select(star_table().column_names), "id") == sorted_rows(star_table(), "id")
        # Files are those of the table as it is.
        more = write_lines(tmp_path / "more.csv", [f"{STARS},45.0,41.0"], "id,ra,dec")
        meridian.load(copy, "sky", "Star", more, append=True)
        assert f"hats_nrows={STARS + 1}\n" in fetched(f"{base}/hats.properties")[2].decode()
        for path, words in [("x", "no file x"), ("dataset/_metadata", "no file"), ("dataset/Norder=9/Dir=0/Npix=1.parquet", "no file"), ("dataset/Norder=0/Dir=0/Npix=..%2F..%2Fx.parquet", "no file")]:
            status, _, said = fetched(f"{base}/{path}")
            assert status == 404 and words in said.decode(), said
        assert fetched(server.url("/hats/sky/Nothing/hats.properties"))[0] == 404
        assert fetched(server.url("/hats/sky/Star"))[0] == 200
        # Epochs have the positions of their stars; those of no star are left out.
        status, _, said = fetched(server.url("/hats/sky/Epoch/hats.properties"))
        assert status == 200 and f"hats_nrows={2 * STARS}\n" in said.decode()

    def user(*arguments: str) -> None:
        words = [str(meridian.binary), "user", *arguments, "--data", str(copy)]
        password = ["--password-stdin"] if arguments[0] == "add" else []
        subprocess.run([*words, *password], input="word", check=True, capture_output=True, text=True, timeout=60)

    for name in ("ann", "bob"):
        user("add", name)
    user("grant", "ann", "--read", "sky.Star")
    user("grant", "bob", "--read", "sky.Epoch")
    with serving(meridian, copy) as server:

        def asked(name: str, table: str) -> int:
            login = base64.b64encode(f"{name}:word".encode()).decode()
            return fetched(server.url(f"/hats/sky/{table}/hats.properties"), {"Authorization": f"Basic {login}"})[0]

        assert [asked(name, table) for name in ("ann", "bob") for table in ("Star", "Source")] == [200, 403, 403, 403]
        # The positions of the epochs are those of stars, which bob may not read.
        assert asked("bob", "Epoch") in (403, 404) and fetched(server.url("/hats/sky/Star/hats.properties"))[0] in (401, 403)
