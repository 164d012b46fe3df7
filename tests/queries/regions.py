"""Regions of the synthetic sky: circles, boxes, ellipses, polygons, in every way in which a query can name them."""

from __future__ import annotations

from comparison import Tolerance
from queries import Case, same_rows

OBJECTS = "SELECT objectId, ra_PS, decl_PS FROM Object WHERE {where}"
SOURCES = "SELECT sourceId, objectId FROM Source WHERE {where}"
IN_BOX = "scisql_s2PtInBox(ra_PS, decl_PS, {}) = 1"
IN_CIRCLE = "scisql_s2PtInCircle(ra_PS, decl_PS, {}) = 1"

# Separations of close positions: the haversine formula itself rounds at about this many degrees.
SEPARATIONS = Tolerance(relative=1e-9, absolute=1e-12)


def functions() -> list[Case]:
    """scisql_s2PtIn*: the same text for both engines."""
    circles = {
        "around the crossing of RA 0 and the equator": "0, 0, 0.05",
        "of a degree": "120.5, 33.3, 1",
        "of nine degrees over many chunks": "200, -40, 9",
        "across the seam": "359.99, 30, 0.5",
        "on the north pole": "17, 90, 0.4",
        "on the south pole": "17, -90, 0.4",
        "beside the north pole": "300, 89.2, 1.5",
        "with nothing in it": "77.7, 12.3, 0.00001",
        "of radius zero": "0, 0, 0",
        "of more than half the sky": "10, 20, 120",
        "of the whole sky": "10, 20, 180",
    }
    boxes = {
        "of one chunk's size": "100, 12, 108, 18",
        "through RA 0": "359.5, -1, 0.5, 1",
        "through RA 0, wide": "300, -20, 40, 5",
        "along the equator all round": "0, -0.05, 360, 0.05",
        "that is the north cap": "0, 89.5, 360, 90",
        "that is the south cap": "0, -90, 360, -89.6",
        "on the edge of two stripes": "0, 9.9998, 360, 10.0002",
        "thin in RA": "119.9, -90, 120.1, 90",
        "with nothing in it": "10.00001, 77.00001, 10.00002, 77.00002",
    }
    ellipses = {
        "small and tilted": "0, 0, 90, 40, 30",
        "large and flat": "240, -50, 20000, 4000, 100",
        "across the seam": "0.001, 30, 400, 120, 60",
        "near the north pole": "50, 89.8, 2500, 900, 10",
        "that is a circle": "10, 20, 60, 60, 0",
    }
    polygons = {
        "triangle": "10, 10, 30, 12, 18, 30",
        "triangle, corners the other way round": "10, 10, 18, 30, 30, 12",
        "square through RA 0": "359, -1, 1, -1, 1, 1, 359, 1",
        "pentagon around the north pole": "0, 85, 72, 85, 144, 85, 216, 85, 288, 85",
        "small one in a clump": "9.98, 19.98, 10.02, 19.99, 10.01, 20.02",
    }
    cases = []
    for shape, regions in (("Circle", circles), ("Box", boxes), ("Ellipse", ellipses), ("CPoly", polygons)):
        for name, region in regions.items():
            where = f"scisql_s2PtIn{shape}(ra_PS, decl_PS, {region}) = 1"
            cases.append(Case(f"{shape} {name}", OBJECTS.format(where=where)))
    return cases


def area_specifications() -> list[Case]:
    """qserv_areaspec_*: restricts each partitioned table by its own position columns."""
    cases = []
    for shape, function, region in (
        ("box", "Box", "359.5, -1, 0.5, 1"),
        ("box", "Box", "40, -30, 60, -10"),
        ("circle", "Circle", "10, 20, 0.03"),
        ("ellipse", "Ellipse", "240, -50, 20000, 4000, 100"),
        ("poly", "CPoly", "10, 10, 30, 12, 18, 30"),
    ):
        ours = f"qserv_areaspec_{shape}({region})"
        theirs = f"scisql_s2PtIn{function}({{ra}}, {{dec}}, {region}) = 1"
        on_object, on_source = theirs.format(ra="ra_PS", dec="decl_PS"), theirs.format(ra="ra", dec="decl")
        cases.append(same_rows(f"areaspec {shape} {region} of Object", OBJECTS, ours, on_object))
        cases.append(same_rows(f"areaspec {shape} {region} of Source", SOURCES, ours, on_source))
    template = (
        "SELECT o.objectId, s.sourceId FROM Object o JOIN Source s ON s.objectId = o.objectId "
        "WHERE {where} AND o.flags = 3"
    )
    both = (
        "scisql_s2PtInBox(o.ra_PS, o.decl_PS, 355, -5, 5, 5) = 1 AND scisql_s2PtInBox(s.ra, s.decl, 355, -5, 5, 5) = 1"
    )
    cases.append(same_rows("areaspec of a join restricts both", template, "qserv_areaspec_box(355, -5, 5, 5)", both))
    grouped = "SELECT flags, count(*), avg(decl_PS) FROM Object WHERE {where} AND extendedness > 0.2 GROUP BY flags"
    ours = "qserv_areaspec_circle(200, -40, 9)"
    cases.append(same_rows("areaspec under a group", grouped, ours, IN_CIRCLE.format("200, -40, 9")))
    aliased = "SELECT o.objectId AS id FROM Object AS o WHERE {where}"
    theirs = "scisql_s2PtInBox(o.ra_PS, o.decl_PS, 100, 12, 108, 18) = 1"
    cases.append(same_rows("areaspec with an alias", aliased, "qserv_areaspec_box(100, 12, 108, 18)", theirs))
    return cases


def separations() -> list[Case]:
    """scisql_angSep compared with a constant, in all arrangements."""
    wheres = {
        "less": "scisql_angSep(ra_PS, decl_PS, 10, 20) < 0.02",
        "less or equal": "scisql_angSep(ra_PS, decl_PS, 0, 0) <= 0.02",
        "constant first": "0.02 > scisql_angSep(ra_PS, decl_PS, 0, 0)",
        "point first": "scisql_angSep(10, 20, ra_PS, decl_PS) < 0.02",
        "plain name": "angSep(ra_PS, decl_PS, 359.999, -50) < 0.03",
        "computed radius": "scisql_angSep(ra_PS, decl_PS, 10, 20) < 60.0 / 3600",
        "between": "scisql_angSep(ra_PS, decl_PS, 10, 20) BETWEEN 0.01 AND 0.02",
        "greater": "scisql_angSep(ra_PS, decl_PS, 10, 20) > 170",
        "greater and less": "scisql_angSep(ra_PS, decl_PS, 0, 0) > 0.01 AND scisql_angSep(ra_PS, decl_PS, 0, 0) < 0.02",
        "negative radius": "scisql_angSep(ra_PS, decl_PS, 10, 20) < -1",
        "on the pole": "scisql_angSep(ra_PS, decl_PS, 0, 90) < 0.02",
    }
    cases = [Case(f"angSep {name}", OBJECTS.format(where=where)) for name, where in wheres.items()]
    cases.append(
        Case(
            "nearest ten, with their distances",
            "SELECT objectId, scisql_angSep(ra_PS, decl_PS, 0.001, 30) AS d FROM Object "
            "WHERE scisql_angSep(ra_PS, decl_PS, 0.001, 30) < 0.1 ORDER BY d LIMIT 10",
            ordered=True,
            tolerance=SEPARATIONS,
        )
    )
    cases.append(
        Case(
            "distances to the antipode",
            "SELECT objectId, scisql_angSep(ra_PS, decl_PS, 190, -20) FROM Object WHERE flags = 5 AND decl_PS > 60",
            tolerance=Tolerance(relative=1e-7),
        )
    )
    return cases


def comparisons() -> list[Case]:
    """BETWEEN and comparisons on the position columns."""
    wheres = {
        "both between": "ra_PS BETWEEN 100 AND 108 AND decl_PS BETWEEN 12 AND 18",
        "declination only": "decl_PS BETWEEN 88.9 AND 89.5",
        "declination above": "decl_PS >= 89.9",
        "declination below, strictly": "decl_PS < -89.9",
        "right ascension only": "ra_PS > 359.9",
        "right ascension of both sides of 0": "(ra_PS > 359.95 OR ra_PS < 0.05) AND decl_PS > 0",
        "at RA 0 exactly": "ra_PS = 0",
        "at the poles exactly": "decl_PS = 90 OR decl_PS = -90",
        "on a stripe's edge": "decl_PS = 10 OR decl_PS = -30",
        "the wrong way round": "ra_PS BETWEEN 108 AND 100",
        "constants first": "100 <= ra_PS AND 101 > ra_PS",
        "beyond the sky": "decl_PS > 95",
        "RA beyond 360 finds nothing": "ra_PS BETWEEN 370 AND 380",
        "a box and a cone": "ra_PS BETWEEN 0 AND 12 AND scisql_angSep(ra_PS, decl_PS, 10, 20) < 3",
        "two cones that overlap": f"{IN_CIRCLE.format('10, 20, 0.03')} AND {IN_CIRCLE.format('10.03, 20, 0.03')}",
        "two cones apart": f"{IN_CIRCLE.format('10, 20, 0.03')} AND {IN_CIRCLE.format('50, 20, 0.03')}",
        "an arithmetic bound": "decl_PS + 1 > 90.9",
        "a not between": "decl_PS NOT BETWEEN -85 AND 88",
    }
    cases = [Case(f"position {name}", OBJECTS.format(where=where)) for name, where in wheres.items()]
    cases.append(
        Case("child between, some outside their chunk", SOURCES.format(where="ra BETWEEN 9.9 AND 10.1 AND decl > 19"))
    )
    cases.append(Case("child cone", SOURCES.format(where="scisql_s2PtInCircle(ra, decl, 10, 20, 0.05) = 1")))
    cases.append(Case("child angSep", SOURCES.format(where="scisql_angSep(ra, decl, 0, 0) < 0.05")))
    cases.append(Case("child on a stripe's edge", SOURCES.format(where="decl BETWEEN 19.99 AND 20.01")))
    cases.append(Case("child cap", SOURCES.format(where="decl > 89.8")))
    cases.append(Case("child without position", SOURCES.format(where="ra IS NULL")))
    return cases


def negations() -> list[Case]:
    """What must not be pruned: regions under NOT, under OR, compared with 0, in the select list."""
    circle = "scisql_s2PtInCircle(ra_PS, decl_PS, 200, -40, 9)"
    box = "scisql_s2PtInBox(ra_PS, decl_PS, 300, -20, 40, 5)"
    wheres = {
        "= 0": f"{circle} = 0",
        "<> 1": f"{circle} <> 1",
        "NOT = 1": f"NOT ({circle} = 1)",
        "NOT of two": f"NOT ({circle} = 1 OR {box} = 1)",
        "= 0 inside another": f"{circle} = 1 AND scisql_s2PtInCircle(ra_PS, decl_PS, 200, -40, 5) = 0",
        "OR of two regions": f"{circle} = 1 OR {box} = 1",
        "OR with a flag": f"{circle} = 1 OR flags = 7",
        "OR with a key": f"{circle} = 1 OR objectId = 1000700",
        "region AND (flag OR region)": f"{box} = 1 AND (flags = 7 OR {circle} = 1)",
        "NOT angSep": "NOT (scisql_angSep(ra_PS, decl_PS, 10, 20) > 0.02)",
        "angSep under OR": "scisql_angSep(ra_PS, decl_PS, 10, 20) < 0.01 OR decl_PS > 89.95",
        "NOT BETWEEN under NOT": "NOT (decl_PS NOT BETWEEN 88.9 AND 89.5)",
        "in CASE": f"CASE WHEN {circle} = 1 THEN flags ELSE nObs END = 3",
        "IS NULL of a region": f"{circle} IS NULL",
        "region as a sum": f"{circle} + {box} = 1",
        "greater than 0": f"{circle} > 0",
    }
    cases = [
        Case(f"negation {name}", f"SELECT count(*), sum(flags), min(objectId) FROM Object WHERE {where}")
        for name, where in wheres.items()
    ]
    cases.append(
        Case(
            "region in the select list",
            f"SELECT {circle} AS inside, count(*) FROM Object GROUP BY {circle}",
        )
    )
    cases.append(
        Case(
            "child not in a region counts the rows without position",
            "SELECT count(*) FROM Source WHERE NOT (scisql_s2PtInCircle(ra, decl, 200, -40, 9) = 1)",
        )
    )
    return cases


CASES = functions() + area_specifications() + separations() + comparisons() + negations()
