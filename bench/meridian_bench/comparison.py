"""Whether two answers are the same: multisets of rows, exact but for the last digits of floats.

Columns are compared by position. Where either answer has a column in single precision, the other's is rounded to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from .contenders import SINGLE_DIGITS

# Sums and means are added up in another order by each contender.
DOUBLE_DIGITS = 1e-9
# Where what is added cancels, as declinations on both sides of the equator do, the sum has the error of the parts: this in
# parts of the column's greatest value counts as none.
CANCELLED_DIGITS = 1e-12
# Rows that sorting did not bring together are paired one by one, if there are no more of them than this.
MOST_PAIRED_BY_HAND = 2_000


def difference(one: pa.Table, other: pa.Table, single_digits: float = SINGLE_DIGITS) -> str | None:
    """Says how two answers differ, or None if they are the same."""
    if one.num_columns != other.num_columns:
        return f"{one.num_columns} columns against {other.num_columns}"
    if one.num_rows != other.num_rows:
        return f"{one.num_rows:,} rows against {other.num_rows:,}"
    if one.num_rows == 0:
        return None
    pairs = [_alike(a, b) for a, b in zip(one.columns, other.columns, strict=True)]
    # Exact columns first: then the rounding of a float moves a row as little as can be.
    pairs.sort(key=lambda pair: _digits(pair[0], single_digits) > 0)
    digits = [_digits(a, single_digits) for a, _ in pairs]
    ours, theirs = _ordered([_values(a) for a, _ in pairs]), _ordered([_values(b) for _, b in pairs])
    allowances = [_Allowance(allowed, _cancelled(b, allowed)) for b, allowed in zip(theirs, digits, strict=True)]
    wrong = np.zeros(one.num_rows, bool)
    for a, b, allowance in zip(ours, theirs, allowances, strict=True):
        wrong |= ~_same(a, b, allowance)
    left = np.flatnonzero(wrong)
    unpaired = _pair_off([a[left] for a in ours], [b[left] for b in theirs], allowances)
    return f"{unpaired:,} of {one.num_rows:,} rows differ" if unpaired else None


def _alike(one: pa.ChunkedArray, other: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Both columns in one type: single precision if either is, else double if either is, else as integers or text."""
    kinds = {one.type, other.type}
    for kind in (pa.float32(), pa.float64()):
        if kind in kinds:
            return one.cast(kind, safe=False), other.cast(kind, safe=False)
    if all(pa.types.is_integer(kind) or pa.types.is_null(kind) for kind in kinds):
        return one.cast(pa.int64()), other.cast(pa.int64())
    return one.cast(pa.string()), other.cast(pa.string())


def _values(column: pa.ChunkedArray) -> np.ndarray:
    """Values to compare: NULL is the least of its kind, which no flux, count or key is."""
    if pa.types.is_floating(column.type):
        return np.asarray(column.cast(pa.float64()).fill_null(-np.inf).to_numpy())
    if pa.types.is_integer(column.type):
        return np.asarray(column.fill_null(np.iinfo(np.int64).min).to_numpy())
    return np.array(column.fill_null("\0NULL").to_pylist(), dtype=str)


def _digits(column: pa.ChunkedArray, single_digits: float) -> float:
    """The relative difference that counts as none: 0 in exact columns."""
    if column.type == pa.float32():
        return single_digits
    return DOUBLE_DIGITS if column.type == pa.float64() else 0.0


@dataclass(frozen=True)
class _Allowance:
    """The difference that counts as none: in parts of the value, and at any rate. Nothing in exact columns."""

    relative: float
    absolute: float


def _cancelled(values: np.ndarray, digits: float) -> float:
    """What may be left of values that cancel."""
    finite = values[np.isfinite(values)] if digits == DOUBLE_DIGITS else np.empty(0)
    return CANCELLED_DIGITS * float(np.abs(finite).max(initial=0.0))


def _ordered(columns: list[np.ndarray]) -> list[np.ndarray]:
    order = np.lexsort(columns[::-1])
    return [column[order] for column in columns]


def _same(one: np.ndarray, other: np.ndarray, allowance: _Allowance) -> np.ndarray:
    same: np.ndarray = one == other
    if allowance.relative > 0:
        with np.errstate(invalid="ignore"):
            relative = allowance.relative * np.maximum(np.abs(one), np.abs(other))
            same |= np.abs(one - other) <= np.maximum(relative, allowance.absolute)
        # NULL is the same as NULL alone.
        same &= np.isinf(one) == np.isinf(other)
        same |= np.isnan(one) & np.isnan(other)
    return same


def _pair_off(ours: list[np.ndarray], theirs: list[np.ndarray], allowances: list[_Allowance]) -> int:
    """How many rows have no partner on the other side."""
    count = len(ours[0])
    if count > MOST_PAIRED_BY_HAND:
        return count
    free = np.ones(count, bool)
    for at in range(count):
        partners = free.copy()
        for a, b, allowance in zip(ours, theirs, allowances, strict=True):
            partners &= _same(np.full(count, a[at]), b, allowance)
        found = np.flatnonzero(partners)
        if len(found):
            free[found[0]] = False
    return int(free.sum())
