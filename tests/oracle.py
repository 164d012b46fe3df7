"""The independent engine: DuckDB on the raw rows, with sky functions of its own.

Nothing here is shared with Meridian. Angular separation is the haversine formula, regions are decided with numpy by
their textbook definitions, magnitudes by their logarithms. FLOAT columns are widened to double first, because Meridian
computes with them in double precision.
"""

from __future__ import annotations

from collections.abc import Callable

import duckdb
import numpy as np
import pyarrow as pa

ARCSEC = 1.0 / 3600.0

MACROS = """
CREATE MACRO haversine(ra1, dec1, ra2, dec2) AS pow(sin(radians(dec2 - dec1) / 2), 2)
    + cos(radians(dec1)) * cos(radians(dec2)) * pow(sin(radians(ra2 - ra1) / 2), 2);
CREATE MACRO scisql_angSep(ra1, dec1, ra2, dec2) AS degrees(2 * atan2(
    sqrt(haversine(ra1, dec1, ra2, dec2)), sqrt(greatest(0.0, 1.0 - haversine(ra1, dec1, ra2, dec2)))));
CREATE MACRO angSep(ra1, dec1, ra2, dec2) AS scisql_angSep(ra1, dec1, ra2, dec2);
CREATE MACRO scisql_fluxToAbMag(f) AS CASE WHEN f > 0 THEN -2.5 * log10(f) - 48.6 END;
CREATE MACRO fluxToAbMag(f) AS scisql_fluxToAbMag(f);
CREATE MACRO scisql_abMagToFlux(m) AS pow(10.0, (m + 48.6) / -2.5);
CREATE MACRO scisql_fluxToAbMagSigma(f, s) AS CASE WHEN f > 0 THEN 1.085736204758129569 * s / f END;
CREATE MACRO scisql_s2PtInBox(ra, dec, ra1, dec1, ra2, dec2) AS
    in_box(ra::DOUBLE, dec::DOUBLE, [ra1, dec1, ra2, dec2]::DOUBLE[]);
CREATE MACRO scisql_s2PtInCircle(ra, dec, ra0, dec0, r) AS
    in_circle(ra::DOUBLE, dec::DOUBLE, [ra0, dec0, r]::DOUBLE[]);
CREATE MACRO scisql_s2PtInEllipse(ra, dec, ra0, dec0, a, b, pa) AS
    in_ellipse(ra::DOUBLE, dec::DOUBLE, [ra0, dec0, a, b, pa]::DOUBLE[]);
CREATE MACRO scisql_s2PtInCPoly
    (ra, dec, a1, d1, a2, d2, a3, d3) AS
        in_polygon(ra::DOUBLE, dec::DOUBLE, [a1, d1, a2, d2, a3, d3]::DOUBLE[]),
    (ra, dec, a1, d1, a2, d2, a3, d3, a4, d4) AS
        in_polygon(ra::DOUBLE, dec::DOUBLE, [a1, d1, a2, d2, a3, d3, a4, d4]::DOUBLE[]),
    (ra, dec, a1, d1, a2, d2, a3, d3, a4, d4, a5, d5) AS
        in_polygon(ra::DOUBLE, dec::DOUBLE, [a1, d1, a2, d2, a3, d3, a4, d4, a5, d5]::DOUBLE[]);
"""


def unit_vectors(ra: np.ndarray, dec: np.ndarray) -> np.ndarray:
    """Positions in degrees as rows of x, y, z."""
    lon, lat = np.radians(ra), np.radians(dec)
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=-1)


def separation_degrees(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The angle between unit vectors, accurate at every size."""
    crossed = np.linalg.norm(np.cross(one, other), axis=-1)
    return np.degrees(np.arctan2(crossed, np.sum(one * other, axis=-1)))


def inside_box(ra: np.ndarray, dec: np.ndarray, ra1: float, dec1: float, ra2: float, dec2: float) -> np.ndarray:
    """A box between two meridians and two parallels, all edges inside; it passes RA 0 if ra1 > ra2."""
    within = (dec >= dec1) & (dec <= dec2)
    if ra2 - ra1 >= 360.0:
        return within
    west, east, lon = ra1 % 360.0, ra2 % 360.0, np.mod(ra, 360.0)
    if west <= east:
        return within & (lon >= west) & (lon <= east)
    return within & ((lon >= west) | (lon <= east))


def inside_circle(ra: np.ndarray, dec: np.ndarray, ra0: float, dec0: float, radius: float) -> np.ndarray:
    """All points within `radius` degrees of the centre."""
    return separation_degrees(unit_vectors(ra, dec), unit_vectors(np.array(ra0), np.array(dec0))) <= radius


def inside_ellipse(
    ra: np.ndarray, dec: np.ndarray, ra0: float, dec0: float, semi_major: float, semi_minor: float, angle: float
) -> np.ndarray:
    """A spherical ellipse: distances to the two foci add up to at most the major axis.

    Axes in arcseconds; `angle` in degrees from north through east.
    """
    major, minor = np.radians(semi_major * ARCSEC), np.radians(semi_minor * ARCSEC)
    focus = np.arccos(min(1.0, np.cos(major) / np.cos(minor)))
    lon, lat, turn = np.radians(ra0), np.radians(dec0), np.radians(angle)
    centre = unit_vectors(np.array(ra0), np.array(dec0))
    north = np.array([-np.sin(lat) * np.cos(lon), -np.sin(lat) * np.sin(lon), np.cos(lat)])
    east = np.array([-np.sin(lon), np.cos(lon), 0.0])
    along = np.cos(turn) * north + np.sin(turn) * east
    points = unit_vectors(ra, dec)
    to_one = separation_degrees(points, np.cos(focus) * centre + np.sin(focus) * along)
    to_other = separation_degrees(points, np.cos(focus) * centre - np.sin(focus) * along)
    return to_one + to_other <= 2.0 * np.degrees(major)


def inside_polygon(ra: np.ndarray, dec: np.ndarray, *corners: float) -> np.ndarray:
    """A convex polygon of great-circle arcs, its corners (ra, dec, ra, dec, ...) in either order."""
    vertices = unit_vectors(np.array(corners[0::2]), np.array(corners[1::2]))
    poles = np.cross(vertices, np.roll(vertices, -1, axis=0))
    if np.sum(poles[0] * vertices.mean(axis=0)) < 0.0:
        poles = -poles
    return np.all(unit_vectors(ra, dec) @ poles.T >= 0.0, axis=-1)


def region_function(inside: Callable[..., np.ndarray]) -> Callable[..., pa.Array]:
    """Makes a predicate on numpy arrays a DuckDB function that gives 1 or 0; a NULL position is in no region.

    The region's numbers come as a list, the same for all rows.
    """

    def decide(ra: pa.Array, dec: pa.Array, region: pa.Array) -> pa.Array:
        known = ~(np.asarray(ra.is_null()) | np.asarray(dec.is_null()))
        answer = np.zeros(len(ra), dtype=np.int32)
        if known.any():
            lon, lat = ra.to_numpy(zero_copy_only=False), dec.to_numpy(zero_copy_only=False)
            answer[known] = inside(lon[known], lat[known], *region[0].as_py())
        return pa.array(answer)

    return decide


REGION_FUNCTIONS = {
    "in_box": inside_box,
    "in_circle": inside_circle,
    "in_ellipse": inside_ellipse,
    "in_polygon": inside_polygon,
}


def connect() -> duckdb.DuckDBPyConnection:
    """A DuckDB connection with the sky functions."""
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    for name, inside in REGION_FUNCTIONS.items():
        connection.create_function(
            name,
            region_function(inside),
            ["DOUBLE", "DOUBLE", "DOUBLE[]"],
            "INTEGER",
            type="arrow",
            null_handling="special",
        )
    connection.execute(MACROS)
    return connection


def add_table(connection: duckdb.DuckDBPyConnection, name: str, rows: pa.Table) -> None:
    """Makes a table of DuckDB, FLOAT columns widened to double."""
    fields = [pa.field(field.name, pa.float64()) if pa.types.is_float32(field.type) else field for field in rows.schema]
    widened = rows.cast(pa.schema(fields))
    connection.register("rows_to_add", widened)
    connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM rows_to_add')
    connection.unregister("rows_to_add")
