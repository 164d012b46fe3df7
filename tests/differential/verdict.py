"""Says whether an answer is right: what of it is determined, and which rejections are documented."""

from __future__ import annotations

import decimal
import os
import re
from collections import Counter
from dataclasses import dataclass, replace

from comparison import Row, Tolerance, difference, normalised_rows, unmatched
from differential.engines import LOST, MEMORY, Rejection, Rows
from differential.operators import is_exact
from differential.tap import AFTER_ROWS
from differential.tree import Column, Item, Query, Select, SortKey, first_select, kinds_of, outermost, with_outermost

# Sums and means of doubles; separations of near pairs, which the haversine formula has from differences of large numbers.
ROUNDING = Tolerance(relative=1e-7, absolute=1e-9)

# The documented limits: the number of the error, what its sentence says, and where it is documented. TAP tells the same sentence with a status for
# the number, or in a document of status 200, if it was found after the first rows (docs/tap.md).
ALLOWED = [
    (1690, r"beyond the range of BIGINT", "docs/sql.md: an integer beyond 64 bits is an error; which rows are computed is not fixed"),
    (1105, r"declination .* is outside of -90 to 90", "docs/sql.md: regions are of declinations that there are"),
    (1105, r"smaller declination .* exchange the two", "docs/sql.md: a box is from south to north"),
    (1105, r"radius .* is outside", "docs/sql.md: regions are of radii that there are"),
    (1690, r"in a query of a view, or of a table whose rows", "docs/users.md: what is wrong with a value is not told of tables whose rows are not all released"),
    (1105, r"in a query of a view, or of a table whose rows", "docs/users.md: what is wrong with a value is not told of tables whose rows are not all released"),
    (1582, r"the radius is a number of arcseconds from 0 to 648000", "docs/crossmatch.md: radii of crossmatches"),
]

# HTTP's status of a mistake, and of what has another one.
MISTAKE = 400
STATUSES = {1041: 503}

# Where the server was given little memory.
TOO_LITTLE = (1041, r"\(--memory\)", "docs/queries.md: what cannot spill needs memory")


@dataclass(frozen=True)
class Failure:
    """A wrong answer, an error that should not be, a connection that broke: which of them, and what was seen."""

    category: str
    story: str


def allowed(rejection: Rejection) -> str | None:
    """Why an error may be, if it may."""
    for number, pattern, reason in [*ALLOWED, *([TOO_LITTLE] if os.environ.get(MEMORY) else [])]:
        if rejection.number in (number, STATUSES.get(number, MISTAKE), AFTER_ROWS) and re.search(pattern, rejection.sentence):
            return reason
    return None


def of_rejection(rejection: Rejection) -> Failure:
    """An error as a failure; errors that differ in names, numbers and places alone are of one category."""
    what = re.sub(r"'[^']*'|\"[^\"]*\"|\b\w*\d[\w.]*|\(line [\s\S]*", "#", rejection.sentence)[:90]
    word = "broken" if rejection.number == LOST else f"error {rejection.number}"
    return Failure(f"{word}: {what}", str(rejection))


def comparable(rows: Rows, kinds: list[str], exact: list[bool]) -> list[Row]:
    """Rows as they are compared: a BIT is a number, and a double that both compute alike the text of its bits."""

    def plain(value: object, kind: str, same_bits: bool) -> object:
        if isinstance(value, (bytes, bytearray)) and kind in ("bool", "int"):
            return int.from_bytes(value, "big")
        if kind == "real" and same_bits and isinstance(value, (int, float, decimal.Decimal)):
            return repr(float(value) + 0.0)
        return value

    return normalised_rows([tuple(map(plain, row, kinds, exact)) if len(row) == len(kinds) else row for row in rows])


def exact_columns(query: Query) -> list[bool]:
    """Which columns of an answer are compared to the last bit."""
    found: list[bool] = []
    for item in first_select(query).items:
        found += [is_exact(item.expr)] if isinstance(item, Item) else [True] * len(item.kinds)
    return found


def sort_columns(order: tuple[SortKey, ...], select: Select) -> list[int]:
    """Which columns of the answer are sorted by."""
    found = []
    for key in order:
        for at, item in enumerate(select.items):
            if isinstance(item, Item) and (key.expr == item.expr or (isinstance(key.expr, Column) and key.expr.alias is None and key.expr.name == item.name)):
                found.append(at)
                break
    return found


def whole(query: Query) -> tuple[Query, slice]:
    """The statement without its LIMIT, and which of its rows the LIMIT takes."""
    top = outermost(query)
    if top.limit is None:
        return query, slice(None)
    offset = top.offset if isinstance(top, Select) else None
    first = int(offset.value or 0) if offset is not None else 0
    rest = replace(top, limit=None, offset=None) if isinstance(top, Select) else replace(top, limit=None)
    return with_outermost(query, rest), slice(first, first + int(top.limit.value or 0))


def compare(query: Query, ours: Rows, everything: Rows, taken: slice) -> Failure | None:
    """Compares an answer with all rows that there would be without its LIMIT, in their order."""
    kinds, exact = kinds_of(query), exact_columns(query)
    got, all_rows = comparable(ours, kinds, exact), comparable(everything, kinds, exact)
    expected = all_rows[taken]
    if taken == slice(None):
        if Counter(got) != Counter(expected) and (found := difference(got, expected, ROUNDING)):
            return Failure("wrong", found)
    else:
        if len(got) != len(expected):
            return Failure("wrong", f"Meridian gave {len(got)} rows within the LIMIT, the oracle {len(expected)}.")
        surplus, _ = unmatched(got, all_rows, ROUNDING)
        if surplus:
            return Failure("wrong", f"Without the LIMIT the oracle has no such row: {surplus[0]}")
    columns = sort_columns(outermost(query).order, first_select(query))
    keys = [[tuple(row[at] for at in columns) for row in rows] for rows in (got, expected)]
    if columns and keys[0] != keys[1] and (found := difference(*keys, ROUNDING, ordered=True)):
        return Failure("wrong", f"By the columns of ORDER BY: {found}")
    return None
