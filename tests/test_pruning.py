"""Restricted queries read no more chunks than they need, by what EXPLAIN says; joins on the key stay within pieces."""

from __future__ import annotations

import re

import pytest
from catalogues import Catalogue

CHUNKS = re.compile(r"ChunkPhaseExec: (\d+) of (\d+) chunks?")

# How many chunks each restriction may touch at most. The centre (10, 20) is on the edge of two stripes.
RESTRICTED = {
    "cone": ("Object WHERE scisql_s2PtInCircle(ra_PS, decl_PS, 10, 20, 0.03) = 1", 2),
    "area": ("Object WHERE qserv_areaspec_circle(10, 20, 0.03) AND flags = 1", 2),
    # Orphans of one key go together wherever they are, so some chunks of the child have rows far outside them.
    "area of the child": ("Source WHERE qserv_areaspec_circle(10, 20, 0.03)", 150),
    "separation": ("Object WHERE scisql_angSep(ra_PS, decl_PS, 10, 20) < 0.03", 2),
    "separation, constant first": ("Object WHERE 0.03 > scisql_angSep(10, 20, ra_PS, decl_PS)", 2),
    "box through RA 0": ("Object WHERE scisql_s2PtInBox(ra_PS, decl_PS, 359.5, -1, 0.5, 1) = 1", 4),
    "between": ("Object WHERE ra_PS BETWEEN 101 AND 102 AND decl_PS BETWEEN 12 AND 13", 1),
    "comparisons": ("Object WHERE ra_PS > 101 AND ra_PS < 102 AND decl_PS >= 12 AND 13 > decl_PS", 1),
    "cap": ("Object WHERE decl_PS > 89.9", 3),
    "key": ("Object WHERE objectId = 1000700", 1),
    "keys": ("Object WHERE objectId IN (1000700, 1000056, 1007000)", 3),
    "missing key": ("Object WHERE objectId = 1000001", 1),
    "key of the child": ("Source WHERE objectId = 1000700", 1),
    "orphan's key": ("Source WHERE objectId = -1000002", 1),
    "join on a key": ("Object o JOIN Source s ON o.objectId = s.objectId WHERE o.objectId = 1000700", 1),
    "small ellipse": ("Object WHERE scisql_s2PtInEllipse(ra_PS, decl_PS, 105, 15, 400, 120, 60) = 1", 1),
    "polygon": ("Object WHERE scisql_s2PtInCPoly(ra_PS, decl_PS, 104, 14, 105, 14, 104.5, 15) = 1", 1),
    "polygon as one value": ("Object WHERE scisql_s2PtInCPoly(ra_PS, decl_PS, scisql_s2CPolyToBin(104, 14, 105, 14, 104.5, 15)) = 1", 1),
    "polygon as a text": ("Object WHERE scisql_s2PtInCPoly(ra_PS, decl_PS, '104 14 105 14 104.5 15')", 1),
    "region inside a subquery": ("(SELECT * FROM Object WHERE decl_PS > 89.9) t WHERE flags = 1", 3),
}

UNRESTRICTED = {
    "region compared with 0": "Object WHERE scisql_s2PtInCircle(ra_PS, decl_PS, 10, 20, 0.03) = 0",
    "region under NOT": "Object WHERE NOT (scisql_s2PtInCircle(ra_PS, decl_PS, 10, 20, 0.03) = 1)",
    "key or flag": "Object WHERE objectId = 1000700 OR flags = 7",
    "not a key": "Object WHERE objectId <> 1000700",
}


def touched(sky: Catalogue, query: str) -> list[tuple[int, int]]:
    """How many chunks of how many each chunk phase of a query reads."""
    answer = sky.meridian.must("sql", "--data", sky.data, "--db", sky.db, f"EXPLAIN SELECT * FROM {query}")
    phases = [(int(read), int(of)) for read, of in CHUNKS.findall(answer.text)]
    assert phases, f"EXPLAIN does not say how many chunks are read:\n{answer.text}"
    return phases


@pytest.mark.parametrize("name", RESTRICTED)
def test_restricted_queries_read_few_chunks(synthetic_sky: Catalogue, name: str) -> None:
    query, most = RESTRICTED[name]
    for read, of in touched(synthetic_sky, query):
        assert read <= most < of


@pytest.mark.parametrize("name", UNRESTRICTED)
def test_what_restricts_nothing_reads_everything(synthetic_sky: Catalogue, name: str) -> None:
    for read, of in touched(synthetic_sky, UNRESTRICTED[name]):
        assert read == of


@pytest.mark.parametrize(
    "query",
    [
        "Object o JOIN Source s ON o.objectId = s.objectId",
        "Object o LEFT JOIN Source s ON o.objectId = s.objectId",
        "Object o JOIN Source s ON o.objectId = s.objectId JOIN Filter f ON s.filterId = f.filterId",
    ],
)
def test_joins_on_the_key_stay_within_pieces(synthetic_sky: Catalogue, query: str) -> None:
    assert len(touched(synthetic_sky, query)) == 1
