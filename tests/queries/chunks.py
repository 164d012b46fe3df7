"""The number of the chunk, which partitioned tables have beside the columns of `*`.

DuckDB finds the expected numbers in `chunk_of_object` and `chunk_of_reference`: the positions of the directors' rows as
`meridian sky locate` numbers them.
"""

from __future__ import annotations

from comparison import Tolerance
from queries import Case

MEANS = Tolerance(relative=1e-9)
NUMBERED = "Object JOIN chunk_of_object USING (objectId)"
PAIRS = (
    "RefMatch m LEFT JOIN chunk_of_reference r ON r.refId = m.refId LEFT JOIN chunk_of_object o ON o.objectId = m.objectId"
)

CASES = [
    Case(
        "density by chunk",
        "SELECT chunkId, count(*) AS n, avg(ra_PS), avg(decl_PS) FROM Object GROUP BY chunkId",
        f"SELECT chunkId, count(*), avg(ra_PS), avg(decl_PS) FROM {NUMBERED} GROUP BY chunkId",
        tolerance=MEANS,
    ),
    Case(
        "chunks of which few rows are left",
        "SELECT CHUNKID, count(*) FROM Object WHERE flags = 3 AND nObs > 5 GROUP BY chunkid",
        f"SELECT chunkId, count(*) FROM {NUMBERED} WHERE flags = 3 AND nObs > 5 GROUP BY chunkId",
    ),
    Case(
        "one chunk by its number",
        "SELECT objectId, chunkId FROM Object WHERE chunkId = 0",
        f"SELECT objectId, chunkId FROM {NUMBERED} WHERE chunkId = 0",
    ),
    Case(
        "some chunks or a region",
        "SELECT objectId FROM Object o WHERE o.chunkId IN (36, 40) OR (o.chunkId > 200 AND decl_PS < 10)",
        f"SELECT objectId FROM {NUMBERED} WHERE chunkId IN (36, 40) OR (chunkId > 200 AND decl_PS < 10)",
    ),
    Case(
        "the fullest chunks",
        "SELECT chunkId, count(*) AS n FROM Object GROUP BY chunkId HAVING count(*) > 50 AND chunkId > 40 "
        "ORDER BY n DESC, chunkId LIMIT 20",
        f"SELECT chunkId, count(*) AS n FROM {NUMBERED} GROUP BY chunkId HAVING count(*) > 50 AND chunkId > 40 "
        "ORDER BY n DESC, chunkId LIMIT 20",
        ordered=True,
    ),
    Case(
        "all columns of one chunk",
        "SELECT * FROM Object WHERE chunkId = 40",
        "SELECT o.* FROM Object o JOIN chunk_of_object c USING (objectId) WHERE chunkId = 40",
    ),
    Case(
        "a child is in the chunk of its director",
        "SELECT o.chunkId, s.chunkId, count(*) FROM Object o JOIN Source s ON s.objectId = o.objectId GROUP BY 1, 2",
        "SELECT c.chunkId, c.chunkId, count(*) FROM chunk_of_object c JOIN Source s USING (objectId) GROUP BY 1, 2",
    ),
    Case(
        "all columns of a join in one chunk",
        "SELECT * FROM Object o LEFT JOIN Source s ON s.objectId = o.objectId WHERE o.chunkId = 36",
        "SELECT o.*, s.* FROM Object o LEFT JOIN Source s ON s.objectId = o.objectId "
        "JOIN chunk_of_object c ON c.objectId = o.objectId WHERE c.chunkId = 36",
    ),
    Case(
        "pairs are in the chunk of their left end",
        "SELECT m.chunkId, count(*) FROM RefMatch m JOIN RefObject r ON r.refId = m.refId GROUP BY m.chunkId",
        f"SELECT r.chunkId, count(*) FROM {PAIRS} WHERE r.refId IS NOT NULL GROUP BY r.chunkId",
    ),
    Case(
        "pairs joined by their right end",
        "SELECT m.chunkId, o.chunkId, count(*) FROM RefMatch m JOIN RefObject r ON r.refId = m.refId "
        "JOIN Object o ON o.objectId = m.objectId GROUP BY 1, 2",
        f"SELECT r.chunkId, o.chunkId, count(*) FROM {PAIRS} WHERE r.refId IS NOT NULL AND o.objectId IS NOT NULL "
        "GROUP BY 1, 2",
    ),
    Case(
        "the chunks of a region",
        "SELECT DISTINCT chunkId FROM Object WHERE qserv_areaspec_circle(200, -40, 9)",
        f"SELECT DISTINCT chunkId FROM {NUMBERED} WHERE scisql_s2PtInCircle(ra_PS, decl_PS, 200, -40, 9) = 1",
    ),
]
