"""Positions of random tables, and the sky's functions in DuckDB's words, from their definitions."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

# The shorter way round, so that pairs across the seam are as accurate as others, and poles that are points.
SKY = """
CREATE MACRO difference(ra1, ra2) AS CASE
    WHEN ra2 - ra1 > 180 THEN (ra2 - 360) - ra1 WHEN ra2 - ra1 < -180 THEN ra2 - (ra1 - 360) ELSE ra2 - ra1 END;
CREATE MACRO finite(x) AS CASE WHEN isfinite(x) THEN x END;
CREATE MACRO parallel(d) AS CASE WHEN abs(d) = 90 THEN 0.0 ELSE cos(radians(d)) END;
CREATE MACRO chord(ra1, dec1, ra2, dec2) AS pow(sin(radians(dec2 - dec1) / 2), 2)
    + parallel(dec1) * parallel(dec2) * pow(sin(radians(difference(ra1, ra2)) / 2), 2);
CREATE MACRO antichord(ra1, dec1, ra2, dec2) AS pow(sin(radians(dec2 + dec1) / 2), 2)
    + parallel(dec1) * parallel(dec2) * pow(cos(radians(difference(ra1, ra2)) / 2), 2);
CREATE MACRO separation(ra1, dec1, ra2, dec2) AS CASE WHEN abs(dec1) <= 90 AND abs(dec2) <= 90
    THEN degrees(2 * atan2(sqrt(chord(ra1, dec1, ra2, dec2)), sqrt(antichord(ra1, dec1, ra2, dec2)))) END;
CREATE MACRO is_in_circle(ra, dec, ra0, dec0, r) AS coalesce(separation(ra, dec, ra0, dec0) <= r, FALSE);
CREATE MACRO wrapped(x) AS x - 360 * floor(x / 360);
CREATE MACRO is_in_box(ra, d, w, s, e, n) AS CASE WHEN ra + d + w + s + e + n IS NULL THEN FALSE
    ELSE d BETWEEN s AND n AND (e - w >= 360 OR CASE WHEN wrapped(w) <= wrapped(e)
    THEN ra BETWEEN wrapped(w) AND wrapped(e) ELSE ra >= wrapped(w) OR ra <= wrapped(e) END) END;
"""


@dataclass(frozen=True)
class Place:
    """A position in degrees."""

    ra: float
    dec: float

    def moved(self, rng: random.Random, distance: float) -> Place:
        """A place at most so many degrees away; the same one now and then."""
        if rng.random() < 0.1:
            return self
        north = rng.uniform(-distance, distance) * 0.7
        dec = max(-90.0, min(90.0, self.dec + north))
        if abs(dec) == 90.0:
            dec = math.copysign(90.0 - abs(north) - 1e-6, dec)
        east = rng.uniform(-distance, distance) * 0.7 / max(math.cos(math.radians(dec)), 1e-9)
        return Place(wrapped(self.ra + max(-180.0, min(180.0, east))), dec)


def separation(one: Place, other: Place) -> float:
    """The angle between two places, degrees."""
    half_north, half_east = (math.radians(difference) / 2 for difference in (other.dec - one.dec, other.ra - one.ra))
    parallels = math.cos(math.radians(one.dec)) * math.cos(math.radians(other.dec))
    chord = math.sin(half_north) ** 2 + parallels * math.sin(half_east) ** 2
    return math.degrees(2 * math.asin(min(1.0, math.sqrt(chord))))


def wrapped(ra: float) -> float:
    """A right ascension in [0, 360)."""
    ra = math.fmod(ra, 360.0)
    ra = ra + 360.0 if ra < 0.0 else ra
    return 0.0 if ra >= 360.0 else ra


def random_places(rng: random.Random, count: int, stripes: int) -> list[Place]:
    """Places all over the sky: one at either pole, some on the seam and on edges of stripes, clumps, and some twice."""
    found = [Place(wrapped(rng.uniform(0, 360)), 90.0), Place(0.0, -90.0), Place(0.0, 0.0), Place(360.0 - 1e-10, 1e-9)]
    clumps = [Place(rng.uniform(0, 360), math.degrees(math.asin(rng.uniform(-1, 1)))) for _ in range(3)]
    clumps += [Place(0.0, rng.uniform(-80, 80)), Place(rng.uniform(0, 360), -89.9), Place(rng.uniform(0, 360), 89.95)]
    while len(found) < count:
        match rng.choices(["anywhere", "clump", "edge", "seam", "cap", "again"], [30, 35, 12, 8, 8, 7])[0]:
            case "anywhere":
                found.append(Place(rng.uniform(0, 360), math.degrees(math.asin(rng.uniform(-1, 1)))))
            case "clump":
                found.append(rng.choice(clumps).moved(rng, rng.choice([0.01, 0.3, 2.0])))
            case "edge":
                found.append(Place(rng.uniform(0, 360), -90.0 + rng.randint(1, stripes - 1) * (180.0 / stripes)))
            case "seam":
                found.append(Place(rng.choice([0.0, wrapped(rng.uniform(-1e-6, 1e-6)), wrapped(rng.uniform(-0.5, 0.5))]), rng.uniform(-89, 89)))
            case "cap":
                found.append(Place(rng.uniform(0, 360), rng.choice([-1, 1]) * rng.uniform(88, 89.9999)))
            case "again":
                # Not at a pole, where all right ascensions are one place.
                found.append(rng.choice(found[2:]))
    rng.shuffle(found)
    return found[:count]
