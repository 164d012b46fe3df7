"""The scisql functions as stored functions of MariaDB, written from their definitions.

Angles in degrees, axes of an ellipse in arcseconds, fluxes in erg/s/cm²/Hz. A flux that is not positive has no magnitude;
a point or region that is partly NULL is not inside.
"""

from __future__ import annotations

import re

# Text that reads well is in lines; a function is one expression, which MariaDB evaluates fastest.
_HAVERSINE = (
    "POW(SIN(RADIANS({dec2} - {dec1}) / 2), 2) + COS(RADIANS({dec1})) * COS(RADIANS({dec2})) "
    "* POW(SIN(RADIANS({ra2} - {ra1}) / 2), 2)"
)


def _separation(ra1: str, dec1: str, ra2: str, dec2: str) -> str:
    haversine = _HAVERSINE.format(ra1=ra1, dec1=dec1, ra2=ra2, dec2=dec2)
    return f"DEGREES(2 * ATAN2(SQRT({haversine}), SQRT(GREATEST(0e0, 1 - ({haversine})))))"


def _function(name: str, parameters: str, returns: str, expression: str) -> str:
    doubles = ", ".join(f"{parameter} DOUBLE" for parameter in parameters.split())
    return f"CREATE FUNCTION {name}({doubles}) RETURNS {returns} DETERMINISTIC NO SQL RETURN {expression}"


_MAGNITUDE = "IF(f > 0, -2.5e0 * LOG10(f) - 48.6e0, NULL)"
_WEST, _EAST, _LON = "MOD(MOD(w, 360) + 360, 360)", "MOD(MOD(e, 360) + 360, 360)", "MOD(MOD(ra, 360) + 360, 360)"
_IN_BOX = (
    "IF(IFNULL(ra + d + w + s + e + n, 'x') = 'x', 0, d BETWEEN s AND n AND (e - w >= 360 OR "
    f"IF({_WEST} <= {_EAST}, {_LON} BETWEEN {_WEST} AND {_EAST}, {_LON} >= {_WEST} OR {_LON} <= {_EAST})))"
)


def _ellipse() -> str:
    """Distances to the two foci add up to at most the major axis."""
    focus = "ACOS(LEAST(1e0, COS(RADIANS(a / 3600)) / COS(RADIANS(b / 3600))))"
    lon, lat, turn = "RADIANS(ra0)", "RADIANS(dec0)", "RADIANS(angle)"
    centre = (f"COS({lat}) * COS({lon})", f"COS({lat}) * SIN({lon})", f"SIN({lat})")
    along = (
        f"(-COS({turn}) * SIN({lat}) * COS({lon}) - SIN({turn}) * SIN({lon}))",
        f"(-COS({turn}) * SIN({lat}) * SIN({lon}) + SIN({turn}) * COS({lon}))",
        f"COS({turn}) * COS({lat})",
    )
    point = ("COS(RADIANS(d)) * COS(RADIANS(ra))", "COS(RADIANS(d)) * SIN(RADIANS(ra))", "SIN(RADIANS(d))")

    def distance(sign: str) -> str:
        chord = " + ".join(
            f"POW({p} - COS({focus}) * {c} {sign} SIN({focus}) * {v}, 2)" for p, c, v in zip(point, centre, along)
        )
        return f"2 * ASIN(LEAST(1e0, SQRT({chord}) / 2))"

    inside = f"{distance('-')} + {distance('+')} <= 2 * RADIANS(a / 3600)"
    return f"IF(ra + d + ra0 + dec0 + a + b + angle IS NULL, 0, {inside})"


def _polygon(corners: int) -> str:
    """On the inner side of every edge, whichever way round the corners come."""
    sides = []
    for at in range(corners):
        after = (at + 1) % corners
        one = (f"COS(RADIANS(d{at}))*COS(RADIANS(r{at}))", f"COS(RADIANS(d{at}))*SIN(RADIANS(r{at}))", f"SIN(RADIANS(d{at}))")
        two = tuple(part.replace(f"d{at}", f"d{after}").replace(f"r{at}", f"r{after}") for part in one)
        pole = (
            f"({one[1]}*{two[2]}-{one[2]}*{two[1]})",
            f"({one[2]}*{two[0]}-{one[0]}*{two[2]})",
            f"({one[0]}*{two[1]}-{one[1]}*{two[0]})",
        )
        point = ("COS(RADIANS(d))*COS(RADIANS(ra))", "COS(RADIANS(d))*SIN(RADIANS(ra))", "SIN(RADIANS(d))")
        sides.append("+".join(f"{p}*{q}" for p, q in zip(pole, point)))
    left = " AND ".join(f"{side} >= 0" for side in sides)
    right = " AND ".join(f"{side} <= 0" for side in sides)
    # The third corner is on the inner side of the first edge.
    third = sides[0].replace("RADIANS(d)", "RADIANS(d2)").replace("RADIANS(ra)", "RADIANS(r2)")
    return f"IF(ra + d IS NULL, 0, IF({third} > 0, {left}, {right}))"


_POLYGON_CORNERS = (3, 4, 5)

STORED_FUNCTIONS = [
    _function("scisql_angSep", "ra1 dec1 ra2 dec2", "DOUBLE", _separation("ra1", "dec1", "ra2", "dec2")),
    _function("angSep", "ra1 dec1 ra2 dec2", "DOUBLE", _separation("ra1", "dec1", "ra2", "dec2")),
    _function("qserv_angSep", "ra1 dec1 ra2 dec2", "DOUBLE", _separation("ra1", "dec1", "ra2", "dec2")),
    _function("scisql_fluxToAbMag", "f", "DOUBLE", _MAGNITUDE),
    _function("fluxToAbMag", "f", "DOUBLE", _MAGNITUDE),
    _function("scisql_fluxToAbMagSigma", "f s", "DOUBLE", "IF(f > 0, 2.5e0 / LN(10) * s / f, NULL)"),
    _function("scisql_abMagToFlux", "m", "DOUBLE", "POW(10e0, -0.4e0 * (m + 48.6e0))"),
    _function(
        "scisql_abMagToFluxSigma", "m s", "DOUBLE", "POW(10e0, -0.4e0 * (m + 48.6e0)) * s * LN(10) / 2.5e0"
    ),
    _function("scisql_nanojanskyToAbMag", "f", "DOUBLE", "IF(f > 0, -2.5e0 * LOG10(f * 1e-32) - 48.6e0, NULL)"),
    _function("scisql_nanojanskyToAbMagSigma", "f s", "DOUBLE", "IF(f > 0, 2.5e0 / LN(10) * s / f, NULL)"),
    _function("scisql_abMagToNanojansky", "m", "DOUBLE", "POW(10e0, -0.4e0 * (m + 48.6e0)) / 1e-32"),
    _function("scisql_dnToFlux", "dn m", "DOUBLE", "dn / m * POW(10e0, -0.4e0 * 48.6e0)"),
    _function("scisql_dnToAbMag", "dn m", "DOUBLE", "IF(dn / m > 0, -2.5e0 * LOG10(dn / m), NULL)"),
    _function("scisql_s2PtInBox", "ra d w s e n", "INT", _IN_BOX),
    _function(
        "scisql_s2PtInCircle",
        "ra d ra0 dec0 r",
        "INT",
        f"IF(ra + d + ra0 + dec0 + r IS NULL, 0, {_separation('ra', 'd', 'ra0', 'dec0')} <= r)",
    ),
    _function("scisql_s2PtInEllipse", "ra d ra0 dec0 a b angle", "INT", _ellipse()),
    *(
        _function(
            f"scisql_s2PtInCPoly{corners}",
            "ra d " + " ".join(f"r{at} d{at}" for at in range(corners)),
            "INT",
            _polygon(corners),
        )
        for corners in _POLYGON_CORNERS
    ),
]

_POLYGON = re.compile(r"\bscisql_s2PtInCPoly\(([^()]*)\)", re.IGNORECASE)


def for_mariadb(statement: str) -> str:
    """The statement with polygons called by their number of corners: a stored function has a fixed number of parameters."""

    def call(found: re.Match[str]) -> str:
        corners = (found[1].count(",") + 1) // 2 - 1
        return f"scisql_s2PtInCPoly{corners}({found[1]})"

    return _POLYGON.sub(call, statement)
