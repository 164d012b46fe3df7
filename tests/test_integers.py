"""Integers never wrap: what the program computes is what Python computes, or an error that says so, in both dialects."""

from __future__ import annotations

import itertools
import operator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from complaints import assert_rejected
from meridian_cli import Meridian

LEAST, GREATEST = -(2**63), 2**63 - 1
OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
TYPES = {"small": pa.int16(), "whole": pa.int32(), "count": pa.uint32(), "large": pa.int64()}
DIALECTS = ["mysql", "adql"]


def edges(kind: pa.DataType) -> list[int]:
    """The ends of a type's range, and what lies about zero."""
    limits = np.iinfo(kind.to_pandas_dtype())
    some = [int(limits.min), int(limits.min) + 1, -3, -1, 0, 1, 3, int(limits.max) - 1, int(limits.max)]
    return [min(max(value, int(limits.min)), int(limits.max)) for value in some]


# All pairs of edges, by the places of both in their lists.
PLACES = list(itertools.product(range(9), repeat=2))
LEFT = {name: [edges(kind)[left] for left, _ in PLACES] for name, kind in TYPES.items()}
RIGHT = {name: [edges(kind)[right] for _, right in PLACES] for name, kind in TYPES.items()}


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Columns of every width, twice."""
    directory = tmp_path_factory.mktemp("integers")
    columns = {"id": pa.array(range(len(PLACES)), pa.int32())}
    for name, kind in TYPES.items():
        columns[f"left_{name}"] = pa.array(LEFT[name], kind)
        columns[f"right_{name}"] = pa.array(RIGHT[name], kind)
    pq.write_table(pa.table(columns), directory / "Edge.parquet")
    meridian.load(directory / "data", "whole", "Edge", directory / "Edge.parquet", kind="replicated")
    return directory / "data"


def asked(meridian: Meridian, data: Path, dialect: str, query: str) -> list[int]:
    """The only column of an answer, line by line."""
    outcome = meridian.must("sql", "--data", data, "--db", "whole", "--dialect", dialect, "--format", "csv", query)
    return [int(line) for line in outcome.text.splitlines()[1:]]


def rejected(meridian: Meridian, data: Path, dialect: str, query: str) -> None:
    """Checks that the answer is that the result is too large."""
    outcome = meridian.run("sql", "--data", data, "--db", "whole", "--dialect", dialect, query)
    assert_rejected(outcome, "beyond the range of BIGINT")


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("left", TYPES)
@pytest.mark.parametrize("right", TYPES)
def test_operators(meridian: Meridian, data: Path, left: str, right: str, dialect: str) -> None:
    for sign, compute in OPERATORS.items():
        results = [compute(a, b) for a, b in zip(LEFT[left], RIGHT[right], strict=True)]
        fits = [LEAST <= result <= GREATEST for result in results]
        rows = ", ".join(str(row) for row, fit in enumerate(fits) if fit)
        query = f"SELECT left_{left} {sign} right_{right} AS n FROM Edge WHERE id"
        found = asked(meridian, data, dialect, f"{query} IN ({rows}) ORDER BY id")
        assert found == [result for result, fit in zip(results, fits, strict=True) if fit], query
        beyond = [row for row, fit in enumerate(fits) if not fit]
        for row in beyond[:1] + beyond[-1:]:
            rejected(meridian, data, dialect, f"{query} = {row}")


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", TYPES)
def test_signs(meridian: Meridian, data: Path, name: str, dialect: str) -> None:
    query = f"SELECT -left_{name} AS n FROM Edge"
    fits = [value > LEAST for value in LEFT[name]]
    found = asked(meridian, data, dialect, f"{query} WHERE left_{name} > {LEAST} ORDER BY id")
    assert found == [-value for value, fit in zip(LEFT[name], fits, strict=True) if fit]
    if not all(fits):
        rejected(meridian, data, dialect, query)


@pytest.mark.parametrize("name", TYPES)
def test_sums(meridian: Meridian, data: Path, name: str) -> None:
    positive = [value for value in LEFT[name] if value > 0]
    for what, total in [
        (f"SUM(left_{name})", sum(LEFT[name])),
        (f"SUM(left_{name} + 0)", sum(LEFT[name])),
        (f"SUM(DISTINCT left_{name})", sum(set(LEFT[name]))),
        (f"SUM(CASE WHEN left_{name} > 0 THEN left_{name} ELSE 0 END)", sum(positive)),
    ]:
        query = f"SELECT {what} AS n FROM Edge"
        # MySQL's sum is a decimal.
        assert asked(meridian, data, "mysql", query) == [total], query
        if LEAST <= total <= GREATEST:
            assert asked(meridian, data, "adql", query) == [total], query
        else:
            rejected(meridian, data, "adql", query)


def test_sums_of_groups_and_windows(meridian: Meridian, data: Path) -> None:
    rows = range(len(PLACES))
    groups = [sum(LEFT["whole"][row] for row in rows if row % 7 == group) for group in range(7)]
    found = asked(meridian, data, "adql", "SELECT SUM(left_whole) AS n FROM Edge GROUP BY MOD(id, 7) ORDER BY MOD(id, 7)")
    assert found == groups
    rejected(meridian, data, "adql", "SELECT MOD(id, 7), SUM(left_large) AS n FROM Edge WHERE left_large > 0 GROUP BY MOD(id, 7)")
    window = "OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)"
    pairs = [sum(LEFT["whole"][max(row - 1, 0) : row + 1]) for row in rows]
    assert asked(meridian, data, "adql", f"SELECT SUM(left_whole) {window} AS n FROM Edge ORDER BY id") == pairs
    rejected(meridian, data, "adql", f"SELECT SUM(left_large) {window} AS n FROM Edge")
