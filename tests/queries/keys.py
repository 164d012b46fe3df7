"""Keys: one, many, missing, awkward; of the director and of the child."""

from __future__ import annotations

from queries import Case

OBJECTS = "SELECT objectId, ra_PS, flags, name FROM Object WHERE {}"
SOURCES = "SELECT sourceId, objectId, taiMidPoint, psfFlux FROM Source WHERE {}"
MANY = ", ".join(str(1_000_000 + 7 * n) for n in range(100, 4100, 2))

WHERES = {
    "one": "objectId = 1000700",
    "one, constant first": "1000700 = objectId",
    "one in a list": "objectId IN (1000700)",
    "a few": "objectId IN (1000056, 1000700, 1007000, 1)",
    "some of them missing": "objectId IN (1000056, 1000057, -5, 12345678901234)",
    "missing": "objectId = 1000001",
    "repeated in the list": "objectId IN (1000700, 1000700, 1000056)",
    "two thousand": f"objectId IN ({MANY})",
    "negative": "objectId = -77",
    "zero": "objectId = 0",
    "beyond a double's precision": "objectId = 9007199254740993",
    "its neighbour": "objectId = 9007199254740992",
    "very large": "objectId = 4611686018427387904",
    "too large for any row": "objectId = 99999999999999999999",
    "as text": "objectId = '1000700'",
    "as a whole decimal": "objectId = 1000700.0",
    "as a fraction": "objectId = 1000700.5",
    "with NULL in the list": "objectId IN (1000700, NULL)",
    "= NULL": "objectId = NULL",
    "NOT IN with NULL": "objectId NOT IN (1000700, NULL)",
    "contradiction": "objectId = 1000700 AND objectId = 1000056",
    "two that agree": "objectId = 1000700 AND objectId IN (1000056, 1000700)",
    "OR of keys": "objectId = 1000700 OR objectId = 1000056",
    "computed": "objectId = 1000000 + 7 * 100",
    "key and region that disagree": "objectId = 1000700 AND scisql_s2PtInCircle(ra_PS, decl_PS, 0, 90, 0.0001) = 1",
    "key and flag": "objectId IN (1000056, 1000700, 1007000) AND flags < 16",
    "key range": "objectId BETWEEN 1000000 AND 1000400",
    "key below zero": "objectId < 0",
}

COUNTED = {
    "NOT =": "NOT (objectId = 1000700)",
    "<>": "objectId <> 1000700",
    "NOT IN": "objectId NOT IN (1000700, 1000056, 5)",
    "key OR flag": "objectId = 1000700 OR flags = 7",
    "key in CASE": "CASE WHEN objectId = 1000700 THEN 1 ELSE 0 END = 0",
}

OF_CHILD = {
    "light curve": "objectId = 1000700",
    "light curves": "objectId IN (1000056, 1000700, 1007000, 1000063)",
    "of no object": "objectId = 1000001",
    "of an orphan": "objectId = -1000002",
    "of an orphan with a large key": "objectId = 800000001",
    "of orphans and objects": "objectId IN (-1000004, 800000003, 1000700, 9007199254740993)",
    "NULL": "objectId IS NULL",
    "own key": "sourceId = 29710000300",
    "own keys": "sourceId IN (29710000300, 29710000303, 29710000301)",
    "key and filter": "objectId IN (1000056, 1000700, 1007000) AND filterId IN (1, 2)",
    "all orphans with even numbers": "objectId <= -1000000",
    "NOT of a key": "NOT (objectId > -1000000)",
}

CASES = (
    [Case(f"key {name}", OBJECTS.format(where)) for name, where in WHERES.items()]
    + [
        Case(f"key {name}", f"SELECT count(*), min(objectId), max(ra_PS) FROM Object WHERE {where}")
        for name, where in COUNTED.items()
    ]
    + [Case(f"child key {name}", SOURCES.format(where)) for name, where in OF_CHILD.items()]
    + [
        Case(
            "light curve in order of time",
            "SELECT taiMidPoint, scisql_fluxToAbMag(psfFlux), ra, decl FROM Source "
            "WHERE objectId = 1000700 ORDER BY taiMidPoint",
            ordered=True,
        ),
        Case("all columns of one object", "SELECT * FROM Object WHERE objectId = 1000700"),
        Case("key of an alias", "SELECT o.name FROM Object AS o WHERE o.objectId = 1000700"),
        Case("key of the second director", "SELECT * FROM RefObject WHERE refId IN (-5, 0, 5000077)"),
        Case("count of a missing key", "SELECT count(*), max(ra_PS) FROM Object WHERE objectId = 1000001"),
        Case(
            "keys from a subquery",
            "SELECT sourceId FROM Source WHERE objectId IN (SELECT objectId FROM Object WHERE decl_PS > 89.8)",
        ),
    ]
)
