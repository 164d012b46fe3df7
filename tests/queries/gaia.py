"""Real stars: the sample of Gaia DR3 that `make demo` loads."""

from __future__ import annotations

from comparison import Tolerance
from queries import Case, same_rows

CASES = [
    Case("count", "SELECT count(*), count(bp_magnitude), min(ra), max(ra), min(dec), max(dec) FROM gaia_source"),
    Case("one star", "SELECT * FROM gaia_source WHERE source_id = 1576683529448755328"),
    Case("stars of Hipparcos", "SELECT source_id, ra, dec FROM gaia_source WHERE source_id < 0"),
    Case(
        "cone",
        "SELECT source_id, ra, dec, magnitude FROM gaia_source WHERE scisql_s2PtInCircle(ra, dec, 56.75, 24.12, 2) = 1",
    ),
    same_rows(
        "area of a cone",
        "SELECT * FROM gaia_source WHERE {where}",
        "qserv_areaspec_circle(56.75, 24.12, 1)",
        "scisql_s2PtInCircle(ra, dec, 56.75, 24.12, 1) = 1",
    ),
    Case("box through RA 0", "SELECT source_id FROM gaia_source WHERE scisql_s2PtInBox(ra, dec, 358, -3, 2, 3) = 1"),
    Case("north cap", "SELECT source_id FROM gaia_source WHERE dec > 86"),
    Case("south cap", "SELECT source_id FROM gaia_source WHERE scisql_s2PtInCircle(ra, dec, 0, -90, 3) = 1"),
    Case("counts by magnitude", "SELECT floor(magnitude) AS m, count(*) FROM gaia_source GROUP BY floor(magnitude)"),
    Case(
        "reddest",
        "SELECT source_id, bp_magnitude - rp_magnitude AS colour FROM gaia_source WHERE bp_magnitude IS NOT NULL "
        "AND rp_magnitude IS NOT NULL ORDER BY colour DESC, source_id LIMIT 20",
        ordered=True,
    ),
    Case("without a colour", "SELECT count(*), min(magnitude) FROM gaia_source WHERE bp_magnitude IS NULL"),
    Case(
        "close pairs",
        "SELECT a.source_id, b.source_id FROM gaia_source a, gaia_source b "
        "WHERE scisql_s2PtInCircle(a.ra, a.dec, 130, 20, 4) = 1 AND scisql_s2PtInCircle(b.ra, b.dec, 130, 20, 4) = 1 "
        "AND scisql_angSep(a.ra, a.dec, b.ra, b.dec) < 0.01 AND a.source_id < b.source_id",
    ),
    Case(
        "bright in an ellipse",
        "SELECT source_id FROM gaia_source "
        "WHERE scisql_s2PtInEllipse(ra, dec, 83, 0, 20000, 9000, 45) = 1 AND magnitude < 9",
    ),
    Case(
        "mean colour by declination",
        "SELECT floor(dec / 10) AS b, count(*), avg(bp_magnitude - rp_magnitude) FROM gaia_source GROUP BY floor(dec / 10)",
        tolerance=Tolerance(relative=1e-7),
    ),
]
