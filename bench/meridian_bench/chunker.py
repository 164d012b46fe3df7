"""Chunk numbers of positions, by the formulas of lsst/sphgeom's `Chunker`: for the peers' `chunkId` columns.

Written from the definition and not from Meridian's code, so that grouping by chunk compares two derivations.
"""

from __future__ import annotations

import math

import numpy as np


def chunks_in_stripe(stripe: int, stripes: int) -> int:
    """How many chunks a stripe is cut into: as many as leave each about as wide as high at its end nearest a pole."""
    height = 180.0 / stripes
    highest = max(abs(stripe * height - 90.0), abs((stripe + 1) * height - 90.0))
    if highest > 90.0 - 1.0 / 3600.0 or height >= 180.0:
        return 1
    sine, cosine = math.sin(math.radians(highest)), math.cos(math.radians(highest))
    x = math.cos(math.radians(height)) - sine * sine
    y = math.sqrt(abs(cosine**4 - x * x))
    return max(1, math.floor(360.0 / abs(math.degrees(math.atan2(y, x)))))


def chunk_ids(ra: np.ndarray, dec: np.ndarray, stripes: int) -> np.ndarray:
    """The chunk numbers of positions in degrees."""
    counts = np.array([chunks_in_stripe(stripe, stripes) for stripe in range(stripes)])
    stripe = np.clip(((dec + 90.0) / (180.0 / stripes)).astype(np.int64), 0, stripes - 1)
    chunk = np.minimum((ra / (360.0 / counts[stripe])).astype(np.int64), counts[stripe] - 1)
    return np.asarray(2 * stripes * stripe + chunk, np.int32)


def chunk_expression(ra: str, dec: str, stripes: int, element: str, floor: str = "floor") -> str:
    """The same as SQL. `element` gives entry {at} (the first is 1) of the list of {values} in the dialect."""
    counts = ", ".join(str(chunks_in_stripe(stripe, stripes)) for stripe in range(stripes))
    stripe = f"least({floor}(({dec} + 90e0) / {180.0 / stripes!r}e0), {stripes - 1})"
    count = element.format(values=counts, at=f"({stripe} + 1)")
    return f"({2 * stripes} * {stripe} + least({floor}({ra} / (360e0 / {count})), {count} - 1))"
