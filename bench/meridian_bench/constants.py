"""The numbers that queries are asked with: drawn anew for every asking, none twice."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

from .catalogue import Sky

CONE_DEGREES = 60.0 / 3600.0


class Constants:
    """Draws the constants of one run from its seed."""

    def __init__(self, sky: Sky, seed: int, boxes: Mapping[str, float]) -> None:
        """`boxes`: the sides in degrees of the boxes in which pairs are looked for, by name."""
        self.sky = sky
        self.boxes = boxes
        self.seed = seed
        self.rng = random.Random(seed)
        self.used: set[object] = set()
        # A box of right ascensions does not reach over 0: cones that do are not asked for.
        self.objects = [one for one in sky.objects if _away_from_seam(*one[1:])]
        self.rng.shuffle(self.objects)
        self.next_object = 0

    def areas(self) -> dict[str, float]:
        """Square degrees of the boxes in which pairs are looked for, near the equator."""
        return {name: side * side for name, side in self.boxes.items()}

    def draw(self) -> dict[str, object]:
        """One set of constants; every query takes those that it names."""
        key, ra, dec = self._object()
        drawn: dict[str, object] = {"key": key, **self._cone(ra, dec)}
        drawn.update(self._box("", ra, dec, 1.0, 1.0))
        drawn.update(self._box("wide_", ra, dec, 6.0, 5.0))
        for name, side in self.boxes.items():
            drawn.update(self._box(f"{name}_", ra, dec, side, side))
        drawn["match_narrow"] = _narrowness(self.sky.dec_min, self.sky.dec_max)
        drawn["colour"] = self._fresh("colour", 0.095, 0.105)
        cut = self._fresh("cut", 1.95, 2.05)
        mag = self._fresh("mag", 24.8, 25.0)
        z_mag = self._fresh("z_mag", 20.9, 21.1)
        drawn.update(cut=cut, mag=mag, mag_end=_rounded(mag + 1), z_mag=z_mag, z_mag_end=_rounded(z_mag + 0.5))
        drawn["g_flux"] = f"{self._fresh('g_flux', 2.0, 6.0)}e-30"
        drawn["psf_flux"] = f"{self._fresh('psf_flux', 0.9, 1.1)}e-30"
        return drawn

    def _object(self) -> tuple[int, float, float]:
        """An object that was not drawn before; once all of the sample were, they come again in another order."""
        if self.next_object == len(self.objects):
            self.rng.shuffle(self.objects)
            self.next_object = 0
        self.next_object += 1
        return self.objects[self.next_object - 1]

    def _fresh(self, name: str, low: float, high: float) -> float:
        """A number that this name did not have before."""
        while (name, value := _rounded(self.rng.uniform(low, high))) in self.used:
            pass
        self.used.add((name, value))
        return value

    def _cone(self, ra: float, dec: float) -> dict[str, object]:
        """A cone of 60 arcseconds with a real object in it, and a box that holds the cone."""
        centre_ra = _rounded((ra + self.rng.uniform(-0.3, 0.3) * CONE_DEGREES) % 360.0)
        centre_dec = _rounded(max(-89.9, min(89.9, dec + self.rng.uniform(-0.3, 0.3) * CONE_DEGREES)))
        reach = CONE_DEGREES * 1.0001
        width = reach / math.cos(math.radians(min(89.95, abs(centre_dec) + reach)))
        return {
            "cone_ra": centre_ra,
            "cone_dec": centre_dec,
            "cone_radius": CONE_DEGREES,
            "cone_ra0": centre_ra - width,
            "cone_ra1": centre_ra + width,
            "cone_dec0": centre_dec - reach,
            "cone_dec1": centre_dec + reach,
            "cone_zones": _zones(centre_dec - reach, centre_dec + reach),
        }

    def _box(self, prefix: str, ra: float, dec: float, width: float, height: float) -> dict[str, object]:
        """A box of right ascension and declination with the object in it, within the catalogue's bounds."""
        ra0 = _rounded(_inside(ra - width * self.rng.random(), self.sky.ra_min, self.sky.ra_max - width))
        dec0 = _rounded(_inside(dec - height * self.rng.random(), self.sky.dec_min, self.sky.dec_max - height))
        ra1, dec1 = _rounded(ra0 + width), _rounded(dec0 + height)
        # The sides of q3c's polygon are great circles, which bulge towards the pole by at most this much.
        bulge = math.radians(width**2) / 16 + 0.001
        # It finds nothing by a polygon of some width that reaches over right ascension 0.
        west, east = max(0.0, ra0 - 0.001), min(ra1 + 0.001, 359.999999)
        corners = [(west, dec0 - bulge), (east, dec0 - bulge), (east, dec1 + bulge), (west, dec1 + bulge)]
        return {
            f"{prefix}ra0": ra0,
            f"{prefix}ra1": ra1,
            f"{prefix}dec0": dec0,
            f"{prefix}dec1": dec1,
            f"{prefix}zones": _zones(dec0, dec1),
            f"{prefix}narrow": _narrowness(dec0, dec1),
            f"{prefix}polygon": ", ".join(f"{ra!r}, {dec!r}" for ra, dec in corners),
        }


def _away_from_seam(ra: float, dec: float) -> bool:
    """Whether a cone with this position in it stays within right ascensions of 0 to 360."""
    width = 3 * CONE_DEGREES / math.cos(math.radians(min(89.9, abs(dec) + 3 * CONE_DEGREES)))
    return width < ra < 360.0 - width


def _narrowness(dec0: float, dec1: float) -> float:
    """How narrow a degree of right ascension is where it is narrowest between two declinations: their least cosine."""
    return math.cos(math.radians(min(89.9, max(abs(dec0), abs(dec1)))))


def _inside(value: float, low: float, high: float) -> float:
    return max(low, min(value, high)) if low <= high else low


def _zones(dec0: float, dec1: float) -> str:
    """The numbers of the zones of one arcminute that lie between two declinations."""
    return ", ".join(str(zone) for zone in range(math.floor(dec0 * 60), math.floor(dec1 * 60) + 1))


def _rounded(value: float) -> float:
    return round(value, 7)
