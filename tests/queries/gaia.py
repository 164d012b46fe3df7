"""Real stars: the sample of Gaia DR3 that `make demo` loads."""

from __future__ import annotations

from comparison import Tolerance
from queries import Case

CASES = [
    Case("count", "SELECT count(*), min(ra), max(ra), min(dec), max(dec) FROM gaia"),
    Case(
        "cone", "SELECT source_id, ra, dec, magnitude FROM gaia WHERE scisql_s2PtInCircle(ra, dec, 56.75, 24.12, 2) = 1"
    ),
    Case("box through RA 0", "SELECT source_id FROM gaia WHERE scisql_s2PtInBox(ra, dec, 358, -3, 2, 3) = 1"),
    Case("north cap", "SELECT source_id FROM gaia WHERE dec > 86"),
    Case("south cap", "SELECT source_id FROM gaia WHERE scisql_s2PtInCircle(ra, dec, 0, -90, 3) = 1"),
    Case("counts by magnitude", "SELECT floor(magnitude) AS m, count(*) FROM gaia GROUP BY floor(magnitude)"),
    Case(
        "reddest",
        "SELECT source_id, bp_magnitude - rp_magnitude AS colour FROM gaia WHERE bp_magnitude IS NOT NULL ORDER BY colour DESC, source_id LIMIT 20",
        ordered=True,
    ),
    Case(
        "close pairs",
        "SELECT a.source_id, b.source_id FROM gaia a, gaia b WHERE scisql_s2PtInCircle(a.ra, a.dec, 130, 20, 4) = 1 "
        "AND scisql_s2PtInCircle(b.ra, b.dec, 130, 20, 4) = 1 AND scisql_angSep(a.ra, a.dec, b.ra, b.dec) < 0.01 "
        "AND a.source_id < b.source_id",
    ),
    Case(
        "brightest in an ellipse",
        "SELECT source_id FROM gaia WHERE scisql_s2PtInEllipse(ra, dec, 83, 0, 20000, 9000, 45) = 1 AND magnitude < 9",
    ),
    Case(
        "mean motion by declination",
        "SELECT floor(dec / 10) AS b, count(*), avg(pmra), avg(pmdec) FROM gaia GROUP BY floor(dec / 10)",
        tolerance=Tolerance(relative=1e-7),
    ),
]
