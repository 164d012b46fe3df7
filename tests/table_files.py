"""Writes tables as the files that `meridian load` reads: CSV, MySQL text dumps, Parquet, and their schemas as JSON."""

from __future__ import annotations

import csv
import datetime
import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from synthetic import TableData

DUMP_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\0": "\\0", "\r": "\\r"}


def texts_of(column: pa.ChunkedArray) -> list[str | None]:
    """The values of a column in decimal text that reads back to the same values."""
    if pa.types.is_float32(column.type):
        return [None if value is None else str(np.float32(value)) for value in column.to_pylist()]
    if pa.types.is_timestamp(column.type):
        return [None if value is None else timestamp_text(value) for value in column.to_pylist()]
    return [None if value is None else str(value) for value in column.to_pylist()]


def timestamp_text(value: datetime.datetime) -> str:
    """A time as MySQL prints it."""
    return value.strftime("%Y-%m-%d %H:%M:%S.%f" if value.microsecond else "%Y-%m-%d %H:%M:%S")


def write_schema(path: Path, table: TableData, **options: str | None) -> Path:
    """Writes the JSON for `--schema`; `options` are its keys beside `columns`."""
    columns = [{"name": name, "type": declared} for name, declared in table.types.items()]
    path.write_text(json.dumps({"columns": columns, **options}, indent=1))
    return path


def write_csv(path: Path, table: TableData, header: bool = True) -> Path:
    """Writes comma-separated text: texts quoted (an inner quote doubled), NULL as \\N without quotes."""
    columns = [texts_of(table.rows[name]) for name in table.types]
    quoted = [pa.types.is_string(table.rows.schema.field(name).type) for name in table.types]
    with open(path, "w", encoding="utf-8", newline="") as file:
        if header:
            csv.writer(file, lineterminator="\n").writerow(table.types)
        for row in zip(*columns):
            file.write(",".join(csv_field(value, text) for value, text in zip(row, quoted)) + "\n")
    return path


def csv_field(value: str | None, quoted: bool) -> str:
    """One field of a CSV line."""
    if value is None:
        return "\\N"
    return '"' + value.replace('"', '""') + '"' if quoted else value


def write_dump(path: Path, table: TableData) -> Path:
    """Writes what MySQL's SELECT INTO OUTFILE would, compressed if the path ends in .gz."""
    columns = [texts_of(table.rows[name]) for name in table.types]
    lines = ("\t".join(dump_field(value) for value in row) + "\n" for row in zip(*columns))
    content = "".join(lines).encode("utf-8")
    path.write_bytes(gzip.compress(content, 1) if path.suffix == ".gz" else content)
    return path


def dump_field(value: str | None) -> str:
    """One field of a dump, escaped."""
    if value is None:
        return "\\N"
    for plain, escaped in DUMP_ESCAPES.items():
        if plain in value:
            value = value.replace(plain, escaped)
    return value


def write_parquet(path: Path, table: TableData, row_group_rows: int = 20_000) -> Path:
    """Writes Parquet."""
    pq.write_table(table.rows, path, compression="zstd", row_group_size=row_group_rows)
    return path


def write_arrow(path: Path, table: TableData, batch_rows: int = 20_000) -> Path:
    """Writes Arrow IPC: a file, or a stream where the name ends with an s."""
    kind = pa.ipc.new_stream if path.suffix.endswith("s") else pa.ipc.new_file
    with kind(path, table.rows.schema) as writer:
        writer.write_table(table.rows, max_chunksize=batch_rows)
    return path
