"""Compares two answers as multisets of rows (or as lists, where the query fixes an order).

Types are taken leniently: an integer equals a float or a boolean of the same value. Floats are equal within a stated
relative rounding. Rows count as often as they occur.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Sequence
from dataclasses import dataclass

Row = tuple[object, ...]

SHOWN_ROWS = 5


@dataclass(frozen=True)
class Tolerance:
    """How far two floats may be apart: `relative` to the larger one, or `absolute`."""

    relative: float = 1e-9
    absolute: float = 0.0

    def same(self, one: object, other: object) -> bool:
        """Whether two normalised values count as equal."""
        if isinstance(one, float) or isinstance(other, float):
            if not (isinstance(one, (int, float)) and isinstance(other, (int, float))):
                return False
            return one == other or math.isclose(one, other, rel_tol=self.relative, abs_tol=self.absolute)
        return one == other

    def same_row(self, one: Row, other: Row) -> bool:
        """Whether two normalised rows count as equal."""
        return len(one) == len(other) and all(self.same(a, b) for a, b in zip(one, other))


def normalised(value: object) -> object:
    """One value in the form in which answers are compared."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None).isoformat(" ")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "surrogateescape")
    return value


def normalised_rows(rows: Sequence[Sequence[object]]) -> list[Row]:
    """All rows in the form in which answers are compared."""
    return [tuple(normalised(value) for value in row) for row in rows]


def float_columns(*answers: list[Row]) -> set[int]:
    """The columns that hold a float in some answer: integers there are compared as floats."""
    found: set[int] = set()
    for rows in answers:
        for row in rows:
            found.update(at for at, value in enumerate(row) if isinstance(value, float))
    return found


def sort_key(row: Row, floats: set[int]) -> tuple[object, ...]:
    """Orders rows by their exact columns first, so that rounding of a float moves a row as little as can be."""
    exact = tuple(_comparable(value) for at, value in enumerate(row) if at not in floats)
    rounded = tuple(_comparable(value) for at, value in enumerate(row) if at in floats)
    return exact + rounded


def _comparable(value: object) -> tuple[int, object]:
    """NULL before numbers before everything else."""
    if value is None:
        return (0, 0)
    if isinstance(value, (int, float)):
        return (1, value)
    return (2, str(value))


def unmatched(ours: list[Row], theirs: list[Row], tolerance: Tolerance) -> tuple[list[Row], list[Row]]:
    """The rows of either answer that have no partner in the other."""
    floats = float_columns(ours, theirs)
    ours = sorted(ours, key=lambda row: sort_key(row, floats))
    theirs = sorted(theirs, key=lambda row: sort_key(row, floats))
    if len(ours) == len(theirs) and all(map(tolerance.same_row, ours, theirs)):
        return [], []
    return _unmatched_by_group(ours, theirs, floats, tolerance)


def _unmatched_by_group(
    ours: list[Row], theirs: list[Row], floats: set[int], tolerance: Tolerance
) -> tuple[list[Row], list[Row]]:
    """Pairs rows off one by one among those whose exact columns agree."""
    candidates: dict[Row, list[Row]] = {}
    for row in theirs:
        candidates.setdefault(_exact_part(row, floats), []).append(row)
    surplus = []
    for row in ours:
        group = candidates.get(_exact_part(row, floats), [])
        partner = next((at for at, other in enumerate(group) if tolerance.same_row(row, other)), None)
        if partner is None:
            surplus.append(row)
        else:
            group.pop(partner)
    return surplus, [row for group in candidates.values() for row in group]


def _exact_part(row: Row, floats: set[int]) -> Row:
    return tuple(value for at, value in enumerate(row) if at not in floats)


def difference(
    ours: Sequence[Sequence[object]],
    theirs: Sequence[Sequence[object]],
    tolerance: Tolerance = Tolerance(),
    ordered: bool = False,
) -> str | None:
    """Says how Meridian's answer differs from the oracle's, or None."""
    ours_rows, theirs_rows = normalised_rows(ours), normalised_rows(theirs)
    if ordered:
        return _ordered_difference(ours_rows, theirs_rows, tolerance)
    surplus, missing = unmatched(ours_rows, theirs_rows, tolerance)
    if not surplus and not missing:
        return None
    lines = [f"Meridian gave {len(ours_rows)} rows, the oracle {len(theirs_rows)}."]
    lines += _shown(f"{len(surplus)} rows only Meridian gave:", surplus)
    lines += _shown(f"{len(missing)} rows only the oracle gave:", missing)
    return "\n".join(lines)


def _ordered_difference(ours: list[Row], theirs: list[Row], tolerance: Tolerance) -> str | None:
    for at, (one, other) in enumerate(zip(ours, theirs)):
        if not tolerance.same_row(one, other):
            return f"Row {at} differs.\n  Meridian: {one}\n  oracle:   {other}"
    if len(ours) != len(theirs):
        return f"Meridian gave {len(ours)} rows, the oracle {len(theirs)}; they agree as far as the shorter goes."
    return None


def _shown(heading: str, rows: list[Row]) -> list[str]:
    if not rows:
        return []
    more = [f"  ... and {len(rows) - SHOWN_ROWS} more"] if len(rows) > SHOWN_ROWS else []
    return [heading, *(f"  {row}" for row in rows[:SHOWN_ROWS]), *more]
