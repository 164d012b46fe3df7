"""The queries of spatial joins: pairs within a radius in a box of Object, and the nearest match in another catalogue.

Pairs are ordered and every row is its own neighbour, as in the published SHV1. Both rows of a pair lie in the box.

Each peer is asked the way that its users are advised to. DuckDB and ClickHouse join on cells as wide as the radius,
one side copied into the cells around, and compare squared chords of unit vectors; PostgreSQL uses `q3c_join`.
"""

from __future__ import annotations

import math

from .query import JOIN, Pairs, Query

ARCSECOND = 1.0 / 3600.0
SHV1_DEGREES = 0.1
NEAR_DEGREES = 0.02
MATCH_DEGREES = ARCSECOND
# Cells are this much wider than the radius: right ascensions at one separation grow apart a little faster than 1/cos.
CELL_MARGIN = 1.0001

COLOUR = "(MAG({t}gFlux_PS) - MAG({t}rFlux_PS))"
COLOUR_CUT = f" AND abs({COLOUR.format(t='a.')} - {COLOUR.format(t='b.')}) < {{colour}}"

WORKS = {
    "count": "",
    "sum": ", and the sum of their separations",
    "cut": ", of colours that differ by less than about 0.1 magnitudes",
}
NOT_ALL_PAIRS = {
    "mariadb": "no index for the rows around each row",
    "stilts": "keeps an object in memory for each pair",
    "lsdb": "finds a fixed number of neighbours, not all",
}
NO_MATCH = {"mariadb": NOT_ALL_PAIRS["mariadb"]}


def vectors(ra: str, dec: str, narrow: str, radius: float) -> str:
    """Columns of a unit vector, and of the cell of a position: `narrow` is the least cosine of the declinations."""
    cell = radius * CELL_MARGIN
    return (
        f"cos(radians({dec})) * cos(radians({ra})) AS x, cos(radians({dec})) * sin(radians({ra})) AS y,"
        f" sin(radians({dec})) AS z, CAST(floor({dec} / {cell!r}) AS INTEGER) AS zone,"
        f" CAST(floor({ra} * {narrow} / {cell!r}) AS INTEGER) AS cell"
    )


def chord_squared(a: str, b: str) -> str:
    """The squared chord between two rows' unit vectors."""
    return " + ".join(f"({a}.{axis} - {b}.{axis}) * ({a}.{axis} - {b}.{axis})" for axis in "xyz")


def from_chord(chord: str) -> str:
    """Degrees of a separation from its squared chord."""
    return f"2 * degrees(asin(sqrt({chord}) / 2))"


def chord_limit(radius: float) -> str:
    """The squared chord of a radius in degrees."""
    return repr(4 * math.sin(math.radians(radius) / 2) ** 2)


# One side of a join on cells, copied into the nine cells around each of its rows.
COPIES = {
    "duckdb": "(SELECT {t}.*, zone + dz AS zone9, cell + dc AS cell9 FROM {t},"
    " (VALUES (-1), (0), (1)) zones(dz), (VALUES (-1), (0), (1)) cells(dc))",
    # It computes one arrayJoin for two that are written alike.
    "clickhouse": "(SELECT {t}.*, zone + arrayJoin([-1, 0, 1]) AS zone9, cell + arrayJoin([0, -1, 1]) AS cell9 FROM {t})",
}
# Common table expressions are computed once in DuckDB if they are told to; ClickHouse has none of that.
ONCE = {"duckdb": "AS MATERIALIZED", "clickhouse": "AS"}


def selected(work: str, separation: str) -> str:
    """What is asked of all pairs."""
    return f"count(*) AS n, sum({separation}) AS total" if work == "sum" else "count(*) AS n"


def pairs_on_cells(dialect: str, pairs: Pairs) -> str:
    """Pairs in a box by an equality join on cells."""
    box = box_condition(pairs.box)
    columns = vectors("ra_PS", "decl_PS", f"{{{pairs.box}_narrow}}", pairs.radius)
    colour = f", {COLOUR.format(t='')} AS colour" if pairs.work == "cut" else ""
    chord = chord_squared("a", "b")
    cut = " AND abs(a.colour - b.colour) < {colour}" if pairs.work == "cut" else ""
    return (
        f"WITH p {ONCE[dialect]} (SELECT {columns}{colour} FROM Object WHERE {box})"
        f" SELECT {selected(pairs.work, from_chord(chord))} FROM {COPIES[dialect].format(t='p')} AS b JOIN p AS a"
        f" ON a.zone = b.zone9 AND a.cell = b.cell9 WHERE {chord} < {chord_limit(pairs.radius)}{cut}"
    )


def match_on_cells(dialect: str, radius: float) -> str:
    """The nearest match by an equality join on cells."""
    columns = vectors("ra", "decl", "{match_narrow}", radius)
    chord = chord_squared("o", "i")
    return (
        f"WITH optical AS (SELECT opticalId, {columns} FROM Optical),"
        f" infrared {ONCE[dialect]} (SELECT {columns} FROM Infrared)"
        f" SELECT count(*) AS n, sum({from_chord('chord')}) * 3600 AS total FROM (SELECT o.opticalId, min({chord}) AS chord"
        f" FROM {COPIES[dialect].format(t='infrared')} AS i JOIN optical AS o ON o.zone = i.zone9 AND o.cell = i.cell9"
        f" WHERE {chord} < {chord_limit(radius)} GROUP BY o.opticalId) AS nearest"
    )


def box_condition(box: str, table: str = "") -> str:
    """A position within the exact box."""
    return (
        f"{table}ra_PS BETWEEN {{{box}_ra0}} AND {{{box}_ra1}} AND {table}decl_PS BETWEEN {{{box}_dec0}} AND {{{box}_dec1}}"
    )


def pairs_query(name: str, title: str, pairs: Pairs) -> Query:
    """All pairs within a radius in a box."""
    box, radius, work = pairs.box, pairs.radius, pairs.work
    positions = "a.ra_PS, a.decl_PS, b.ra_PS, b.decl_PS"
    corners = ", ".join(f"{{{box}_{bound}}}" for bound in ("ra0", "dec0", "ra1", "dec1"))
    cut = COLOUR_CUT if work == "cut" else ""
    separation = f"scisql_angSep({positions})"
    # OFFSET 0 keeps the planner from comparing all rows with all: it takes q3c_join for more selective than the index.
    near = f"LATERAL (SELECT * FROM Object o WHERE q3c_join(a.ra_PS, a.decl_PS, o.ra_PS, o.decl_PS, {radius!r}) OFFSET 0) b"
    sides = "".join(f', "{bound}": %({box}_{bound})r' for bound in ("ra0", "ra1", "dec0", "dec1"))
    texts = {
        "meridian": f"SELECT {selected(work, separation)} FROM Object a, Object b"
        f" WHERE qserv_areaspec_box({corners}) AND {separation} < {radius!r}{cut}",
        "duckdb": pairs_on_cells("duckdb", pairs),
        "clickhouse": pairs_on_cells("clickhouse", pairs),
        "postgres": f"SELECT {selected(work, f'q3c_dist({positions})')} FROM Object a, {near}"
        f" WHERE {box_condition(box, 'a.')} AND {box_condition(box, 'b.')}{cut}",
        "python": f'{{"method": "pairs", "work": "{work}", "radius": {radius!r}, "colour": %(colour)r{sides}}}',
    }
    return Query(name, title + WORKS[work], JOIN, "", texts, pairs=pairs, left_out=NOT_ALL_PAIRS)


MATCH_IN_MERIDIAN = "SELECT count(*) AS n, sum(separation) AS total FROM nearest(Optical, Infrared, 1.0)"


def match_query() -> Query:
    """The nearest row of Infrared within an arcsecond of each row of Optical: how many have one, and how far off in all."""
    positions = "o.ra, o.decl, i.ra, i.decl"
    texts = {
        "meridian": MATCH_IN_MERIDIAN,
        "duckdb": match_on_cells("duckdb", MATCH_DEGREES),
        "clickhouse": match_on_cells("clickhouse", MATCH_DEGREES),
        "postgres": "SELECT count(*) AS n, sum(nearest) * 3600 AS total FROM Optical o,"
        f" LATERAL (SELECT q3c_dist({positions}) AS nearest FROM Infrared i"
        f" WHERE q3c_join({positions}, {MATCH_DEGREES!r}) ORDER BY nearest LIMIT 1) AS matches",
        "python": f'{{"method": "match", "radius": {MATCH_DEGREES!r}}}',
    }
    title = "nearest match within 1 arcsec of each row of Optical in Infrared"
    return Query("match", title, JOIN, "", texts, tables=("Optical", "Infrared"), left_out=NO_MATCH)


def _all_works(name: str, title: str, box: str, radius: float, works: tuple[str, ...]) -> list[Query]:
    return [
        pairs_query(name + (work if work != "count" else ""), title, Pairs(box, radius, work)) for work in works
    ]


NEIGHBOUR_QUERIES = [
    *_all_works("SHV1", "pairs within 0.1 degree in {shv1:g} square degrees", "shv1", SHV1_DEGREES, tuple(WORKS)),
    *_all_works("SHV1part", "pairs within 0.1 degree in {part:g} square degrees", "part", SHV1_DEGREES, tuple(WORKS)),
    *_all_works("near", "pairs within 0.02 degree in {near:g} square degrees", "near", NEAR_DEGREES, ("count", "cut")),
    match_query(),
]
