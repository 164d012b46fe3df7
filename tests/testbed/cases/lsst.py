"""Statements over LSST's sample rows."""

from __future__ import annotations

from testbed.cases import ordered, queries

PT11 = queries(
    "SELECT COUNT(*) FROM Object",
    "SELECT COUNT(*), AVG(ra_PS), AVG(decl_PS) FROM Object",
    "SELECT objectId, ra_PS, decl_PS, uFlux_PS FROM Object WHERE flags = 0 OR flags IS NULL",
    "SELECT filterId, COUNT(*), AVG(psfFlux), AVG(snr) FROM Source GROUP BY filterId",
    "SELECT o.objectId, COUNT(*) FROM Object o JOIN Source s ON o.objectId = s.objectId GROUP BY o.objectId HAVING COUNT(*) > 2",
    "SELECT objectId, scisql_fluxToAbMag(gFlux_PS) - scisql_fluxToAbMag(rFlux_PS) FROM Object WHERE gFlux_PS > 0 AND rFlux_PS > 0",
    "SELECT COUNT(*) FROM Source WHERE objectId IS NULL",
    "SELECT MIN(taiMidPoint), MAX(taiMidPoint), STDDEV(taiMidPoint) FROM Source",
    "SELECT sourceId, Ixx, Iyy, Ixy FROM Source WHERE Ixx * Iyy > Ixy * Ixy AND filterId = 3",
    "SELECT s.sourceId FROM Source s LEFT JOIN Object o USING (objectId) WHERE o.objectId IS NULL",
)

PT12 = queries(
    "SELECT * FROM Filter",
    "SELECT * FROM LeapSeconds",
    "SELECT * FROM sdqa_Metric",
    "SELECT * FROM RefSrcMatch WHERE flags IS NULL OR flags > 0",
    "SELECT COUNT(*) FROM Object",
    "SELECT visit, COUNT(*) FROM Science_Ccd_Exposure GROUP BY visit",
    "SELECT scienceCcdExposureId, raftName, ccdName, filterName, obsStart, expTime, fwhm FROM Science_Ccd_Exposure WHERE filterName = 'r'",
    "SELECT filterName, COUNT(*), AVG(fwhm), MIN(obsStart) FROM Science_Ccd_Exposure GROUP BY filterName",
    "SELECT DISTINCT ctype1, ctype2, raDeSys FROM Science_Ccd_Exposure",
    "SELECT HEX(poly) FROM Science_Ccd_Exposure WHERE visit < 868000000",
    "SELECT s.sourceId, s.psfFlux, e.filterName FROM Source s JOIN Science_Ccd_Exposure e USING (scienceCcdExposureId) WHERE e.filterName = 'g'",
    "SELECT sro.refObjectId, rsm.nRefMatches, s.sourceId FROM SimRefObject sro JOIN RefSrcMatch rsm ON sro.refObjectId = rsm.refObjectId JOIN Source s ON rsm.sourceId = s.sourceId",
    "SELECT isStar, COUNT(*), AVG(rMag), MIN(gMag - rMag) FROM SimRefObject GROUP BY isStar",
    "SELECT STATUS, LEVEL, COUNT(*) FROM Logs GROUP BY STATUS, LEVEL",
    "SELECT id, HOSTID, DATE, node FROM Logs WHERE COMMENT LIKE '%process%'",
    "SELECT SUBSTRING(DATE, 1, 10) AS day, COUNT(*) FROM Logs GROUP BY day",
    "SELECT LENGTH(COMMENT), COUNT(*) FROM Logs GROUP BY LENGTH(COMMENT)",
    "SELECT metricName FROM sdqa_Metric WHERE definition LIKE '%number%' OR dataType = 'd'",
    "SELECT objectId, uNumObs + gNumObs + rNumObs + iNumObs FROM Object",
    "SELECT COUNT(*), COUNT(extendedness), SUM(extendedness = 1) FROM Object",
    "SELECT `offset`, whenJd FROM LeapSeconds WHERE `offset` > 20",
) + ordered("SELECT whenUtc, whenTai FROM LeapSeconds ORDER BY whenUtc", "SELECT metricName FROM sdqa_Metric ORDER BY sdqa_metricId")
