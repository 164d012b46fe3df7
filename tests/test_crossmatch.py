"""`nearest()` and `crossmatch()` of the program: tables, queries and files, against loops over all pairs."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from complaints import assert_rejected, points_at
from meridian_cli import Meridian
from small_tables import DIRECTOR, write_lines

ARCSEC = 3600.0
# Arcseconds: the separations of the oracle are computed otherwise, and none of the radii below is that of a pair.
CLOSE = 1e-7


@dataclass(frozen=True)
class Star:
    """A row of any catalogue here."""

    id: int
    ra: float
    dec: float


Pair = tuple[int, int]


def separation(a: Star, b: Star) -> float:
    """The angle between two stars in arcseconds, by the haversine formula."""
    ra_a, dec_a, ra_b, dec_b = map(math.radians, (a.ra, a.dec, b.ra, b.dec))
    h = (
        math.sin((dec_b - dec_a) / 2) ** 2
        + math.cos(dec_a) * math.cos(dec_b) * math.sin((ra_b - ra_a) / 2) ** 2
    )
    return math.degrees(2 * math.asin(math.sqrt(min(1.0, h)))) * ARCSEC


def within(left: list[Star], right: list[Star], radius: float) -> dict[Pair, float]:
    """All pairs within a radius (arcseconds), and their separations."""
    pairs = ((a, b, separation(a, b)) for a in left for b in right)
    return {(a.id, b.id): s for a, b, s in pairs if s <= radius}


def nearest(pairs: dict[Pair, float], end: int) -> dict[int, float]:
    """The smallest separation of each row of an end."""
    found: dict[int, float] = {}
    for pair, s in pairs.items():
        found[pair[end]] = min(s, found.get(pair[end], math.inf))
    return found


def best(pairs: dict[Pair, float], *ends: int) -> set[Pair]:
    """The pairs than which none of these ends has a nearer one."""
    nearest_of = {end: nearest(pairs, end) for end in ends}
    return {pair for pair, s in pairs.items() if all(s == nearest_of[end][pair[end]] for end in ends)}


def stars(count: int, first: int, seed: int) -> list[Star]:
    """Clumps at the seam, at a pole and elsewhere; no two stars at the same place, nor equally far from a third."""
    rng = np.random.default_rng(seed)
    centres = [(0.0, 0.0), (10.0, 90.0), (200.0, -60.0), (359.9, 45.0)]
    rows = []
    for number in range(count):
        ra, dec = centres[number % len(centres)]
        # None of them at the pole itself, where all right ascensions are the same place.
        dec = 90.0 - abs(90.0 - (dec + rng.uniform(-0.02, 0.02)))
        ra = (ra + rng.uniform(-0.02, 0.02) / max(math.cos(math.radians(dec)), 1e-3)) % 360.0
        rows.append(Star(first + number, float(ra), float(dec)))
    return rows


LEFT = stars(160, 0, 11)
RIGHT = stars(120, 1000, 12)


def csv_file(path: Path, rows: list[Star], header: str = "id,ra,dec") -> Path:
    """A CSV file of stars."""
    return write_lines(path, [f"{s.id},{s.ra!r},{s.dec!r}" for s in rows], header=header)


def parquet_file(path: Path, rows: list[Star]) -> Path:
    """A Parquet file of stars with the names that VizieR gives."""
    columns = {"id": [s.id for s in rows], "RAJ2000": [s.ra for s in rows], "DEJ2000": [s.dec for s in rows]}
    pq.write_table(pa.table(columns), path)
    return path


VOTABLE = """<?xml version="1.0"?>
<VOTABLE version="1.4" xmlns="http://www.ivoa.net/xml/VOTable/v1.3"><RESOURCE type="results"><TABLE>
<FIELD name="id" datatype="long"/>
<FIELD name="Lon" datatype="double" ucd="pos.eq.ra;meta.main" unit="deg"/>
<FIELD name="Lat" datatype="double" ucd="pos.eq.dec;meta.main" unit="deg"/>
<FIELD name="remark" datatype="char" arraysize="*"/>
<DATA>{rows}</DATA></TABLE></RESOURCE></VOTABLE>
"""


def tabledata(path: Path, rows: list[Star]) -> Path:
    """A VOTable of stars, in elements."""
    cells = [f"<TR><TD>{s.id}</TD><TD>{s.ra!r}</TD><TD>{s.dec!r}</TD><TD>a &amp; b</TD></TR>" for s in rows]
    path.write_text(VOTABLE.format(rows="<TABLEDATA>\n" + "\n".join(cells) + "\n</TABLEDATA>"), encoding="utf-8")
    return path


def binary2(path: Path, rows: list[Star]) -> Path:
    """A VOTable of stars, in base64."""
    packed = b"".join(struct.pack(">Bqddi", 0, s.id, s.ra, s.dec, 0) for s in rows)
    text = base64.encodebytes(packed).decode("ascii")
    stream = f'<BINARY2><STREAM encoding="base64">\n{text}</STREAM></BINARY2>'
    path.write_text(VOTABLE.format(rows=stream), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Star (a director), Galaxy (another, of another database) and Target (replicated, the stars of the right)."""
    directory = tmp_path_factory.mktemp("crossmatch")
    left, right = csv_file(directory / "left.csv", LEFT), csv_file(directory / "right.csv", RIGHT)
    meridian.load(directory / "data", "sky", "Star", left, **DIRECTOR)
    meridian.load(directory / "data", "deep", "Galaxy", right, **{**DIRECTOR, "stripes": 9, "sub_stripes": 2})
    meridian.load(directory / "data", "sky", "Target", right, kind="replicated")
    return directory / "data"


FILES: dict[str, tuple[str, Callable[[Path, list[Star]], Path]]] = {
    "csv": ("read_csv('{}')", csv_file),
    "parquet": ("read_parquet('{}')", parquet_file),
    "tabledata": ("read_votable('{}')", tabledata),
    "binary2": ("read_votable('{}')", binary2),
}
TABLES = ["deep.Galaxy", "Target", "(SELECT id, ra, dec FROM deep.galaxy WHERE id >= 1000)"]


def right_side(kind: str, directory: Path) -> str:
    """The right side of a call: a table, or a file that is written for it."""
    if kind not in FILES:
        return kind
    function, write = FILES[kind]
    return function.format(write(directory / f"right.{kind}", RIGHT))


@pytest.mark.parametrize("kind", [*TABLES, *FILES])
@pytest.mark.parametrize("radius", [3.0, 30.0])
def test_every_find_and_join(meridian: Meridian, data: Path, tmp_path: Path, kind: str, radius: float) -> None:
    side = right_side(kind, tmp_path)
    pairs = within(LEFT, RIGHT, radius)
    wanted = {"all": set(pairs), "best": best(pairs, 0, 1), "best1": best(pairs, 0), "best2": best(pairs, 1)}
    for find, expected in wanted.items():
        rows = meridian.rows(data, "sky", f"SELECT * FROM crossmatch(Star, {side}, {radius}, '{find}')")
        found = {(row[0], row[3]): row[-1] for row in rows}
        assert len(found) == len(rows)
        assert set(found) == expected, (find, side)
        assert all(math.isclose(s, pairs[pair], rel_tol=0, abs_tol=CLOSE) for pair, s in found.items())
        if find == "best2":
            continue
        alone = {star.id for star in LEFT} - {left for left, _ in expected}
        rows = meridian.rows(data, "sky", f"SELECT id FROM crossmatch(Star, {side}, {radius}, '{find}', '1not2')")
        assert sorted(rows) == sorted((left,) for left in alone)
        rows = meridian.rows(data, "sky", f"SELECT * FROM crossmatch(Star, {side}, {radius}, '{find}', 'all1')")
        assert {(row[0], row[3]) for row in rows} == expected | {(left, None) for left in alone}


@pytest.mark.parametrize("kind", [*FILES])
def test_the_nearest_of_the_rows_of_a_file(meridian: Meridian, data: Path, tmp_path: Path, kind: str) -> None:
    side = right_side(kind, tmp_path)
    rows = meridian.rows(data, "sky", f"SELECT * FROM nearest({side}, Star, 20, 2)")
    pairs = within(RIGHT, LEFT, 20)
    wanted = {}
    for right in RIGHT:
        own = sorted((s, pair) for pair, s in pairs.items() if pair[0] == right.id)
        wanted.update({pair: s for s, pair in own[:2]})
    width = len(rows[0]) - 1
    found = {(row[0], row[width - 3]): row[-1] for row in rows}
    assert set(found) == set(wanted)
    assert all(math.isclose(s, wanted[pair], rel_tol=0, abs_tol=CLOSE) for pair, s in found.items())


def test_a_condition_on_the_right_chooses_among_matches(meridian: Meridian, data: Path) -> None:
    pairs = within(LEFT, RIGHT, 60)
    for find, expected in {"best": best(pairs, 0, 1), "best1": best(pairs, 0)}.items():
        query = f"SELECT id_1, id_2 FROM crossmatch(Star, deep.Galaxy, 60, '{find}') WHERE id_2 % 2 = 0 AND id_1 % 3 > 0"
        found = set(meridian.rows(data, "sky", query))
        assert found == {(left, right) for left, right in expected if right % 2 == 0 and left % 3 > 0}
        assert len(found) > 5


def test_a_region_of_the_left_side_is_all_that_is_read(meridian: Meridian, data: Path) -> None:
    query = "SELECT * FROM crossmatch(Star, deep.Galaxy, 5) WHERE scisql_s2PtInCircle(ra_1, dec_1, 200, -60, 0.1) = 1"
    plan = "\n".join(str(row[1]) for row in meridian.rows(data, "sky", f"EXPLAIN {query}"))
    assert "CrossmatchExec: each other's nearest" in plan
    assert "by circle" in plan
    assert "around the other side's rows" in plan
    expected = {pair for pair in best(within(LEFT, RIGHT, 5), 0, 1) if pair[0] % 4 == 2}
    assert {(row[0], row[3]) for row in meridian.rows(data, "sky", query)} == expected


def test_files_are_tables_alone(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    side = right_side("tabledata", tmp_path)
    answer = meridian.sql(data, "sky", f"SELECT * FROM {side} WHERE id < 1003 ORDER BY id")
    assert answer.column_names == ["id", "Lon", "Lat", "remark"]
    assert answer.column("remark").to_pylist() == ["a & b"] * 3
    counts = [meridian.rows(data, "sky", f"SELECT count(*) FROM {right_side(kind, tmp_path)}") for kind in FILES]
    assert counts == [[(len(RIGHT),)]] * len(FILES)
    joined = f"SELECT count(*) FROM {side} f JOIN Target t ON f.id = t.id WHERE f.lat = t.dec"
    assert meridian.rows(data, "sky", joined) == [(len(RIGHT),)]


def test_a_votable_can_be_loaded(meridian: Meridian, tmp_path: Path) -> None:
    file = binary2(tmp_path / "right.vot", RIGHT)
    meridian.load(tmp_path / "data", "sky", "Star", file, **{**DIRECTOR, "ra": "Lon", "dec": "Lat"})
    rows = meridian.rows(tmp_path / "data", "sky", "SELECT id, Lon, Lat FROM Star")
    assert sorted(rows) == sorted((s.id, s.ra, s.dec) for s in RIGHT)


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ("crossmatch(Star, Target, 1, 'closest')", ["closest", "'best', 'best1', 'best2' or 'all'"]),
        ("crossmatch(Star, Target, 1, 'best', 'all2')", ["all2", "'1and2', 'all1' or '1not2'"]),
        ("crossmatch(Star, Target)", ["needs two tables and a radius"]),
        ("crossmatch(Star, Target, -1)", ["the radius is a number of arcseconds from 0 to 648000"]),
        ("nearest(Star, Target, 1, 0)", ["a whole number from 1"]),
    ],
)
def test_wrong_arguments_are_pointed_at(meridian: Meridian, data: Path, item: str, words: list[str]) -> None:
    outcome = meridian.run("sql", "--data", data, "--db", "sky", f"SELECT count(*)\nFROM {item}")
    assert points_at(assert_rejected(outcome, *words), item.split("(", maxsplit=1)[0])


def test_what_is_wrong_with_a_file_is_told(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    def rejected(item: str, *words: str) -> None:
        query = f"SELECT count(*) FROM crossmatch(Star, {item}, 1)"
        assert_rejected(meridian.run("sql", "--data", data, "--db", "sky", query), *words)

    good = csv_file(tmp_path / "good.csv", RIGHT)
    rejected("read_csv('nowhere.csv')", "there is no file nowhere.csv")
    rejected(f"read_parquet('{good}')", "good.csv", "not a Parquet file")
    rejected(f"read_votable('{good}')", "good.csv", "not a VOTable file")
    rejected("read_csv(3)", "takes the path of one file")
    unknown = csv_file(tmp_path / "unknown.csv", RIGHT, header="id,alpha,delta")
    rejected(f"read_csv('{unknown}')", "position", "right_ra =>", "alpha, delta")
    lines = unknown.read_text(encoding="utf-8").splitlines()
    ragged = write_lines(tmp_path / "ragged.csv", ["1,10,10", "2,20", *lines[1:4]], header="id,ra,dec")
    rejected(f"read_csv('{ragged}')", "ragged.csv:3")
    broken = tabledata(tmp_path / "broken.vot", RIGHT[:9])
    text = broken.read_text(encoding="utf-8")
    broken.write_text(text.replace(f"<TD>{RIGHT[4].ra!r}</TD>", "<TD>ten</TD>"), encoding="utf-8")
    rejected(f"read_votable('{broken}')", "broken.vot:12", '"ten"', "Lon")


def test_columns_of_a_position_can_be_named(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    file = csv_file(tmp_path / "named.csv", RIGHT, header="id,Alpha,Delta")
    item = f"crossmatch(Star, read_csv('{file}'), radius => 5, right_ra => alpha, right_dec => 'Delta')"
    found = {(row[0], row[1]) for row in meridian.rows(data, "sky", f"SELECT id_1, id_2 FROM {item}")}
    assert found == best(within(LEFT, RIGHT, 5), 0, 1)
