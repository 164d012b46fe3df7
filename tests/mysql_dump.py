"""Reads the text files that MySQL's SELECT INTO OUTFILE writes, independently of Meridian's reader.

Fields are separated by one byte and not quoted; a backslash takes the next byte as it is, but for `\\N` alone (NULL) and
the letters that stand for control characters. So a field may hold the delimiter, a newline, or any other byte.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

ESCAPES = {b"0": b"\0", b"b": b"\b", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"Z": b"\x1a"}


@dataclass(frozen=True)
class Column:
    """A column as a tables.json declares it."""

    name: str
    type: str

    @property
    def base(self) -> str:
        """The type's word: `bigint` of `bigint(20) NOT NULL`."""
        return self.type.split("(")[0].split()[0].lower()


@dataclass(frozen=True)
class DumpTable:
    """A table of a tables.json: where its rows are and what they hold."""

    name: str
    path: Path
    columns: list[Column]
    delimiter: bytes


def tables_of(directory: Path) -> dict[str, DumpTable]:
    """The tables that `directory`/tables.json names."""
    described = json.loads((directory / "tables.json").read_text())
    delimiter = described["delimiter"].encode()
    tables = {}
    for table in described["tables"]:
        columns = [Column(column["name"], column["type"]) for column in table["columns"]]
        tables[table["name"]] = DumpTable(table["name"], directory / table["file"], columns, delimiter)
    return tables


def unescaped(field: bytes) -> bytes | None:
    """A field's value; None for NULL."""
    if field == b"\\N":
        return None
    if b"\\" not in field:
        return field
    value = bytearray()
    position = 0
    while position < len(field):
        byte = field[position : position + 1]
        if byte == b"\\" and position + 1 < len(field):
            position += 1
            byte = field[position : position + 1]
            byte = ESCAPES.get(byte, byte)
        value += byte
        position += 1
    return bytes(value)


def rows_of(content: bytes, delimiter: bytes) -> Iterator[list[bytes | None]]:
    """The rows of a dump, each a list of its fields' bytes."""
    fields: list[bytes | None] = []
    start = position = 0
    separators = (delimiter[0], ord("\n"))
    while position < len(content):
        byte = content[position]
        if byte == ord("\\"):
            position += 2
            continue
        if byte in separators:
            fields.append(unescaped(content[start:position]))
            start = position + 1
            if byte == ord("\n"):
                yield fields
                fields = []
        position += 1
    if start < len(content):
        fields.append(unescaped(content[start:]))
        yield fields


def typed(column: Column, values: list[bytes | None]) -> pa.Array:
    """The values of a column as Meridian's rules say they are: NaN is NULL, FLOAT has 32 bits."""
    if column.base in ("tinyint", "smallint", "mediumint", "int", "integer", "bigint", "bit"):
        return pa.array([None if value is None else int(value) for value in values], pa.int64())
    if column.base in ("float", "double", "real"):
        floats = np.array([np.nan if value is None else float(value) for value in values], dtype=np.float64)
        if column.base == "float":
            floats = floats.astype(np.float32).astype(np.float64)
        return pa.array(floats, from_pandas=True)
    if column.base in ("blob", "binary", "varbinary", "longblob", "mediumblob", "tinyblob"):
        return pa.array(values, pa.binary())
    texts = [None if value is None else value.decode("utf-8", "replace") for value in values]
    return pa.array(texts, pa.string())


def read_dump(table: DumpTable) -> pa.Table:
    """All rows of a dump, with FLOAT values widened to double as Meridian computes with them."""
    content = gzip.decompress(table.path.read_bytes())
    rows = list(rows_of(content, table.delimiter))
    for number, row in enumerate(rows, 1):
        if len(row) != len(table.columns):
            raise ValueError(f"{table.path}: row {number} has {len(row)} fields, not {len(table.columns)}")
    arrays = [typed(column, [row[at] for row in rows]) for at, column in enumerate(table.columns)]
    return pa.table(arrays, names=[column.name for column in table.columns])
