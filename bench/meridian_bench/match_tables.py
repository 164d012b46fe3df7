"""Optical and Infrared, the two catalogues of the crossmatch: some objects of the catalogue, and half of these seen again.

Optical has the positions of the first objects of the files, Infrared every second of them a little off, in another
order and under keys of its own. The same catalogue and number of rows give the same files.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .catalogue import Catalogue, TableFiles, open_tables

SEED = 20_070
# Scatter of a position in each direction: nearly all of the second positions lie within an arcsecond of the first.
SCATTER_ARCSECONDS = 0.3
# Nothing lies so near to right ascension 0 that a match could reach over it: to peers that join on cells of right
# ascension a match there would be two places.
SEAM_DEGREES = 10.0 / 3600.0
ROWS_IN_FILE = 500_000


def prepare(directory: Path, catalogue: Catalogue, rows: int) -> Catalogue:
    """The catalogue with Optical and Infrared, which are made unless `directory` has them from an earlier run."""
    wanted = f"{rows} rows of {catalogue.directory}, {catalogue.made_by}, seed {SEED}"
    note = directory / "made_of.txt"
    if not note.is_file() or note.read_text() != wanted:
        shutil.rmtree(directory, ignore_errors=True)
        ra, dec = first_positions(catalogue.tables["Object"], rows)
        write(directory / "Optical", "opticalId", np.arange(len(ra), dtype=np.int64), ra, dec)
        write(directory / "Infrared", "infraredId", *seen_again(ra, dec))
        note.write_text(wanted)
    tables = catalogue.tables | open_tables(directory, ("Optical", "Infrared"))
    return Catalogue(catalogue.directory, tables, f"{catalogue.made_by}, {rows} rows to match")


def first_positions(table: TableFiles, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Right ascensions and declinations of the first objects, in degrees, none at the seam."""
    parts: list[np.ndarray] = []
    count = 0
    for file in table.files:
        if count >= rows:
            break
        read = pq.read_table(file, columns=[table.ra, table.dec])
        positions = np.array([read.column(name).to_numpy() for name in (table.ra, table.dec)])
        width = SEAM_DEGREES / np.cos(np.radians(np.minimum(np.abs(positions[1]), 89.0)))
        parts.append(positions[:, (positions[0] > width) & (positions[0] < 360.0 - width)])
        count += parts[-1].shape[1]
    ra, dec = np.concatenate(parts, axis=1)[:, :rows]
    return ra, dec


def seen_again(ra: np.ndarray, dec: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys and positions of every second row, scattered, in an order of their own."""
    rng = np.random.default_rng(SEED)
    order = rng.permutation(np.arange(0, len(ra), 2))
    east, north = rng.normal(0.0, SCATTER_ARCSECONDS / 3600.0, (2, len(order)))
    ra, dec = ra[order] + east / np.cos(np.radians(dec[order])), dec[order] + north
    return np.arange(len(order), dtype=np.int64), ra, dec


def write(directory: Path, key: str, keys: np.ndarray, ra: np.ndarray, dec: np.ndarray) -> None:
    """Parquet files of a key and positions in degrees."""
    directory.mkdir(parents=True)
    table = pa.table({key: keys, "ra": ra, "decl": dec})
    for number, start in enumerate(range(0, len(keys), ROWS_IN_FILE)):
        pq.write_table(table.slice(start, ROWS_IN_FILE), directory / f"part_{number:03}.parquet")
