//! The statements whose plans are encoded and decoded.

/// How results are compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Comparison {
    /// The same rows, in any order.
    Multisets,
    /// The same rows in the same order.
    Lists,
    /// Any rows, as many of them: which ones is left open by the statement.
    Counts,
}

/// The statements, by what they are to hit.
pub const STATEMENTS: &[(Comparison, &str)] = &[
    // Scans, cones, boxes through right ascension 0, the poles.
    (Comparison::Multisets, "SELECT * FROM Object"),
    (
        Comparison::Multisets,
        "SELECT objectId, ra_PS, flux * 2 FROM Object WHERE flux > 60",
    ),
    (
        Comparison::Multisets,
        "SELECT objectId FROM Object WHERE scisql_s2PtInCircle(ra_PS, decl_PS, 120, 10, 15) = 1",
    ),
    (
        Comparison::Multisets,
        "SELECT objectId, mag FROM Object WHERE qserv_areaspec_box(350, -15, 10, 15)",
    ),
    (
        Comparison::Multisets,
        "SELECT objectId FROM Object WHERE qserv_areaspec_circle(0, 90, 1) AND class = 0",
    ),
    (
        Comparison::Multisets,
        "SELECT count(*) FROM Object WHERE scisql_angSep(ra_PS, decl_PS, 0, 0) < 20",
    ),
    (
        Comparison::Multisets,
        "SELECT * FROM Source WHERE qserv_areaspec_box(300, -20, 340, 20)",
    ),
    // Keys.
    (Comparison::Multisets, "SELECT * FROM Object WHERE objectId = 77"),
    (
        Comparison::Multisets,
        "SELECT * FROM Object WHERE objectId IN (1, 500, 501, 1999, 77777)",
    ),
    (Comparison::Multisets, "SELECT * FROM Source WHERE objectId = 77"),
    (
        Comparison::Multisets,
        "SELECT count(*), sum(flux) FROM Source WHERE objectId IN (3, 51475, 700)",
    ),
    // No chunk at all, no row at all, not even a table.
    (Comparison::Multisets, "SELECT * FROM Object WHERE objectId = 123456789"),
    (
        Comparison::Multisets,
        "SELECT count(*), sum(flux), min(mag) FROM Object WHERE objectId = 123456789",
    ),
    (
        Comparison::Multisets,
        "SELECT class, count(*) FROM Object WHERE objectId = 123456789 GROUP BY class",
    ),
    (Comparison::Multisets, "SELECT count(*) FROM Object WHERE 1 = 0"),
    (Comparison::Multisets, "SELECT objectId FROM Object WHERE flux < -1"),
    (Comparison::Multisets, "SELECT 1 + 1 AS two, 'x' AS letter"),
    (
        Comparison::Multisets,
        "SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS v(n, letter)",
    ),
    // Aggregates: without groups, with few groups, with the director's key, exact DISTINCT, states of any kind.
    (Comparison::Multisets, "SELECT count(*) FROM Object"),
    (
        Comparison::Multisets,
        "SELECT count(*), count(flux), sum(flux), avg(flux), min(name), max(mag) FROM Object",
    ),
    (
        Comparison::Multisets,
        "SELECT class, count(*), sum(flux), avg(mag) FROM Object GROUP BY class",
    ),
    (
        Comparison::Multisets,
        "SELECT name, class, max(flux) AS brightest FROM Object GROUP BY name, class HAVING count(*) > 1",
    ),
    (
        Comparison::Multisets,
        "SELECT objectId, count(*), sum(flux) FROM Source GROUP BY objectId",
    ),
    (
        Comparison::Multisets,
        "SELECT count(DISTINCT class), count(DISTINCT name) FROM Object",
    ),
    (Comparison::Multisets, "SELECT DISTINCT class FROM Object"),
    (
        Comparison::Multisets,
        "SELECT class, median(flux), round(stddev(flux), 6) FROM Object GROUP BY class",
    ),
    (
        Comparison::Multisets,
        "SELECT class, name, count(*) FROM Object WHERE class < 2 GROUP BY GROUPING SETS ((class), (class, name), ())",
    ),
    (
        Comparison::Multisets,
        "SELECT floor(ra_PS / 30) AS bin, count(*) FROM Object GROUP BY floor(ra_PS / 30)",
    ),
    (
        Comparison::Multisets,
        "SELECT approx_distinct(class), bool_and(flux > 0) FROM Object",
    ),
    // ORDER BY, LIMIT, OFFSET.
    (
        Comparison::Lists,
        "SELECT objectId, flux FROM Object ORDER BY flux DESC, objectId LIMIT 17",
    ),
    (
        Comparison::Lists,
        "SELECT objectId, flux FROM Object ORDER BY flux, objectId LIMIT 10 OFFSET 100",
    ),
    (
        Comparison::Lists,
        "SELECT objectId FROM Object ORDER BY ra_PS, objectId",
    ),
    (
        Comparison::Lists,
        "SELECT class, count(*) AS n FROM Object GROUP BY class ORDER BY class NULLS FIRST LIMIT 3",
    ),
    (Comparison::Counts, "SELECT * FROM Source LIMIT 123"),
    (Comparison::Counts, "SELECT * FROM Source LIMIT 100 OFFSET 5950"),
    (
        Comparison::Counts,
        "SELECT objectId FROM Object WHERE flux > 10 LIMIT 5",
    ),
    // Joins that stay within pieces, of every kind.
    (
        Comparison::Multisets,
        "SELECT o.objectId, s.sourceId, s.flux - o.flux FROM Object o JOIN Source s ON o.objectId = s.objectId",
    ),
    (
        Comparison::Multisets,
        "SELECT a.objectId, b.objectId FROM Object a, Object b
         WHERE scisql_angSep(a.ra_PS, a.decl_PS, b.ra_PS, b.decl_PS) <= 3 AND a.objectId < b.objectId",
    ),
    (
        Comparison::Multisets,
        "SELECT a.objectId AS a, b.objectId AS b FROM Object a
         LEFT JOIN Object b ON scisql_angSep(a.ra_PS, a.decl_PS, b.ra_PS, b.decl_PS) < a.flux / 50 AND a.class <> b.class",
    ),
    (
        Comparison::Multisets,
        "SELECT a.objectId AS a, b.objectId AS b, a.flux * 2 + 1, sqrt(b.flux) FROM Object a, Object b
         WHERE scisql_angSep(a.ra_PS, a.decl_PS, b.ra_PS, b.decl_PS) < 4 AND abs(sqrt(a.flux) - sqrt(b.flux)) < 0.5",
    ),
    (
        Comparison::Multisets,
        "SELECT objectId FROM Object a WHERE NOT EXISTS (SELECT 1 FROM Object b
         WHERE scisql_angSep(a.ra_PS, a.decl_PS, b.ra_PS, b.decl_PS) < 1 AND a.objectId <> b.objectId)",
    ),
    (
        Comparison::Multisets,
        "SELECT o.objectId, s.sourceId FROM Object o LEFT JOIN Source s ON o.objectId = s.objectId",
    ),
    (
        Comparison::Multisets,
        "SELECT o.objectId, s.sourceId FROM Object o RIGHT JOIN Source s ON o.objectId = s.objectId",
    ),
    (
        Comparison::Multisets,
        "SELECT o.objectId, s.sourceId FROM Object o FULL JOIN Source s ON o.objectId = s.objectId",
    ),
    (
        Comparison::Multisets,
        "SELECT objectId FROM Object o WHERE EXISTS (SELECT 1 FROM Source s WHERE s.objectId = o.objectId AND s.flux > 400)",
    ),
    (
        Comparison::Multisets,
        "SELECT objectId FROM Object WHERE objectId NOT IN (SELECT objectId FROM Source WHERE objectId IS NOT NULL)",
    ),
    (
        Comparison::Multisets,
        "SELECT objectId FROM Object WHERE objectId NOT IN (SELECT objectId FROM Source)",
    ),
    (
        Comparison::Multisets,
        "SELECT f.filterName, count(*), sum(s.flux) FROM Object o JOIN Source s ON o.objectId = s.objectId JOIN Filter f ON s.filterId = f.filterId GROUP BY f.filterName",
    ),
    (
        Comparison::Multisets,
        "SELECT o.objectId, count(s.sourceId) FROM Object o LEFT JOIN Source s ON s.objectId = o.objectId AND s.flux > 100 GROUP BY o.objectId",
    ),
    // The match table: pairs once, across chunks.
    (Comparison::Multisets, "SELECT count(*), sum(separation) FROM Pair"),
    (
        Comparison::Multisets,
        "SELECT o.objectId, g.gaiaId, m.separation FROM Object o JOIN Pair m ON o.objectId = m.objectId JOIN Gaia g ON g.gaiaId = m.gaiaId",
    ),
    (
        Comparison::Multisets,
        "SELECT count(*) FROM Pair m JOIN Gaia g ON g.gaiaId = m.gaiaId WHERE g.g < 16",
    ),
    (
        Comparison::Multisets,
        "SELECT m.gaiaId FROM Pair m LEFT JOIN Object o ON o.objectId = m.objectId WHERE o.objectId IS NULL",
    ),
    // Joins that do not stay within pieces: hash joins of every kind, broadcast or not, and nested loops, which give rows of
    // a build side that all tasks share.
    (
        Comparison::Multisets,
        "SELECT a.objectId, b.gaiaId FROM Object a JOIN Gaia b ON a.objectId + 10000 = b.gaiaId",
    ),
    (
        Comparison::Multisets,
        "SELECT a.objectId, b.gaiaId FROM Object a LEFT JOIN Gaia b ON a.objectId + 10001 = b.gaiaId",
    ),
    (
        Comparison::Multisets,
        "SELECT a.objectId, b.gaiaId FROM Object a FULL JOIN Gaia b ON a.objectId + 10001 = b.gaiaId",
    ),
    (
        Comparison::Multisets,
        "SELECT a.objectId FROM Object a WHERE a.objectId + 10000 NOT IN (SELECT gaiaId FROM Gaia)",
    ),
    (
        Comparison::Multisets,
        "SELECT a.objectId FROM Object a WHERE a.flux IN (SELECT flux FROM Source WHERE filterId = 2)",
    ),
    (
        Comparison::Multisets,
        "SELECT f.filterName, count(g.gaiaId) FROM Filter f LEFT JOIN Gaia g ON g.g < 14.5 + f.filterId AND g.g > 13.9 + f.filterId GROUP BY f.filterName",
    ),
    (
        Comparison::Multisets,
        "SELECT f.filterId, o.objectId FROM Filter f LEFT JOIN Object o ON o.flux < f.filterId - 2",
    ),
    (
        Comparison::Multisets,
        "SELECT f.filterId, o.objectId FROM (SELECT * FROM Object WHERE objectId < 40) o FULL JOIN Filter f ON o.flux < f.filterId * 2",
    ),
    (
        Comparison::Multisets,
        "SELECT f.filterId FROM Filter f WHERE NOT EXISTS (SELECT 1 FROM Object o WHERE o.flux < f.filterId - 3)",
    ),
    (
        Comparison::Multisets,
        "SELECT f.filterId FROM Filter f WHERE EXISTS (SELECT 1 FROM Object o WHERE o.flux > f.filterId * 40)",
    ),
    (
        Comparison::Multisets,
        "SELECT a.objectId, g.gaiaId FROM (SELECT * FROM Object WHERE flux < 2) a LEFT JOIN (SELECT * FROM Gaia WHERE g < 14.2) g ON scisql_angSep(a.ra_PS, a.decl_PS, g.ra, g.dec) < 3",
    ),
    (
        Comparison::Multisets,
        "SELECT count(*) FROM Object a, Gaia b WHERE scisql_angSep(a.ra_PS, a.decl_PS, b.ra, b.dec) < 0.0015",
    ),
    // Separations that are handed on, in columns and in a condition, and partners that are counted without pairs.
    (
        Comparison::Multisets,
        "SELECT a.objectId, b.gaiaId, scisql_angSep(a.ra_PS, a.decl_PS, b.ra, b.dec) FROM Object a, Gaia b WHERE scisql_angSep(a.ra_PS, a.decl_PS, b.ra, b.dec) BETWEEN 0.0001 AND 2",
    ),
    (
        Comparison::Multisets,
        "SELECT a.objectId, count(*), min(scisql_angSep(a.ra_PS, a.decl_PS, b.ra, b.dec)) FROM Object a LEFT JOIN Gaia b ON scisql_angSep(a.ra_PS, a.decl_PS, b.ra, b.dec) < 1 GROUP BY a.objectId",
    ),
    (
        Comparison::Multisets,
        "SELECT count(*), min(scisql_angSep(a.ra_PS, a.decl_PS, b.ra, b.dec)) FROM Object a, Gaia b WHERE scisql_angSep(a.ra_PS, a.decl_PS, b.ra, b.dec) < 1.5",
    ),
    // Matches: in the pieces of the left side, and above them.
    (
        Comparison::Multisets,
        "SELECT objectId, gaiaId, separation FROM crossmatch(Object, Gaia, 7200)",
    ),
    (
        Comparison::Multisets,
        "SELECT gaiaId, objectId, separation FROM crossmatch(Gaia, Object, 3600, 'best1', 'all1') WHERE g < 16",
    ),
    (
        Comparison::Multisets,
        "SELECT class, gaiaId, separation FROM nearest(
           (SELECT class, min(ra_PS) AS ra, max(decl_PS) AS dec FROM Object GROUP BY class), Gaia, 36000, 3)",
    ),
    (Comparison::Multisets, "SELECT count(*) FROM Filter CROSS JOIN Object"),
    // Windows.
    (
        Comparison::Multisets,
        "SELECT sourceId, row_number() OVER (PARTITION BY objectId ORDER BY taken, sourceId) FROM Source",
    ),
    (
        Comparison::Multisets,
        "SELECT objectId, rank() OVER (ORDER BY flux) FROM Object",
    ),
    (
        Comparison::Multisets,
        "SELECT objectId, sum(flux) OVER (PARTITION BY class ORDER BY objectId ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM Object",
    ),
    // UNION, subqueries, common table expressions.
    (
        Comparison::Multisets,
        "SELECT objectId FROM Object WHERE class = 1 UNION ALL SELECT gaiaId FROM Gaia WHERE g < 15",
    ),
    (
        Comparison::Multisets,
        "SELECT class FROM Object UNION SELECT filterId FROM Filter",
    ),
    (
        Comparison::Multisets,
        "SELECT count(*) FROM Object UNION ALL SELECT count(*) FROM Source UNION ALL SELECT 7",
    ),
    (
        Comparison::Multisets,
        "SELECT class FROM Object WHERE objectId < 900 INTERSECT SELECT filterId FROM Filter",
    ),
    (
        Comparison::Multisets,
        "SELECT class FROM Object EXCEPT SELECT filterId FROM Filter WHERE filterId > 1",
    ),
    (
        Comparison::Multisets,
        "SELECT objectId FROM Object WHERE flux > (SELECT avg(flux) FROM Object)",
    ),
    (
        Comparison::Multisets,
        "SELECT objectId FROM Object o WHERE flux > (SELECT avg(s.flux) FROM Source s WHERE s.objectId = o.objectId)",
    ),
    (
        Comparison::Multisets,
        "SELECT (SELECT max(flux) FROM Source) - max(flux), (SELECT count(*) FROM Filter) FROM Object",
    ),
    (
        Comparison::Multisets,
        "WITH bright AS (SELECT objectId, flux, class FROM Object WHERE flux > 100), n AS (SELECT class, count(*) AS c FROM bright GROUP BY class) SELECT b.objectId, n.c FROM bright b JOIN n ON b.class = n.class",
    ),
    (
        Comparison::Lists,
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 5) SELECT n FROM t ORDER BY n",
    ),
    // The number of the chunk.
    (
        Comparison::Multisets,
        "SELECT chunkId, count(*), min(objectId) FROM Object GROUP BY chunkId",
    ),
    (
        Comparison::Multisets,
        "SELECT s.chunkId, o.objectId FROM Source s JOIN Object o ON s.objectId = o.objectId WHERE o.chunkId > 100",
    ),
    // The replicated table alone, and texts that are NULL.
    (Comparison::Lists, "SELECT * FROM Filter ORDER BY filterId"),
    (
        Comparison::Multisets,
        "SELECT coalesce(filterName, '?'), length(filterName) FROM Filter",
    ),
    // What only the front end knows.
    (
        Comparison::Multisets,
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'sky'",
    ),
];
