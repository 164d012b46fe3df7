"""Answers of MySQL's protocol, as Python's drivers give them, as Arrow tables."""

from __future__ import annotations

import pyarrow as pa

from .base import Fetched

# Column types of the protocol.
ARROW_TYPES = {1: pa.int8(), 2: pa.int16(), 3: pa.int32(), 4: pa.float32(), 5: pa.float64(), 8: pa.int64()}


def as_arrow(answer: Fetched) -> pa.Table:
    """The answer, each column in the type that the protocol announced."""
    rows, description = answer.rows, answer.description
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(description)
    arrays = [
        pa.array(list(values), ARROW_TYPES.get(column[1])) for values, column in zip(columns, description, strict=True)
    ]
    return pa.Table.from_arrays(arrays, names=[column[0] for column in description])
