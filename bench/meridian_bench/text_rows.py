"""Parquet files as text rows, block by block: what databases that cannot read Parquet are loaded from."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from .catalogue import TableFiles
from .chunker import chunk_ids

BLOCK_ROWS = 100_000


def sorted_rows(file: str, table: TableFiles, stripes: int | None) -> pa.Table:
    """The rows of one file by key (and time), objects with their chunk number as the last column."""
    rows = pq.read_table(file)
    if table.name == "Object":
        if stripes:
            ids = chunk_ids(rows.column(table.ra).to_numpy(), rows.column(table.dec).to_numpy(), stripes)
            rows = rows.append_column("chunkId", pa.array(ids))
    return rows.take(pc.sort_indices(rows, [(column, "ascending") for column in table.order]))


def csv_schema(table: TableFiles, stripes: int | None) -> pa.Schema:
    """The columns that the rows have."""
    schema = pq.read_schema(table.files[0])
    return schema.append(pa.field("chunkId", pa.int32())) if stripes and table.name == "Object" else schema


def csv_blocks(table: TableFiles, stripes: int | None) -> Iterator[bytes]:
    """All rows as CSV without a header, NULL as an empty field."""
    options = pyarrow.csv.WriteOptions(include_header=False)
    for file in table.files:
        rows = sorted_rows(file, table, stripes)
        for block in rows.to_batches(max_chunksize=BLOCK_ROWS):
            sink = pa.BufferOutputStream()
            pyarrow.csv.write_csv(block, sink, options)
            yield sink.getvalue().to_pybytes()
