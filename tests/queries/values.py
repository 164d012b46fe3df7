"""Values: NULL, text, time, magnitudes, arithmetic; names in any case."""

from __future__ import annotations

from comparison import Tolerance
from queries import Case

IN_BOX = "scisql_s2PtInBox(ra_PS, decl_PS, 100, 12, 140, 28) = 1"
MAGNITUDES = Tolerance(relative=1e-10, absolute=1e-10)

NULLS = [
    Case("is NULL", "SELECT count(*) FROM Object WHERE iFlux_PS IS NULL AND name IS NULL"),
    Case("is not NULL", "SELECT count(*) FROM Object WHERE iFlux_PS IS NOT NULL AND extendedness IS NULL"),
    Case("= NULL finds nothing", "SELECT count(*) FROM Object WHERE nObs = NULL"),
    Case("<> drops NULL", "SELECT count(*) FROM Object WHERE nObs <> 5"),
    Case("NOT IN drops NULL", "SELECT count(*) FROM Object WHERE nObs NOT IN (1, 2, 3)"),
    Case("coalesce", "SELECT coalesce(nObs, -1), count(*) FROM Object GROUP BY coalesce(nObs, -1)"),
    Case("nullif", "SELECT count(nullif(flags, 3)) FROM Object"),
    Case("NULL in arithmetic", "SELECT objectId, nObs + flags, uFlux_PS * 2 FROM Object WHERE flags = 6"),
    Case("NULL keys", "SELECT sourceId, ra, decl FROM Source WHERE objectId IS NULL"),
    Case("NULL keys and positions", "SELECT sourceId, objectId FROM Source WHERE ra IS NULL OR decl IS NULL"),
    Case("NULL-safe comparison", "SELECT count(*) FROM Object WHERE nObs IS NOT DISTINCT FROM NULL"),
    Case("three-valued OR", "SELECT count(*) FROM Object WHERE nObs > 30 OR uFlux_PS < 0 OR name = ''"),
    Case("three-valued NOT", "SELECT count(*) FROM Object WHERE NOT (nObs > 30 AND uFlux_PS > 0)"),
]

TEXTS = [
    Case("all texts", "SELECT objectId, name FROM Object WHERE flags = 9"),
    Case("empty text is not NULL", "SELECT count(*) FROM Object WHERE name = ''"),
    Case("text with quotes", "SELECT objectId FROM Object WHERE name = 'it''s single'"),
    Case("text beyond ASCII", "SELECT count(*) FROM Object WHERE name = 'Ωmega ☄ 星 é'"),
    Case("text of the word NULL", "SELECT count(*) FROM Object WHERE name = 'NULL'"),
    Case("like", "SELECT name, count(*) FROM Object WHERE name LIKE '%in%' GROUP BY name"),
    Case(
        "like with an underscore",
        "SELECT name, count(*) FROM Object WHERE name LIKE '_ tab%' OR name LIKE 'a_tab' GROUP BY name",
    ),
    Case(
        "text with tab and newline by length",
        "SELECT name, length(name), count(*) FROM Object GROUP BY name, length(name)",
    ),
    Case("text put together", "SELECT objectId, name || '/' || sedName FROM Object JOIN RefObject ON objectId = refId"),
    Case("upper and substring", "SELECT upper(name), substr(name, 2, 3), count(*) FROM Object GROUP BY 1, 2"),
    Case("texts in a list", "SELECT count(*) FROM Object WHERE name IN ('plain', '', 'no such')"),
]

TIMES = [
    Case("times", "SELECT objectId, lastSeen FROM Object WHERE flags = 10"),
    Case("time range", "SELECT count(*) FROM Object WHERE lastSeen >= TIMESTAMP '2015-06-01 00:00:00'"),
    Case("first and last time", "SELECT min(lastSeen), max(lastSeen), count(lastSeen) FROM Object"),
    Case(
        "year of a time",
        "SELECT date_part('year', lastSeen) AS y, count(*) FROM Object GROUP BY date_part('year', lastSeen)",
    ),
]

PHOTOMETRY = [
    Case(
        "magnitudes",
        f"SELECT objectId, scisql_fluxToAbMag(iFlux_PS), scisql_fluxToAbMag(zFlux_PS) FROM Object WHERE {IN_BOX}",
        tolerance=MAGNITUDES,
    ),
    Case(
        "magnitude of nothing, zero and less",
        "SELECT scisql_fluxToAbMag(0.0), scisql_fluxToAbMag(-1e-30), scisql_fluxToAbMag(NULL)",
    ),
    Case("magnitudes that are NULL", "SELECT count(*) FROM Object WHERE scisql_fluxToAbMag(gFlux_PS) IS NULL"),
    Case(
        "colour cut",
        "SELECT count(*) FROM Object WHERE scisql_fluxToAbMag(iFlux_PS) - scisql_fluxToAbMag(zFlux_PS) > 4",
    ),
    Case(
        "colour cut, rows",
        "SELECT objectId, ra_PS, decl_PS, uFlux_PS, gFlux_PS, rFlux_PS, iFlux_PS, zFlux_PS, yFlux_PS FROM Object "
        "WHERE scisql_fluxToAbMag(iFlux_PS) - scisql_fluxToAbMag(zFlux_PS) > 8.5",
    ),
    Case("magnitudes between", "SELECT count(*) FROM Object WHERE scisql_fluxToAbMag(zFlux_PS) BETWEEN 25 AND 26"),
    Case("magnitude below", "SELECT count(*), min(objectId) FROM Object WHERE fluxToAbMag(rFlux_PS) < 20"),
    Case("magnitude not below", "SELECT count(*) FROM Object WHERE NOT (fluxToAbMag(rFlux_PS) < 20)"),
    Case("flux cut", "SELECT count(*) FROM Object WHERE gFlux_PS > 1e-28"),
    Case("flux cut with a tiny constant", "SELECT count(*) FROM Object WHERE gFlux_PS > 1e-37 AND gFlux_PS < 1e-29"),
    Case(
        "brightest",
        "SELECT objectId FROM Object WHERE rFlux_PS IS NOT NULL ORDER BY rFlux_PS DESC, objectId LIMIT 20",
        ordered=True,
    ),
    Case(
        "magnitude errors",
        "SELECT sourceId, scisql_fluxToAbMagSigma(psfFlux, psfFluxErr) FROM Source WHERE filterId = 5",
        tolerance=MAGNITUDES,
    ),
    Case(
        "flux of a magnitude and back",
        f"SELECT objectId, scisql_abMagToFlux(scisql_fluxToAbMag(rFlux_PS)) FROM Object WHERE {IN_BOX}",
    ),
    Case(
        "mean magnitude by filter",
        "SELECT filterId, avg(scisql_fluxToAbMag(psfFlux)), min(scisql_fluxToAbMag(psfFlux)) FROM Source GROUP BY filterId",
        tolerance=MAGNITUDES,
    ),
    Case(
        "the published small-area query",
        "SELECT count(*) FROM Object WHERE ra_PS BETWEEN 0 AND 20 AND decl_PS BETWEEN -5 AND 25 "
        "AND scisql_fluxToAbMag(zFlux_PS) BETWEEN 18 AND 24 "
        "AND scisql_fluxToAbMag(gFlux_PS) - scisql_fluxToAbMag(rFlux_PS) BETWEEN -1 AND 1",
    ),
]

ARITHMETIC = [
    Case(
        "float columns in double precision",
        "SELECT objectId, gFlux_PS * 3.0, gFlux_PS + rFlux_PS FROM Object WHERE flags = 11",
    ),
    Case(
        "float column compared with a decimal",
        "SELECT count(*) FROM Filter WHERE photClam > 619.9 AND photClam < 620.1",
    ),
    Case(
        "rounding functions", "SELECT objectId, floor(ra_PS), ceil(decl_PS), abs(decl_PS) FROM Object WHERE flags = 12"
    ),
    Case("roots and powers", "SELECT objectId, sqrt(ra_PS), power(decl_PS, 2) FROM Object WHERE flags = 13"),
    Case(
        "trigonometry",
        "SELECT objectId, sin(radians(ra_PS)), cos(radians(decl_PS)) FROM Object WHERE flags = 14",
        tolerance=MAGNITUDES,
    ),
    Case("root of a negative number is NULL", "SELECT sqrt(-1.0)", oracle="SELECT NULL"),
    Case(
        "logarithm of a negative number is NULL",
        "SELECT count(ln(decl_PS)) FROM Object",
        oracle="SELECT count(*) FROM Object WHERE decl_PS > 0",
    ),
    Case(
        "division by zero is NULL",
        "SELECT count(1.0 / extendedness) FROM Object",
        oracle="SELECT count(*) FROM Object WHERE extendedness > 0",
    ),
    Case("case", "SELECT CASE WHEN decl_PS > 0 THEN 'north' ELSE 'south' END AS side, count(*) FROM Object GROUP BY 1"),
    Case("modulus", "SELECT count(*) FROM Object WHERE objectId % 2 = 0 AND objectId > 0"),
    Case("bits", "SELECT count(*) FROM Object WHERE (flags & 4) = 4"),
]

NAMES = [
    Case("names in lower case", "select objectid, ra_ps from object where objectid = 1000700"),
    Case("names in upper case", "SELECT OBJECTID, FLAGS FROM OBJECT WHERE OBJECTID IN (1000700, 1000056)"),
    Case(
        "functions in any case",
        "SELECT count(*) FROM Object WHERE SCISQL_S2PTINBOX(RA_PS, Decl_PS, 100, 12, 108, 18) = 1",
    ),
    Case(
        "aliases in any case",
        "SELECT O.objectId FROM Object o JOIN source S ON o.OBJECTID = s.objectid WHERE o.flags = 1 AND S.filterId = 9",
    ),
    Case("quoted name", 'SELECT "objectId" FROM "Object" WHERE "objectId" = 1000700'),
    Case(
        "comments and semicolon",
        "SELECT count(*) -- all of them\nFROM Object /* the director */ ;",
        oracle="SELECT count(*) FROM Object",
    ),
]

CASES = NULLS + TEXTS + TIMES + PHOTOMETRY + ARITHMETIC + NAMES
