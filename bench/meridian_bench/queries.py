"""The queries: each one's text, by dialect where they differ, and which constants it takes (see `query.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from .neighbour_queries import NEIGHBOUR_QUERIES
from .query import LOOKUP, SCAN, Query

NINE = "objectId, ra_PS, decl_PS, uFlux_PS, gFlux_PS, rFlux_PS, iFlux_PS, zFlux_PS, yFlux_PS"


def box_texts(select: str, prefix: str = "", table: str = "", rest: str = "") -> tuple[str, dict[str, str]]:
    """A query of a box: each database with the condition that its own index answers, and the exact box."""
    names = {bound: "{" + prefix + bound + "}" for bound in ("ra0", "ra1", "dec0", "dec1", "polygon", "zones")}
    ra, dec = f"{table}ra_PS", f"{table}decl_PS"
    exact = f"{ra} BETWEEN {names['ra0']} AND {names['ra1']} AND {dec} BETWEEN {names['dec0']} AND {names['dec1']}"
    cells = (
        f"{table}zone BETWEEN floor({names['dec0']} * 4) AND floor({names['dec1']} * 4)"
        f" AND {table}cell BETWEEN floor({names['ra0']} * 4) AND floor({names['ra1']} * 4)"
    )
    polygon = f"q3c_poly_query({ra}, {dec}, ARRAY[{names['polygon']}]::float8[])"
    # Listed one by one, so that its index is read for each zone's range of right ascension alone.
    zones = f"{table}zone IN ({names['zones']})"
    return f"{select} WHERE {exact}{rest}", {
        "clickhouse": f"{select} WHERE {cells} AND {exact}{rest}",
        "postgres": f"{select} WHERE {polygon} AND {exact}{rest}",
        "mariadb": f"{select} WHERE {zones} AND {exact}{rest}",
    }


def box_query(name: str, title: str, kind: str, select: str, **options: object) -> Query:
    """A query of a box."""
    box = {key: options.pop(key) for key in ("prefix", "table", "rest") if key in options}
    text, texts = box_texts(select, **box)  # type: ignore[arg-type]
    return Query(name, title, kind, text, texts, **options)  # type: ignore[arg-type]


HAVERSINE = (
    "2 * asin(sqrt(pow(sin(radians(decl_PS - {cone_dec}) / 2), 2) + cos(radians(decl_PS)) * cos(radians({cone_dec}))"
    " * pow(sin(radians(ra_PS - {cone_ra}) / 2), 2))) <= radians({cone_radius})"
)
CONE_BOX = "decl_PS BETWEEN {cone_dec0} AND {cone_dec1} AND ra_PS BETWEEN {cone_ra0} AND {cone_ra1}"
CONE_CELLS = (
    "zone BETWEEN floor({cone_dec0} * 4) AND floor({cone_dec1} * 4)"
    " AND cell BETWEEN floor({cone_ra0} * 4) AND floor({cone_ra1} * 4)"
)
CONE_ZONES = "zone IN ({cone_zones})"

QUERIES = [
    Query(
        "LV1",
        "all columns of one object by objectId",
        LOOKUP,
        "SELECT COLUMNS FROM Object WHERE objectId = {key}",
        cold=True,
    ),
    Query(
        "LV2",
        "light curve of one object",
        LOOKUP,
        "SELECT taiMidPoint, MAG(psfFlux) AS mag, MAGERR(psfFlux, psfFluxErr) AS magErr, ra, decl FROM Source"
        " WHERE objectId = {key}",
        tables=("Source",),
    ),
    box_query(
        "LV3",
        "count in 1 square degree with three colour cuts",
        LOOKUP,
        "SELECT count(*) AS n FROM Object",
        rest=" AND MAG(zFlux_PS) BETWEEN {z_mag} AND {z_mag_end} AND MAG(gFlux_PS) - MAG(rFlux_PS) BETWEEN 0.3 AND 0.4"
        " AND MAG(iFlux_PS) - MAG(zFlux_PS) BETWEEN 0.1 AND 0.12",
    ),
    Query(
        "LV4",
        "the latest source of one object",
        LOOKUP,
        "SELECT s.ra, s.decl FROM Object o JOIN Source s ON o.objectId = s.objectId WHERE o.objectId = {key}"
        " AND s.taiMidPoint = (SELECT max(taiMidPoint) FROM Source WHERE objectId = {key})",
        tables=("Object", "Source"),
    ),
    Query(
        "cone",
        "cone of 60 arcsec, all columns",
        LOOKUP,
        "",
        {
            "meridian": "SELECT COLUMNS FROM Object"
            " WHERE scisql_s2PtInCircle(ra_PS, decl_PS, {cone_ra}, {cone_dec}, {cone_radius}) = 1",
            "duckdb": f"SELECT COLUMNS FROM Object WHERE {CONE_BOX} AND {HAVERSINE}",
            "clickhouse": f"SELECT COLUMNS FROM Object WHERE {CONE_CELLS} AND {CONE_BOX} AND {HAVERSINE}",
            "postgres": "SELECT COLUMNS FROM Object"
            " WHERE q3c_radial_query(ra_PS, decl_PS, {cone_ra}, {cone_dec}, {cone_radius})",
            "mariadb": f"SELECT COLUMNS FROM Object WHERE {CONE_ZONES} AND {CONE_BOX} AND {HAVERSINE}",
            "python": '{"method": "cone", "ra": %(cone_ra)r, "dec": %(cone_dec)r, "radius": %(cone_radius)r}',
        },
        cold=True,
        left_out={"scipy": "a tree of places, without the columns"},
    ),
    Query("HV1", "count of all objects", SCAN, "SELECT count(*) AS n FROM Object"),
    Query(
        "HV2",
        "colour cut over all objects, 9 columns out",
        SCAN,
        f"SELECT {NINE} FROM Object WHERE MAG(iFlux_PS) - MAG(zFlux_PS) > {{cut}}",
        cold=True,
    ),
    Query(
        "HV2b",
        "count by magnitude",
        SCAN,
        "SELECT count(*) AS n FROM Object WHERE MAG(zFlux_PS) BETWEEN {mag} AND {mag_end}",
        cold=True,
    ),
    Query("HV2c", "count by flux", SCAN, "SELECT count(*) AS n FROM Object WHERE gFlux_PS > {g_flux}"),
    Query(
        "HV3",
        "density: count and means by chunk",
        SCAN,
        "SELECT chunkId, count(*) AS n, avg(ra_PS) AS ra, avg(decl_PS) AS decl FROM Object GROUP BY chunkId",
        by_chunk=True,
    ),
    Query(
        "groups",
        "counts and mean fluxes by flags",
        SCAN,
        "SELECT flags, count(*) AS n, avg(rFlux_PS) AS flux FROM Object WHERE gFlux_PS > {g_flux} GROUP BY flags",
        columns=("flags",),
    ),
    box_query(
        "J1",
        "objectId of Source joined with Object in 1 square degree",
        SCAN,
        "SELECT o.objectId FROM Object o JOIN Source s ON o.objectId = s.objectId",
        table="o.",
        tables=("Object", "Source"),
    ),
    box_query(
        "SHV2",
        "Object joined with Source in 30 square degrees, mean flux",
        SCAN,
        "SELECT count(*) AS n, avg(s.psfFlux) AS flux FROM Object o JOIN Source s ON o.objectId = s.objectId",
        prefix="wide_",
        table="o.",
        tables=("Object", "Source"),
    ),
    Query(
        "epochs",
        "sources of each object, the ten with most",
        SCAN,
        "SELECT objectId, count(*) AS n, avg(psfFlux) AS flux FROM Source WHERE psfFlux > {psf_flux}"
        " GROUP BY objectId ORDER BY n DESC, objectId LIMIT 10",
        tables=("Source",),
    ),
    *NEIGHBOUR_QUERIES,
]


def queries_for(tables: Sequence[str], columns: Sequence[str], chosen: Sequence[str] = ()) -> list[Query]:
    """Those that a catalogue of these tables and columns of Object can answer; of these the chosen ones, if any are."""
    possible = [q for q in QUERIES if set(q.tables) <= set(tables) and set(q.columns) <= set(columns)]
    return [q for q in possible if not chosen or q.name in chosen]
