"""The benchmark's spatial joins: its queries against loops over all pairs, and what is asked of whom."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import REPOSITORY
from meridian_cli import Meridian as Program

sys.path.insert(0, str(REPOSITORY / "bench"))

from meridian_bench import match_tables  # noqa: E402
from meridian_bench.__main__ import query_names  # noqa: E402
from meridian_bench.catalogue import Catalogue, Sky, open_catalogue  # noqa: E402
from meridian_bench.comparison import difference  # noqa: E402
from meridian_bench.constants import Constants  # noqa: E402
from meridian_bench.contenders.base import Contender, Setup  # noqa: E402
from meridian_bench.contenders.duckdb import DuckDB  # noqa: E402
from meridian_bench.contenders.meridian import Meridian  # noqa: E402
from meridian_bench.neighbour_queries import NEIGHBOUR_QUERIES  # noqa: E402
from meridian_bench.query import Query  # noqa: E402
from meridian_bench.queries import QUERIES, queries_for  # noqa: E402
from meridian_bench.reckoning import reason_to_leave_out  # noqa: E402
from meridian_bench.sizes import SIZES  # noqa: E402

ROWS = 3_000
# Degrees: all rows lie in a square of this side.
SIDE = 0.3
BOXES = {"shv1": 0.2, "part": 0.1, "near": 0.25}
SKY = Sky(40.0, 40.0 + SIDE, 30.0, 30.0 + SIDE, [(1, 40.1, 30.1), (2, 40.2, 30.15)], ROWS / SIDE**2)


def separations(ra1: np.ndarray, dec1: np.ndarray, ra2: np.ndarray, dec2: np.ndarray) -> np.ndarray:
    """Degrees between positions in degrees, by the haversine."""
    across, up = np.radians(ra1 - ra2) / 2, np.radians(dec1 - dec2) / 2
    cosines = np.cos(np.radians(dec1)) * np.cos(np.radians(dec2))
    return np.degrees(2 * np.arcsin(np.sqrt(np.sin(up) ** 2 + cosines * np.sin(across) ** 2)))


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    """Objects far from the equator, where cells of right ascension are narrower, some with fluxes that have no colour."""
    directory = tmp_path_factory.mktemp("neighbours")
    rng = np.random.default_rng(5)
    fluxes = {f"{band}Flux_PS": 10.0 ** rng.uniform(-30, -29, ROWS) for band in "gr"}
    fluxes["gFlux_PS"][::7] = np.nan
    fluxes["rFlux_PS"][::11] *= -1
    table = {
        "objectId": pa.array(rng.permutation(ROWS), pa.int64()),
        "ra_PS": pa.array(40.0 + SIDE * rng.random(ROWS)),
        "decl_PS": pa.array(30.0 + SIDE * rng.random(ROWS)),
        **{name: pa.array(values, pa.float32(), from_pandas=True) for name, values in fluxes.items()},
    }
    (directory / "Object").mkdir()
    pq.write_table(pa.table(table), directory / "Object" / "rows.parquet")
    return match_tables.prepare(directory / "match", open_catalogue(directory, "made here"), ROWS)


@pytest.fixture(scope="module", params=["meridian", "duckdb"])
def contender(
    request: pytest.FixtureRequest, catalogue: Catalogue, meridian: Program, tmp_path_factory: pytest.TempPathFactory
) -> Contender:
    """One that has loaded the catalogue and can be asked."""
    home = tmp_path_factory.mktemp(request.param) / "home"
    setup = Setup(home, catalogue.tables, 1, 2**30, meridian.binary)
    found: Contender = {"meridian": Meridian, "duckdb": DuckDB}[request.param](setup)
    for table in catalogue.tables.values():
        found.load(table)
    found.start()
    request.addfinalizer(found.stop)
    return found


def columns(catalogue: Catalogue, table: str) -> dict[str, np.ndarray]:
    """All columns of a table."""
    rows = pq.read_table(Path(catalogue.tables[table].files[0]).parent)
    return {name: rows.column(name).to_numpy() for name in rows.column_names}


def pairs_by_loop(catalogue: Catalogue, query: Query, constants: dict[str, object]) -> pa.Table:
    """The answer to a query of pairs, from all rows with all rows."""
    assert query.pairs is not None
    box, work = query.pairs.box, query.pairs.work
    rows = columns(catalogue, "Object")
    ra, dec = rows["ra_PS"], rows["decl_PS"]
    ra0, ra1, dec0, dec1 = (constants[f"{box}_{bound}"] for bound in ("ra0", "ra1", "dec0", "dec1"))
    inside = (ra >= ra0) & (ra <= ra1) & (dec >= dec0) & (dec <= dec1)
    ra, dec = ra[inside], dec[inside]
    apart = separations(ra[:, None], dec[:, None], ra[None, :], dec[None, :])
    near = apart < query.pairs.radius
    if work == "sum":
        return pa.table({"n": [int(near.sum())], "total": [float(apart[near].sum())]})
    if work == "cut":
        with np.errstate(invalid="ignore"):
            g, r = (-2.5 * np.log10(rows[f"{band}Flux_PS"][inside].astype(np.float64)) for band in "gr")
        near &= np.abs((g - r)[:, None] - (g - r)[None, :]) < constants["colour"]
    return pa.table({"n": [int(near.sum())]})


def match_by_loop(catalogue: Catalogue) -> pa.Table:
    """How many rows of Optical have a row of Infrared within an arcsecond, and arcseconds to the nearest in all."""
    optical, infrared = columns(catalogue, "Optical"), columns(catalogue, "Infrared")
    nearest = [
        separations(ra, dec, infrared["ra"], infrared["decl"]).min()
        for ra, dec in zip(optical["ra"], optical["decl"], strict=True)
    ]
    found = [one * 3600 for one in nearest if one < 1 / 3600]
    return pa.table({"n": [len(found)], "total": [sum(found)]})


@pytest.mark.parametrize("query", NEIGHBOUR_QUERIES, ids=lambda query: query.name)
def test_a_spatial_join_counts_what_a_loop_counts(
    contender: Contender, catalogue: Catalogue, query: Query
) -> None:
    """And asked with a radius that is a little less, which loses pairs, Meridian does not."""
    constants = Constants(SKY, 11, BOXES).draw()
    expected = pairs_by_loop(catalogue, query, constants) if query.pairs else match_by_loop(catalogue)
    assert expected.column("n")[0].as_py() > ROWS / 3
    dialect = "meridian" if isinstance(contender, Meridian) else "duckdb"
    text = query.asked_in(dialect, constants, [])
    assert text is not None
    assert difference(contender.to_arrow(contender.execute(text)), expected) is None
    if dialect == "meridian":
        radius = f"< {query.pairs.radius!r}" if query.pairs else ", 1.0)"
        smaller = f"< {query.pairs.radius * 0.97!r}" if query.pairs else ", 0.97)"
        assert radius in text
        wrong = contender.to_arrow(contender.execute(text.replace(radius, smaller)))
        assert difference(wrong, expected) is not None


def test_one_pair_of_many_too_few_and_a_wrong_digit_of_a_sum_are_caught() -> None:
    right = pa.table({"n": [7_853_981_234], "total": [523_598_776.25]})
    assert difference(right, pa.table({"n": [7_853_981_234], "total": [523_598_776.25 * (1 + 1e-12)]})) is None
    assert difference(right, pa.table({"n": [7_853_981_233], "total": [523_598_776.25]})) is not None
    assert difference(right, pa.table({"n": [7_853_981_234], "total": [523_598_776.25 * (1 + 1e-8)]})) is not None


def test_a_peer_is_left_out_of_what_takes_too_long_or_too_much_memory() -> None:
    """Of the large box at the standard size, and not of the small one; Meridian never."""
    sky = replace(SKY, density=50_000.0)
    standard = Constants(sky, 1, SIZES["standard"].boxes)
    queries = {query.name: query for query in NEIGHBOUR_QUERIES}
    assert reason_to_leave_out("postgres", queries["SHV1"], standard) == "would take about 131 minutes"
    assert reason_to_leave_out("postgres", queries["SHV1part"], standard) == ""
    assert "GB of memory" in reason_to_leave_out("astropy", queries["SHV1"], standard)
    assert "fixed number" in reason_to_leave_out("lsdb", queries["near"], standard)
    assert all(reason_to_leave_out("meridian", query, standard) == "" for query in queries.values())
    tiny = Constants(sky, 1, SIZES["tiny"].boxes)
    for name in ("duckdb", "chdb", "postgres", "astropy", "scipy"):
        assert not any(reason_to_leave_out(name, query, tiny) for query in queries.values())


def test_the_catalogues_of_the_match_are_the_same_each_time(catalogue: Catalogue, tmp_path: Path) -> None:
    """Half of the rows are seen again, near where they were, in another order."""
    again = match_tables.prepare(tmp_path / "match", catalogue, ROWS)
    for name in ("Optical", "Infrared"):
        assert again.tables[name].rows == catalogue.tables[name].rows
        for column, values in columns(catalogue, name).items():
            assert np.array_equal(values, columns(again, name)[column]), (name, column)
    optical, infrared = columns(again, "Optical"), columns(again, "Infrared")
    assert len(infrared["ra"]) == len(optical["ra"]) / 2
    seen = np.sort(optical["decl"][::2])
    assert np.allclose(np.sort(infrared["decl"]), seen, atol=5 * match_tables.SCATTER_ARCSECONDS / 3600)
    assert not np.array_equal(np.argsort(infrared["decl"]), np.arange(len(seen)))


def test_objects_at_right_ascension_0_are_not_matched(tmp_path: Path) -> None:
    """A peer that joins on cells of right ascension would take both sides of it for far apart."""
    (tmp_path / "Object").mkdir()
    rows = {"objectId": [1, 2, 3], "ra_PS": [0.001, 359.9999, 0.01], "decl_PS": [0.0, 60.0, 60.0]}
    pq.write_table(pa.table(rows), tmp_path / "Object" / "rows.parquet")
    ra, _ = match_tables.first_positions(open_catalogue(tmp_path, "made here").tables["Object"], 3)
    assert ra.tolist() == [0.01]


def test_queries_can_be_chosen() -> None:
    """In whatever case; the tables that nobody asks for are then not loaded."""
    assert query_names("shv1,MATCH") == ["SHV1", "match"]
    with pytest.raises(Exception, match="there is no query shv3: choose from LV1, "):
        query_names("shv3")
    chosen = queries_for(["Object", "Source", "Optical", "Infrared"], [], ["match"])
    assert [query.name for query in chosen] == ["match"]
    assert len({query.name.lower() for query in QUERIES}) == len(QUERIES)
