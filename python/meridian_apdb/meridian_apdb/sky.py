"""Which positions are in a region, in numpy: what readers of region files need of the sky.

Right ascension and declination are in degrees. The formulas are those of Meridian's own reader, and so are the results, but for positions
within 1e-13 degrees (0.4 nanoarcseconds) of an edge, where the sines of numpy may differ in their last bit. A box without padding compares
numbers, and is the same everywhere. Edges belong to regions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Degrees = NDArray[np.float64]
Flags = NDArray[np.bool_]

ROUNDING = 1e-9
"""Degrees by which envelopes are larger than they have to be."""

ON_EDGE = 4e-15
"""How far, in radians, rounding may put a position that is on the edge of a polygon outside of it."""

STRAIGHT = 1e-13
"""How far, in radians, a corner that is on an edge may be beside it."""


@dataclass(frozen=True)
class Envelope:
    """A range of declinations and ranges of right ascensions, none of which wraps, that hold every position of a region."""

    dec_min: float
    dec_max: float
    ra_ranges: tuple[tuple[float, float], ...]

    @classmethod
    def around(cls, ra_min: float, width: float, dec_min: float, dec_max: float, margin: float) -> Envelope:
        """What is at most `margin` away from a box, which begins at `ra_min` and is `width` wide."""
        margin += ROUNDING
        highest = max(abs(dec_min), abs(dec_max))
        dec_min, dec_max = dec_min - margin, dec_max + margin
        if highest + margin >= 90.0:
            return cls(dec_min, dec_max, ((0.0, 360.0),))
        # How far a circle of this radius reaches in right ascension.
        reach = math.sin(math.radians(margin)) / math.cos(math.radians(highest))
        half_width = math.degrees(math.asin(min(1.0, reach))) + ROUNDING
        width += 2.0 * half_width
        if width >= 360.0:
            return cls(dec_min, dec_max, ((0.0, 360.0),))
        west = (ra_min - half_width) % 360.0
        east = west + width
        ranges = ((west, east),) if east < 360.0 else ((west, 360.0), (0.0, east - 360.0))
        return cls(dec_min, dec_max, ranges)

    def may_intersect(self, ra_min: Degrees, dec_min: Degrees, ra_max: Degrees, dec_max: Degrees) -> Flags:
        """Which of these boxes, none of which wraps, may have a position of the region."""
        in_ra = np.zeros(len(ra_min), dtype=bool)
        for west, east in self.ra_ranges:
            in_ra |= (ra_max >= west) & (ra_min <= east)
        found: Flags = in_ra & (dec_max >= self.dec_min) & (dec_min <= self.dec_max)
        return found


class Region(Protocol):
    """A part of the sky."""

    def contains(self, ra: Degrees, dec: Degrees, padding: float = 0.0) -> Flags:
        """Which positions are in the region, or at most `padding` degrees away from it. Right ascensions are in [0, 360)."""

    def envelope(self, padding: float = 0.0) -> Envelope:
        """What holds all of these positions."""


@dataclass(frozen=True)
class Circle:
    """All positions within a radius of a centre."""

    ra: float
    dec: float
    radius: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "ra", _checked_position(self.ra, self.dec))
        if not 0.0 <= self.radius <= 180.0:
            raise ValueError(f"a radius of {self.radius} degrees makes no sense: give 0 to 180")

    def contains(self, ra: Degrees, dec: Degrees, padding: float = 0.0) -> Flags:
        radius = self.radius + padding
        if radius >= 180.0:
            return np.isfinite(ra) & (np.abs(dec) <= 90.0)
        near, far = _haversines(self.ra, self.dec, ra, dec)
        half = math.radians(0.5 * radius)
        found: Flags = far >= math.cos(half) ** 2 if radius > 90.0 else near <= math.sin(half) ** 2
        return found

    def envelope(self, padding: float = 0.0) -> Envelope:
        return Envelope.around(self.ra, 0.0, self.dec, self.dec, self.radius + padding)


@dataclass(frozen=True)
class Box:
    """A range of right ascensions, from `ra_min` eastwards to `ra_max`, and a range of declinations.

    It goes all around if `ra_max` is 360 or more above `ra_min`. Positions are taken by their numbers: one at a pole is in the box if its
    right ascension is.
    """

    ra_min: float
    dec_min: float
    ra_max: float
    dec_max: float

    def __post_init__(self) -> None:
        is_all_around = self.ra_max - self.ra_min >= 360.0
        west, east = _checked_position(self.ra_min, self.dec_min), _checked_position(self.ra_max, self.dec_max)
        if self.dec_min > self.dec_max:
            raise ValueError(f"a box from declination {self.dec_min} to {self.dec_max} is empty: exchange the two")
        object.__setattr__(self, "ra_min", 0.0 if is_all_around else west)
        object.__setattr__(self, "ra_max", 360.0 if is_all_around else east)

    def _holds_ra(self, ra: Degrees) -> Flags:
        east_of, west_of = ra >= self.ra_min, ra <= self.ra_max
        held: Flags = east_of & west_of if self.ra_min <= self.ra_max else east_of | west_of
        return held

    def contains(self, ra: Degrees, dec: Degrees, padding: float = 0.0) -> Flags:
        inside: Flags = self._holds_ra(ra) & (dec >= self.dec_min) & (dec <= self.dec_max)
        if padding <= 0.0:
            return inside
        near: Flags = self._separation(ra, dec) <= padding
        return inside | near

    def _separation(self, ra: Degrees, dec: Degrees) -> Degrees:
        """How far positions are from the box.

        The nearest point of a box that does not have the right ascension is on the nearer of its meridians: the foot of the perpendicular,
        or an end.
        """
        along = np.maximum(np.maximum(dec - self.dec_max, self.dec_min - dec), 0.0)
        west, east = _wrapped(self.ra_min - ra), _wrapped(ra - self.ra_max)
        is_west = west < east
        edge, offset = np.where(is_west, self.ra_min, self.ra_max), np.radians(np.where(is_west, west, east))
        sine, cosine = np.sin(np.radians(dec)), _cosine(dec)
        foot = np.degrees(np.arctan2(sine, cosine * np.cos(offset)))
        across = np.degrees(np.arcsin(np.clip(cosine * np.sin(offset), -1.0, 1.0)))
        to_ends = np.minimum(_separation(edge, self.dec_min, ra, dec), _separation(edge, self.dec_max, ra, dec))
        beside = np.where((foot >= self.dec_min) & (foot <= self.dec_max), across, to_ends)
        separation: Degrees = np.where(self._holds_ra(ra) | (np.abs(dec) >= 90.0), along, beside)
        return separation

    def envelope(self, padding: float = 0.0) -> Envelope:
        width = 360.0 if self.ra_max >= 360.0 else (self.ra_max - self.ra_min) % 360.0
        if padding <= 0.0:
            # A position at a pole is in the box by its numbers, not for where it is.
            return Envelope(self.dec_min, self.dec_max, _ranges(self.ra_min, self.ra_max))
        return Envelope.around(self.ra_min, width, self.dec_min, self.dec_max, padding)


class Polygon:
    """A convex polygon, whose edges are arcs of great circles: its corners in order, in either direction."""

    def __init__(self, corners: list[tuple[float, float]]) -> None:
        places = np.array([(_checked_position(ra, dec), dec) for ra, dec in corners])
        vertices = _vectors(*places.T)
        # Repeated corners, and one that closes the ring, do no harm. A pole is one point.
        vertices = vertices[np.any(vertices != np.roll(vertices, 1, axis=0), axis=1)]
        if len(vertices) < 3:
            raise ValueError(f"a polygon needs 3 different corners or more, not {len(vertices)}")
        poles = _poles(vertices)
        heights = poles @ vertices.T
        if np.all(np.abs(heights) <= STRAIGHT):
            raise ValueError("the corners of the polygon are on one great circle")
        if np.all(heights <= STRAIGHT):
            vertices = vertices[::-1]
            poles = _poles(vertices)
        elif not np.all(heights >= -STRAIGHT):
            raise ValueError("the polygon is not convex, or its corners are not in order")
        self._vertices, self._poles = vertices, poles
        middle = vertices.sum(axis=0)
        self._middle = middle / np.linalg.norm(middle)

    def contains(self, ra: Degrees, dec: Degrees, padding: float = 0.0) -> Flags:
        places = _vectors(ra, dec)
        inside: Flags = np.all(places @ self._poles.T >= -ON_EDGE, axis=1)
        if padding > 0.0:
            outside = np.flatnonzero(~inside)
            inside[outside] = self._distance_to_edge(places[outside]) <= padding
        return inside & np.isfinite(ra) & (np.abs(dec) <= 90.0)

    def _distance_to_edge(self, places: NDArray[np.float64]) -> Degrees:
        nearest = np.full(len(places), np.inf)
        for start, end, pole in zip(self._vertices, np.roll(self._vertices, -1, axis=0), self._poles, strict=True):
            to_ends = np.minimum(_angles(places, start), _angles(places, end))
            is_beside = (places @ np.cross(pole, start) >= 0.0) & (places @ np.cross(end, pole) >= 0.0)
            to_circle = np.arctan2(np.abs(places @ pole), np.linalg.norm(np.cross(pole, places), axis=1))
            nearest = np.minimum(nearest, np.where(is_beside, to_circle, to_ends))
        return np.degrees(nearest)

    def envelope(self, padding: float = 0.0) -> Envelope:
        x, y, z = self._middle
        ra, dec = math.degrees(math.atan2(y, x)) % 360.0, math.degrees(math.atan2(z, math.hypot(x, y)))
        radius = math.degrees(float(_angles(self._vertices, self._middle).max())) + padding
        # A circle of a quarter turn or more is not convex: it may have corners of the polygon without having all of it.
        if radius >= 90.0:
            return Envelope(-90.0, 90.0, ((0.0, 360.0),))
        return Envelope.around(ra, 0.0, dec, dec, radius)


def parse(text: str) -> Region:
    """A region as `circle`, `box` and `polygon` of this package write it."""
    shape, *words = text.replace(",", " ").split() or [""]
    shape = shape.lower()
    try:
        numbers = [float(word) for word in words]
    except ValueError as error:
        raise ValueError(f"{text!r} is no region: {error}") from None
    if shape == "circle" and len(numbers) == 3:
        return Circle(*numbers)
    if shape == "box" and len(numbers) == 4:
        return Box(*numbers)
    if shape == "polygon" and len(numbers) >= 6 and len(numbers) % 2 == 0:
        return Polygon(list(zip(numbers[::2], numbers[1::2], strict=True)))
    forms = "'circle RA DEC RADIUS', 'box RA_MIN DEC_MIN RA_MAX DEC_MAX' or 'polygon RA DEC RA DEC RA DEC ...'"
    raise ValueError(f"{text!r} is no region that can be read here: give {forms}")


def wrapped(ra: Degrees) -> Degrees:
    """Right ascensions in [0, 360)."""
    if np.all((ra >= 0.0) & (ra < 360.0)):
        return ra
    with np.errstate(invalid="ignore"):
        return _wrapped(ra)


def _wrapped(degrees: Degrees) -> Degrees:
    turned = np.mod(degrees, 360.0)
    # A tiny negative angle is rounded up to 360 itself.
    found: Degrees = np.where(turned >= 360.0, 0.0, turned)
    return found


def _checked_position(ra: float, dec: float) -> float:
    """The right ascension in [0, 360)."""
    if not math.isfinite(ra):
        raise ValueError(f"{ra} is no right ascension")
    if not -90.0 <= dec <= 90.0:
        raise ValueError(f"{dec} is no declination: give -90 to 90 degrees")
    return float(_wrapped(np.array([ra]))[0])


def _ranges(ra_min: float, ra_max: float) -> tuple[tuple[float, float], ...]:
    return ((ra_min, ra_max),) if ra_min <= ra_max else ((ra_min, 360.0), (0.0, ra_max))


def _haversines(ra0: float | Degrees, dec0: float | Degrees, ra: Degrees, dec: Degrees) -> tuple[Degrees, Degrees]:
    """The squared sine and cosine of half the separation, neither of which cancels."""
    difference = ra - ra0
    # The shorter way round, exact on both sides of right ascension 0.
    difference = np.where(difference > 180.0, (ra - 360.0) - ra0, difference)
    difference = np.where(difference < -180.0, ra - (ra0 - 360.0), difference)
    half = np.radians(0.5 * difference)
    parallels = _cosine(dec0) * _cosine(dec)
    near = np.sin(np.radians(0.5 * (dec - dec0))) ** 2 + parallels * np.sin(half) ** 2
    far = np.sin(np.radians(0.5 * (dec + dec0))) ** 2 + parallels * np.cos(half) ** 2
    return near, far


def _separation(ra0: float | Degrees, dec0: float | Degrees, ra: Degrees, dec: Degrees) -> Degrees:
    near, far = _haversines(ra0, dec0, ra, dec)
    separation: Degrees = np.degrees(2.0 * np.arctan2(np.sqrt(near), np.sqrt(far)))
    return separation


def _vectors(ra: Degrees, dec: Degrees) -> NDArray[np.float64]:
    """Unit vectors, one a row."""
    cosine, ra = _cosine(dec), np.radians(ra)
    return np.stack([cosine * np.cos(ra), cosine * np.sin(ra), np.sin(np.radians(dec))], axis=-1)


def _cosine(dec: float | Degrees) -> Degrees:
    """The cosines of declinations, which are nothing at the poles."""
    cosine: Degrees = np.sin(np.radians(90.0 - np.abs(dec)))
    return cosine


def _poles(vertices: NDArray[np.float64]) -> NDArray[np.float64]:
    """The poles of the great circles through each vertex and the next one.

    The product is that of their difference, which is exact for near ones, and their sum.
    """
    following = np.roll(vertices, -1, axis=0)
    poles = np.cross(vertices + following, following - vertices)
    lengths = np.linalg.norm(poles, axis=1, keepdims=True)
    if np.any((lengths[:, 0] <= STRAIGHT) & (np.sum(vertices * following, axis=1) < 0.0)):
        raise ValueError("an edge of the polygon is half a turn, so that it has no direction")
    normalized: NDArray[np.float64] = poles / lengths
    return normalized


def _angles(places: NDArray[np.float64], place: NDArray[np.float64]) -> NDArray[np.float64]:
    """The angles between unit vectors and one other, radians."""
    difference, total = np.linalg.norm(places - place, axis=1), np.linalg.norm(places + place, axis=1)
    angles: NDArray[np.float64] = 2.0 * np.arctan2(difference, total)
    return angles
