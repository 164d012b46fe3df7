"""The rows of LSST's simulations: pt11 (a corner of one chunk) and pt12 (a few objects around RA 0)."""

from __future__ import annotations

from comparison import Tolerance
from queries import Case, same_rows

MAGNITUDES = Tolerance(relative=1e-10, absolute=1e-10)

PT11 = [
    Case("all objects", "SELECT * FROM Object"),
    Case("all sources", "SELECT * FROM Source"),
    Case("one object", "SELECT * FROM Object WHERE objectId = 433327840428032"),
    Case(
        "its light curve",
        "SELECT taiMidPoint, scisql_fluxToAbMag(psfFlux), scisql_fluxToAbMagSigma(psfFlux, psfFluxErr), ra, decl "
        "FROM Source WHERE objectId = 433327840428682 ORDER BY taiMidPoint, sourceId",
        ordered=True,
        tolerance=MAGNITUDES,
    ),
    Case(
        "small area with colours",
        "SELECT count(*) FROM Object WHERE ra_PS BETWEEN 1 AND 2 AND decl_PS BETWEEN 3 AND 4 "
        "AND scisql_fluxToAbMag(zFlux_PS) BETWEEN 21 AND 26 "
        "AND scisql_fluxToAbMag(gFlux_PS) - scisql_fluxToAbMag(rFlux_PS) BETWEEN 0.1 AND 1.5",
    ),
    Case(
        "sources at their object's first time",
        "SELECT s.sourceId, s.ra, s.decl, o.earliestObsTime FROM Object o JOIN Source s ON o.objectId = s.objectId "
        "WHERE s.taiMidPoint = o.earliestObsTime",
    ),
    same_rows(
        "box of objects and sources",
        "SELECT o.objectId, s.sourceId FROM Object o JOIN Source s ON o.objectId = s.objectId WHERE {where}",
        "qserv_areaspec_box(1.28, 3.2, 1.33, 3.3)",
        "scisql_s2PtInBox(o.ra_PS, o.decl_PS, 1.28, 3.2, 1.33, 3.3) = 1 "
        "AND scisql_s2PtInBox(s.raObject, s.declObject, 1.28, 3.2, 1.33, 3.3) = 1",
    ),
    Case(
        "colour cut",
        "SELECT objectId FROM Object WHERE scisql_fluxToAbMag(iFlux_PS) - scisql_fluxToAbMag(zFlux_PS) > 0.5",
    ),
    Case(
        "sources by filter", "SELECT filterId, count(*), avg(psfFlux), min(taiMidPoint) FROM Source GROUP BY filterId"
    ),
    Case(
        "objects with most sources",
        "SELECT objectId, count(*) AS n FROM Source GROUP BY objectId ORDER BY n DESC, objectId LIMIT 20",
        ordered=True,
    ),
    Case(
        "close pairs",
        "SELECT a.objectId, b.objectId FROM Object a, Object b WHERE "
        "scisql_angSep(a.ra_PS, a.decl_PS, b.ra_PS, b.decl_PS) < 0.003 AND a.objectId < b.objectId",
    ),
    Case("flags of three columns", "SELECT uFlags, count(*) FROM Object GROUP BY uFlags"),
    Case("columns that are all NULL", "SELECT count(iauId), count(parallax_PS), count(muRa_PS) FROM Object"),
    Case(
        "objects seen late",
        "SELECT count(*), min(latestObsTime) FROM Object WHERE latestObsTime > earliestObsTime + 100",
    ),
]

PT12 = [
    Case("all objects", "SELECT * FROM Object"),
    Case(
        "all sources",
        "SELECT sourceId, objectId, ra, decl, psfFlux, taiMidPoint, filterId, flagForDetection FROM Source",
    ),
    Case("all reference objects", "SELECT * FROM SimRefObject"),
    Case("all matches", "SELECT * FROM RefSrcMatch"),
    Case("filters", "SELECT * FROM Filter"),
    Case("metrics", "SELECT * FROM sdqa_Metric"),
    Case("leap seconds", "SELECT * FROM LeapSeconds"),
    Case("logs", "SELECT id, HOSTID, LOG, STATUS, COMMENT FROM Logs"),
    Case(
        "exposures",
        "SELECT scienceCcdExposureId, visit, raftName, ccdName, filterName, ra, decl, obsStart FROM Science_Ccd_Exposure",
    ),
    Case(
        "exposures' binary polygons",
        "SELECT scienceCcdExposureId, poly FROM Science_Ccd_Exposure",
    ),
    Case(
        "objects on both sides of RA 0",
        "SELECT objectId, ra_PS FROM Object WHERE scisql_s2PtInBox(ra_PS, decl_PS, 359, -7, 1, 4) = 1",
    ),
    Case(
        "orphans",
        "SELECT s.sourceId, s.objectId FROM Source s WHERE NOT EXISTS (SELECT 1 FROM Object o WHERE o.objectId = s.objectId)",
    ),
    Case(
        "full join",
        "SELECT count(*), count(o.objectId), count(s.sourceId) FROM Object o FULL JOIN Source s ON o.objectId = s.objectId",
    ),
    Case(
        "mean position of the sources",
        "SELECT o.objectId, count(*), avg(s.decl - o.decl_PS) FROM Object o JOIN Source s ON o.objectId = s.objectId GROUP BY o.objectId",
        tolerance=Tolerance(relative=1e-9, absolute=1e-15),
    ),
    Case(
        "sources by filter's name",
        "SELECT f.filterName, count(*) FROM Source s JOIN Filter f ON s.filterId = f.filterId GROUP BY f.filterName",
    ),
    Case(
        "matched reference objects",
        "SELECT m.refObjectId, count(*), min(s.psfFlux) FROM RefSrcMatch m JOIN Source s ON m.sourceId = s.sourceId GROUP BY m.refObjectId",
    ),
    Case(
        "sources and their exposures",
        "SELECT e.filterName, count(*) FROM Source s JOIN Science_Ccd_Exposure e ON s.scienceCcdExposureId = e.scienceCcdExposureId "
        "GROUP BY e.filterName",
    ),
    same_rows(
        "cone of sources",
        "SELECT sourceId FROM Source WHERE {where}",
        "qserv_areaspec_circle(0, 0, 1.5)",
        "scisql_s2PtInCircle(ra, decl, 0, 0, 1.5) = 1",
    ),
    Case(
        "stars of the reference, once each",
        "SELECT DISTINCT refObjectId, ra, decl, rMag FROM SimRefObject WHERE isStar = 1 AND rMag < 25",
    ),
    Case("sedNames", "SELECT sedName, count(*) FROM SimRefObject GROUP BY sedName"),
]
