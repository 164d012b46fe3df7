"""Region files: what `meridian alerts regions` writes is read by Python and by the program, without a server, and has exactly the rows of each region."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.coordinates import SkyCoord

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python" / "meridian_apdb")]

from meridian_apdb import box, circle, polygon  # noqa: E402
from meridian_apdb.region_files import RegionFiles, RegionFilesError  # noqa: E402

from complaints import assert_rejected  # noqa: E402
from meridian_cli import Meridian, read_arrow  # noqa: E402
from serving import serving  # noqa: E402
from small_tables import CHILD, DIRECTOR, write_lines  # noqa: E402
from test_alerts_published import Night, execute, create  # noqa: E402

STARS = 20_000
EVERYWHERE = (0.0, -90.0, 360.0, 90.0)
Corners = list[tuple[float, float]]


def star_rows() -> pa.Table:
    """Stars over the sky, at both poles, on the seam, and most of them in a field across it; with a column of each kind."""
    rng = np.random.default_rng(17)
    ra = np.concatenate([rng.uniform(0.0, 360.0, STARS // 4), rng.uniform(-2.0, 2.0, STARS - STARS // 4) % 360.0])
    dec = np.concatenate(
        [np.degrees(np.arcsin(rng.uniform(-1.0, 1.0, STARS // 4))), rng.uniform(-2.0, 2.0, STARS - STARS // 4)]
    )
    dec[:40], dec[40:80], ra[80:120] = 90.0, -90.0, 0.0
    number = rng.permutation(STARS)
    fields = [
        pa.field("id", pa.int64()), pa.field("ra", pa.float64(), metadata={b"unit": b"deg"}), pa.field("dec", pa.float64()), pa.field("Mag", pa.float32()),
        pa.field("name", pa.string()), pa.field("flag", pa.bool_()), pa.field("small", pa.int16()), pa.field("seen", pa.timestamp("us")),
    ]
    columns = [
        number, ra, dec, [None if n % 11 == 0 else n / 8 for n in number], [None if n % 7 == 0 else f"☄ {n}" * (n % 3) for n in number],
        [None if n % 5 == 0 else bool(n % 2) for n in number], (number % 100).astype("i2"), number * 1_000_000,
    ]
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, fields, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


@pytest.fixture(scope="module")
def stars() -> pa.Table:
    return star_rows()


@pytest.fixture(scope="module")
def data(meridian: Meridian, stars: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stars, sources of which some have no position, bands without any, and a view."""
    directory = tmp_path_factory.mktemp("regions")
    pq.write_table(stars, directory / "star.parquet")
    meridian.load(directory / "data", "sky", "Star", directory / "star.parquet", **DIRECTOR)
    sources = (f"{n},{n},{'' if n % 10 == 0 else n % 360},{'' if n % 10 == 0 else n % 180 - 89.5}" for n in range(500))
    lines = write_lines(directory / "source.csv", sources, "id,sid,sra,sdec")
    meridian.load(directory / "data", "sky", "Source", lines, own_key="sid", ra="sra", dec="sdec", **CHILD)
    lines = write_lines(directory / "band.csv", (f"{n},band {n}" for n in range(3)), "band,name")
    meridian.load(directory / "data", "sky", "Band", lines, kind="replicated")
    meridian.must("view", "create", "--data", directory / "data", "--db", "sky", "--name", "Bright", "SELECT id, ra, `dec` FROM Star WHERE Mag < 10")
    return directory / "data"


@pytest.fixture(scope="module")
def files(meridian: Meridian, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The region files of the stars."""
    output = tmp_path_factory.mktemp("files") / "stars"
    columns = "Mag,NAME, flag,small,seen"
    said = write(meridian, data, output, "--table", "star", "--columns", columns)
    assert said.startswith(f"{STARS:,} rows of sky.Star in the files of "), said
    return output


def write(meridian: Meridian, data: Path, output: Path, *options: object, db: str = "sky") -> str:
    return meridian.must("alerts", "regions", "--data", data, "--db", db, "--output", output, *options).text


def read_by_program(meridian: Meridian, files: Path, *options: object) -> pa.Table:
    return read_arrow(meridian.must("alerts", "region", "--files", files, "--format", "arrow", *options).stdout)


class Sky:
    """Which rows are in regions, by astropy's separations and the definitions: an oracle."""

    def __init__(self, rows: pa.Table) -> None:
        self.ids, self.ra, self.dec = (rows[name].to_numpy() for name in ("id", "ra", "dec"))
        self.places = SkyCoord(self.ra, self.dec, unit="deg")
        ra, dec = np.radians(self.ra), np.radians(self.dec)
        self.vectors = np.stack([np.cos(dec) * np.cos(ra), np.cos(dec) * np.sin(ra), np.sin(dec)], axis=1)

    def within(self, ra: float, dec: float, radius: float) -> np.ndarray:
        return np.asarray(self.places.separation(SkyCoord(ra, dec, unit="deg")).deg <= radius)

    def circle(self, ra: float, dec: float, radius: float, padding: float = 0.0) -> np.ndarray:
        return self.within(ra, dec, radius + padding)

    def box(self, ra_min: float, dec_min: float, ra_max: float, dec_max: float, padding: float = 0.0) -> np.ndarray:
        if ra_max - ra_min >= 360.0:
            in_ra = np.full(len(self.ra), True)
        else:
            in_ra = (self.ra - ra_min) % 360.0 <= (ra_max - ra_min) % 360.0
        inside = in_ra & (self.dec >= dec_min) & (self.dec <= dec_max)
        if padding > 0.0:
            width = 360.0 if ra_max - ra_min >= 360.0 else (ra_max - ra_min) % 360.0
            edges = [(ra, dec) for ra in (ra_min, ra_min + width) for dec in np.linspace(dec_min, dec_max, 400)]
            edges += [(ra, dec) for ra in ra_min + np.linspace(0.0, width, 400) for dec in (dec_min, dec_max)]
            inside = inside | self.near(edges, padding)
        return inside

    def polygon(self, corners: Corners, padding: float = 0.0) -> np.ndarray:
        ra, dec = np.radians(np.array(corners).T)
        vertices = np.stack([np.cos(dec) * np.cos(ra), np.cos(dec) * np.sin(ra), np.sin(dec)], axis=1)
        following = np.roll(vertices, -1, axis=0)
        heights = self.vectors @ np.cross(vertices, following).T
        # Corners are given in either direction, and the middle of a convex polygon is inside.
        heights *= np.sign(np.cross(vertices, following) @ vertices.sum(axis=0))
        inside = np.all(heights >= 0.0, axis=1)
        if padding > 0.0:
            steps = np.linspace(0.0, 1.0, 400)[:, None]
            points = np.concatenate([start + (end - start) * steps for start, end in zip(vertices, following, strict=True)])
            ra, dec = np.degrees(np.arctan2(points[:, 1], points[:, 0])), np.degrees(np.arctan2(points[:, 2], np.hypot(points[:, 0], points[:, 1])))
            inside = inside | self.near(list(zip(ra, dec, strict=True)), padding)
        return np.asarray(inside)

    def near(self, points: Corners, padding: float) -> np.ndarray:
        ra, dec = np.radians(np.array(points).T)
        vectors = np.stack([np.cos(dec) * np.cos(ra), np.cos(dec) * np.sin(ra), np.sin(dec)], axis=1)
        nearest = np.full(len(self.ra), 4.0)
        for vector in vectors:
            nearest = np.minimum(nearest, np.sum((self.vectors - vector) ** 2, axis=1))
        return np.asarray(np.degrees(2.0 * np.arcsin(np.sqrt(nearest) / 2.0)) <= padding)


# Regions, each with its arguments for the program, for Python and for the oracle. Paddings are such that no row is in doubt where the oracle
# samples edges.
REGIONS: list[tuple[str, Any, float]] = [
    ("circle", (0.0, 0.0, 0.3), 0.0),
    ("circle", (359.9, 0.1, 0.5), 0.2),
    ("circle", (123.0, 90.0, 2.0), 0.0),
    ("circle", (123.0, -89.5, 0.7), 0.0),
    ("circle", (10.0, 80.0, 9.0), 3.0),
    ("circle", (200.0, -90.0, 1e-9), 0.0),
    ("circle", (1.0, 1.0, 1e-7), 0.0),
    ("circle", (0.0, 0.0, 120.0), 0.0),
    ("circle", (180.0, 10.0, 175.0), 10.0),
    ("box", (359.5, -0.5, 0.5, 0.5), 0.0),
    ("box", (359.5, -0.5, 0.5, 0.5), 0.1),
    ("box", (-0.25, 0.0, 0.25, 0.25), 0.0),
    ("box", (0.0, 0.0, 0.0, 1.0), 0.0),
    ("box", (10.0, 85.0, 40.0, 90.0), 0.0),
    ("box", (10.0, 85.0, 40.0, 88.0), 4.0),
    ("box", EVERYWHERE, 0.0),
    ("box", (0.0, 3.0, 360.0, 3.5), 0.0),
    ("polygon", [(359.0, -1.0), (1.0, -1.0), (1.0, 1.0), (359.0, 1.0)], 0.0),
    ("polygon", [(359.0, 1.0), (1.0, 1.0), (1.0, -1.0), (359.0, -1.0)], 0.1),
    ("polygon", [(0.0, 85.0), (90.0, 86.0), (180.0, 87.0), (270.0, 85.0)], 0.0),
    ("polygon", [(0.0, -80.0), (120.0, -80.0), (240.0, -80.0)], 2.0),
    ("polygon", [(30.0, -40.0), (80.0, -35.0), (50.0, 50.0)], 0.0),
]


def region_text(shape: str, values: Any) -> str:
    return polygon(values) if shape == "polygon" else {"circle": circle, "box": box}[shape](*values)


def options_of(shape: str, values: Any, padding: float) -> list[object]:
    numbers = [number for corner in values for number in corner] if shape == "polygon" else list(values)
    return [f"--{shape}", *numbers, "--padding", padding]


def by_number(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: row["id"])


def test_both_readers_have_exactly_the_rows_of_a_region(meridian: Meridian, stars: pa.Table, files: Path) -> None:
    oracle, opened, everything = Sky(stars), RegionFiles(files), {row["id"]: row for row in stars.to_pylist()}
    found = 0
    for shape, values, padding in REGIONS:
        arguments = (values,) if shape == "polygon" else values
        inside = getattr(oracle, shape)(*arguments, padding)
        wanted = [everything[number] for number in sorted(oracle.ids[inside].tolist())]
        found += len(wanted)
        by_python = opened.read(region_text(shape, values), padding=padding)
        by_program = read_by_program(meridian, files, *options_of(shape, values, padding))
        assert by_python.schema.names == ["id", "ra", "dec", "Mag", "name", "flag", "small", "seen"]
        assert by_number(by_python) == wanted, (shape, values, padding)
        assert by_number(by_program) == wanted, (shape, values, padding)
        # In the same order, too.
        assert by_python["id"].to_pylist() == by_program["id"].to_pylist()
    assert found > STARS


def test_readers_agree_on_any_region(meridian: Meridian, files: Path) -> None:
    chance, opened = random.Random(3), RegionFiles(files)
    seen = 0
    for _ in range(25):
        ra, dec = chance.uniform(0, 360), chance.choice([chance.uniform(-90, 90), 0.0, 89.9, -90.0])
        ra = chance.choice([ra, 359.8, 0.1])
        size, padding = chance.choice([0.01, 0.3, 2.0, 30.0]), chance.choice([0.0, 0.0, 0.5])
        south = min(max(dec, -89.0), 50.0)
        shape, values = chance.choice(
            [
                ("circle", (ra, dec, size)),
                ("box", (ra - size, max(-90.0, dec - size), ra + size, min(90.0, dec + size))),
                ("polygon", [(ra - size, south), (ra + size, south), (ra, south + size)]),
            ]
        )
        by_python = opened.read(region_text(shape, values), columns=["id"], padding=padding)
        by_program = read_by_program(meridian, files, "--columns", "id", *options_of(shape, values, padding))
        assert by_python["id"].to_pylist() == by_program["id"].to_pylist(), (shape, values, padding)
        seen += by_python.num_rows
    assert seen > 1000


def test_columns_and_formats(meridian: Meridian, stars: pa.Table, files: Path, tmp_path: Path) -> None:
    opened = RegionFiles(files)
    table = opened.read(circle(0.0, 0.0, 0.2), columns=["MAG", "id"])
    assert table.schema.names == ["Mag", "id"] and table.num_rows > 0
    printed = meridian.must("alerts", "region", "--files", files, "--circle", 0, 0, 0.2, "--columns", "mag, ID").text
    lines = printed.splitlines()
    assert lines[0] == "Mag,id" and len(lines) == 1 + table.num_rows
    for line, row in zip(lines[1:], table.to_pylist(), strict=True):
        mag, number = line.split(",")
        assert (float(mag) if mag else None, int(number)) == (row["Mag"], row["id"])
    output = tmp_path / "rows.parquet"
    meridian.must("alerts", "region", "--files", files, "--circle", 0, 0, 0.2, "--format", "parquet", "--output", output)
    assert by_number(pq.read_table(output)) == by_number(opened.read(circle(0.0, 0.0, 0.2)))
    # Where there is nothing the columns are told.
    empty = opened.read(circle(40.0, 40.0, 1e-6), columns=["id", "name"])
    assert empty.num_rows == 0 and empty.schema.types == [pa.int64(), pa.string()]
    assert meridian.must("alerts", "region", "--files", files, "--circle", 40, 40, 1e-6, "--columns", "id,name").text == "id,name\n"
    everything = opened.read(box(*EVERYWHERE))
    assert everything.num_rows == opened.rows == STARS


def test_the_format_is_as_it_is_described(meridian: Meridian, data: Path, stars: pa.Table, files: Path) -> None:
    """Read without a reader: by the index, the directory and plain Arrow files."""
    index = json.loads((files / "index.json").read_text())
    assert (index["format"], index["version"]) == ("meridian-region-files", 1)
    assert (index["source"]["database"], index["source"]["table"]) == ("sky", "Star") and len(index["source"]["parts"]) == 1
    assert (index["key"], index["ra"], index["dec"], index["rows"]) == ("id", "ra", "dec", STARS)
    assert index["partitioning"] == {"stripes": DIRECTOR["stripes"], "sub_stripes": DIRECTOR["sub_stripes"]}
    assert [column["name"] for column in index["columns"]][:4] == ["id", "ra", "dec", "Mag"]
    assert [column.get("unit") for column in index["columns"]][:4] == [None, "deg", "deg", None]
    types = ["Int64", "Float64", "Float64", "Float32", "Utf8", "Boolean", "Int16", "Timestamp(µs)"]
    assert [column["type"] for column in index["columns"]] == types
    with pa.ipc.open_file(files / "directory.arrow") as reader:
        directory = reader.read_all().to_pylist()
    located = locate(meridian, stars)
    numbers = dict(zip(stars["id"].to_pylist(), located, strict=True))
    seen = []
    for chunk in index["chunks"]:
        path = files / "chunks" / f"chunk_{chunk['chunk']}.arrow"
        content = path.read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (chunk["bytes"], chunk["sha256"])
        with pa.ipc.open_file(pa.memory_map(str(path))) as reader:
            sizes = [reader.get_batch(number).num_rows for number in range(reader.num_record_batches)]
            rows = reader.read_all()
        assert all(size == index["rows_per_batch"] for size in sizes[:-1]) and sum(sizes) == chunk["rows"] == rows.num_rows
        own = directory[chunk["first_sub_chunk"] : chunk["first_sub_chunk"] + chunk["sub_chunks"]]
        assert chunk["bounds"] == bounds(rows)
        last = 0
        for entry in own:
            assert entry["first_row"] == last and entry["chunk"] == chunk["chunk"]
            part = rows.slice(entry["first_row"], entry["rows"])
            assert {numbers[number] for number in part["id"].to_pylist()} == {(entry["chunk"], entry["sub_chunk"])}
            assert part["id"].to_pylist() == sorted(part["id"].to_pylist())
            assert {name: entry[name] for name in chunk["bounds"]} == bounds(part)
            last += entry["rows"]
        assert last == chunk["rows"]
        seen += rows["id"].to_pylist()
    assert sorted(seen) == list(range(STARS))
    checked = subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=files, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    names = {str(path.relative_to(files)) for path in files.rglob("*") if path.is_file()}
    assert names == {"index.json", "SHA256SUMS", "directory.arrow"} | {f"chunks/chunk_{chunk['chunk']}.arrow" for chunk in index["chunks"]}


def locate(meridian: Meridian, stars: pa.Table) -> list[tuple[int, int]]:
    """The chunk and the sub-chunk of each star."""
    lines = "".join(f"{ra!r},{dec!r}\n" for ra, dec in zip(stars["ra"].to_pylist(), stars["dec"].to_pylist(), strict=True))
    cut = ["--stripes", DIRECTOR["stripes"], "--sub-stripes", DIRECTOR["sub_stripes"]]
    located = meridian.must("sky", "locate", *cut, stdin=lines).text
    numbers = [line.split(",")[2:] for line in located.splitlines()]
    return [(int(chunk), int(sub_chunk)) for chunk, sub_chunk in numbers]


def bounds(rows: pa.Table) -> dict[str, float]:
    ra, dec = rows["ra"].to_numpy(), rows["dec"].to_numpy()
    return {"ra_min": ra.min(), "dec_min": dec.min(), "ra_max": ra.max(), "dec_max": dec.max()}


def test_what_cannot_be_written_is_said(meridian: Meridian, data: Path, files: Path, tmp_path: Path) -> None:
    output = tmp_path / "none"
    for options, words in (
        (["--table", "Star", "--columns", "mag,colour"], "sky.Star has no column colour; it has id, ra, dec, Mag, name"),
        (["--table", "Comet"], "there is no table sky.Comet"),
        (["--table", "Bright"], "sky.Bright is a view"),
        (["--table", "Band"], "sky.Band is a replicated table, whose rows have no position"),
        (["--table", "Source"], "50 rows of sky.Source have no position: give --skip-unplaced"),
        ([], "sky is no alert database: name a table of it with --table"),
    ):
        outcome = meridian.run("alerts", "regions", "--data", data, "--db", "sky", "--output", output, *options)
        assert_rejected(outcome, words)
        assert not output.exists() and not Path(f"{output}.part").exists()
    outcome = meridian.run("alerts", "regions", "--data", data, "--db", "sky", "--table", "Star", "--output", files)
    assert_rejected(outcome, "it is there already, and not empty")
    said = write(meridian, data, output, "--table", "Source", "--skip-unplaced", "--columns", "id")
    assert "50 rows without a position were left out" in said
    sources = RegionFiles(output).read(box(*EVERYWHERE))
    assert sorted(sources["sid"].to_pylist()) == [n for n in range(500) if n % 10]


def test_what_cannot_be_read_is_said(meridian: Meridian, files: Path, tmp_path: Path) -> None:
    for options, words in (
        (["--circle", 1, 2, -3], "radius -3"),
        (["--circle", 1, 95, 3], "declination 95"),
        (["--box", 1, 5, 2, 3], "exchange the two"),
        (["--polygon", 0, 0, 1, 0, 1, 1, 0], "two numbers for each corner"),
        (["--polygon", 0, 0, 1, 1, 1, 0, 0, 1], "convex"),
        (["--circle", 1, 2, 3, "--padding", -1], "a padding of -1 degrees makes no sense"),
        (["--circle", 1, 2, 3, "--columns", "colour"], "the region files have no column colour; they have id, ra"),
        (["--circle", 1, 2, 3, "--columns", "id,ID"], "the column ID is asked for twice"),
    ):
        assert_rejected(meridian.run("alerts", "region", "--files", files, *options), words)
    assert meridian.run("alerts", "region", "--files", files).status == 2
    opened = RegionFiles(files)
    for region, options, words in (
        (circle(1, 2, -3), {}, "radius of -3"),
        (circle(1, 95, 3), {}, "95.0 is no declination"),
        (box(1, 5, 2, 3), {}, "exchange the two"),
        (polygon([(0, 0), (1, 1), (1, 0), (0, 1)]), {}, "not convex"),
        (polygon([(0, 90), (1, 1), (90, 90), (0, 90)]), {}, "3 different corners or more, not 2"),
        ("square 1", {}, "is no region"),
        (circle(1, 2, 3), {"padding": -1.0}, "a padding of -1.0 degrees makes no sense"),
        (circle(1, 2, 3), {"columns": ["colour"]}, "no column colour"),
        (circle(1, 2, 3), {"columns": ["id", "ID"]}, "asked for twice"),
    ):
        with pytest.raises(ValueError, match=words):
            opened.read(region, **options)  # type: ignore[arg-type]
    assert_rejected(meridian.run("alerts", "region", "--files", tmp_path, "--circle", 1, 2, 3), "there are no region files")
    with pytest.raises(RegionFilesError, match="there are no region files"):
        RegionFiles(tmp_path)


def test_files_that_are_cut_off_or_damaged_are_found(meridian: Meridian, files: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(files, copy)
    names = ["directory.arrow", str(max((copy / "chunks").iterdir(), key=lambda path: path.stat().st_size).relative_to(copy))]
    whole = [*options_of("box", EVERYWHERE, 0.0), "--columns", "id"]
    for name in names:
        content = (copy / name).read_bytes()
        for short in (content[:-1], content[: len(content) // 2], b""):
            (copy / name).write_bytes(short)
            assert_both_fail(meridian, copy, whole, f"{name} has {len(short)} bytes where the index says {len(content)}")
        flipped = bytearray(content)
        flipped[len(content) // 2] ^= 1
        (copy / name).write_bytes(flipped)
        words = "its checksum is not that of the index"
        assert_rejected(meridian.run("alerts", "region", "--files", copy, *whole, "--verify"), words)
        with pytest.raises(RegionFilesError, match=words):
            RegionFiles(copy, verify=True).read(box(*EVERYWHERE))
        (copy / name).unlink()
        assert_both_fail(meridian, copy, whole, "No such file")
        (copy / name).write_bytes(content)
    index = (copy / "index.json").read_bytes()
    for wrong, words in (
        (index[:-100], "no index of region files"),
        (index.replace(b'"version":1', b'"version":9'), "need another version of the reader"),
        (index.replace(b'"rows":%d,' % STARS, b'"rows":%d,' % (STARS + 1)), "do not fit together"),
        (b"[]", "no index of region files"),
    ):
        (copy / "index.json").write_bytes(wrong)
        assert_both_fail(meridian, copy, whole, words)
    (copy / "index.json").write_bytes(index)
    meridian.must("alerts", "region", "--files", copy, *whole, "--verify")
    RegionFiles(copy, verify=True).verify()


def assert_both_fail(meridian: Meridian, files: Path, options: list[object], words: str) -> None:
    assert_rejected(meridian.run("alerts", "region", "--files", files, *options), words)
    with pytest.raises(RegionFilesError) as failed:
        RegionFiles(files).read(box(*EVERYWHERE))
    assert words in str(failed.value)


def test_what_is_killed_is_whole_or_not_there(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    output, part = tmp_path / "killed", tmp_path / "killed.part"
    command = [meridian.binary, "alerts", "regions", "--data", data, "--db", "sky", "--table", "Star", "--output", output]
    for caught in ("chunks", "directory.arrow", "index.json"):
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # Either it is caught while it writes or it has written everything: both have to hold.
        while process.poll() is None and not (part / caught).exists():
            time.sleep(0.0005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if output.exists():
            assert RegionFiles(output, verify=True).read(box(*EVERYWHERE)).num_rows == STARS
            assert not part.exists()
            shutil.rmtree(output)
    write(meridian, data, output, "--table", "Star")
    assert RegionFiles(output, verify=True).rows == STARS
    assert not part.exists()


def test_a_full_disk_leaves_nothing(meridian: Meridian, data: Path, tiny_disk: Path) -> None:
    columns = "Mag,name,flag,small,seen"
    (tiny_disk / "ballast").write_bytes(bytes(1_500_000))
    outcome = meridian.run("alerts", "regions", "--data", data, "--db", "sky", "--table", "Star", "--columns", columns, "--output", tiny_disk / "out")
    assert_rejected(outcome, "No space left")
    assert [path.name for path in tiny_disk.iterdir()] == ["ballast"]


def test_live_objects_of_an_alert_database(meridian: Meridian, tmp_path: Path) -> None:
    """Each object that is live once, where its latest version is; nothing that is published later."""
    data = tmp_path / "data"
    create(meridian, data)
    outcome = meridian.run("alerts", "regions", "--data", data, "--db", "prompt", "--output", tmp_path / "none")
    assert_rejected(outcome, "nothing is published of prompt")
    with serving(meridian, data) as server:
        night = Night(server, 4)
        for number in range(2):
            night.change(25)
            night.publish(server)
            with server.connect(database="prompt") as connection:
                [[edition]] = execute(connection, "SELECT MAX(edition) FROM Edition")
            output = tmp_path / f"night-{number}"
            said = write(meridian, data, output, "--columns", "nDiaSources,validityStartMjdTai,firstDiaSourceMjdTai", db="prompt")
            latest = night.model.latest
            assert f"{len(latest)} rows of prompt.DiaObject as of edition {edition}" in said
            opened = RegionFiles(output, verify=True)
            assert (opened.index["source"]["table"], opened.index["source"]["edition"]) == ("DiaObject", edition)
            assert opened.index["key"] == "diaObjectId"
            columns = ["diaObjectId", "ra", "dec", "nDiaSources", "validityStartMjdTai", "firstDiaSourceMjdTai"]
            assert opened.schema.names == columns
            assert object_rows(opened.read(box(*EVERYWHERE))) == wanted_rows(list(latest.values()), columns)
            places = pa.table({"id": list(latest), "ra": [row["ra"] for row in latest.values()], "dec": [row["dec"] for row in latest.values()]})
            near = Sky(places).circle(359.9, 10.2, 0.6)
            wanted = wanted_rows([row for row, is_near in zip(latest.values(), near, strict=True) if is_near], columns)
            assert object_rows(opened.read(circle(359.9, 10.2, 0.6))) == wanted
            assert object_rows(read_by_program(meridian, output, "--circle", 359.9, 10.2, 0.6)) == wanted
            again = tmp_path / f"latest-{number}"
            write(meridian, data, again, "--table", "diaobjectlast", "--columns", "nDiaSources,validityStartMjdTai,firstDiaSourceMjdTai", db="prompt")
            assert RegionFiles(again).read(box(*EVERYWHERE)).equals(opened.read(box(*EVERYWHERE)))
    # A table of the database that has a position of its own.
    write(meridian, data, tmp_path / "homes", "--table", "DiaObjectHome", db="prompt")
    assert RegionFiles(tmp_path / "homes").rows >= len(night.model.latest)


def object_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


def wanted_rows(rows: list[dict[str, Any]], columns: list[str]) -> list[tuple[Any, ...]]:
    def value(of: Any) -> Any:
        return None if isinstance(of, float) and np.isnan(of) else of

    return sorted(tuple(value(row[column]) for column in columns) for row in rows)


def test_python_takes_numbers_of_numpy() -> None:
    text = circle(np.float64(1.5), np.float32(2.5), np.int64(3))
    assert text == "circle 1.5 2.5 3.0"
    assert box(*np.arange(4.0)) == "box 0.0 1.0 2.0 3.0"
    assert polygon(np.eye(3, 2)) == "polygon 1.0 0.0 0.0 1.0 0.0 0.0"
