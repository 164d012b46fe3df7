"""Geometry over TAP: how it is selected in every format, what is said of wrong geometry, rows whose geometry is none, coordinate systems and units."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import astropy.coordinates
import astropy.io.fits
import astropy.io.votable
import astropy.table
import astropy.units
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import pyvo

from meridian_cli import Meridian
from serving import Server, serving, wait_until
from test_tap import execute, error_of, job_of, rows_of, send, text_of

STARS = 600
# Rows of a table whose positions need not be ones: name, ra, dec, radius.
ODD: list[tuple[str, float | None, float | None, float | None]] = [
    ("plain", 10.0, 20.0, 1.0),
    ("wrapped", 370.0, 20.0, 1.0),
    ("west", -350.0, 20.0, 1.0),
    ("turns", 730.0, 20.0, 0.5),
    ("north", 10.0, 90.0, 2.0),
    ("beyond north", 10.0, 90.5, 2.0),
    ("beyond south", 10.0, -91.0, 2.0),
    ("over the pole", 190.0, 160.0, 2.0),
    ("far", 10.0, 380.0, 2.0),
    ("negative", 10.0, 20.0, -1.0),
    ("nothing", 10.0, 20.0, 0.0),
    ("whole sky", 200.0, -20.0, 180.0),
    ("too wide", 10.0, 20.0, 180.5),
    ("no radius", 10.0, 20.0, None),
    ("no dec", 10.0, None, 1.0),
    ("no ra", None, 20.0, 1.0),
    ("infinite", math.inf, 20.0, 1.0),
    ("infinite radius", 10.0, 20.0, math.inf),
]


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stars over the sky, whose proper motions have units, and a table of odd places."""
    directory = tmp_path_factory.mktemp("geometry")
    rng = np.random.default_rng(11)
    ra = rng.uniform(0.0, 360.0, STARS)
    dec = np.degrees(np.arcsin(rng.uniform(-1.0, 1.0, STARS)))
    table = astropy.table.Table(
        {"id": np.arange(STARS), "ra": ra * astropy.units.deg, "dec": dec * astropy.units.deg, "pm": rng.uniform(-50, 50, STARS), "flux": rng.uniform(0, 9, STARS)}
    )
    table["pm"].unit = "mas/yr"
    table["flux"].unit = "nJy"
    table["plain"] = table["flux"].value * 2
    table.write(directory / "Star.vot", format="votable")
    meridian.must("load", "--data", directory / "data", "--db", "sky", "--table", "Star", "--key", "id", "--ra", "ra", "--dec", "dec", "--stripes", 12, "--sub-stripes", 4, directory / "Star.vot")
    columns = {name: [row[at] for row in ODD] for at, name in enumerate(["name", "ra", "dec", "r"])}
    pq.write_table(pa.table({"id": list(range(len(ODD))), **columns}), directory / "Odd.parquet")
    meridian.load(directory / "data", "sky", "Odd", directory / "Odd.parquet", kind="replicated")
    return directory / "data"


@pytest.fixture(scope="module")
def server(meridian: Meridian, data: Path) -> Iterator[Server]:
    """A server of these tables."""
    with serving(meridian, data) as running:
        yield running


SHAPES = """SELECT id, POINT(ra, dec) AS p, CIRCLE(ra, dec, 1 + id) AS c, BOX(ra, 10, 2, 4) AS b, POLYGON(0, 0, 10, 0, 10, 10) AS t,
            CENTROID(CIRCLE(ra, dec, 1)) AS m FROM sky.Star WHERE id < 5 ORDER BY id"""


def expected_shapes(server: Server) -> list[dict[str, list[float]]]:
    """Points and circles of the first stars, as CSV has their numbers."""
    rows = rows_of(execute(server, "/tap/sync", QUERY="SELECT id, ra, dec FROM sky.Star WHERE id < 5 ORDER BY id", FORMAT="csv").text)
    places = [(int(row[0]), float(row[1]), float(row[2])) for row in rows]
    return [{"p": [ra, dec], "c": [ra, dec, 1.0 + n], "t": [0.0, 0.0, 10.0, 0.0, 10.0, 10.0], "m": [ra, dec]} for n, ra, dec in places]


def as_lists(values: object) -> list[list[float]]:
    """Arrays of a column as lists."""
    return [np.asarray(value, dtype=float).tolist() for value in values]  # type: ignore[attr-defined]


@pytest.mark.parametrize("form", ["votable", "votable/td", "csv", "tsv", "json", "fits", "parquet"])
def test_geometry_is_selected_in_every_format(server: Server, form: str) -> None:
    """It was an error 500 in all but Parquet: there was no form for lists."""
    expected = expected_shapes(server)
    job = job_of(server, QUERY=SHAPES, RESPONSEFORMAT=form, PHASE="RUN")
    wait_until(lambda: text_of(server, f"{job}/phase") == "COMPLETED", 20, "the job is completed")
    for answer in (execute(server, "/tap/sync", QUERY=SHAPES, FORMAT=form), execute(server, f"{job}/results/result")):
        assert answer.status == 200, answer.text
        if form in ("csv", "tsv"):
            lines = list(csv.DictReader(io.StringIO(answer.text), delimiter="," if form == "csv" else "\t"))
            found = {name: [[float(number) for number in line[name].split(" ")] for line in lines] for name in "pcbtm"}
        elif form == "json":
            document = json.loads(answer.text)
            names = [column["name"] for column in document["metadata"]]
            assert [column.get("xtype") for column in document["metadata"]] == [None, "point", "circle", "polygon", "polygon", "point"]
            assert [column.get("arraysize") for column in document["metadata"]] == [None, "2", "3", "*", "*", "2"]
            found = {name: [row[names.index(name)] for row in document["data"]] for name in "pcbtm"}
        elif form == "fits":
            with astropy.io.fits.open(io.BytesIO(answer.body)) as file:
                assert [file[1].columns[name].format for name in "pcbtm"] == ["2D", "3D", "8D", "6D", "2D"]
                assert file[1].header["TXTYP2"] == "point"
                found = {name: as_lists(file[1].data[name]) for name in "pcbtm"}
        elif form == "parquet":
            table = pq.read_table(io.BytesIO(answer.body))
            found = {name: table.column(name).to_pylist() for name in "pcbtm"}
        else:
            votable = astropy.io.votable.parse(io.BytesIO(answer.body)).get_first_table()
            about = {field.name: (field.datatype, field.arraysize, field.xtype, str(field.unit)) for field in votable.fields}
            assert about["p"] == about["m"] == ("double", "2", "point", "deg")
            assert about["c"] == ("double", "3", "circle", "deg")
            assert about["b"] == about["t"] == ("double", "*", "polygon", "deg")
            found = {name: as_lists(votable.array[name]) for name in "pcbtm"}
        for row, wanted in enumerate(expected):
            for name, numbers in wanted.items():
                assert found[name][row] == numbers, (name, row)
            assert len(found["b"][row]) == 8


@pytest.mark.parametrize("form", ["votable", "votable/td", "csv", "json", "fits", "parquet"])
def test_unknown_geometry_is_null_in_every_format(server: Server, form: str) -> None:
    query = "SELECT id, POINT(ra, dec) AS p, CIRCLE(ra, dec, r) AS c, ivo_healpix_index(3, ra, dec) AS h FROM sky.Odd WHERE name IN ('plain', 'no dec', 'beyond north') ORDER BY id"
    answer = execute(server, "/tap/sync", QUERY=query, FORMAT=form)
    assert answer.status == 200, answer.text
    if form == "csv":
        assert [row[1:3] for row in rows_of(answer.text)] == [["10.0 20.0", "10.0 20.0 1.0"], ["", ""], ["", ""]]
    elif form == "json":
        assert [row[1:3] for row in json.loads(answer.text)["data"]] == [[[10.0, 20.0], [10.0, 20.0, 1.0]], [None, None], [None, None]]
    elif form == "fits":
        with astropy.io.fits.open(io.BytesIO(answer.body)) as file:
            assert np.isnan(file[1].data["c"]).all(axis=1).tolist() == [False, True, True]
    elif form == "parquet":
        assert pq.read_table(io.BytesIO(answer.body)).column("p").to_pylist() == [[10.0, 20.0], None, None]
    else:
        array = astropy.io.votable.parse(io.BytesIO(answer.body)).get_first_table().array
        assert array["p"].mask.all(axis=1).tolist() == [False, True, True]
        assert array["p"][0].tolist() == [10.0, 20.0]


def test_pyvo_reads_geometry(server: Server) -> None:
    result = pyvo.dal.TAPService(server.url("/tap")).search("SELECT TOP 3 POINT(ra, dec) AS p, ivo_healpix_index(3, ra, dec) AS h FROM sky.Star")
    assert result.to_table()["p"].shape == (3, 2)
    assert result.fielddescs[0].xtype == "point"


def test_lists_of_several_lengths_have_no_form_in_fits(server: Server) -> None:
    """Arrays of FITS have one length. Lists that are no geometry are told apart from it."""
    polygons = "SELECT POLYGON(0, 0, 10, 0, 10, 10) AS p FROM sky.Odd UNION ALL SELECT BOX(10, 10, 2, 4) FROM sky.Odd"
    answer = execute(server, "/tap/sync", QUERY=polygons, FORMAT="fits")
    assert answer.status == 400 and "the column p has lists of 6 to 8 numbers" in error_of(answer)
    answer = execute(server, "/tap/sync", QUERY=polygons, FORMAT="csv")
    assert sorted({len(row[0].split(" ")) for row in rows_of(answer.text)}) == [6, 8]
    histogram = "SELECT ivo_histogram(dec, -90, 90, 4) AS h FROM sky.Star"
    found = astropy.io.votable.parse(io.BytesIO(execute(server, "/tap/sync", QUERY=histogram).body)).get_first_table()
    assert (found.fields[0].datatype, found.fields[0].arraysize, found.fields[0].xtype) == ("long", "*", None)
    assert sum(found.array["h"][0]) == STARS
    with astropy.io.fits.open(io.BytesIO(execute(server, "/tap/sync", QUERY=histogram, FORMAT="fits").body)) as file:
        assert file[1].columns["h"].format == "6K" and file[1].data["h"].sum() == STARS
    gathered = execute(server, "/tap/sync", QUERY="SELECT array_agg(ra) AS a FROM sky.Star WHERE id < 4")
    assert 'xtype="polygon"' not in gathered.text
    assert execute(server, "/tap/sync", QUERY="SELECT AREA(array_agg(ra)) AS a FROM sky.Star").status == 400


# Mistakes in geometry: wrong numbers, wrong counts, wrong types, alone and in the places where geometry stands.
NUMBERS = {
    "POINT": ["0, 91", "0, -90.1", "ra, 91", "1e400, 0", "0", "", "0, 0, 0", "'a', 'b'", "POINT(0, 0), 1", "name, dec", "0, 'x'", "TRUE, 0"],
    "CIRCLE": ["0, 0, -1", "0, 0, 181", "0, 95, 1", "ra, dec, -1", "ra, dec, 181", "ra, 95, 1", "0, 0", "0", "", "0, 0, 0, 0", "0, 0, 'x'", "POINT(0, 91), 1", "POINT(0, 0), -1", "CIRCLE(0, 0, 1), 1"],
    "BOX": ["0, 0, 0, 0", "0, 0, -1, 1", "0, 0, 180, 1", "0, 0, 1, 0", "0, 100, 1, 1", "ra, dec, 0, 0", "ra, dec, 1, 200", "ra, 100, 1, 1", "0, 0, 1", "0", "", "POINT(0, 0), 1", "0, 0, 1, 1, 1, 1"],
    "POLYGON": ["0, 0, 1, 1", "0, 0", "", "0, 0, 1, 1, 2", "0, 0, 10, 10, 10, 0, 0, 10", "0, 0, 1, 0, 2, 0", "0, 95, 1, 0, 2, 2", "POINT(0, 0), POINT(1, 1)", "0, 0, 120, 0, 240, 0", "0, 0, 0, 0, 0, 0", "'x', 0, 0, 1, 1"],
}  # fmt: skip
OTHERS = [
    "REGION('x')", "REGION('CIRCLE ICRS 1 2')", "REGION('CIRCLE ICRS 1 2 -3')", "REGION('POLYGON ICRS 1 2 3 4')", "REGION('BOX ICRS 0 0 0 0')",
    "REGION('CIRCLE ICRS 1 2 3 unit m')", "REGION('POSITION ICRS 0 99')", "REGION(name)", "REGION()", "REGION('UNION ICRS (CIRCLE 1 2)')",
    "CONTAINS(POINT(0, 0))", "CONTAINS(1, 2)", "CONTAINS(ra, CIRCLE(0, 0, 1))", "CONTAINS(POINT(0, 0), POINT(0, 0), 1)", "CONTAINS('a', 'b')",
    "INTERSECTS(POINT(0, 0), 7)", "INTERSECTS()", "DISTANCE(POINT(0, 0))", "DISTANCE(0, 0, 0)", "DISTANCE(POINT(0, 0), CIRCLE(0, 0, 1))",
    "DISTANCE(POINT(0, 95), POINT(0, 0))", "DISTANCE('a', 'b', 'c', 'd')", "AREA(1)", "AREA()", "AREA(POINT(0, 91))", "CENTROID('x')", "CENTROID(1, 2)",
    "COORD1(CIRCLE(0, 0, 1))", "COORD2(5)", "COORD1()", "COORDSYS('ICRS')", "COORDSYS()", "POINT('SUPER_GALACTIC', 1, 2)",
    "IN_UNIT(DISTANCE(0, 0, 1, 1), 'm')", "IN_UNIT(DISTANCE(0, 0, 1, 1), 'parsnip')", "IN_UNIT(ra)", "IN_UNIT(ra, 'm')", "IN_UNIT(plain, 'm')", "IN_UNIT(name, 'm')",
    "IN_UNIT(ra, ra)", "IN_UNIT(ra * dec, 'deg')", "IN_UNIT(1, 'deg')", "ivo_healpix_index(30, 1, 1)", "ivo_healpix_index(-1, ra, dec)", "ivo_healpix_center(0, 12)",
    "ivo_healpix_index(3, 0, 91)", "ivo_geom_transform('MARS', 'ICRS', POINT(0, 0))", "ivo_geom_transform('ICRS', 'GALACTIC', 5)", "ivo_epoch_prop_pos(0, 91, 0, 0, 0, 0, 2000, 2010)",
    "ivo_epoch_prop_pos(1)", "ivo_histogram(ra, 2, 0, 4)", "ivo_histogram(ra)", "ivo_to_jd('not a time')", "ivo_to_mjd(ra)", "ivo_interval_overlaps(1, 2)", "MOD(1)", "RAND(1, 2)",
    "SQRT('x')", "ABS()", "CAST('x' AS INTEGER)", "ROUND(1, 2, 3)", "POWER(2)", "LOG(1, 2)", "UPPER(1, 2)", "9223372036854775807 + 1",
]  # fmt: skip
MISTAKES = [f"{name}({arguments})" for name, lists in NUMBERS.items() for arguments in lists] + OTHERS


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_in_geometry_are_the_clients(server: Server, mistake: str) -> None:
    """Wrong constants were errors 500: an error without a number of its own was taken for the server's."""
    table = "sky.Odd" if "name" in mistake else "sky.Star"
    queries = [f"SELECT {mistake} AS x FROM {table}"]
    if mistake.split("(")[0] in NUMBERS or mistake.startswith("REGION"):
        queries += [
            f"SELECT COUNT(*) FROM {table} WHERE 1 = CONTAINS(POINT(ra, dec), {mistake})",
            f"SELECT COUNT(*) FROM {table} WHERE 1 = INTERSECTS({mistake}, CIRCLE(ra, dec, 1))",
        ]
    for query, form in itertools.product(queries, ["votable", "fits"]):
        answer = execute(server, "/tap/sync", QUERY=query, FORMAT=form)
        assert answer.status == 400, f"{query}: {answer.status} {answer.text}"
        sentence = error_of(answer)
        assert len(sentence) > 15 and "DataFusion" not in sentence and "Internal" not in sentence, sentence


def is_place(row: tuple[str, float | None, float | None, float | None]) -> bool:
    _, ra, dec, _ = row
    return ra is not None and dec is not None and math.isfinite(ra) and -90.0 <= dec <= 90.0


def is_circle(row: tuple[str, float | None, float | None, float | None]) -> bool:
    return is_place(row) and row[3] is not None and 0.0 <= row[3] <= 180.0


def angle(ra1: float, dec1: float, ra2: float, dec2: float) -> float:
    """Degrees, by astropy."""
    one, two = (astropy.coordinates.SkyCoord(ra, dec, unit="deg") for ra, dec in ((ra1, dec1), (ra2, dec2)))
    return float(one.separation(two).deg)


def csv_of(server: Server, query: str) -> list[list[str]]:
    answer = execute(server, "/tap/sync", QUERY=query, FORMAT="csv")
    assert answer.status == 200, f"{query}: {answer.text}"
    return rows_of(answer.text)


def test_rows_without_a_place_are_nowhere(server: Server) -> None:
    """Circles of a radius below 0 or above 180 and points beyond the poles contained things, as the formula of the distance happened to say."""
    rows = csv_of(
        server,
        """SELECT id, COORD1(POINT(ra, dec)), COORD2(POINT(ra, dec)), DISTANCE(POINT(ra, dec), POINT(10, 20)), DISTANCE(ra, dec, 10, 20),
           AREA(CIRCLE(ra, dec, r)), COORDSYS(CIRCLE(ra, dec, r)), COORD1(CENTROID(CIRCLE(ra, dec, r))), POINT(ra, dec), CIRCLE(ra, dec, r),
           CONTAINS(POINT(ra, dec), CIRCLE(10, 20, 100)), CONTAINS(POINT(10.5, 20), CIRCLE(ra, dec, r)), INTERSECTS(CIRCLE(ra, dec, r), BOX(10, 20, 1, 1)),
           CONTAINS(POINT(ra, dec), POLYGON(0, 0, 20, 0, 20, 40, 0, 40)), CONTAINS(POINT(10, 20), BOX(ra, dec, 1, 1)), CONTAINS(POINT(10.5, 20), CIRCLE(POINT(ra, dec), r))
           FROM sky.Odd ORDER BY id""",
    )
    for row, odd in zip(rows, ODD, strict=True):
        name, ra, dec, radius = odd
        _, ra1, dec1, d1, d2, area, system, ra2, point, circle, near, around, meets, inside, boxed, again = row
        if is_place(odd):
            assert ra is not None and dec is not None
            assert (float(ra1), float(dec1)) == (ra % 360.0, dec), name
            assert point == f"{ra % 360.0} {dec}"
            expected = angle(ra, dec, 10.0, 20.0)
            assert float(d1) == pytest.approx(expected, abs=1e-9) and d1 == d2, name
            assert (near, inside) == (str(int(expected <= 100)), str(int(expected < 1))), name
            assert boxed == str(int(expected < 0.1)), name
        else:
            assert (ra1, dec1, d1, d2, point, near, inside, boxed) == ("", "", "", "", "", "0", "0", "0"), name
        if is_circle(odd):
            assert ra is not None and dec is not None and radius is not None
            assert float(area) == pytest.approx(2 * math.pi * (1 - math.cos(math.radians(radius))) * math.degrees(1) ** 2, abs=1e-6)
            assert (system, float(ra2)) == ("ICRS", ra % 360.0)
            assert circle == f"{ra % 360.0} {dec} {radius}"
            holds = str(int(angle(ra, dec, 10.5, 20.0) <= radius))
            assert (around, again) == (holds, holds), name
        else:
            assert (area, system, ra2, circle, around, again, meets) == ("", "", "", "", "0", "0", "0"), name


@pytest.mark.parametrize(
    ("condition", "decides"),
    [
        ("1 = CONTAINS(POINT({p}.ra, {p}.dec), CIRCLE({c}.ra, {c}.dec, {c}.r))", "circle"),
        ("1 = INTERSECTS(CIRCLE({c}.ra, {c}.dec, {c}.r), POINT({p}.ra, {p}.dec))", "circle"),
        ("1 = CONTAINS(POINT({p}.ra, {p}.dec), CIRCLE(POINT({c}.ra, {c}.dec), {c}.r))", "circle"),
        ("DISTANCE(POINT({p}.ra, {p}.dec), POINT({c}.ra, {c}.dec)) <= {c}.r", "distance"),
        ("DISTANCE({p}.ra, {p}.dec, {c}.ra, {c}.dec) <= 2", "near"),
        ("1 = CONTAINS(POINT({p}.ra, {p}.dec), CIRCLE({c}.ra, {c}.dec, 2))", "near"),
        ("1 = INTERSECTS(CIRCLE({p}.ra, {p}.dec, 0.5), CIRCLE({c}.ra, {c}.dec, 1.5))", "near"),
    ],
)
@pytest.mark.parametrize("join", ["{p} JOIN {c} ON {on}", "{p} LEFT JOIN {c} ON {on}", "{p}, {c} WHERE {on}", "{p} JOIN {c} ON {on} AND {c}.id >= 0 AND {p}.name <> 'x'"])
def test_joins_know_no_places_beyond_the_poles(server: Server, condition: str, decides: str, join: str) -> None:
    """Each form of a condition, with the odd rows on both sides, beside a loop over all pairs."""
    on = condition.format(p="a", c="b")
    source = join.format(p="sky.Odd AS a", c="sky.Odd AS b", on=on).replace("sky.Odd AS b.id", "b.id").replace("sky.Odd AS a.name", "a.name")
    found = {(int(a), int(b)) for a, b in csv_of(server, f"SELECT a.id, b.id FROM {source}") if b}
    expected = set()
    for (a, one), (b, two) in itertools.product(enumerate(ODD), repeat=2):
        if not (is_place(one) and is_place(two)):
            continue
        assert one[1] is not None and one[2] is not None and two[1] is not None and two[2] is not None
        separation = angle(one[1], one[2], two[1], two[2])
        if decides == "circle":
            holds = is_circle(two) and separation <= two[3] + 1e-12  # type: ignore[operator]
        elif decides == "distance":
            holds = two[3] is not None and separation <= two[3] + 1e-12
        else:
            holds = separation <= 2.0
        if holds:
            expected.add((a, b))
    assert found == expected


def chunks_of(explained: list[tuple[object, ...]]) -> tuple[int, int]:
    """How many chunks of how many a plan reads."""
    found = re.search(r"(\d+) of (\d+) chunks", "\n".join(str(row[1]) for row in explained))
    assert found is not None, explained
    return int(found[1]), int(found[2])


FRAMES = {"FK5": "fk5", "J2000": "fk5", "GALACTIC": "galactic", "ECLIPTIC": "barycentricmeanecliptic", "FK4": "fk4", "B1950": "fk4"}


@pytest.mark.parametrize("system", FRAMES)
def test_coordinate_systems_are_turned(server: Server, meridian: Meridian, data: Path, system: str) -> None:
    """Of old queries: a cone given in another frame is the cone around the place that astropy finds."""
    # The matrix of FK4 and the obliquity of the ecliptic are those of older standards.
    close = {"fk4": 1e-4, "barycentricmeanecliptic": 1e-5}.get(FRAMES[system], 1e-6)
    for lon, lat in [(10.0, 20.0), (200.0, -60.0), (359.9, 0.1)]:
        ((ra, dec),) = csv_of(server, f"SELECT COORD1(POINT('{system}', {lon}, {lat})), COORD2(POINT('{system} GEOCENTER', {lon}, {lat}))")
        frame = {"fk4": astropy.coordinates.FK4NoETerms(equinox="B1950")}.get(FRAMES[system], FRAMES[system])
        place = astropy.coordinates.SkyCoord(lon, lat, unit="deg", frame=frame).icrs
        assert angle(float(ra), float(dec), float(place.ra.deg), float(place.dec.deg)) < close
        stars = csv_of(server, "SELECT id, ra, dec FROM sky.Star")
        inside = sorted(int(n) for n, a, d in stars if angle(float(a), float(d), float(ra), float(dec)) <= 20)
        forms = ["CIRCLE('{system}', {lon}, {lat}, {radius})", "CIRCLE('{system}', POINT({lon}, {lat}), {radius})", "REGION('Circle {system} {lon} {lat} {radius}')"]
        for form in forms:
            region = form.format(system=system, lon=lon, lat=lat, radius=20)
            found = csv_of(server, f"SELECT id FROM sky.Star WHERE 1 = CONTAINS(POINT('ICRS', ra, dec), {region}) ORDER BY id")
            assert [int(n) for (n,) in found] == inside, region
            small = form.format(system=system, lon=lon, lat=lat, radius=2)
            read, of = chunks_of(meridian.rows(data, "sky", f"EXPLAIN SELECT COUNT(*) FROM Star WHERE 1 = CONTAINS(POINT(ra, dec), {small})"))
            assert read * 3 < of, small
        # Two of the same system lie to each other as they would in any.
        same = csv_of(server, f"SELECT id FROM sky.Star WHERE 1 = CONTAINS(POINT('{system}', ra, dec), CIRCLE('{system}', {lon}, {lat}, 20)) ORDER BY id")
        assert same == csv_of(server, f"SELECT id FROM sky.Star WHERE 1 = CONTAINS(POINT(ra, dec), CIRCLE({lon}, {lat}, 20)) ORDER BY id")


def test_unknown_coordinate_systems_are_those_of_tables_with_a_warning(server: Server, meridian: Meridian, data: Path) -> None:
    query = "SELECT POINT('FK6', 1, 2) AS p, POINT('', 1, 2) AS q, POINT('ICRS', 1, 2) AS r FROM sky.Star WHERE id = 1"
    answer = execute(server, "/tap/sync", QUERY=query)
    document = astropy.io.votable.parse(io.BytesIO(answer.body))
    warnings = [info.value for info in document.resources[0].infos if info.name == "warning"]
    assert len(warnings) == 1 and '"FK6" of POINT is not known' in warnings[0], answer.text
    assert [document.get_first_table().array[name][0].tolist() for name in "pqr"] == [[1.0, 2.0]] * 3
    job = job_of(server, QUERY=query, PHASE="RUN")
    wait_until(lambda: text_of(server, f"{job}/phase") == "COMPLETED", 20, "the job is completed")
    assert "FK6" in execute(server, f"{job}/results/result").text
    outcome = meridian.run("sql", "--data", data, "--dialect", "adql", query)
    assert outcome.status == 0 and "FK6" in outcome.stderr


@pytest.mark.parametrize(
    ("expression", "value", "unit"),
    [
        ("ra", "ra", "deg"),
        ("-dec", "-dec", "deg"),
        ("2 * pm", "2 * pm", "mas/yr"),
        ("pm / 4", "pm / 4", "mas/yr"),
        ("flux", "flux", "nJy"),
        ("ABS(pm)", "ABS(pm)", "mas/yr"),
        ("(ra + dec) * 0.5", "(ra + dec) * 0.5", "deg"),
    ],
)
def test_columns_are_given_in_other_units(server: Server, expression: str, value: str, unit: str) -> None:
    targets = {"deg": ["arcsec", "rad", "mas", "arcmin", "deg"], "mas/yr": ["deg.d**-1", "arcsec/yr", "urad/s", "mas.yr**-1"], "nJy": ["Jy", "uJy", "W.m**-2.Hz**-1", "erg.s**-1.cm**-2.Hz**-1"]}
    for target in targets[unit]:
        rows = csv_of(server, f"SELECT {value}, IN_UNIT({expression}, '{target}') FROM sky.Star")
        factor = astropy.units.Unit(unit).to(astropy.units.Unit(target, format="vounit"))
        for plain, converted in rows:
            assert float(converted) == pytest.approx(float(plain) * factor, rel=1e-13)


def test_units_are_known_through_subqueries(server: Server) -> None:
    ((known,),) = csv_of(server, "SELECT MAX(ABS(pm)) FROM sky.Star")
    for query in [
        "SELECT IN_UNIT(MAX(ABS(pm)), 'arcsec/yr') FROM sky.Star",
        "SELECT IN_UNIT(m, 'arcsec/yr') FROM (SELECT MAX(ABS(s.pm)) AS m FROM sky.Star AS s) t",
        "WITH t AS (SELECT pm AS x FROM sky.Star UNION ALL SELECT -pm FROM sky.Star) SELECT MAX(IN_UNIT(x, 'arcsec/yr')) FROM t",
        "SELECT MAX(ABS(IN_UNIT(a.pm, 'arcsec/yr'))) AS m FROM sky.Star a JOIN sky.Odd b ON a.id >= b.id",
    ]:
        ((found,),) = csv_of(server, query)
        assert float(found) == pytest.approx(float(known) / 1000, rel=1e-13), query
    close = csv_of(server, "SELECT id FROM sky.Star WHERE IN_UNIT(ra, 'arcsec') < 36000 ORDER BY id")
    assert close == csv_of(server, "SELECT id FROM sky.Star WHERE ra < 10 ORDER BY id") and close
    separation = "SELECT IN_UNIT(d, 'arcmin') FROM (SELECT DISTANCE(POINT(ra, dec), POINT(0, 90)) AS d FROM sky.Star WHERE id = 3) t"
    ((found,),), ((dec,),) = csv_of(server, separation), csv_of(server, "SELECT dec FROM sky.Star WHERE id = 3")
    assert float(found) == pytest.approx((90 - float(dec)) * 60, rel=1e-9)


def test_uploaded_columns_have_units(server: Server) -> None:
    table = astropy.table.Table({"d": [1.0, 2.0] * astropy.units.pc})
    sink = io.BytesIO()
    table.write(sink, format="votable")
    answer = send(server, "/tap/sync", {"UPLOAD": "u,param:x", "QUERY": "SELECT IN_UNIT(d, 'lyr') FROM TAP_UPLOAD.u", "FORMAT": "csv"}, {"x": sink.getvalue()})
    assert [float(row[0]) for row in rows_of(answer.text)] == pytest.approx([3.261563777, 6.523127554], rel=1e-9)


def cells(text: str, order: int) -> set[int]:
    """The cells of an order that a MOC's text has, which has no deeper ones."""
    found: set[int] = set()
    at = -1
    for word in text.replace(",", " ").split():
        head, slash, rest = word.rpartition("/")
        at = int(head) if slash else at
        if not rest:
            continue
        first, _, last = rest.partition("-")
        factor = 4 ** (order - at)
        found.update(range(int(first) * factor, (int(last or first) + 1) * factor))
    return found


MAPS = ["1/1,3-4 2/4 25 12-14,21 3/62", "0/0-11", "3/0-40 100,200-210", "5/", "2/191 3/700-703", "4/1000\n4/1002 1/7"]


@pytest.mark.parametrize("text", MAPS)
def test_points_in_coverage_maps(server: Server, text: str) -> None:
    """Beside the numbers of the points' cells, which the service tells; the order of the map does not matter."""
    numbered = csv_of(server, "SELECT id, ivo_healpix_index(5, ra, dec) FROM sky.Star ORDER BY id")
    inside = [n for n, cell in numbered if int(cell) in cells(text, 5)]
    for condition in (f"1 = CONTAINS(POINT(ra, dec), MOC('{text}'))", f"INTERSECTS(MOC('{text}'), POINT(ra, dec)) = 1", f"NOT CONTAINS(POINT(ra, dec), MOC('{text}')) = 0"):
        assert [n for (n,) in csv_of(server, f"SELECT id FROM sky.Star WHERE {condition} ORDER BY id")] == inside, condition
    outside = csv_of(server, f"SELECT id FROM sky.Star WHERE 0 = CONTAINS(POINT(ra, dec), MOC('{text}')) ORDER BY id")
    assert len(outside) == STARS - len(inside)
    ((area,),) = csv_of(server, f"SELECT AREA(MOC('{text}'))")
    assert float(area) == pytest.approx(len(cells(text, 5)) / (12 * 4**5) * 41252.96124941927, abs=1e-9)


def test_indexes_of_rows_that_no_cell_has_give_null(server: Server) -> None:
    """One of them failed the query, where geometry that makes no sense in a row is NULL elsewhere."""
    found = csv_of(server, "SELECT id, ivo_healpix_center(0, id - 1) AS c FROM sky.Star WHERE id < 15 ORDER BY id")
    for number, centre in found:
        assert (centre != "") == (0 <= int(number) - 1 < 12), found
    assert {int(number) for number, _ in found} >= {1, 12, 13}


def test_maps_read_few_chunks(server: Server, meridian: Meridian, data: Path) -> None:
    few = meridian.rows(data, "sky", "EXPLAIN SELECT COUNT(*) FROM Star WHERE 1 = CONTAINS(POINT(ra, dec), MOC('5/77,4000,9001'))")
    read, of = chunks_of(few)
    assert read * 3 < of, few


def test_maps_of_maps(server: Server) -> None:
    for one, two in itertools.product(MAPS, repeat=2):
        a, b = cells(one, 5), cells(two, 5)
        ((contains, intersects),) = csv_of(server, f"SELECT CONTAINS(MOC('{one}'), MOC('{two}')), INTERSECTS(MOC('{one}'), MOC('{two}'))")
        assert (contains, intersects) == (str(int(a <= b)), str(int(bool(a & b)))), (one, two)


@pytest.mark.parametrize("shape", ["CIRCLE(10, 20, 5)", "CIRCLE(0, 90, 20)", "BOX(359, 0, 8, 3)", "POLYGON(0, 0, 30, 0, 30, 30, 15, 5)", "CIRCLE(200, -60, 120)", "POINT(33, 44)"])
@pytest.mark.parametrize("order", [0, 3, 6])
def test_maps_of_geometry_cover_it(server: Server, shape: str, order: int) -> None:
    """Every star of a shape is in its map, and every star of the map is near the shape: within the size of a cell."""
    ((text,),) = csv_of(server, f"SELECT MOC({order}, {shape})")
    assert cells(text, order), text
    both = csv_of(server, f"SELECT id, CONTAINS(POINT(ra, dec), {shape}), CONTAINS(POINT(ra, dec), MOC({order}, {shape})), CONTAINS(POINT(ra, dec), MOC('{text}')), INTERSECTS(CIRCLE(ra, dec, {130 / 2**order}), {shape}) FROM sky.Star")
    assert all(covered == again and inside <= covered <= near for _, inside, covered, again, near in both)
    if "CIRCLE" in shape:
        assert sum(covered == "1" for _, _, covered, _, _ in both) >= sum(inside == "1" for _, inside, _, _, _ in both) > 0
    each = csv_of(server, f"SELECT s.id, CONTAINS(POINT(o.ra, o.dec), MOC({order}, CIRCLE(s.ra, s.dec, 3))) FROM sky.Star s, sky.Odd o WHERE s.id < 50 AND o.name = 'plain'")
    stars = {n: (float(ra), float(dec)) for n, ra, dec in csv_of(server, "SELECT id, ra, dec FROM sky.Star WHERE id < 50")}
    assert all(covered == "1" for n, covered in each if angle(*stars[n], 10.0, 20.0) <= 3)


@pytest.mark.parametrize("form", ["votable", "votable/td", "csv", "json", "fits", "parquet"])
def test_maps_are_selected_as_texts(server: Server, form: str) -> None:
    query = "SELECT id, MOC('1/0-3 2/16') AS m, MOC(2, POINT(ra, dec)) AS p FROM sky.Odd WHERE name IN ('plain', 'no dec') ORDER BY id"
    answer = execute(server, "/tap/sync", QUERY=query, FORMAT=form)
    assert answer.status == 200, answer.text
    if form == "csv":
        assert [row[1:] for row in rows_of(answer.text)] == [["0/0 2/16", rows_of(answer.text)[0][2]], ["0/0 2/16", ""]]
    elif form == "json":
        assert [column.get("xtype") for column in json.loads(answer.text)["metadata"]] == [None, "moc", "moc"]
        assert [row[1] for row in json.loads(answer.text)["data"]] == ["0/0 2/16"] * 2
    elif form == "fits":
        with astropy.io.fits.open(io.BytesIO(answer.body)) as file:
            assert list(file[1].data["m"]) == ["0/0 2/16"] * 2
    elif form == "parquet":
        assert pq.read_table(io.BytesIO(answer.body)).column("m").to_pylist() == ["0/0 2/16"] * 2
    else:
        votable = astropy.io.votable.parse(io.BytesIO(answer.body)).get_first_table()
        assert [field.xtype for field in votable.fields] == [None, "moc", "moc"]
        assert list(votable.array["m"]) == ["0/0 2/16"] * 2


@pytest.mark.parametrize("mistake", ["MOC('x')", "MOC('30/1')", "MOC('1/48')", "MOC(1)", "MOC()", "MOC(30, CIRCLE(0, 0, 1))", "MOC(25, CIRCLE(0, 0, 30))", "MOC(1, 2)", "MOC('1/2', 3)", "CONTAINS(CIRCLE(0, 0, 1), MOC('1/2'))", "CENTROID(MOC('1/2'))", "DISTANCE(MOC('1/2'), POINT(1, 2))", "CONTAINS(MOC('1/2'), POINT(0, 0))", "MOC(-1, POINT(ra, dec))"])  # fmt: skip
def test_mistakes_in_maps_are_the_clients(server: Server, mistake: str) -> None:
    answer = execute(server, "/tap/sync", QUERY=f"SELECT {mistake} AS x FROM sky.Star")
    assert answer.status == 400 and len(error_of(answer)) > 15, f"{answer.status} {answer.text}"


# --- regions made of others -----------------------------------------------------------------------------------------------------------

CIRCLES = {"A": (40.0, 10.0, 50.0), "B": (80.0, 0.0, 40.0), "C": (60.0, -20.0, 30.0)}
COMPOUNDS = [
    ("UNION ICRS (A B)", lambda inside: inside["A"] | inside["B"]),
    ("Intersection ICRS (A B C)", lambda inside: inside["A"] & inside["B"] & inside["C"]),
    ("NOT (A)", lambda inside: ~inside["A"]),
    ("INTERSECTION (A NOT (UNION (B C)))", lambda inside: inside["A"] & ~(inside["B"] | inside["C"])),
    ("UNION (INTERSECTION (A B) INTERSECTION ICRS (B NOT(A) C))", lambda inside: (inside["A"] & inside["B"]) | (inside["B"] & ~inside["A"] & inside["C"])),
]


def compound(text: str) -> str:
    shape = {name: f"CIRCLE {ra} {dec} {radius}" for name, (ra, dec, radius) in CIRCLES.items()}
    return re.sub(r"\b[ABC]\b", lambda found: shape[found[0]], text)


@pytest.mark.parametrize(("text", "expected"), COMPOUNDS)
def test_regions_made_of_others(meridian: Meridian, data: Path, text: str, expected: Callable[[dict[str, np.ndarray]], np.ndarray]) -> None:
    """`REGION('UNION ...')` was an error."""
    stars = meridian.sql(data, "sky", "SELECT id, ra, dec FROM Star ORDER BY id")
    places = astropy.coordinates.SkyCoord(np.asarray(stars["ra"]), np.asarray(stars["dec"]), unit="deg")
    inside = {
        name: places.separation(astropy.coordinates.SkyCoord(ra, dec, unit="deg")).deg <= radius for name, (ra, dec, radius) in CIRCLES.items()
    }
    wanted = np.asarray(stars["id"])[expected(inside)].tolist()
    region = f"REGION('{compound(text)}')"
    conditions = [
        f"1 = CONTAINS(POINT(ra, dec), {region})", f"CONTAINS(POINT('ICRS', ra, dec), {region}) > 0", f"INTERSECTS({region}, POINT(ra, dec)) <> 0",
        f"NOT 0 = CONTAINS(POINT(ra, dec), {region})", f"CONTAINS(POINT(ra, dec), {region}) + 0 = 1",
    ]
    for condition in conditions:
        found = [row[0] for row in meridian.rows(data, "sky", f"SELECT id FROM Star WHERE {condition} ORDER BY id")]
        assert found == wanted and 0 < len(found) < STARS, condition
    values = meridian.rows(data, "sky", f"SELECT SUM(CONTAINS(POINT(ra, dec), {region})), SUM(1 - CONTAINS(POINT(ra, dec), {region})) FROM Star")
    assert values == [(len(wanted), STARS - len(wanted))]


def test_regions_made_of_others_read_few_chunks_and_know_no_unknown_points(meridian: Meridian, data: Path) -> None:
    explained = meridian.must("sql", "--data", data, "--db", "sky", "--dialect", "adql", "--format", "csv", "EXPLAIN SELECT id FROM Star WHERE 1 = CONTAINS(POINT(ra, dec), REGION('UNION ICRS (CIRCLE 10 10 1 CIRCLE 200 -40 1)'))")
    (read, there) = re.findall(r"(\d+) of (\d+) chunks", explained.text)[0]
    assert 1 <= int(read) <= 8 < int(there)
    # In galactic coordinates, as astropy turns them.
    galactic = "SELECT id FROM Star WHERE 1 = CONTAINS(POINT(ra, dec), REGION('NOT GALACTIC (UNION (CIRCLE 0 0 80 CIRCLE ICRS 10 10 20))')) ORDER BY id"
    stars = meridian.sql(data, "sky", "SELECT id, ra, dec FROM Star ORDER BY id")
    places = astropy.coordinates.SkyCoord(np.asarray(stars["ra"]), np.asarray(stars["dec"]), unit="deg")
    middle = astropy.coordinates.SkyCoord(0, 0, unit="deg", frame="galactic").icrs
    outside = (places.separation(middle).deg > 80) & (places.separation(astropy.coordinates.SkyCoord(10, 10, unit="deg")).deg > 20)
    assert [row[0] for row in meridian.rows(data, "sky", galactic)] == np.asarray(stars["id"])[outside].tolist()
    unknown = "SELECT name FROM Odd WHERE 1 = CONTAINS(POINT(ra, dec), REGION('NOT (CIRCLE 200 0 1)'))"
    known = "SELECT name FROM Odd WHERE COORD1(POINT(ra, dec)) IS NOT NULL"
    assert sorted(meridian.rows(data, "sky", unknown)) == sorted(meridian.rows(data, "sky", known))
    both = "SELECT COUNT(*) FROM Star WHERE 1 = INTERSECTS(CIRCLE(ra, dec, 5), REGION('UNION (CIRCLE 10 10 1 CIRCLE 20 20 2)'))"
    plain = "SELECT COUNT(*) FROM Star WHERE 1 = INTERSECTS(CIRCLE(ra, dec, 5), CIRCLE(10, 10, 1)) OR 1 = INTERSECTS(CIRCLE(ra, dec, 5), CIRCLE(20, 20, 2))"
    assert meridian.rows(data, "sky", both) == meridian.rows(data, "sky", plain)


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("1 = CONTAINS(CIRCLE(ra, dec, 1), REGION('UNION (CIRCLE 1 2 3 CIRCLE 4 5 6)'))", "give a POINT"),
        ("1 = INTERSECTS(CIRCLE(ra, dec, 1), REGION('NOT (CIRCLE 1 2 3)'))", "only a UNION"),
        ("1 = CONTAINS(REGION('NOT (CIRCLE 1 2 3)'), POINT(ra, dec))", "the second of CONTAINS"),
        ("AREA(REGION('UNION (CIRCLE 1 2 3)')) > 1", "is made of others"),
        ("1 = CONTAINS(POINT(ra, dec), REGION('UNION (CIRCLE 1 2 3'))", "closing parenthesis"),
        ("1 = CONTAINS(POINT(ra, dec), REGION('NOT (CIRCLE 1 2 -3)'))", "radius"),
        ("1 = CONTAINS(ra, REGION('NOT (CIRCLE 1 2 3)'))", "point"),
    ],
)
def test_regions_made_of_others_that_make_no_sense(meridian: Meridian, data: Path, condition: str, words: str) -> None:
    outcome = meridian.run("sql", "--data", data, "--db", "sky", "--dialect", "adql", f"SELECT id FROM Star WHERE {condition}")
    assert outcome.status == 1 and words in outcome.complaint, outcome.complaint
