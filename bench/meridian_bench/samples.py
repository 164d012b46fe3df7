"""What was measured, as the raw file keeps it, and the figures that are drawn from it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


def percentile(samples: Sequence[float], percent: float) -> float:
    """The least sample that at least this part of all does not exceed (nearest rank)."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


@dataclass(frozen=True)
class Ratio:
    """Meridian's time over a peer's: the median of the rounds' ratios, the least and the greatest of them."""

    value: float
    low: float
    high: float


def ratio(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> Ratio | None:
    """Compares the rounds in which both were asked. Each has one time (scans) or a block of them, of medians (lookups).

    Ratios within rounds, and not of all times: a machine that slows down in between then changes nothing.
    """
    both = [(a, b) for a, b in zip(ours, theirs, strict=False) if a and b]
    if not both:
        return None
    each = [statistics.median(a) / statistics.median(b) for a, b in both]
    return Ratio(statistics.median(each), min(each), max(each))


def flat(rounds: Sequence[Sequence[float]]) -> list[float]:
    """All times of all rounds."""
    return [time for one in rounds for time in one]
