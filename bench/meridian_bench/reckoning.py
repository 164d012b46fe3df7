"""Which peers are not asked for all pairs of a box, because it would take them too long or too much memory.

Reckoned beforehand, from what they did on 2 cores with ten to a hundred million pairs: a peer that is left out of the
large box takes part in the small one.
"""

from __future__ import annotations

import math

from .constants import Constants
from .machine import memory_bytes
from .query import Pairs, Query

LONGEST_MINUTES = 5.0
# Of the machine: what a peer may use for one answer, beside the data of all contenders of its group.
MEMORY_SHARE = 0.25
# Ordered pairs a second, by what is done with them.
PAIRS_A_SECOND: dict[str, dict[str, float]] = {
    "duckdb": {"count": 30e6, "sum": 30e6, "cut": 25e6},
    "chdb": {"count": 25e6, "sum": 16e6, "cut": 17e6},
    "postgres": {"count": 1e6, "sum": 1e6, "cut": 1e6},
    "astropy": {"count": 1e6, "sum": 1e6, "cut": 1e6},
    # It counts whole branches of its tree at once.
    "scipy": {"count": 200e6, "sum": 15e6, "cut": 25e6},
}
# Bytes for each ordered pair, of those that hold all pairs at once.
BYTES_A_PAIR: dict[str, dict[str, float]] = {
    "astropy": {"count": 180, "sum": 180, "cut": 180},
    "scipy": {"sum": 50, "cut": 50},
}


def expected_pairs(pairs: Pairs, constants: Constants) -> float:
    """Ordered pairs within the radius, if objects were spread evenly and the box had no edge."""
    rows = constants.sky.density * constants.boxes[pairs.box] ** 2
    return float(rows * constants.sky.density * math.pi * pairs.radius**2)


def reason_to_leave_out(name: str, query: Query, constants: Constants) -> str:
    """Why a contender is not asked a query, or an empty text."""
    if reason := query.left_out.get(name):
        return reason
    if query.pairs is None or name not in PAIRS_A_SECOND:
        return ""
    many = expected_pairs(query.pairs, constants)
    work = query.pairs.work
    needed = many * BYTES_A_PAIR.get(name, {}).get(work, 0.0)
    if needed > MEMORY_SHARE * memory_bytes():
        return f"would need about {needed / 1e9:,.0f} GB of memory"
    minutes = many / PAIRS_A_SECOND[name][work] / 60
    return f"would take about {minutes:,.0f} minutes" if minutes > LONGEST_MINUTES else ""
