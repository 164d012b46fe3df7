"""Joins: director and child, with replicated tables, match tables, close pairs."""

from __future__ import annotations

from comparison import Tolerance
from queries import Case, same_rows

ON_KEY = "Object o {} Source s ON o.objectId = s.objectId"
CLUMP = "scisql_s2PtInCircle(o.ra_PS, o.decl_PS, 10, 20, 0.05) = 1"

DIRECTOR_AND_CHILD = [
    Case("join, counted", f"SELECT count(*), sum(s.filterId) FROM {ON_KEY.format('JOIN')}"),
    Case("join in a clump", f"SELECT o.objectId, s.sourceId, s.psfFlux FROM {ON_KEY.format('JOIN')} WHERE {CLUMP}"),
    Case(
        "join written with a comma",
        "SELECT o.objectId, s.sourceId FROM Object o, Source s WHERE o.objectId = s.objectId AND o.objectId = 1000700",
    ),
    Case(
        "join by USING",
        "SELECT objectId, sourceId, name FROM Object JOIN Source USING (objectId) WHERE flags = 1 AND filterId = 5",
    ),
    Case("left join", f"SELECT o.objectId, s.sourceId FROM {ON_KEY.format('LEFT JOIN')} WHERE {CLUMP}"),
    Case(
        "left join, those without",
        f"SELECT count(*) FROM {ON_KEY.format('LEFT JOIN')} WHERE s.sourceId IS NULL",
    ),
    Case(
        "right join, the orphans and the NULL keys",
        f"SELECT s.sourceId, s.objectId FROM {ON_KEY.format('RIGHT JOIN')} WHERE o.objectId IS NULL",
    ),
    Case(
        "full join",
        f"SELECT count(*), count(o.objectId), count(s.sourceId), count(s.objectId) FROM {ON_KEY.format('FULL JOIN')}",
    ),
    Case(
        "semi join", "SELECT count(*) FROM Object o WHERE EXISTS (SELECT 1 FROM Source s WHERE s.objectId = o.objectId)"
    ),
    Case(
        "anti join",
        "SELECT count(*), min(o.objectId) FROM Object o "
        "WHERE NOT EXISTS (SELECT 1 FROM Source s WHERE s.objectId = o.objectId AND s.filterId = 1)",
    ),
    Case(
        "anti join of the child",
        "SELECT s.sourceId FROM Source s WHERE NOT EXISTS (SELECT 1 FROM Object o WHERE s.objectId = o.objectId)",
    ),
    Case(
        "join restricted on the child",
        f"SELECT o.objectId, s.sourceId FROM {ON_KEY.format('JOIN')} WHERE s.objectId IN (1000700, -1000002, 1000056)",
    ),
    Case(
        "join with another condition in ON",
        "SELECT o.objectId, s.sourceId FROM Object o LEFT JOIN Source s "
        "ON o.objectId = s.objectId AND s.filterId = o.flags WHERE o.decl_PS > 89.7",
    ),
    Case(
        "join, sources far from their object",
        f"SELECT s.sourceId, scisql_angSep(s.ra, s.decl, o.ra_PS, o.decl_PS) FROM {ON_KEY.format('JOIN')} "
        "WHERE scisql_angSep(s.ra, s.decl, o.ra_PS, o.decl_PS) > 0.13",
    ),
    Case(
        "join, mean flux of each object in a box",
        f"SELECT o.objectId, count(*), avg(s.psfFlux) FROM {ON_KEY.format('JOIN')} "
        "WHERE scisql_s2PtInBox(o.ra_PS, o.decl_PS, 300, -20, 40, 5) = 1 GROUP BY o.objectId",
    ),
    Case(
        "join, grouped by a column of the child",
        f"SELECT s.filterId, count(*), avg(o.decl_PS) FROM {ON_KEY.format('JOIN')} GROUP BY s.filterId",
    ),
    Case(
        "join of child with child",
        "SELECT a.sourceId, b.sourceId FROM Source a JOIN Source b ON a.objectId = b.objectId "
        "WHERE a.sourceId < b.sourceId AND a.objectId BETWEEN 1000000 AND 1003000",
    ),
    Case(
        "join of three by one key",
        "SELECT count(*) FROM Object o JOIN Source a ON o.objectId = a.objectId JOIN Source b ON o.objectId = b.objectId "
        "WHERE a.filterId = 1 AND b.filterId = 2",
    ),
    Case(
        "join of a director with itself",
        "SELECT a.objectId, b.flags FROM Object a JOIN Object b ON a.objectId = b.objectId WHERE a.decl_PS < -89.8",
    ),
    Case(
        "join on something that is not the key",
        "SELECT count(*) FROM Object o JOIN Source s ON o.objectId = s.sourceId - 29708000000 WHERE o.flags = 2",
    ),
    Case(
        "join with a grouped child",
        "SELECT o.objectId, c.n FROM Object o JOIN (SELECT objectId, count(*) AS n FROM Source GROUP BY objectId) c "
        "ON o.objectId = c.objectId WHERE c.n > 9",
    ),
]

WITH_REPLICATED = [
    Case("replicated alone", "SELECT * FROM Filter"),
    Case(
        "replicated joined to child",
        "SELECT f.filterName, count(*), avg(s.psfFlux) FROM Source s JOIN Filter f ON s.filterId = f.filterId "
        "GROUP BY f.filterName",
    ),
    Case(
        "replicated, left",
        "SELECT s.sourceId, f.filterName FROM Source s LEFT JOIN Filter f ON s.filterId = f.filterId "
        "WHERE scisql_s2PtInCircle(s.ra, s.decl, 10, 20, 0.05) = 1",
    ),
    Case(
        "replicated, right: each row once",
        "SELECT f.filterId, count(s.sourceId) FROM Source s RIGHT JOIN Filter f ON s.filterId = f.filterId GROUP BY f.filterId",
    ),
    Case(
        "replicated, right, where nothing fits",
        "SELECT f.filterId, s.sourceId FROM Source s RIGHT JOIN Filter f ON s.filterId = f.filterId AND s.sourceId < 0",
    ),
    Case(
        "replicated, full",
        "SELECT count(*), count(s.sourceId), count(f.filterId) FROM Source s FULL JOIN Filter f ON s.filterId = f.filterId",
    ),
    Case(
        "replicated, those without sources",
        "SELECT filterName FROM Filter f WHERE NOT EXISTS (SELECT 1 FROM Source s WHERE s.filterId = f.filterId)",
    ),
    Case(
        "replicated with director and child",
        "SELECT o.objectId, f.filterName, s.psfFlux FROM Object o JOIN Source s ON o.objectId = s.objectId "
        "JOIN Filter f ON s.filterId = f.filterId WHERE o.objectId IN (1000700, 1000056, 1007000)",
    ),
    Case("replicated, crossed", "SELECT count(*) FROM Object CROSS JOIN Filter WHERE Object.flags = 3"),
]

# Both sides have a column of the same name, the larger one is written last, and a condition on the smaller one's stays
# above the join: once DataFusion has exchanged the sides, it must not take that column for the other.
SAME_NAMES = [
    Case(
        f"{join} join, {left} and {right}, where {condition}",
        f"SELECT count(*), count(x.{key}), count(y.{key}), min(x.{key}), max(y.{key}) "
        f"FROM {left} x {join} JOIN {right} y ON x.{key} = y.{key} WHERE {condition}",
    )
    for left, right, key in (("Source", "Object", "objectId"), ("Object", "RefMatch", "objectId"))
    for join in ("LEFT", "RIGHT", "FULL")
    for condition in (
        f"x.{key} IS NULL",
        f"y.{key} IS NULL",
        f"x.{key} IS NULL OR y.{key} < 1000700",
        f"coalesce(x.{key}, 0) = 0",
    )
]

REF = "RefMatch m JOIN RefObject r ON m.refId = r.refId"
OBJ = "RefMatch m JOIN Object o ON m.objectId = o.objectId"
BOTH = "RefObject r JOIN RefMatch m ON r.refId = m.refId JOIN Object o ON o.objectId = m.objectId"

MATCHES = [
    Case(
        "match alone counts each pair once", "SELECT count(*), count(refId), count(objectId), sum(score) FROM RefMatch"
    ),
    Case("match alone, all rows", "SELECT refId, objectId, score FROM RefMatch"),
    Case("match alone, all columns", "SELECT * FROM RefMatch WHERE score > 0.99"),
    Case(
        "match alone, repeated pairs",
        "SELECT refId, objectId, count(*) FROM RefMatch GROUP BY refId, objectId HAVING count(*) > 1",
    ),
    Case("match alone, NULLs", "SELECT * FROM RefMatch WHERE refId IS NULL OR objectId IS NULL"),
    Case("match by left key", "SELECT * FROM RefMatch WHERE refId IN (5000001, 5000002, 5000003, 5000004, 5000005)"),
    Case(
        "match by right key", "SELECT * FROM RefMatch WHERE objectId IN (1000700, 1000056, 1007000, 1000777, 1001400)"
    ),
    Case("match with its left director", f"SELECT m.refId, m.objectId, r.rMag FROM {REF}"),
    Case("match with its right director", f"SELECT m.refId, m.objectId, o.flags FROM {OBJ}"),
    Case("match with both", f"SELECT m.refId, m.objectId, r.rMag, o.flags, m.score FROM {BOTH}"),
    Case("match with both, counted", f"SELECT count(*), sum(m.score) FROM {BOTH}"),
    Case(
        "match with both, the pair's separation",
        f"SELECT m.refId, m.objectId, scisql_angSep(r.ra, r.decl, o.ra_PS, o.decl_PS) FROM {BOTH}",
        tolerance=Tolerance(relative=1e-8, absolute=1e-12),
    ),
    Case(
        "match with both, in a cone of the right",
        f"SELECT m.refId, m.objectId FROM {BOTH} WHERE scisql_s2PtInCircle(o.ra_PS, o.decl_PS, 10, 20, 2) = 1",
    ),
    Case(
        "match with both, in a box of the left",
        f"SELECT m.refId, m.objectId FROM {BOTH} WHERE scisql_s2PtInBox(r.ra, r.decl, 350, 9.99, 10, 20.01) = 1",
    ),
    Case(
        "match with both, across stripes",
        f"SELECT m.refId, m.objectId FROM {BOTH} WHERE floor(r.decl / 10) <> floor(o.decl_PS / 10)",
    ),
    same_rows(
        "match with both, in an area",
        "SELECT m.refId, m.objectId FROM " + BOTH + " WHERE {where}",
        "qserv_areaspec_box(355, -20, 5, 20)",
        "scisql_s2PtInBox(r.ra, r.decl, 355, -20, 5, 20) = 1 AND scisql_s2PtInBox(o.ra_PS, o.decl_PS, 355, -20, 5, 20) = 1",
    ),
    Case(
        "match left joined to both",
        "SELECT m.refId, m.objectId, r.rMag, o.flags FROM RefMatch m LEFT JOIN RefObject r ON m.refId = r.refId "
        "LEFT JOIN Object o ON m.objectId = o.objectId WHERE m.score < 0.3",
    ),
    Case(
        "objects without a match",
        "SELECT count(*), sum(o.flags) FROM Object o LEFT JOIN RefMatch m ON o.objectId = m.objectId WHERE m.score IS NULL",
    ),
    Case(
        "references without a match",
        "SELECT r.refId FROM RefObject r WHERE NOT EXISTS (SELECT 1 FROM RefMatch m WHERE m.refId = r.refId)",
    ),
    Case(
        "pairs without an object",
        "SELECT m.refId, m.objectId FROM RefMatch m WHERE NOT EXISTS (SELECT 1 FROM Object o WHERE o.objectId = m.objectId)",
    ),
    Case(
        "pairs without a reference, right join",
        "SELECT m.refId, m.objectId FROM RefObject r RIGHT JOIN RefMatch m ON r.refId = m.refId WHERE r.refId IS NULL",
    ),
    Case(
        "full join with the right director",
        "SELECT count(*), count(m.score), count(o.objectId) FROM RefMatch m FULL JOIN Object o ON m.objectId = o.objectId",
    ),
    Case("match grouped by director's column", f"SELECT r.isStar, count(*), avg(m.score) FROM {REF} GROUP BY r.isStar"),
    Case(
        "match, director and child",
        "SELECT m.refId, s.sourceId FROM RefMatch m JOIN Object o ON m.objectId = o.objectId "
        "JOIN Source s ON s.objectId = o.objectId WHERE m.score > 0.97",
    ),
    Case(
        "match joined to child without the director",
        "SELECT count(*), sum(m.score) FROM RefMatch m JOIN Source s ON s.objectId = m.objectId",
    ),
    Case(
        "match with itself",
        "SELECT count(*) FROM RefMatch a JOIN RefMatch b ON a.objectId = b.objectId AND a.refId = b.refId",
    ),
    Case("match below a union", "SELECT refId AS k FROM RefMatch UNION ALL SELECT objectId FROM RefMatch"),
]


def pairs(name: str, area: str, radius: float, condition: str = "a.objectId < b.objectId") -> Case:
    """Close pairs of Object within a circle."""
    template = (
        "SELECT a.objectId, b.objectId, scisql_angSep(a.ra_PS, a.decl_PS, b.ra_PS, b.decl_PS) FROM Object a, Object b "
        f"WHERE {{where}} AND scisql_angSep(a.ra_PS, a.decl_PS, b.ra_PS, b.decl_PS) < {radius} AND {condition}"
    )
    inside = "scisql_s2PtInCircle({0}.ra_PS, {0}.decl_PS, " + area + ") = 1"
    return same_rows(
        f"close pairs {name}",
        template,
        f"qserv_areaspec_circle({area})",
        inside.format("a") + " AND " + inside.format("b"),
        tolerance=Tolerance(relative=1e-8, absolute=1e-12),
    )


CLOSE_PAIRS = [
    pairs("in a clump", "10, 20, 0.05", 0.002),
    pairs("across the seam and the equator", "0, 0, 0.05", 0.002),
    pairs("around the north pole", "0, 90, 0.05", 0.01),
    pairs("around the south pole", "0, -90, 0.03", 0.01),
    pairs("over many chunks, wider than the overlap", "200, -40, 20", 1.0),
    pairs("of a whole clump", "0, 0, 0.02", 0.03),
    pairs("with themselves", "10, 20, 0.005", 0.001, condition="a.flags = b.flags"),
    Case(
        "close pairs restricted on one side",
        "SELECT a.objectId, b.objectId FROM Object a, Object b "
        "WHERE scisql_s2PtInCircle(a.ra_PS, a.decl_PS, 10, 20, 0.01) = 1 "
        "AND scisql_angSep(a.ra_PS, a.decl_PS, b.ra_PS, b.decl_PS) < 0.004 AND a.objectId <> b.objectId",
    ),
    Case(
        "close pairs of two directors",
        "SELECT o.objectId, r.refId FROM Object o, RefObject r WHERE scisql_s2PtInBox(o.ra_PS, o.decl_PS, 0, 9, 20, 11) = 1 "
        "AND scisql_angSep(o.ra_PS, o.decl_PS, r.ra, r.decl) < 0.001",
    ),
]

# Each of these once had a wrong answer, none, or an error of the query engine's.
MEMBERSHIPS = [
    Case(
        "not in a set of the row's own, with NULLs in others",
        "SELECT o.objectId FROM Object o WHERE o.flags = 3 AND o.nObs NOT IN "
        "(SELECT s.filterId FROM Source s WHERE s.objectId = o.objectId)",
    ),
    Case(
        "not in a set by an inequality",
        "SELECT f.filterId FROM Filter f WHERE f.filterName NOT IN "
        "(SELECT g.filterName FROM Filter g WHERE g.filterId > f.filterId AND g.photClam > 400)",
    ),
    Case(
        "not in, NULL on the left",
        "SELECT count(*) FROM Object o WHERE NOT (o.nObs IN (SELECT s.filterId FROM Source s WHERE s.objectId = o.objectId))",
    ),
    Case(
        "in, in the ON of a join",
        "SELECT o.objectId, f.filterId FROM Object o JOIN Filter f ON o.flags = f.filterId "
        "AND (o.nObs IN (SELECT s.filterId FROM Source s)) IS NULL",
    ),
    Case(
        "exists, in the ON of a join",
        "SELECT count(*), min(o.objectId) FROM Object o JOIN Filter f ON o.flags = f.filterId "
        "AND EXISTS (SELECT 1 FROM Source s WHERE s.filterId = f.filterId)",
    ),
    Case(
        "groups and their total by a key",
        "SELECT objectId, count(*) FROM Source WHERE filterId = 5 AND objectId > 1279000 GROUP BY ROLLUP (objectId)",
    ),
    Case(
        "totals of a director's key alone",
        "SELECT count(*), count(objectId) FROM (SELECT objectId, max(flags) AS m FROM Object GROUP BY ROLLUP (objectId)) g",
    ),
    Case(
        "a limit beyond memory, of groups in order",
        "SELECT flags, max(nObs) AS m FROM Object GROUP BY flags ORDER BY m DESC, flags LIMIT 1000000000000",
        ordered=True,
    ),
    Case(
        "a limit beyond memory, of distinct values in order",
        "SELECT DISTINCT flags FROM Object ORDER BY flags LIMIT 9223372036854775807",
        ordered=True,
    ),
]

CASES = DIRECTOR_AND_CHILD + WITH_REPLICATED + SAME_NAMES + MATCHES + CLOSE_PAIRS + MEMBERSHIPS
