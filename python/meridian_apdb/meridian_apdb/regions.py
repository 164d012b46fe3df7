"""Regions of the sky, as the server reads them. Right ascension and declination in degrees."""

from __future__ import annotations

from collections.abc import Iterable


def circle(ra: float, dec: float, radius: float) -> str:
    """All positions within a radius, 0 to 180 degrees, of a centre."""
    return f"circle {ra!r} {dec!r} {radius!r}"


def box(ra_min: float, dec_min: float, ra_max: float, dec_max: float) -> str:
    """Right ascensions from `ra_min` eastwards to `ra_max`, and declinations from `dec_min` to `dec_max`."""
    return f"box {ra_min!r} {dec_min!r} {ra_max!r} {dec_max!r}"


def polygon(corners: Iterable[tuple[float, float]]) -> str:
    """A convex polygon of three corners or more, each a right ascension and a declination, in either direction around it."""
    numbers = " ".join(f"{ra!r} {dec!r}" for ra, dec in corners)
    return f"polygon {numbers}"
