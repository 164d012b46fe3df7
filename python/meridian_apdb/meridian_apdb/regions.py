"""Regions of the sky, as the server reads them. Right ascension and declination in degrees."""

from __future__ import annotations

from collections.abc import Iterable


def circle(ra: float, dec: float, radius: float) -> str:
    """All positions within a radius, 0 to 180 degrees, of a centre."""
    return f"circle {_numbers(ra, dec, radius)}"


def box(ra_min: float, dec_min: float, ra_max: float, dec_max: float) -> str:
    """Right ascensions from `ra_min` eastwards to `ra_max`, and declinations from `dec_min` to `dec_max`."""
    return f"box {_numbers(ra_min, dec_min, ra_max, dec_max)}"


def polygon(corners: Iterable[tuple[float, float]]) -> str:
    """A convex polygon of three corners or more, each a right ascension and a declination, in either direction around it."""
    return f"polygon {' '.join(_numbers(ra, dec) for ra, dec in corners)}"


def _numbers(*numbers: float) -> str:
    """Numbers with all their digits; those of numpy too, which says their types where it is asked for them."""
    return " ".join(repr(float(number)) for number in numbers)
