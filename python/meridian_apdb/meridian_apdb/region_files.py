"""Reads region files: the rows of a table in a directory of Arrow files, one for each chunk of the sky.

``meridian alerts regions`` writes them, and no server is needed to read them. They are mapped into memory, so that reading a region costs
little more than its rows::

    from meridian_apdb import circle
    from meridian_apdb.region_files import RegionFiles

    files = RegionFiles("positions-dr1")
    objects = files.read(circle(150.1, 2.2, 0.15), columns=["diaObjectId", "ra", "dec"], padding=52 / 3600)

``docs/region-files.md`` of Meridian describes the format. It takes numpy and pyarrow.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from . import sky

FORMAT = "meridian-region-files"
VERSION = 1
OPEN_FILES = 64
"""Files that are kept open, of those that were read last."""

BLOCK = 1 << 20
BOUNDS = ("ra_min", "dec_min", "ra_max", "dec_max")


class RegionFilesError(RuntimeError):
    """Region files cannot be read: they are not there, cut off, damaged, or of another version."""


class RegionFiles:
    """A directory of region files.

    Parameters
    ----------
    directory
        What ``meridian alerts regions`` has made.
    verify
        Whether the checksum of each file is compared when it is first read, for which all of it is read. Sizes, and the checksum of the
        directory, are always compared.

    An instance is for one thread; others may have their own.
    """

    def __init__(self, directory: str | os.PathLike[str], *, verify: bool = False) -> None:
        self.directory = Path(directory)
        self.index = _read_index(self.directory)
        self._verifies = verify
        self._verified: set[str] = set()
        chunks = self.index["chunks"]
        self._chunk_bounds = [np.array([chunk["bounds"][name] for chunk in chunks], dtype=float) for name in BOUNDS]
        self._sub_chunks = self._read_directory()
        self._open: OrderedDict[int, pa.ipc.RecordBatchFileReader] = OrderedDict()
        self.schema: pa.Schema = self._reader(0).schema
        """The columns of the files."""
        if self.schema.names != [column["name"] for column in self.index["columns"]]:
            raise RegionFilesError(f"{self.directory} is damaged: the files have other columns than the index")

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return int(self.index["rows"])

    def read(self, region: str, *, columns: Sequence[str] | None = None, padding: float = 0.0) -> pa.Table:
        """The rows of a region, which `circle`, `box` or `polygon` gives, in the order of the files.

        Of all columns, or of some in the order in which they are named (names have no case). `padding`: rows at most so many degrees from
        the region as well.
        """
        if not 0.0 <= padding <= 180.0:
            raise ValueError(f"a padding of {padding} degrees makes no sense: give 0 to 180")
        chosen = self._columns(columns)
        place = [self.schema.get_field_index(self.index[name]) for name in ("ra", "dec")]
        wanted = sky.parse(region)
        batches = list(self._candidates(wanted.envelope(padding)))
        schema = pa.schema([self.schema.field(column) for column in chosen])
        if not batches:
            return schema.empty_table()
        ra, dec = (np.concatenate([_doubles(batch.column(column)) for batch in batches]) for column in place)
        found = wanted.contains(sky.wrapped(ra), dec, padding)
        rows = pa.Table.from_batches([batch.select(chosen) for batch in batches], schema)
        return rows.filter(pa.array(found)).combine_chunks()

    def verify(self) -> None:
        """Compares the checksums of all files."""
        self._compare("directory.arrow", self.index["directory"])
        for chunk in self.index["chunks"]:
            self._compare(_name_of(chunk), chunk)

    def _columns(self, names: Sequence[str] | None) -> list[int]:
        known = self.schema.names
        if names is None:
            return list(range(len(known)))
        folded = [name.lower() for name in known]
        chosen = []
        for name in names:
            if name not in known and name.lower() not in folded:
                raise ValueError(f"the region files have no column {name}; they have {', '.join(known)}")
            column = known.index(name) if name in known else folded.index(name.lower())
            if column in chosen:
                raise ValueError(f"the column {name} is asked for twice")
            chosen.append(column)
        return chosen

    def _candidates(self, envelope: sky.Envelope) -> Iterator[pa.RecordBatch]:
        """The rows of the sub-chunks that may have rows of a region."""
        sub_chunks = self._sub_chunks
        for number in np.flatnonzero(envelope.may_intersect(*self._chunk_bounds)):
            chunk = self.index["chunks"][number]
            own = slice(chunk["first_sub_chunk"], chunk["first_sub_chunk"] + chunk["sub_chunks"])
            near = np.flatnonzero(envelope.may_intersect(*(sub_chunks[name][own] for name in BOUNDS)))
            if len(near) == 0:
                continue
            first = sub_chunks["first_row"][own][near]
            end = first + sub_chunks["rows"][own][near]
            # Sub-chunks that follow each other are read together.
            is_new = np.concatenate([[True], first[1:] != end[:-1]])
            starts, ends = first[is_new], end[np.concatenate([is_new[1:], [True]])]
            yield from self._rows(int(number), zip(starts.tolist(), ends.tolist(), strict=True))

    def _rows(self, number: int, ranges: Iterator[tuple[int, int]]) -> Iterator[pa.RecordBatch]:
        chunk, reader = self.index["chunks"][number], self._reader(number)
        per_batch = self.index["rows_per_batch"]
        batch_number, batch = -1, None
        for start, end in ranges:
            while start < end:
                if start // per_batch != batch_number:
                    batch_number = start // per_batch
                    batch = self._batch(reader, batch_number, chunk)
                first = batch_number * per_batch
                until = min(end, first + per_batch)
                assert batch is not None
                yield batch.slice(start - first, until - start)
                start = until

    def _batch(self, reader: pa.ipc.RecordBatchFileReader, number: int, chunk: dict[str, Any]) -> pa.RecordBatch:
        per_batch = self.index["rows_per_batch"]
        try:
            batch = reader.get_batch(number)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._damaged(_name_of(chunk), str(error)) from error
        wanted = min(per_batch, chunk["rows"] - number * per_batch)
        if batch.num_rows != wanted:
            raise self._damaged(_name_of(chunk), f"its record batch {number} has {batch.num_rows} rows instead of {wanted}")
        return batch

    def _reader(self, number: int) -> pa.ipc.RecordBatchFileReader:
        """The file of a chunk."""
        known = self._open.get(number)
        if known is not None:
            self._open.move_to_end(number)
            return known
        chunk = self.index["chunks"][number]
        reader = self._arrow_file(_name_of(chunk), chunk)
        if reader.num_record_batches != -(-chunk["rows"] // self.index["rows_per_batch"]):
            raise self._damaged(_name_of(chunk), "it has another number of record batches than rows need")
        self._open[number] = reader
        if len(self._open) > OPEN_FILES:
            self._open.popitem(last=False)
        return reader

    def _arrow_file(self, name: str, entry: dict[str, Any]) -> pa.ipc.RecordBatchFileReader:
        path = self.directory / name
        if self._verifies and name not in self._verified:
            self._compare(name, entry)
            self._verified.add(name)
        self._compare_size(path, entry)
        try:
            return pa.ipc.open_file(pa.memory_map(str(path)))
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(name, str(error)) from error

    def _read_directory(self) -> dict[str, NDArray[Any]]:
        """The columns of the directory of sub-chunks."""
        entry = self.index["directory"]
        # All of it is read anyway.
        self._compare("directory.arrow", entry)
        self._verified.add("directory.arrow")
        reader = self._arrow_file("directory.arrow", entry)
        try:
            table = reader.read_all()
            columns = {name: table[name].to_numpy() for name in ("chunk", "first_row", "rows", *BOUNDS)}
        except (pa.ArrowException, KeyError) as error:
            raise self._damaged("directory.arrow", str(error)) from error
        counts = np.array([chunk["sub_chunks"] for chunk in self.index["chunks"]])
        numbers = np.array([chunk["chunk"] for chunk in self.index["chunks"]])
        if not np.array_equal(np.repeat(numbers, counts), columns["chunk"]):
            raise self._damaged("directory.arrow", "it does not fit to the index")
        # The rows of the sub-chunks of a chunk are all of its rows, in order.
        rows, ends = columns["rows"], np.cumsum(columns["rows"])
        before = np.repeat(np.cumsum([0] + [chunk["rows"] for chunk in self.index["chunks"]])[:-1], counts)
        if not (np.all(rows > 0) and np.array_equal(ends - rows - before, columns["first_row"]) and ends[-1] == self.rows):
            raise self._damaged("directory.arrow", "it does not fit to the index")
        return columns

    def _compare(self, name: str, entry: dict[str, Any]) -> None:
        path = self.directory / name
        self._compare_size(path, entry)
        found = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                found.update(block)
        if found.hexdigest() != entry["sha256"]:
            raise self._damaged(name, "its checksum is not that of the index")

    def _compare_size(self, path: Path, entry: dict[str, Any]) -> None:
        try:
            found = path.stat().st_size
        except OSError as error:
            raise RegionFilesError(f"cannot read {path}: {error.strerror}") from error
        if found != entry["bytes"]:
            raise RegionFilesError(
                f"{path} has {found} bytes where the index says {entry['bytes']}: the file is cut off or was replaced, copy it anew"
            )

    def _damaged(self, name: str, reason: str) -> RegionFilesError:
        return RegionFilesError(f"{self.directory / name} is damaged: {reason}; copy it anew")


def _name_of(chunk: dict[str, Any]) -> str:
    return f"chunks/chunk_{chunk['chunk']}.arrow"


def _doubles(column: pa.Array) -> sky.Degrees:
    """The values of a column, NaN where there is none."""
    values: sky.Degrees = column.to_numpy(zero_copy_only=False)
    return values


def _read_index(directory: Path) -> dict[str, Any]:
    path = directory / "index.json"
    try:
        index = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise RegionFilesError(f"{directory}: there are no region files: it has no index.json") from None
    except OSError as error:
        raise RegionFilesError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise RegionFilesError(f"{path}: this is no index of region files: {error}") from error
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise RegionFilesError(f"{path}: this is no index of region files")
    if index.get("version") != VERSION:
        raise RegionFilesError(
            f"{path}: region files of version {index.get('version')} need another version of the reader, which knows {VERSION}"
        )
    if not _fits(index):
        raise RegionFilesError(f"{path} is damaged: its numbers do not fit together; copy it anew")
    return index


def _fits(index: dict[str, Any]) -> bool:
    """Whether the numbers of an index fit together."""
    try:
        sub_chunks, last = 0, -1
        for chunk in index["chunks"]:
            if chunk["chunk"] <= last or chunk["first_sub_chunk"] != sub_chunks or any(name not in chunk["bounds"] for name in BOUNDS):
                return False
            last, sub_chunks = chunk["chunk"], sub_chunks + chunk["sub_chunks"]
        rows = sum(chunk["rows"] for chunk in index["chunks"])
        names = [column["name"] for column in index["columns"]]
        of_position = index["ra"] in names and index["dec"] in names
        numbers = (rows, sub_chunks) == (index["rows"], index["directory"]["sub_chunks"])
        return bool(of_position and numbers and index["rows_per_batch"] > 0 and rows > 0)
    except (KeyError, TypeError):
        return False
