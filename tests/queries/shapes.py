"""Shapes of a query: aggregates, groups, order, set operations, subqueries, common tables, windows."""

from __future__ import annotations

from comparison import Tolerance
from queries import Case

IN_CIRCLE = "scisql_s2PtInCircle(ra_PS, decl_PS, 200, -40, 9) = 1"
NOWHERE = "scisql_s2PtInCircle(ra_PS, decl_PS, 77.7, 12.3, 0.00001) = 1"
MOMENTS = Tolerance(relative=1e-7)

AGGREGATES = [
    Case("count of all", "SELECT count(*) FROM Object"),
    Case("count of the child", "SELECT count(*), count(objectId), count(ra), count(DISTINCT filterId) FROM Source"),
    Case("count of a column", "SELECT count(iFlux_PS), count(name), count(objectId) FROM Object"),
    Case(
        "least and greatest",
        "SELECT min(ra_PS), max(ra_PS), min(objectId), max(objectId), min(name), max(name) FROM Object",
    ),
    Case("sums", "SELECT sum(flags), sum(nObs), sum(decl_PS), avg(decl_PS), avg(nObs) FROM Object", tolerance=MOMENTS),
    Case("sum of fluxes", "SELECT sum(psfFlux), avg(psfFluxErr) FROM Source WHERE psfFlux > 0"),
    Case("moments", "SELECT stddev(taiMidPoint), var_samp(decl), var_pop(ra) FROM Source", tolerance=MOMENTS),
    Case(
        "filtered aggregates",
        "SELECT count(*) FILTER (WHERE flags = 3), sum(nObs) FILTER (WHERE decl_PS > 0) FROM Object",
    ),
    Case("conditional sum", "SELECT sum(CASE WHEN flags > 7 THEN 1 ELSE 0 END) FROM Object WHERE " + IN_CIRCLE),
    Case("aggregate of an expression", "SELECT max(flags * 2 + nObs), min(abs(decl_PS)) FROM Object"),
    Case("count distinct", "SELECT count(DISTINCT name), count(DISTINCT flags), count(DISTINCT objectId) FROM Object"),
    Case("median", "SELECT median(taiMidPoint) FROM Source WHERE filterId = 3"),
    Case(
        "aggregate of nothing",
        f"SELECT count(*), count(name), sum(flags), min(ra_PS), avg(iFlux_PS) FROM Object WHERE {NOWHERE}",
    ),
    Case("aggregate of a missing key", "SELECT count(*), sum(psfFlux) FROM Source WHERE objectId = 1000001"),
    Case(
        "aggregate of a contradiction", "SELECT count(*), max(ra_PS) FROM Object WHERE decl_PS > 10 AND decl_PS < -10"
    ),
    Case("aggregate where false", "SELECT count(*), sum(flags) FROM Object WHERE 1 = 0"),
    Case("group of nothing", f"SELECT flags, count(*) FROM Object WHERE {NOWHERE} GROUP BY flags"),
    Case("rows of nothing", f"SELECT * FROM Object WHERE {NOWHERE}"),
    Case(
        "join of nothing", "SELECT count(*) FROM Object o JOIN Source s ON o.objectId = s.objectId WHERE o.decl_PS > 95"
    ),
]

GROUPS = [
    Case("group by a small column", "SELECT flags, count(*), avg(decl_PS), min(objectId) FROM Object GROUP BY flags"),
    Case("group by a column with NULL", "SELECT nObs, count(*) FROM Object GROUP BY nObs"),
    Case("group by text", "SELECT name, count(*), sum(flags) FROM Object GROUP BY name"),
    Case("group by the key", f"SELECT objectId, count(*) FROM Object WHERE {IN_CIRCLE} GROUP BY objectId"),
    Case(
        "group by the child's key",
        "SELECT objectId, count(*), avg(psfFlux) FROM Source GROUP BY objectId HAVING count(*) > 8",
    ),
    Case(
        "group by key and filter",
        "SELECT objectId, filterId, count(*) AS n FROM Source GROUP BY objectId, filterId HAVING count(*) > 3",
    ),
    Case(
        "group by an expression",
        "SELECT floor(decl_PS / 10) AS band, count(*) FROM Object GROUP BY floor(decl_PS / 10)",
    ),
    Case("group by position of the column", "SELECT flags, extendedness, count(*) FROM Object GROUP BY 1, 2"),
    Case(
        "having a sum",
        "SELECT flags, sum(nObs) AS s FROM Object GROUP BY flags HAVING sum(nObs) > 60000 AND flags <> 2",
    ),
    Case(
        "group in order", "SELECT filterId, count(*) AS n FROM Source GROUP BY filterId ORDER BY n DESC", ordered=True
    ),
    Case(
        "groups of groups",
        "SELECT n, count(*) FROM (SELECT objectId, count(*) AS n FROM Source WHERE objectId IS NOT NULL GROUP BY objectId) t "
        "GROUP BY n",
    ),
    Case("distinct", "SELECT DISTINCT flags, extendedness FROM Object"),
    Case("distinct in a region", f"SELECT DISTINCT name FROM Object WHERE {IN_CIRCLE}"),
    Case("distinct in the order of expressions", "SELECT DISTINCT flags % 7, flags % 3 + 1 AS f FROM Object ORDER BY (flags % 3) + 1 DESC, flags % 7", ordered=True),
    Case("distinct groups in the order of an aggregate", "SELECT DISTINCT count(*) FROM Source GROUP BY filterId ORDER BY count(*)", ordered=True),
    Case(
        "some distinct values of rows that a window function has sorted",
        "SELECT count(*) FROM (SELECT DISTINCT flags FROM (SELECT flags, lag(objectId) OVER (PARTITION BY flags ORDER BY objectId) AS b FROM Object) w"
        " WHERE b IS NULL LIMIT 2) d",
    ),
    Case("a constant among rows that are chosen by it", "SELECT count(*) FROM Object WHERE 2 IN (SELECT filterId FROM Source WHERE filterId = 2) AND decl_PS > 80"),
    Case("a constant beside a column that equals it", "SELECT count(*) FROM (SELECT 2 AS c, filterId FROM Source WHERE filterId = 2) s WHERE c = filterId"),
    Case(
        "values of subqueries without rows",
        "SELECT (SELECT objectId FROM Object WHERE objectId = -5) AS v, (SELECT 1 FROM Object WHERE objectId = -5) IS NULL AS n,"
        " COALESCE((SELECT count(*) FROM Object WHERE objectId = -5 HAVING count(*) > 1), -1) AS c",
    ),
    Case("an aggregate that is never NULL, of groups that are left out", "SELECT (SELECT BIT_XOR(filterId) FROM Source HAVING MIN(filterId) > 100) AS v, COUNT(*) FROM Object"),
    Case("a subquery without rows among conditions", "SELECT count(*) FROM Source WHERE (SELECT objectId FROM Object WHERE objectId = -5) IS NULL AND filterId = 2"),
    Case("no row equals a subquery without rows", "SELECT count(*) FROM Source WHERE NOT (filterId = (SELECT objectId FROM Object WHERE objectId = -5))"),
    Case("distinct of the key of the child", "SELECT count(*) FROM (SELECT DISTINCT objectId FROM Source) d"),
]

ORDERS = [
    Case("first ten", "SELECT objectId, decl_PS FROM Object ORDER BY decl_PS DESC, objectId LIMIT 10", ordered=True),
    Case("second ten", "SELECT objectId FROM Object ORDER BY objectId LIMIT 10 OFFSET 10", ordered=True),
    Case("offset beyond the end", "SELECT objectId FROM Object ORDER BY objectId LIMIT 10 OFFSET 50000", ordered=True),
    Case("limit of nothing", "SELECT objectId FROM Object ORDER BY objectId LIMIT 0", ordered=True),
    Case("limit without order gives that many", "SELECT count(*) FROM (SELECT objectId FROM Object LIMIT 17) t"),
    Case("limit in a region", f"SELECT count(*) FROM (SELECT objectId FROM Object WHERE {IN_CIRCLE} LIMIT 5) t"),
    Case(
        "NULLs last", "SELECT nObs, objectId FROM Object ORDER BY nObs DESC NULLS LAST, objectId LIMIT 50", ordered=True
    ),
    Case("NULLs first", "SELECT nObs, objectId FROM Object ORDER BY nObs NULLS FIRST, objectId LIMIT 50", ordered=True),
    Case(
        "order by text",
        "SELECT name, objectId FROM Object WHERE flags = 4 ORDER BY name NULLS LAST, objectId",
        ordered=True,
    ),
    Case(
        "order by an alias",
        "SELECT objectId, -decl_PS AS south FROM Object ORDER BY south, objectId DESC LIMIT 5",
        ordered=True,
    ),
    Case(
        "order by an expression",
        "SELECT objectId FROM Object ORDER BY abs(decl_PS - 33.3), objectId LIMIT 7",
        ordered=True,
    ),
    Case(
        "all rows in order",
        "SELECT sourceId FROM Source WHERE filterId = 5 ORDER BY taiMidPoint, sourceId",
        ordered=True,
    ),
]

SETS = [
    Case(
        "union all",
        f"SELECT objectId FROM Object WHERE {IN_CIRCLE} UNION ALL SELECT objectId FROM Object WHERE decl_PS > 89.5",
    ),
    Case("union", "SELECT flags FROM Object UNION SELECT filterId FROM Source"),
    Case(
        "union of different restrictions",
        "SELECT objectId FROM Object WHERE objectId = 1000700 UNION ALL SELECT objectId FROM Source WHERE objectId = 1000056",
    ),
    Case("except", "SELECT objectId FROM Object EXCEPT SELECT objectId FROM Source"),
    Case("intersect", "SELECT objectId FROM Source INTERSECT SELECT objectId FROM RefMatch"),
    Case(
        "in a subquery",
        "SELECT count(*) FROM Object WHERE objectId IN (SELECT objectId FROM RefMatch WHERE score > 0.9)",
    ),
    Case(
        "not in a subquery",
        "SELECT count(*) FROM Object WHERE objectId NOT IN (SELECT objectId FROM Source WHERE objectId IS NOT NULL)",
    ),
    Case(
        "not in a subquery with NULL", "SELECT count(*) FROM Object WHERE objectId NOT IN (SELECT objectId FROM Source)"
    ),
    Case(
        "scalar subquery",
        "SELECT objectId FROM Object WHERE decl_PS = (SELECT max(decl_PS) FROM Object WHERE decl_PS < 90)",
    ),
    Case(
        "scalar subquery in the select list",
        "SELECT flags, (SELECT count(*) FROM Filter) FROM Object WHERE objectId = 1000700",
    ),
    Case(
        "correlated subquery",
        "SELECT o.objectId, (SELECT count(*) FROM Source s WHERE s.objectId = o.objectId) AS n FROM Object o "
        "WHERE o.decl_PS > 89.8",
    ),
    Case(
        "derived table with a region inside",
        f"SELECT t.flags, count(*) FROM (SELECT * FROM Object WHERE {IN_CIRCLE}) t GROUP BY t.flags",
    ),
    Case(
        "derived table with a region outside",
        f"SELECT count(*) FROM (SELECT objectId, ra_PS, decl_PS FROM Object WHERE flags = 3) t WHERE {IN_CIRCLE}",
    ),
    Case(
        "limit inside, region outside",
        f"SELECT count(*) FROM (SELECT ra_PS, decl_PS FROM Object ORDER BY objectId LIMIT 1000) t WHERE {IN_CIRCLE}",
    ),
    Case(
        "common table",
        "WITH bright AS (SELECT objectId, ra_PS, decl_PS FROM Object WHERE rFlux_PS > 1e-27) "
        f"SELECT count(*), min(objectId) FROM bright WHERE {IN_CIRCLE}",
    ),
    Case(
        "common table used twice",
        "WITH t AS (SELECT objectId, count(*) AS n FROM Source GROUP BY objectId) "
        "SELECT a.objectId, b.n FROM t a JOIN t b ON a.objectId = b.objectId WHERE a.n = (SELECT max(n) FROM t WHERE objectId IS NOT NULL)",
    ),
    Case(
        "common tables in a chain",
        "WITH a AS (SELECT * FROM Object WHERE decl_PS > 80), b AS (SELECT objectId, flags FROM a WHERE ra_PS < 90) "
        "SELECT flags, count(*) FROM b GROUP BY flags",
    ),
    Case("no table at all", "SELECT 1 + 1, 'text', NULL"),
]

WINDOWS = [
    Case(
        "row number by object",
        "SELECT sourceId, row_number() OVER (PARTITION BY objectId ORDER BY taiMidPoint, sourceId) FROM Source "
        "WHERE objectId BETWEEN 1000000 AND 1002000",
    ),
    Case(
        "latest source of each object",
        "SELECT objectId, sourceId FROM (SELECT objectId, sourceId, row_number() OVER "
        "(PARTITION BY objectId ORDER BY taiMidPoint DESC, sourceId) AS k FROM Source) t WHERE k = 1 AND objectId > 1200000",
    ),
    Case(
        "lag in a light curve",
        "SELECT sourceId, taiMidPoint - lag(taiMidPoint) OVER (ORDER BY taiMidPoint) FROM Source WHERE objectId = 1000700",
    ),
    Case(
        "sum over the whole sky",
        "SELECT flags, n, sum(n) OVER (ORDER BY flags) FROM (SELECT flags, count(*) AS n FROM Object GROUP BY flags) t",
    ),
    Case(
        "rank in a region",
        f"SELECT objectId, rank() OVER (ORDER BY flags DESC) FROM Object WHERE {IN_CIRCLE}",
    ),
    Case("share of all", "SELECT objectId, count(*) OVER () FROM Object WHERE decl_PS > 89.95"),
]

CASES = AGGREGATES + GROUPS + ORDERS + SETS + WINDOWS
